from __future__ import annotations

from pathlib import Path

import pytest

from tests.hooks.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)
