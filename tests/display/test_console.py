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

from ralphproof.display import console, phrases
from ralphproof.display.console import ConsoleObserver
from ralphproof.display.terminal import Style
from ralphproof.engine import records as told
from ralphproof.engine.agent import Said, Spent, Todo, TodosChanged, ToolEnded, ToolStarted, Turn, Usage
from ralphproof.engine.check import Finding, SuiteResult
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.outcome import Failed, Metrics, StoryReview
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, CommitResult, Snapshot, TouchedPath, TripwireReport
from tests.display.watched_console import WIPE, WatchedConsole, zone

# What a whole turn looks like: as emoji, and as plain text.
TURN = """\
Iteration 1 of 10
⏺ Read(/path/to/file.go)
✅ Result ← Read (45 lines, 1234 chars)
  ⎿  package main

📋 Todo List
  ✅ Read the file
  🔄 Edit the code ← ACTIVE
  ⏸️ Run tests
  📊 Progress: 1/3 (33%)

✅ Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"""
PLAIN_TURN = """\
Iteration 1 of 10
> Read(/path/to/file.go)
[OK] Result <- Read (45 lines, 1234 chars)
  |  package main

Todo List
  [x] Read the file
  [>] Edit the code <- ACTIVE
  [ ] Run tests
  Progress: 1/3 (33%)

[OK] Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"""
TODOS = TodosChanged((Todo("Read the file", "done"), Todo("Edit the code", "active"), Todo("Run tests", "pending")))
USAGE = Usage(350_000, 45_000, 850_000)
REPLY = Turn(Exit(0, seconds=367.0), usage=USAGE, micro_usd=5_760_000, tools=58, errors=4)


def watched(style: Style) -> str:
    console = WatchedConsole(style)
    console.saw(told.TurnBegan(1, 1, ""))
    console.heard(ToolStarted("t1", "Read", "/path/to/file.go"))
    console.heard(ToolEnded("t1", True, "package main\n\nimport fmt", 45, 1234), TODOS, TODOS, Spent(5_760_000, USAGE))
    return console.saw(told.TurnEnded(1, 1, REPLY))


@pytest.mark.parametrize(("emoji", "shown"), [(True, TURN), (False, PLAIN_TURN)], ids=["emoji", "plain"])
def test_a_turn_reads_as_one_piece(emoji: bool, shown: str) -> None:
    assert watched(Style(emoji=emoji, maximum=10, output_lines=1)) == shown


TREE = Snapshot("c", "t")
STEERED = [
    (told.Resumed(3, 0.0, 185.0), "Taken up again, for the 2nd time; 3 m 05 s old\n"),
    (
        told.Resumed(2, 0.0, 5.0, {"name": "landlock", "strength": "partial", "weak": ["x"]}),
        "Taken up again, for the 1st time; 5.0 s old, sandbox landlock (partial)\n",
    ),
    (told.UserChangesSaved(2, 0, TREE, ("mine",)), ""),
    (told.Paused(2, 0), "  rests, as it was asked to; ralph resume goes on\n"),
    (told.UserMessageAdded(2, 7, "leave it\nalone"), ""),
    (told.ClaimFound(2, 1), "A file claims that the work is done; no agent is asked\n"),
    (told.ChildRunsAwaited(2, 1, ("a",), 1.0), "  waits for a run of its own: a\n"),
    (told.ChildRunsAwaited(2, 1, ("a", "b"), 1.0), "  waits for runs of its own: a, b\n"),
    (told.ChildWorkJoined(2, 1, TREE, Change(("x", "y"))), "  they are over; with their work: 2 files changed\n"),
]


@pytest.mark.parametrize(("record", "line"), STEERED, ids=lambda item: type(item).__name__)
def test_what_is_steered_from_elsewhere_is_one_calm_line(record: told.Record, line: str) -> None:
    assert WatchedConsole(Style(maximum=10)).saw(record) == line


def test_a_rest_has_an_end_and_shows_that_the_run_lives() -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(told.Paused(2, 0))
    console.after(12)
    assert console.live == "  rests, 12 s …"
    console.saw(told.UserChangesSaved(2, 0, TREE))
    assert console.shown.endswith(f"{WIPE}  goes on\n")
    assert console.saw(told.UserChangesSaved(2, 1, TREE)).endswith("  goes on\n")
    assert console.shown.count("goes on\n") == 2


def test_the_users_words_are_told_with_the_turn_that_reads_them() -> None:
    console = WatchedConsole(Style(maximum=10), mask=lambda text: text.replace("secret", "***"))
    console.saw(told.UserMessageAdded(2, 7, "leave it\nalone"), told.UserMessageAdded(2, 8, "the secret"))
    console.saw(told.TurnBegan(2, 1, ""))
    assert (
        console.shown == "Iteration 2 of 10\n  you say to the agent: leave it alone\n  you say to the agent: the ***\n"
    )
    before = console.shown
    assert console.saw(told.TurnBegan(3, 1, "")).removeprefix(before) == "Iteration 3 of 10\n"


