from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests import what they share by its full name

from tests.process.desk import Desk, until
from tests.process.victim import Harness


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for keeper in desk.keepers:
        keeper.close()
    complaints = tmp_path / "keeper.err"
    assert not complaints.exists() or complaints.read_text() == ""


@pytest.fixture
def started(desk: Desk) -> Iterator[Any]:
    """Starts harnesses that are gone with their keepers when the test is over."""
    harnesses: list[Harness] = []

    def start(script: str, **more: Any) -> Harness:
        harnesses.append(Harness(desk, script, **more))
        return harnesses[-1]

    yield start
    for harness in harnesses:
        harness.kill()
        harness.stdout.close()
        until(harness.keeper_is_gone, 15)
