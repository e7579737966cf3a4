"""A project with its own settings and state for each test."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and settings of this test alone."""
    monkeypatch.setenv("RALPH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RALPH_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("RALPH__LIMITS__PAUSEMILLISECONDS", "0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root
