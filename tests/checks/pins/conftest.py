"""A project whose checks are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.pins.project import Pinned


@pytest.fixture
def pinned(tmp_path: Path) -> Pinned:
    return Pinned(tmp_path)
