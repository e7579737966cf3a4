"""Figures that a test has to show are printed at the end, whichever worker measured them; long names are cut."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
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
    gc.disable()  # until all is collected: twenty thousand tests are no garbage, and to look for it takes seconds


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """A text of megabytes names no test: every worker would tell it with every report. Its beginning and size do."""
    if not isinstance(val, str | bytes) or len(val) <= NAMED:
        return None
    start = val[:NAMED] if isinstance(val, str) else val[:NAMED].decode("ascii", "backslashreplace")
    return f"{start}…{len(val)}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """`make thorough` reads the files alone that say the word: whoever has the mark must say it."""
    marked = {item.path for item in items if _long(item)}
    if silent := sorted(str(path) for path in marked if b"thorough" not in path.read_bytes()):
        raise pytest.UsageError(f"`make thorough` would not find the tests of {', '.join(silent)}")
    yield
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    long, short = [item for item in items if _long(item)], [item for item in items if not _long(item)]
    items[:] = [item for part in range(workers) for half in (long, short) for item in dealt(half, part, workers)]


def dealt(items: list[pytest.Item], part: int, parts: int) -> list[pytest.Item]:
    """A part of them, in one piece.

    Each worker is dealt a piece of the whole list; who has done its own takes from the end of another's. Long tests
    begin each piece, so those that are done last, while the other workers have nothing left to take, are short.
    """
    return items[part * len(items) // parts : (part + 1) * len(items) // parts]


def _long(item: pytest.Item) -> bool:
    return item.get_closest_marker("thorough") is not None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [item for report in terminalreporter.stats.get("passed", []) for item in report.user_properties]
    if points := [count for name, count in told if name == COUNTED]:
        for name, line in told:
            if name == SAID:
                terminalreporter.write_line(line)
        terminalreporter.write_line(f"crash points walked in all: {sum(points)}")
