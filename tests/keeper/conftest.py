from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests import what they share by its full name

from tests.keeper.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for keeper in desk.keepers:
        keeper.close()
    complaints = tmp_path / "keeper.err"
    assert not complaints.exists() or complaints.read_text() == ""
