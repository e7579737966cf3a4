"""Figures that a test has to show are printed at the end, whichever worker measured them."""

from __future__ import annotations

from typing import Any

import pytest

# Whoever imports them first, their failures tell why.
pytest.register_assert_rewrite("tests.misbehaviour.invariants", "tests.misbehaviour.crashing")

SAID, COUNTED = "said", "crash points"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [item for report in terminalreporter.stats.get("passed", []) for item in report.user_properties]
    if points := [count for name, count in told if name == COUNTED]:
        for name, line in told:
            if name == SAID:
                terminalreporter.write_line(line)
        terminalreporter.write_line(f"crash points walked in all: {sum(points)}")
