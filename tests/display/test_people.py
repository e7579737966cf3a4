"""What people see while a run goes."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator
from io import StringIO
from typing import TextIO

import pytest

from ralphproof import record as told
from ralphproof.agent import Turn
from ralphproof.check import Finding
from ralphproof.display import people, words
from ralphproof.display.people import People, Style
from ralphproof.event import Said
from ralphproof.sandbox import Exit
from ralphproof.workspace import Committed


def test_a_commit_that_takes_its_time_is_seen_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "SLOW_S", 0.0)
    out = StringIO()
    shown = People(out, Style(live=True))
    shown.saw(told.ScmBegan(1))
    shown.tick()
    assert "the work is being committed, 0.0 s" in out.getvalue()


def test_the_answer_to_the_question_for_a_message_is_not_streamed_and_what_follows_is() -> None:
    out = StringIO()
    shown = People(out, Style())
    shown.saw(told.ScmBegan(1))
    shown.heard(Said("Fix it"))
    shown.saw(told.ScmEnded(1, Committed("c" * 40), None, "Fix it"))
    shown.heard(Said("working\n"))
    assert out.getvalue() == "  scm: kept in commit cccccccccccc: Fix it\nworking\n"


@pytest.mark.parametrize(
    ("committed", "line"),
    [
        (Committed(), "nothing to commit"),
        (Committed("0123456789abcdef"), "kept in commit 0123456789ab: Fix it"),
        (Committed(error="git commit: no"), "git commit: no"),
        (Committed("0123456789abcdef", "git push: no"), "kept in commit 0123456789ab: Fix it; git push: no"),
        (Committed(left=("a",)), "nothing to commit; left out, because it was not the run's alone: a"),
        (Committed(done=("commit", "push")), "commit, push done"),
        (Committed(None, "hg push: no", (), ("commit",)), "commit done; hg push: no"),
    ],
)
def test_what_came_of_keeping_work_is_one_line(committed: Committed, line: str) -> None:
    assert words.kept(committed, "Fix it\n\nBecause.") == line


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal of 20 columns, and what it was told."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with open(theirs, "w", encoding="utf-8") as out:
        yield out, lambda: os.read(ours, 65536).decode()
    os.close(ours)


def test_the_live_line_never_wraps(terminal: tuple[TextIO, Callable[[], str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "SLOW_S", 0.0)
    out, told_terminal = terminal
    shown = People(out, Style(live=True))
    shown.saw(told.CheckBegan(1, 1, "set -e\nmake a very long command line"))
    shown.tick()
    assert told_terminal() == "\r\x1b[K  guardrail set -e…"


def test_the_live_line_tells_how_long_it_takes_and_how_long_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    out = StringIO()
    shown = People(out, Style(live=True, stream=False))
    shown.saw(told.TurnBegan(1, 1, "", ()))
    now[0] += 65
    shown.tick()
    shown.heard(Said("x"))
    now[0] += 5
    shown.tick()
    first, second = out.getvalue().split("\r\x1b[K")[1:]
    assert first == "  the agent works, 1 m 05 s …"
    assert second == "  the agent works, 1 m 10 s, silent for 5.0 s …"


def test_every_line_is_one_line() -> None:
    out = StringIO()
    shown = People(out, Style())
    shown.saw(told.CheckEnded(1, 1, Finding("c", False, "set -e\nfalse", 1)))
    shown.saw(told.Noticed(1, 1, "a\nb"))
    assert len(out.getvalue().splitlines()) == 2
    assert "guardrail set -e false failed" in out.getvalue()


def test_what_the_agent_says_in_pieces_is_shown_whole_and_clean() -> None:
    out = StringIO()
    shown = People(out, Style(colour=True))
    for piece in ("a\x1b", "[31", "mred\x1b[0m", "\x1b]0;ti", "tle\x07b\x1b[2", "J\n"):
        shown.heard(Said(piece))
    assert out.getvalue() == "a\x1b[31mred\x1b[0mb\n"


def test_a_sequence_that_the_agent_left_open_does_not_spoil_what_follows() -> None:
    out = StringIO()
    shown = People(out, Style())
    shown.saw(told.TurnBegan(1, 1, "", ()))
    shown.heard(Said("text\x1b]0;"))
    shown.saw(told.TurnEnded(1, 1, Turn(Exit(0))))
    shown.heard(Said("next\n"))
    assert out.getvalue().splitlines()[1:] == ["text", "  the agent ended after 0.0 s", "next"]
