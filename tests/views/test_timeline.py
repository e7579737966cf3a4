"""A run along its iterations: what an onlooker is shown is what the records say, also of what is not judged yet."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ralphproof.base.value import replace
from ralphproof.engine import records as told
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import Finding
from ralphproof.engine.claim import Claim, ParsedClaim
from ralphproof.engine.outcome import Failed, Retry
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.views.timeline import Timeline

JOB = Job(Task("a", "", "Mend it"), Stage("coder"))
TREE = Snapshot("c", "t", "refs/ralph/r/1")
BEGUN = (told.Picked(1, JOB), told.TurnBegan(1, 1, "d", agent="claude"))
SAVED = told.Saved(1, 1, TREE, Change(("a.py",)), ParsedClaim(Claim("DONE")))


def line_of(records: Iterable[Record]) -> Timeline:
    line = Timeline("r")
    for number, record in enumerate(records, 1):
        line.take(number, 100.0 + number, record)
    return line


def test_an_iteration_is_there_from_its_turn_on_and_not_before() -> None:
    assert line_of(BEGUN[:1]).iterations == {}
    span = line_of(BEGUN).iterations[1]
    assert (span.job, span.turns[0].agent, span.turns[0].reply, span.verdict) == (JOB, "claude", None, None)


def test_a_turn_a_claim_a_check_and_a_verdict_stand_in_their_iteration() -> None:
    ended = told.TurnEnded(1, 1, Turn(Exit(0), "x" * 100_000))
    red = told.CheckEnded(1, 1, Finding("make test", False, code=2, output="y" * 100_000))
    judged = told.Judged(1, 1, Retry(Feedback()), 3.0)
    line = line_of((*BEGUN, ended, SAVED, told.CheckBegan(1, 1, "make test"), red, judged))
    span = line.iterations[1]
    assert span.turns[0].ended_s == 103.0
    assert span.saved == SAVED
    assert [one.name for one in span.checks] == ["make test"]
    assert span.checks[0].finding is not None
    assert not span.checks[0].finding.passed
    assert span.verdict == judged.verdict
    assert (span.began_s, span.ended_s) == (102.0, 107.0)
    assert line.touched == {1: 7}
    reply = span.turns[0].reply
    assert reply is not None
    assert len(reply.text) < 5000 > len(span.checks[0].finding.output), "what is long is in the logs"


def test_a_check_is_at_work_until_it_answers_or_the_run_ends() -> None:
    began = (*BEGUN, told.TurnEnded(1, 1, Turn(Exit(0))), SAVED, told.CheckBegan(1, 1, "make test"))
    assert (line_of(began).iterations[1].checks[0].finding, line_of(began).iterations[1].checks[0].stopped) == (
        None,
        False,
    )
    from ralphproof.engine.limits import Breach, Spend
    from ralphproof.engine.outcome import Aborted

    end = told.RunEnded(Aborted(Breach("CANCELLED", "c"), 1, Spend(), 1.0, ""))
    assert line_of((*began, end)).iterations[1].checks[0].stopped


def test_a_tree_that_is_looked_at_anew_has_new_answers() -> None:
    red = told.CheckEnded(1, 1, Finding("make test", False))
    first = (*BEGUN, told.TurnEnded(1, 1, Turn(Exit(0))), SAVED, told.CheckBegan(1, 1, "make test"), red)
    again = line_of((*first, told.CheckBegan(1, 1, "make test", 2))).iterations[1]
    assert [(one.name, one.finding) for one in again.checks] == [("make test", None)]


def test_a_turn_that_is_taken_again_stays_beside_the_next() -> None:
    refused = (told.TurnEnded(1, 1, Turn(Exit(1))), SAVED, told.TurnRetried(1, 1, False, "usage limit", 9.0))
    span = line_of((*BEGUN, *refused, told.TurnBegan(1, 2, "d", agent="codex"))).iterations[1]
    assert [(leg.turn, leg.agent, leg.again) for leg in span.turns] == [(1, "claude", "usage limit"), (2, "codex", "")]


def test_what_is_asked_before_the_first_iteration_has_the_number_0() -> None:
    line = line_of((told.CheckBegan(0, 0, "make test"), told.CheckEnded(0, 0, Finding("make test", False)), *BEGUN))
    assert sorted(line.iterations) == [0, 1]
    assert [one.name for one in line.iterations[0].checks] == ["make test"]


JUDGED = (told.TurnEnded(1, 1, Turn(Exit(0))), SAVED, told.Judged(1, 1, Retry(Feedback()), 1.0))
NEXT = (told.Picked(2, JOB), told.TurnBegan(2, 1, "d"))
CANCELLED = told.RunEnded(Failed("its harness died", 1))


def remarks(line: Timeline) -> dict[int, list[str]]:
    return {number: [type(one).__name__ for one in span.notes] for number, span in line.iterations.items()}


def test_what_is_only_told_stands_in_the_iteration_that_it_is_about() -> None:
    about_one = (told.Warned(0, "unknown", "no cost"), *BEGUN, told.Noticed(1, 0, "put back"), *JUDGED)
    line = line_of((*about_one, told.Paused(2, 0), told.UserMessageAdded(2, 1, "hello"), *NEXT))
    assert remarks(line) == {0: ["Warned"], 1: ["Noticed"], 2: ["Paused", "UserMessageAdded"]}


def test_what_is_told_of_an_iteration_that_never_begins_stands_in_the_last_one() -> None:
    assert remarks(line_of((*BEGUN, *JUDGED, told.UserMessageAdded(2, 1, "hello")))) == {1: []}
    assert remarks(line_of((*BEGUN, *JUDGED, told.UserMessageAdded(2, 1, "hello"), CANCELLED))) == {
        1: ["UserMessageAdded"]
    }


def test_a_run_is_taken_up_in_the_iteration_that_it_goes_on_with() -> None:
    again = told.Resumed(2, 200.0, 1.0)
    assert remarks(line_of((*BEGUN, again))) == {1: ["Resumed"]}
    assert remarks(line_of((*BEGUN, *JUDGED, CANCELLED, again, *NEXT))) == {1: [], 2: ["Resumed"]}
    judged_anew = replace(JUDGED[-1], session=2)
    assert remarks(line_of((*BEGUN, *JUDGED, CANCELLED, again, judged_anew, *NEXT))) == {1: ["Resumed"], 2: []}


def judged(number: int, at_s: float, age_s: float, line: Timeline) -> None:
    line.take(0, at_s, told.Judged(number, 1, Retry(Feedback()), age_s))


def test_the_time_in_which_nobody_was_there_is_none_of_an_iterations() -> None:
    line, day = Timeline("r"), 86_400.0
    line.take(0, 100.0, told.RunBegan("r", TREE, {}))
    line.take(0, 101.0, told.TurnBegan(1, 1, "d"))
    judged(1, 110.0, 10.0, line)
    line.take(0, 111.0, told.TurnBegan(2, 1, "d"))
    line.take(0, day, told.Resumed(2, day, 15.0))  # what was at work until then has been so for 5 seconds
    assert (line.iterations[2].seconds, day + 3 - line.iterations[2].counts_s) == (None, 8.0)
    judged(2, day + 4, 19.0, line)
    assert (line.iterations[1].seconds, line.iterations[2].seconds) == (10.0, 9.0)


def test_a_rest_is_no_part_of_a_runs_age() -> None:
    line = Timeline("r")
    line.take(0, 100.0, told.RunBegan("r", TREE, {}))
    line.take(0, 110.0, told.Paused(1, 0))
    assert line.pace.age_s(150.0) == 10.0
    line.take(0, 160.0, told.UserChangesSaved(1, 0, TREE))
    assert line.pace.age_s(165.0) == 15.0


@pytest.mark.parametrize(("age_s", "seconds", "ended_s"), [(30.0, 30.0, 130.0), (0.0, None, 101.0)])
def test_an_iteration_that_an_end_cuts_off_took_what_the_end_knows_of(
    age_s: float, seconds: float | None, ended_s: float
) -> None:  # fmt: skip
    line = Timeline("r")
    line.take(0, 100.0, told.RunBegan("r", TREE, {}))
    line.take(0, 101.0, told.TurnBegan(1, 1, "d"))
    line.take(0, 86_400.0, told.RunEnded(Failed("its harness died", 1, seconds=age_s)))
    assert (line.iterations[1].seconds, line.iterations[1].ended_s) == (seconds, ended_s)
