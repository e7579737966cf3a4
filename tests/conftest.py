"""Figures that a test has to show are printed at the end, whichever worker measured them; long names are cut."""

from __future__ import annotations

import signal
from typing import Any

import pytest

# Whoever imports them first, their failures tell why.
pytest.register_assert_rewrite("tests.misbehaviour.invariants", "tests.misbehaviour.crashing")

SAID, COUNTED = "said", "crash points"
NAMED = 100  # characters of a text that names a test
HEARD: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGQUIT: signal.SIG_DFL,
}  # fmt: skip


def pytest_configure() -> None:
    """Signals are heard as in a terminal, also by whoever we start: nohup, and `&` in a script, have them ignored."""
    for number, usual in HEARD.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """A text of megabytes names no test: every worker would tell it with every report. Its beginning and size do."""
    if not isinstance(val, str | bytes) or len(val) <= NAMED:
        return None
    start = val[:NAMED] if isinstance(val, str) else val[:NAMED].decode("ascii", "backslashreplace")
    return f"{start}…{len(val)}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make thorough` reads the files alone that say the word: whoever has the mark must say it."""
    marked = {item.path for item in items if item.get_closest_marker("thorough")}
    if silent := sorted(str(path) for path in marked if b"thorough" not in path.read_bytes()):
        raise pytest.UsageError(f"`make thorough` would not find the tests of {', '.join(silent)}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [item for report in terminalreporter.stats.get("passed", []) for item in report.user_properties]
    if points := [count for name, count in told if name == COUNTED]:
        for name, line in told:
            if name == SAID:
                terminalreporter.write_line(line)
        terminalreporter.write_line(f"crash points walked in all: {sum(points)}")
