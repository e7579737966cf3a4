"""Waiting for something that another process does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
ROOT = str(Path(__file__).resolve().parents[2])


def until(met: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as something is so; fail when it never becomes so."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1", **more}


def python(program: str, *args: str, **more: str) -> subprocess.Popen[str]:
    """A Python program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        env=environment(**more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
