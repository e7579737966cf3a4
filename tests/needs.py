"""What a test needs of the machine. On a developer's machine its lack skips the test; in CI it fails it."""

from __future__ import annotations

import os

import pytest


def require(condition: bool, reason: str) -> None:
    """Go on only if `condition` holds."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"CI must provide what this test needs: {reason}")
    pytest.skip(reason)
