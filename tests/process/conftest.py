from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests import what they share by its full name

from tests.process.harness_process import Harness
from tests.process.workbench import Workbench, until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(tmp_path)
    yield bench
    for keeper in bench.keepers:
        keeper.close()
    complaints = tmp_path / "keeper.err"
    assert not complaints.exists() or complaints.read_text() == ""


@pytest.fixture
def start_harness(bench: Workbench) -> Iterator[Any]:
    """Starts harnesses that are gone with their keepers when the test is over."""
    harnesses: list[Harness] = []

    def start(script: str, **more: Any) -> Harness:
        harnesses.append(Harness(bench, script, **more))
        return harnesses[-1]

    yield start
    for harness in harnesses:
        harness.kill()
        harness.stdout.close()
        until(harness.keeper_is_gone, 15)
