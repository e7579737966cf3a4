"""The program on a temporary project without a sandbox; tests of sandboxes name one."""

from __future__ import annotations

import pytest

from tests.ralph import Ralph
from tests.ralph import ralph as ralph


@pytest.fixture(autouse=True)
def without_sandbox(request: pytest.FixtureRequest) -> None:
    if "ralph" in request.fixturenames:
        ralph: Ralph = request.getfixturevalue("ralph")
        ralph.env["RALPH__SANDBOX__BACKEND"] = "null"
