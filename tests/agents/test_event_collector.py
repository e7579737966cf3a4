"""Lines become events, events become a turn; lines that are not understood are kept as they came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ralphproof.agents.event_collector import MAX_LINE_BYTES, MAX_UNPARSED_CHARS, QUIET_TICKS, EventCollector
from ralphproof.engine.agent import Ended, Event, Said, Unparsed
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Exit
from tests.agents.replay import Looker


class Wants(Looker):
    """Wants something of the program."""

    wanted = CONTINUE

    def tick(self) -> int:
        return self.wanted


def listening(watch: Looker, read: Callable[[EventCollector, bytes], None]) -> EventCollector:
    ear = EventCollector(watch)
    ear.set_reader(lambda line: read(ear, line))
    return ear


def says(ear: EventCollector, line: bytes) -> None:
    """A dialect in which everything is said but blanks, and lines that begin with `?` or `(`."""
    if line.startswith(b"?") or not line.strip():
        raise ValueError(line)
    if line.startswith(b"("):
        raise RecursionError
    ear.emit(Said(line.decode()))


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([b"a\nb\n"], [Said("a"), Said("b")]),
        ([b"a", b"b\n", b"c"], [Said("ab"), Said("c")]),
        ([b"\n \n\t\r\na\n"], [Said("a")]),
        ([b"?\xff\na\n((\n"], [Unparsed("?\ufffd", 2), Said("a"), Unparsed("((", 2)]),
        ([b"?" + b"x" * 5000], [Unparsed("?" + "x" * (MAX_UNPARSED_CHARS - 1), 5001)]),
    ],
)
def test_lines_become_events(chunks: list[bytes], events: list[Event]) -> None:
    looker = Looker()
    ear = listening(looker, says)
    for chunk in chunks:
        ear.output(chunk)
    ear.finish()
    assert looker.seen == events
    assert ear.turn_builder.turn(Exit(0)).unparsed == sum(isinstance(event, Unparsed) for event in events)


def test_a_line_that_is_too_long_is_told_by_its_size() -> None:
    looker = Looker()
    ear = listening(looker, says)
    ear.output(b"x" * (MAX_LINE_BYTES + 1) + b"\na\n")
    assert looker.seen == [Said("a"), Unparsed("", MAX_LINE_BYTES + 1)]
    ear.finish()
    assert len(looker.seen) == 2


def test_who_does_not_listen_understands_nothing() -> None:
    looker = Looker()
    ear = EventCollector(looker)
    ear.output(b"a\n")
    assert looker.seen == [Unparsed("a", 1)]


def test_events_are_handed_on_together_and_none_is_handed_on_twice() -> None:
    handed: list[list[Event]] = []

    class Batches(Looker):
        def events(self, events: list[Event]) -> None:
            handed.append(events)

    ear = listening(Batches(), says)
    ear.output(b"a\nb\n")
    ear.output(b"c")
    ear.output(b"\n")
    ear.finish()
    ear.flush_events()
    assert handed == [[Said("a"), Said("b")], [Said("c")]]


def test_who_wants_to_hears_of_lines_that_were_missed() -> None:
    missed: list[bytes] = []
    looker = Looker()
    ear = EventCollector(looker)
    ear.set_reader(lambda line: says(ear, line), missed.append)
    ear.output(b"?1\n\n  \na\n?2\n")
    assert missed == [b"?1", b"?2"]
    assert [type(event) for event in looker.seen] == [Unparsed, Said, Unparsed]


def test_a_fault_of_ours_is_not_taken_for_noise() -> None:
    def fails(_: EventCollector, line: bytes) -> None:
        raise KeyError(line)

    with pytest.raises(KeyError):
        listening(Looker(), fails).output(b"a\n")


def test_what_was_told_is_folded_and_the_last_result_is_known() -> None:
    ear = EventCollector(Looker())
    assert ear.ended is None
    for event in (Said("a"), Ended(False, "x", "no"), Ended(True, "y")):
        ear.emit(event)
    ear.flush_events()
    assert ear.ended == Ended(True, "y")
    assert ear.turn_builder.turn(Exit(0)).text == "y"


def test_that_the_result_was_said_is_told_once_for_each() -> None:
    ear = EventCollector(Looker())
    assert ear.tick() == CONTINUE
    for _ in range(2):
        ear.emit(Ended(True))
        ear.flush_events()
        assert [ear.tick(), ear.tick()] == [RESULT_SAID, CONTINUE]


@pytest.mark.parametrize("wanted", [STOP, KILL])
def test_an_end_that_the_watcher_wants_comes_first(wanted: int) -> None:
    watch = Wants()
    ear = EventCollector(watch)
    ear.emit(Ended(True))
    ear.flush_events()
    watch.wanted = wanted
    assert ear.tick() == wanted
    watch.wanted = ACTIVE
    assert [ear.tick(), ear.tick()] == [RESULT_SAID, ACTIVE], "it is not forgotten"


def test_who_wants_to_is_called_when_all_that_came_was_read() -> None:
    looker = Looker()
    ear = listening(looker, says)
    ear.on_idle(lambda: ear.emit(Said(".")))
    ear.output(b"a\nb\n")
    ear.output(b"c")
    ear.finish()
    assert looker.seen == [Said(text) for text in ("a", "b", ".", ".", "c", ".")]


def test_a_line_that_stays_open_is_read_when_nothing_more_comes() -> None:
    looker = Looker()
    ear = listening(looker, says)
    ear.output(b"a\nb")
    for _ in range(QUIET_TICKS - 1):
        ear.tick()
    assert looker.seen == [Said("a")]
    ear.tick()
    assert looker.seen == [Said("a"), Said("b")]
    for _ in range(2 * QUIET_TICKS):
        ear.tick()
    ear.finish()
    assert looker.seen == [Said("a"), Said("b")]


def test_the_last_of_what_was_not_understood_is_kept() -> None:
    ear = listening(Looker(), says)
    ear.output(b"".join(b"?%d\n" % number for number in range(9)))
    assert ear.unparsed_text.split() == ["?4", "?5", "?6", "?7", "?8"]
