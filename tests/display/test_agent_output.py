"""Events that come fast: shown together, in order, none lost, and in bounded memory."""

from __future__ import annotations

from io import StringIO

import pytest

from ralphproof.display.agent_output import BATCH_S, MAX_BATCH
from ralphproof.display.console import ConsoleObserver
from ralphproof.display.terminal import Style
from ralphproof.engine import records as told
from ralphproof.engine.agent import (
    Asked,
    Denied,
    Event,
    Limited,
    Progress,
    Said,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Turn,
)
from ralphproof.engine.outcome import Failed
from ralphproof.engine.sandbox import Exit
from tests.display.watched_console import WatchedConsole


def test_the_first_event_is_shown_at_once_and_what_follows_fast_together() -> None:
    console = WatchedConsole()
    assert console.heard(Said("a")) == "a"
    assert console.heard(Said("b"), ToolStarted("1", "Read"), Said("c")) == "a"
    console.now_s += 2 * BATCH_S
    assert console.heard(Said("d")) == "ab\n> Read\ncd"
    assert console.out.writes == 2


@pytest.mark.parametrize("how", ["a tick", "a record", "the end of a turn", "the end of a run", "the program's end"])
def test_nothing_is_lost(how: str) -> None:
    console = WatchedConsole()
    console.heard(Said("a"), Said("b"), ToolStarted("1", "Read"))
    assert console.shown == "a"
    match how:
        case "a tick":
            console.people.tick()
        case "a record":
            console.people.on_record(told.Noticed(1, 1, "look"))
        case "the end of a turn":
            console.people.on_record(told.TurnEnded(1, 1, Turn(Exit(0))))
        case "the end of a run":
            console.people.on_record(told.RunEnded(Failed("no", 1, 3)))
        case _:
            console.people.flush()
    assert console.shown.startswith("ab\n> Read\n")


def test_a_flood_in_one_instant_is_written_in_few_pieces_and_little_is_held() -> None:
    console = WatchedConsole()
    for number in range(10 * MAX_BATCH):
        console.people.on_events([Said(f"{number}\n")])
    assert 10 <= console.out.writes <= 12
    console.people.tick()
    assert console.shown.split() == [str(number) for number in range(10 * MAX_BATCH)]


FLOOD: list[tuple[str, list[Event]]] = [
    ("text", [Said("the quick brown fox jumps over the lazy dog\n")]),
    ("tools", [ToolStarted("1", "Read", "/path/to/file.go"), ToolEnded("1", True, "package main", 45, 1234)]),
    ("calls without end", [ToolStarted("1", "Read", "/path/to/file.go")]),
    ("progress", [Progress("retry"), Spent(5)]),
]