def test_whoever_comes_late_knows_what_was_before_and_is_not_shown_it() -> None:
    console = WatchedConsole(Style(live=True))
    before = (told.TurnBegan(1, 1, ""), told.TurnEnded(1, 1, REPLY), told.CheckBegan(1, 1, "make test"))
    console.people.catch_up(before, at=940.0)
    assert console.shown == ""
    console.after(3)
    assert console.live == "  guardrail make test, 1 m 03 s …"
    console.saw(told.CheckEnded(1, 1, Finding("make test", True, code=0)))
    assert console.shown.endswith("guardrail make test passed (exit code 0) after 0.0 s\n")
    assert "Iteration 1" not in console.shown


def test_with_timestamps_every_line_begins_with_the_time() -> None:
    with zone("UTC0"):
        shown = watched(Style(emoji=True, maximum=10, output_lines=1, timestamps=True))
    assert shown == "".join(f"[00:16:40] {line}\n" if line else "\n" for line in TURN.splitlines())


def test_colours_are_ours_and_end_with_each_line() -> None:
    for line in watched(Style(emoji=True, colour=True)).splitlines():
        assert line.count("\x1b") in (0, 2), repr(line)
        assert "\x1b" not in line or line.endswith("\x1b[0m")


@pytest.mark.parametrize(
    ("style", "shown"),
    [
        (Style(stream=False), "Iteration 1\n" + PLAIN_TURN.splitlines()[-1] + "\n"),
        (Style(quiet=True), ""),
        (Style(quiet=True, stream=False), ""),
    ],
)
def test_less_is_shown_if_so_wished(style: Style, shown: str) -> None:
    assert watched(style) == shown


def test_what_was_denied_and_asked_is_told_at_the_end_of_a_turn() -> None:
    reply = Turn(Exit(0), denied=("Bash: rm\nx", "Bash: y"), asked="Which\x1b[2J one?")
    denied = "[!] 2 tool calls were denied (Bash: rm x; Bash: y): --sandbox lets it do anything inside one"
    asked = "  the agent asked, and nobody is there to answer: Which one?"
    streamed = WatchedConsole().saw(told.TurnEnded(1, 1, reply)).splitlines()
    unstreamed = WatchedConsole(Style(stream=False)).saw(told.TurnEnded(1, 1, reply)).splitlines()
    assert len(streamed) == 2, "it was told as it happened"
    assert streamed[1].startswith(denied)
    assert unstreamed[1:] == [asked, streamed[1]]


def test_a_secret_in_an_error_is_masked_and_an_endless_error_is_cut() -> None:
    console = WatchedConsole(mask=lambda text: text.replace("hunter2", "***"))
    (line,) = console.saw(told.TurnEnded(1, 1, Turn(Exit(1), error="hunter2\n" + "x" * 10_000_000))).splitlines()
    assert line.startswith("[ERR] Failed (cost: unknown, time: 0.0s): *** xxx")
    assert len(line) == 1000


def test_a_commit_that_takes_its_time_is_seen_to_live() -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(told.ScmBegan(1))
    console.after(2)
    assert console.live == "  the work is being committed, 2.0 s …"


def test_the_answer_to_the_question_for_a_message_is_not_streamed_and_what_follows_is() -> None:
    out = StringIO()
    shown = ConsoleObserver(out, Style())
    shown.on_record(told.ScmBegan(1))
    shown.on_events([Said("Fix it")])
    shown.on_record(told.ScmEnded(1, CommitResult("c" * 40), None, "Fix it"))
    shown.on_events([Said("working\n")])
    shown.flush()
    assert out.getvalue() == "  scm: kept in commit cccccccccccc: Fix it\nworking\n"


@pytest.mark.parametrize(
    ("committed", "line"),
    [
        (CommitResult(), "nothing to commit"),
        (CommitResult("0123456789abcdef"), "kept in commit 0123456789ab: Fix it"),
        (CommitResult(error="git commit: no"), "git commit: no"),
        (CommitResult("0123456789abcdef", "git push: no"), "kept in commit 0123456789ab: Fix it; git push: no"),
        (CommitResult(left=("a",)), "nothing to commit; left out, because it was not the run's alone: a"),
        (CommitResult(done=("commit", "push")), "commit, push done"),
        (CommitResult(None, "hg push: no", (), ("commit",)), "commit done; hg push: no"),
    ],
)
def test_what_came_of_keeping_work_is_one_line(committed: CommitResult, line: str) -> None:
    assert phrases.describe_commit(committed, "Fix it\n\nBecause.") == line


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal of 20 columns, and what it was told."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with open(theirs, "w", encoding="utf-8") as out:
        yield out, lambda: os.read(ours, 65536).decode()
    os.close(ours)


