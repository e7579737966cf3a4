"""The demo runs a real loop: without the check runner it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.ralph import SOURCE

RUNS = """        runs, interruptions, failures = 1, 0, 0
        finding = self._run_once(inspection, watch, folder, runs)
"""
BELIEVES = """        runs, interruptions, failures = 1, 0, 0
        return Finding(self.name, passed=True, command=self._spec.command)
"""


def demo(source: Path, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, "-m", "ralphproof", "demo", *flags], cwd=folder, env=environ, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_the_demo_refuses_a_lie_and_ends_on_passing_checks(tmp_path: Path) -> None:
    shown = demo(SOURCE, tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("COMPLETED, verified by its checks: 3 iterations")
    assert shown.stderr.count("failed with exit code 1") == 2
    assert "its claim is refused" in shown.stderr
    assert "python3 test_calc.py passed (exit code 0)" in shown.stderr


def test_the_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    demo(SOURCE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_is_kept_says_where(tmp_path: Path) -> None:
    shown = demo(SOURCE, tmp_path, "--keep")
    (kept,) = tmp_path.iterdir()
    assert str(kept / "project") in shown.stderr
    assert (kept / "project" / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"


def test_without_the_check_runner_the_demo_fails(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    runner = source / "ralphproof" / "checks" / "command.py"
    text = runner.read_text()
    assert RUNS in text
    runner.write_text(text.replace(RUNS, BELIEVES))
    folder = tmp_path / "empty"
    folder.mkdir()
    shown = demo(source, folder)
    assert shown.returncode == 3
    assert "the demo failed: the false claim was not refused" in shown.stderr
    assert "internal error" not in shown.stderr