@pytest.mark.parametrize(("kind", "events"), FLOOD, ids=lambda item: item if isinstance(item, str) else "")
@pytest.mark.parametrize(
    "style", [Style(), Style(stream=False), Style(quiet=True)], ids=["shown", "not shown", "quiet"]
)
def test_neither_a_mask_nor_a_write_is_made_for_every_event(kind: str, events: list[Event], style: Style) -> None:
    calls: list[str] = []

    class Counting(StringIO):
        def write(self, text: str) -> int:
            calls.append("write")
            return len(text)

    def mask(text: str) -> str:
        calls.append("mask")
        return text

    people = ConsoleObserver(Counting(), style, mask, monotonic=lambda: 0.0)
    for _ in range(10 * MAX_BATCH // len(events)):
        for event in events:
            people.on_events([event])
    people.flush()
    assert len(calls) <= 60


def test_masks_are_looked_for_in_many_events_at_once() -> None:
    masked: list[str] = []

    def mask(text: str) -> str:
        masked.append(text)
        return text

    console = WatchedConsole(mask=mask)
    for number in range(MAX_BATCH):
        console.heard(ToolStarted(f"{number}", "Read", "/a"), Spent(1), ToolEnded(f"{number}", True, "x\ny"))
    console.people.tick()
    assert len(masked) <= 4


SECRET = "hunter2hunter2"
LEAKS: list[Event] = [
    Said(f"it is {SECRET}.\n"),
    ToolStarted("1", "Bash", f"echo {SECRET}"),
    ToolStarted("1", SECRET, ""),
    ToolEnded("1", True, f"x\n{SECRET}\n"),
    ToolEnded("1", True, "x" * 995 + SECRET),
    ToolEnded("1", True, "x" * 1_000_000 + SECRET),
    Denied(SECRET, SECRET),
    Asked(SECRET),
    Progress(SECRET),
    Limited(SECRET),
    Started(SECRET, SECRET, SECRET),
    TodosChanged((Todo(SECRET, "done"),)),
]


@pytest.mark.parametrize("leak", LEAKS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("after", [[], [Spent(1), Said("fine\n"), ToolStarted("2", "Read", "/a")]])
def test_a_secret_that_only_unfolding_a_line_showed_is_masked(leak: Event, after: list[Event]) -> None:
    console = WatchedConsole(mask=lambda text: text.replace(SECRET, "***"))
    console.heard(Said("\n"), leak, *after)
    console.people.tick()
    shown = console.shown
    assert "hunter2" not in shown
    assert "***" in shown or "…" in shown or "..." in shown


def test_a_secret_that_comes_in_two_pieces_is_masked() -> None:
    console = WatchedConsole(mask=lambda text: text.replace(SECRET, "***"))
    console.heard(Said("\n"), Said("it is " + SECRET[:5]), Said(SECRET[5:] + " now\n"))
    console.people.tick()
    assert console.shown == "\nit is *** now\n"


def test_messages_are_on_lines_of_their_own_and_the_text_of_a_plain_command_is_not_broken() -> None:
    plain, structured = WatchedConsole(), WatchedConsole()
    plain.heard(Said("one "), Said("two"))
    plain.people.tick()
    assert plain.shown == "one two"
    structured.heard(Started(model="m"), Said("one"), Said("two\n"), ToolStarted("1", "Read"), Said("three"))
    structured.people.tick()
    assert structured.shown == "- model m\none\ntwo\n> Read\nthree\n"


def test_a_message_that_leaves_a_sequence_open_hides_nothing_of_the_next() -> None:
    console = WatchedConsole()
    console.heard(Started(model="m"), Said("one\x1b]0;"), Said(""), Said("two\x07"), Said("three\x1b["))
    console.people.tick()
    assert console.shown == "- model m\none\ntwo\nthree\n"


def test_a_result_that_follows_words_says_again_what_it_is_the_result_of() -> None:
    console = WatchedConsole()
    console.heard(Said("\n"), ToolStarted("1", "Read", "/a"), Said("meanwhile"), ToolEnded("1", True))
    console.people.tick()
    assert console.shown.splitlines()[-1] == "[OK] Result <- Read(/a) (no output)"


def test_the_next_turn_may_be_a_plain_commands() -> None:
    console = WatchedConsole()
    console.heard(Started(model="m"), Said("one"))
    console.people.on_record(told.TurnEnded(1, 1, Turn(Exit(0))))
    console.people.on_record(told.TurnBegan(2, 1, ""))
    console.heard(Said("a"), Said("b"))
    console.people.tick()
    assert console.shown.endswith("Iteration 2\nab")


def test_an_agent_that_is_not_streamed_shows_nothing_but_what_it_is_at() -> None:
    console = WatchedConsole(Style(stream=False, live=True))
    console.people.on_record(told.TurnBegan(1, 1, ""))
    console.heard(Said("a"), ToolStarted("1", "Ba\x1b[2Jsh", "npm test\n"), Progress("x"))
    assert console.shown == "Iteration 1\n"
    console.after(65)
    assert console.live == "  the agent works, 1 m 05 s, for 1 m 05 s at Bash(npm test ) …"