def test_the_live_line_never_wraps(terminal: tuple[TextIO, Callable[[], str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LIVE_LINE_AFTER_S", 0.0)
    out, told_terminal = terminal
    shown = ConsoleObserver(out, Style(live=True))
    shown.on_record(told.CheckBegan(1, 1, "set -e\nmake a very long command line"))
    shown.tick()
    assert told_terminal() == "\r\x1b[K  guardrail set -e…"


BEGAN = told.TurnBegan(1, 1, "", ())


def test_the_live_line_tells_how_long_it_takes_and_how_long_it_is_silent() -> None:
    console = WatchedConsole(Style(live=True, stream=False))
    console.saw(BEGAN)
    console.after(65)
    assert console.live == "  the agent works, 1 m 05 s …"
    console.heard(Said("x"))
    console.after(5)
    assert console.live == "  the agent works, 1 m 10 s, silent for 5.0 s …"


@pytest.mark.parametrize("stream", [True, False])
def test_the_live_line_tells_what_the_agent_is_at(stream: bool) -> None:
    console = WatchedConsole(Style(live=True, stream=stream))
    console.saw(BEGAN)
    console.now_s += 60
    console.heard(ToolStarted("1", "Bash", "npm test"))
    console.after(125)
    assert console.live == "  the agent works, 3 m 05 s, for 2 m 05 s at Bash(npm test) …"
    console.heard(ToolStarted("2", "Read", "/a"), ToolStarted("3", "Read", "/b"))
    console.after(5)
    assert console.live == "  the agent works, 3 m 10 s, for 2 m 10 s at Bash(npm test) and 2 more …"
    console.heard(*(ToolEnded(id, True) for id in "123"))
    console.after(5)
    assert console.live == "  the agent works, 3 m 15 s, silent for 5.0 s …"


def test_what_a_turn_left_running_is_not_told_of_the_next() -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(BEGAN)
    console.heard(ToolStarted("1", "Bash", "npm test"))
    console.saw(told.TurnEnded(1, 1, Turn(Exit(0))), told.CheckBegan(1, 1, "make"))
    console.after(5)
    assert console.live == "  guardrail make, 5.0 s …"


def test_a_line_that_is_not_ended_is_broken_only_after_a_long_silence() -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(BEGAN)
    console.heard(Said("thinking"))
    assert console.after(9).endswith("\nthinking")
    assert console.after(1).endswith(f"\nthinking\n{WIPE}  the agent works, 10 s …")
    console.heard(Said(" more\n"))
    assert console.shown.endswith(f"…{WIPE} more\n")


def test_no_line_is_rewritten_where_there_is_no_terminal() -> None:
    console = WatchedConsole()
    console.saw(BEGAN)
    assert console.after(100) == "Iteration 1\n"


@pytest.mark.parametrize("record", [told.CheckBegan(1, 1, "make"), told.Noticed(1, 1, "x")])
def test_the_live_line_is_gone_before_anybody_else_writes(record: told.Record) -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(BEGAN)
    console.after(5)
    assert console.saw(record).rpartition("…")[2].startswith(WIPE)


def test_what_shows_nothing_leaves_the_live_line_alone() -> None:
    console = WatchedConsole(Style(live=True))
    console.saw(BEGAN)
    before = console.after(5)
    console.heard(Spent(5))
    assert console.after(1) == before


@pytest.mark.parametrize(
    ("finding", "how"),
    [
        (Finding("c", True, "make test", 0), "make test passes"),
        (Finding("c", False, "make test", 2), "make test fails with exit code 2"),
        (Finding("mine", False, why="a timeout after 1 s"), "mine fails with a timeout after 1 s"),
        (Finding("mine", False, why="stopped"), "mine was stopped"),
        (
            Finding("c", False, "make test", 1, tests=SuiteResult("pytest", ("a", "b"), 2, 7)),
            "make test fails with exit code 1, 2 tests failing",
        ),
        (Finding("c", False, "make test", 1, tests=SuiteResult("pytest", (), 0)), "make test fails with exit code 1"),
    ],
)
def test_what_a_check_says_before_the_first_iteration_is_no_news_to_be_glad_or_sorry_about(
    finding: Finding, how: str
) -> None:
    console = WatchedConsole(Style(colour=True, emoji=True, live=True))
    console.saw(told.CheckBegan(0, 1, "c"))
    console.after(3)
    assert console.live == "  guardrail c, 3.0 s …"
    assert console.saw(told.CheckEnded(0, 1, finding)).endswith(f"{WIPE}  before the first iteration guardrail {how}\n")
    before = console.shown
    assert console.saw(told.BaselineSaved(Snapshot("c1", "t1"))) == before


NEAR = told.Warned(1, "cost", "[Ralph] Cost at 80% of limit: $0.80 / $1")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_limit_that_comes_near_is_told_even_where_all_else_is_quiet(quiet: bool) -> None:
    assert WatchedConsole(Style(quiet=quiet)).saw(NEAR) == f"{NEAR.message}\n"


@pytest.mark.parametrize(
    ("deep", "how"), [(False, "on with model 2 of the ladder"), (True, "the next prompt tells how to debug")]
)
def test_how_a_run_goes_on_that_would_have_ended_is_one_line(deep: bool, how: str) -> None:
    assert WatchedConsole().saw(told.Escalated(3, 1, deep, "nothing moved")) == f"  nothing moved: {how}\n"


def test_what_an_agent_may_not_change_is_told_with_what_became_of_it() -> None:
    touched = (
        TouchedPath("a", "src/auth/", stops=True, held_by="2 commits"), TouchedPath("b", "settings", trouble="no room"),
        *(TouchedPath(f"c{number}", "settings") for number in range(phrases.MAX_PATHS)),
    )  # fmt: skip
    saved = told.Saved(
        1, 1, Snapshot("c1", "t1"), Change(("x",)), ParsedClaim(), TripwireReport(touched, "attempt.patch")
    )
    lines = WatchedConsole().saw(saved).splitlines()
    assert lines[1:4] == [
        "  protected: a (src/auth/), in 2 commits; put back",
        "  not the agent's to change: b (settings); could not be put back: no room",
        "  not the agent's to change: c0 (settings); put back",
    ]
    assert lines[phrases.MAX_PATHS + 1 :] == ["  and 2 more", "  the attempt is kept in attempt.patch"]


def test_every_line_is_one_line() -> None:
    out = StringIO()
    shown = ConsoleObserver(out, Style())
    shown.on_record(told.CheckEnded(1, 1, Finding("c", False, "set -e\nfalse", 1)))
    shown.on_record(told.Noticed(1, 1, "a\nb"))
    assert len(out.getvalue().splitlines()) == 2
    assert "guardrail set -e false failed" in out.getvalue()


def test_what_the_agent_says_in_pieces_is_shown_whole_and_clean() -> None:
    for seconds in (0.0, 1.0):
        console = WatchedConsole(Style(colour=True))
        for piece in ("a\x1b", "[31", "mred\x1b[0m", "\x1b]0;ti", "tle\x07b\x1b[2", "J\n"):
            console.heard(Said(piece))
            console.now_s += seconds
        assert console.after(0) == "a\x1b[31mred\x1b[0mb\n"


def test_a_sequence_that_the_agent_left_open_does_not_spoil_what_follows() -> None:
    console = WatchedConsole()
    console.saw(BEGAN)
    console.heard(Said("text\x1b]0;"))
    console.saw(told.TurnEnded(1, 1, Turn(Exit(0))))
    console.heard(Said("next\n"))
    assert console.after(0).splitlines()[1:] == ["text", "[OK] Complete (cost: unknown, time: 0.0s)", "next"]


def test_a_check_that_somebody_ended_has_not_failed() -> None:
    found = Finding("c", False, "make test", why="stopped", seconds=0.4, log="c.log")
    assert phrases.describe_finding(found) == "guardrail make test was stopped after 0.4 s; log: c.log"


@pytest.mark.parametrize("quiet", [False, True])
def test_the_stories_of_a_run_are_its_last_lines(quiet: bool) -> None:
    one = StoryReview("A", "Say hunter2\x1b[2J hello", "approved", 5, True)
    end = told.RunEnded(Failed("no", 1, 3), Metrics("r", 0.0, 1.0, "ERROR", reviewed=(one,)))
    console = WatchedConsole(Style(colour=True, quiet=quiet), lambda text: text.replace("hunter2", "***"))
    shown = console.saw(end)
    assert ("APPROVED AT THE CAP  5 reviews  Say *** hello" in shown) is not quiet
    assert "\x1b[33mStories: 1 of 1 done; 1 approved at the review cap" in shown or quiet
    assert "\x1b[2J" not in shown


def test_a_run_without_stories_ends_without_a_line_about_them() -> None:
    for metrics in (None, Metrics("r", 0.0, 1.0, "ERROR")):
        assert WatchedConsole().saw(told.RunEnded(Failed("no", 1, 3), metrics)) == ""
