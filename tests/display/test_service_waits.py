"""A service that may not be asked yet: who waits, until when, or who goes on."""

from __future__ import annotations

import pytest

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display import phrases
from ralphproof.display.terminal import Style
from ralphproof.engine import records as told
from ralphproof.engine.agent import Turn
from ralphproof.engine.outcome import Failed
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Snapshot
from tests.display.watched_console import WatchedConsole, zone

if TYPE_CHECKING:
    from ralphproof.base.value import Json

NOON = 1_770_030_000.0  # 2026-02-02 12:00 in CET


def began(turn: int, agent: str = "", place: int = 0, iteration: int = 1) -> told.TurnBegan:
    return told.TurnBegan(iteration, turn, "", (), agent, place)


def again(turn: int, wait_s: float, why: str = "usage limit") -> told.TurnRetried:
    return told.TurnRetried(1, turn, False, why, NOON + wait_s)


def test_a_wait_is_told_with_its_reason_its_end_and_its_length_and_counted_down() -> None:
    console = WatchedConsole(Style(live=True), now_s=NOON)
    with zone("CET-1"):
        console.saw(began(1, "claude"), told.TurnEnded(1, 1, Turn(Exit(0))), again(1, 4320.0))
        console.after(0)
        assert console.shown.splitlines()[-1] == (
            "  usage limit; waits until 13:12 CET (1 h 12 m), then takes the iteration again"
        )
        console.after(20)
        assert console.live == "  waits until 13:12 CET, 1 h 11 m left …"
        console.after(4255)
        assert console.live == "  waits until 13:12:00 CET, 45 s left …"
        console.after(60)
        assert console.live == "  the wait is over …"
        lines = console.shown.count("\n")
        console.saw(began(2, "claude"))
        assert console.shown.count("\n") == lines, "it is known already"
        console.after(5)
        assert console.live == "  the agent works, 5.0 s …"


@pytest.mark.parametrize("until", [0.0, NOON - 1, NOON])
def test_no_wait_is_told_as_none(until: float) -> None:
    console = WatchedConsole(now_s=NOON)
    console.saw(began(1), told.TurnRetried(1, 1, True, "the agent said nothing", until))
    console.after(1)
    console.saw(began(2))
    assert console.shown.splitlines()[1:] == ["  the agent said nothing; taken again"]


def test_another_agent_goes_on() -> None:
    console = WatchedConsole(now_s=NOON)
    with zone("CET-1"):
        console.saw(began(1, "claude"), again(1, 4320.0), began(2, "codex", 1), began(1, "claude", 0, 2))
    assert console.shown.splitlines() == [
        "Iteration 1",
        "  usage limit; goes on with codex (claude not before 13:12 CET)",
        "Iteration 2",
        "  goes on with claude",
    ]


def test_with_several_agents_the_first_that_may_be_asked_is_waited_for() -> None:
    console = WatchedConsole(now_s=NOON)
    with zone("CET-1"):
        console.saw(began(1, "claude"), again(1, 3600.0), began(2, "codex", 1), again(2, 7200.0, "overloaded"))
        console.after(0)
        assert console.shown.splitlines()[-1] == (
            "  overloaded; waits until 13:00 CET (1 h 00 m), then takes the iteration again"
        )
        console.now_s += 3600
        console.saw(began(3, "claude"), again(3, 14400.0))
        console.after(0)
        assert console.shown.splitlines()[-2:] == [
            "  goes on with claude",
            "  usage limit; waits until 14:00 CET (1 h 00 m), then takes the iteration again",
        ]


def test_an_agent_whose_time_has_come_in_vain_is_not_waited_for() -> None:
    console = WatchedConsole(now_s=NOON)
    with zone("CET-1"):
        console.saw(began(1, "claude"), again(1, 10.0), began(2, "codex", 1))
        console.now_s += 20
        console.saw(again(2, 3600.0))
        console.after(0)
    assert "waits until 13:00 CET (59 m 40 s)" in console.shown


