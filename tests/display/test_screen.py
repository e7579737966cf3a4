"""Lines, pieces of text and a line that is rewritten, all on one stream."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest

from ralphproof.display.terminal import Screen
from tests.display.watched_console import WIPE, zone

RED, PLAIN = "\x1b[31m", "\x1b[0m"


def written(
    *steps: str | tuple[str, str], colour: bool = False, clock: Callable[[], float] | None = None
) -> str:  # fmt: skip
    """A string is a piece of text, a pair is a line."""
    out = StringIO()
    screen = Screen(out, colour, clock)
    for step in steps:
        if isinstance(step, str):
            screen.text(step)
        else:
            screen.line(step)
    screen.flush()
    return out.getvalue()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([("a", ""), ("b", "")], "a\nb\n", id="lines"),
        pytest.param(["a", "b\n", "c"], "ab\nc", id="pieces"),
        pytest.param(["a", ("b", "")], "a\nb\n", id="a line ends a piece"),
        pytest.param(["a\n", ("b", "")], "a\nb\n", id="a piece that has ended"),
        pytest.param([("", ""), ("a", ""), ("", ""), ("", ""), ("b", "")], "a\n\nb\n", id="one empty line, none first"),
        pytest.param(["a", ("", ""), ("b", "")], "a\n\nb\n", id="an empty line after a piece"),
        pytest.param([("a", RED)], "a\n", id="no colours"),
        pytest.param(["", ("a", "")], "a\n", id="an empty piece"),
    ],
)
def test_each_line_is_on_its_own(steps: list[str | tuple[str, str]], expected: str) -> None:
    assert written(*steps) == expected


def test_colours_end_with_their_line_and_an_agents_own_never_reach_ours() -> None:
    assert written(("a", RED), ("b", ""), colour=True) == f"{RED}a{PLAIN}\nb\n"
    assert written(f"x{RED}y", ("b", ""), colour=True) == f"x{RED}y{PLAIN}\nb\n"


def test_every_line_carries_the_local_time_if_so_wished() -> None:
    now = iter([0.0, 59.9, 60.0, 86399.0, 86400.0, 86401.0])
    lines: list[str | tuple[str, str]] = [("a", ""), ("b", RED), "c\nd", "e\nf\n", ("", ""), ("g", "")]
    with zone("IST-5:30"):
        assert written(*lines, colour=True, clock=lambda: next(now)) == (
            f"[05:30:00] a\n{RED}[05:30:59] b{PLAIN}\n[05:31:00] c\n[05:31:00] de\n[05:29:59] f\n\n[05:30:00] g\n"
        )


def test_the_live_line_gives_way_to_what_comes() -> None:
    out = StringIO()
    screen = Screen(out, False, None)
    screen.live("works")
    screen.live("works on")
    screen.flush()
    assert out.getvalue() == f"{WIPE}works{WIPE}works on", "nothing has come"
    screen.line(("a", ""))
    screen.flush()
    screen.live("again")
    screen.settle()
    assert out.getvalue() == f"{WIPE}works{WIPE}works on{WIPE}a\n{WIPE}again{WIPE}"


def test_what_cannot_be_written_is_not_kept() -> None:
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "full")

    screen = Screen(Full(), False, None)
    for _ in range(3):
        screen.line(("a", ""))
        with pytest.raises(OSError, match="full"):
            screen.flush()
    screen.flush()
