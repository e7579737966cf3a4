"""What the settings and flags of a run make of what is shown."""

from __future__ import annotations

import re

import pytest

from tests.cli.terminal import Terminal
from tests.ralph import Ralph, done, say

TOOL = {"tool": {"name": "Bash", "summary": "make", "output": "one\ntwo\nthree\nfour"}}


def shown(ralph: Ralph, *flags: str, **display: object) -> list[str]:
    """Standard error of a run of one iteration."""
    ralph.settings(display=display)
    ended = ralph("run", "-p", "x", "--agent", ralph.script([say("I begin."), TOOL, done()]), "-m", "1", *flags)
    assert ended.code == 0, ended
    return ended.err.splitlines()


def test_a_run_shows_what_its_agent_does(ralph: Ralph) -> None:
    lines = shown(ralph)
    start = lines.index("I begin.")
    assert lines[start : start + 8] == [
        "I begin.",
        "> Bash(make)",
        "[OK] Result <- Bash (4 lines, 18 chars)",
        "  |  one",
        "     two",
        "     three",
        "     four",
        "<response>DONE</response>",
    ]
    assert re.fullmatch(r"\[OK\] Complete \(cost: unknown, tools: 1, errors: 0, time: \d\.\ds\)", lines[start + 8])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"maxOutputLines": 2}, ["  |  one", "     ... 2 more lines", "     four"]),
        ({"maxOutputLines": 1, "maxOutputChars": 2}, ["  |  on..."]),
    ],
)
def test_settings_say_how_much_of_a_tools_output_is_shown(
    ralph: Ralph, settings: dict[str, int], expected: list[str]
) -> None:
    lines = shown(ralph, **settings)
    start = lines.index("[OK] Result <- Bash (4 lines, 18 chars)") + 1
    assert lines[start : start + len(expected) + 1] == [*expected, "<response>DONE</response>"]


def test_every_line_that_people_read_of_a_run_carries_the_time(ralph: Ralph) -> None:
    *lines, last = shown(ralph, timestamps=True)
    assert last.startswith("run ")
    assert [line for line in lines if not re.match(r"\[\d\d:\d\d:\d\d\] ", line)] == []


def test_an_agent_that_is_not_streamed_is_told_of_in_one_line(ralph: Ralph) -> None:
    lines = shown(ralph, "--no-stream-agent-output")
    start = lines.index("Iteration 1 of 1")
    assert lines[start + 1].startswith("[OK] Complete (")
    assert shown(ralph, "--quiet") == []


@pytest.mark.parametrize(
    ("flags", "mark"), [((), "⏺ Bash(make)\n"), (("--no-emoji",), "> Bash(make)\n")], ids=["emoji", "no emoji"]
)
def test_a_terminal_gets_emoji_unless_they_are_not_wanted(ralph: Ralph, flags: tuple[str, ...], mark: str) -> None:
    ralph.settings()
    agent = ralph.script([TOOL, done()])
    terminal = Terminal(ralph, "run", "-p", "x", "--agent", agent, "-m", "1", "--no-color", *flags)
    terminal.expect(mark)
    assert terminal.end() == 0