def test_a_service_that_answers_before_time_has_passed_is_not_waited_for() -> None:
    console = WatchedConsole(now_s=NOON)
    console.saw(began(1, "claude"), again(1, 0.5), began(2, "claude"))
    console.after(1)
    assert console.shown.splitlines()[1:] == ["  usage limit; taken again"]


def test_a_run_that_ends_says_nothing_of_a_wait() -> None:
    console = WatchedConsole(now_s=NOON)
    console.saw(began(1, "claude"), again(1, 4320.0), told.RunEnded(Failed("no", 1, 3)))
    assert console.shown == "Iteration 1\n"


def test_records_of_old_do_not_name_their_agents() -> None:
    console = WatchedConsole(now_s=NOON)
    console.saw(began(1), began(2, "claude"), began(3), began(4, "claude"))
    assert console.shown == "Iteration 1\n"


@pytest.mark.parametrize(
    ("in_s", "shown"),
    [
        (30.0, "12:00:30 CET"), (-30.0, "11:59:30 CET"), (60.0, "12:01 CET"), (11.9 * 3600, "23:54 CET"),
        (12 * 3600, "2026-02-03 00:00 CET"), (7 * 86400, "2026-02-09 12:00 CET"), (-86400, "2026-02-01 12:00 CET"),
    ],
)  # fmt: skip
def test_a_moment_is_a_local_time_with_its_zone_and_far_off_with_its_date(in_s: float, shown: str) -> None:
    with zone("CET-1"):
        assert phrases.format_time(NOON + in_s, NOON) == shown
        assert phrases.format_time(NOON + 14 * 3600, NOON + 8 * 3600) == "02:00 CET", "soon, though tomorrow"
        assert phrases.format_time(1e30, NOON) == phrases.format_time(float("nan"), NOON) == "a time that there is not"
    with zone("EST5"):
        assert phrases.format_time(NOON, NOON + 120) == "06:00 EST"


def test_an_agent_of_the_same_program_is_told_apart_by_its_place() -> None:
    console = WatchedConsole(now_s=NOON)
    with zone("CET-1"):
        console.saw(
            began(1, "claude"), again(1, 4320.0), began(2, "claude", 1), again(2, 7200.0), began(3, "claude", 2)
        )
        console.saw(began(1, "claude", 2, 2), began(1, "claude", 0, 3))
    assert console.shown.splitlines() == [
        "Iteration 1",
        "  usage limit; goes on with claude (fallback 1, the usual one not before 13:12 CET)",
        "  usage limit; goes on with claude (fallback 2, fallback 1 not before 14:00 CET)",
        "Iteration 2",
        "Iteration 3",
        "  goes on with claude (the usual one)",
    ]


def crew(ladder: int = 0, rotate: int = 0) -> told.RunBegan:
    facts: dict[str, Json] = {"ladder": ["a model"] * ladder, "rotate": ["claude"] * rotate, "fallbacks": [{}]}
    return told.RunBegan("run-1", Snapshot(None, None), facts)


@pytest.mark.parametrize(("ladder", "rotate"), [(2, 0), (0, 2)], ids=["a ladder", "taking turns"])
def test_the_places_of_a_ladder_or_rotation_are_no_fallbacks(ladder: int, rotate: int) -> None:
    console = WatchedConsole(now_s=NOON)
    with zone("CET-1"):
        console.saw(crew(ladder, rotate), began(1, "claude"), began(1, "claude", 1, 2), again(1, 4320.0))
        console.saw(began(2, "claude", 2, 2), began(1, "claude", 0, 3), again(1, 60.0), began(2, "claude", 1, 3))
    assert console.shown.splitlines()[1:] == [
        "Iteration 1",
        "Iteration 2",
        "  usage limit; goes on with claude (fallback 1, the last one not before 13:12 CET)",
        "Iteration 3",
        "  goes on with claude",
        "  usage limit; goes on with claude (the last one not before 12:01 CET)",
    ]


def test_agents_of_different_names_that_take_turns_are_named() -> None:
    console = WatchedConsole(now_s=NOON)
    console.saw(crew(rotate=2), began(1, "claude"), began(1, "codex", 1, 2))
    assert console.shown.splitlines()[1:] == ["Iteration 1", "Iteration 2", "  goes on with codex"]
