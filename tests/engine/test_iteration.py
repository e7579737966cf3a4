"""The folds over what happened: idle turns, repeated errors, and going back and forth."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.value import replace
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport
from ralphproof.engine.plan import History, Iteration, Job, Stage, Task, count_alternating
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot
from tests.engine.fake_environment import CRASHING, EDITED, JOB, NOTHING, WORKING, make_finding

UNASKED = CheckReport()
UNKNOWN = Change(known=False)
ONLY_COMMITTED = Change(committed=True)
REVIEW = Job(JOB.task, Stage("review", edits=False))


def made(
    change: Change = EDITED,
    report: CheckReport = UNASKED,
    turn: Turn = WORKING,
    job: Job = JOB,
    tree: str | None = "t",
    number: int = 1,
) -> Iteration:
    return Iteration(number, job, turn, Snapshot("s", tree), change, report)


def of(*iterations: Iteration) -> History:
    history = History()
    for number, iteration in enumerate(iterations, 1):
        history = history.with_iteration(replace(iteration, number=number))
    return history


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        pytest.param((), 0, id="nothing happened yet"),
        pytest.param((NOTHING,), 1, id="one idle turn"),
        pytest.param((EDITED, NOTHING, NOTHING), 2, id="only the last ones count"),
        pytest.param((NOTHING, EDITED), 0, id="an edit begins anew"),
        pytest.param((NOTHING, UNKNOWN), 0, id="unknown is not nothing"),
        pytest.param((NOTHING, ONLY_COMMITTED), 2, id="a commit alone changes no file"),
    ],
)
def test_idle_turns_are_counted_from_the_end(changes: tuple[Change, ...], idle: int) -> None:
    assert of(*(made(change) for change in changes)).unchanged_turns() == idle


def test_turns_that_are_not_meant_to_edit_neither_stall_nor_count_as_progress() -> None:
    idle, review = made(NOTHING), made(NOTHING, job=REVIEW)
    assert of(review, review).unchanged_turns() == 0
    assert of(idle, review, idle, review).unchanged_turns() == 2


def test_going_on_to_another_stage_or_task_is_progress() -> None:
    next_stage = made(NOTHING, job=Job(JOB.task, Stage("polish")))
    next_task = made(NOTHING, job=Job(Task("t2", ""), JOB.stage))
    assert of(made(NOTHING), made(NOTHING), next_stage).unchanged_turns() == 1
    assert of(made(NOTHING), made(NOTHING), next_task, next_task).unchanged_turns() == 2


def red(mark: str) -> Iteration:
    return made(report=CheckReport((make_finding(False, fingerprint=mark),)))


@pytest.mark.parametrize(
    ("marks", "same"),
    [
        ("", 0),
        ("A", 1),
        ("AAA", 3),
        ("BAA", 2),
        ("AAB", 1),
        ("AA.", 0),
        ("A.A", 1),
        ("...", 0),
    ],
)
def test_the_same_error_is_counted_from_the_end(marks: str, same: int) -> None:
    history = of(*(made() if mark == "." else red(mark) for mark in marks))
    assert history.same_error_count() == same


def test_an_agent_that_dies_the_same_way_is_the_same_error() -> None:
    killed = replace(CRASHING, exit=Exit(None, signal=9))
    assert of(made(turn=CRASHING), made(turn=CRASHING)).same_error_count() == 2
    assert of(made(turn=killed), made(turn=CRASHING)).same_error_count() == 1
    assert of(made(turn=replace(WORKING, error="no")), made(turn=replace(WORKING, error="yes"))).same_error_count() == 1


def test_a_failing_check_is_the_error_even_where_the_agent_died_too() -> None:
    both = replace(red("A"), turn=CRASHING)
    assert of(red("A"), both).same_error_count() == 2


def test_the_trees_are_those_of_editing_turns_and_an_unknown_tree_is_like_no_other() -> None:
    history = of(made(tree="x"), made(tree="y", job=REVIEW), made(tree=None), made(tree=None))
    assert history.trees() == ("x", "unknown 3", "unknown 4")


@pytest.mark.parametrize(
    ("marks", "count"),
    [
        ("", 0),
        ("A", 0),
        ("AB", 2),
        ("ABA", 3),
        ("ABAB", 4),
        ("CABAB", 4),
        ("AAB", 2),
        ("ABB", 0),
        ("AA", 0),
        ("ABCAB", 2),
    ],
)
def test_going_back_and_forth_is_counted_from_the_end(marks: str, count: int) -> None:
    assert count_alternating(tuple(marks)) == count


def test_going_from_failure_to_no_failure_and_back_is_no_alternation() -> None:
    assert count_alternating(("A", "", "A", "")) == 0
    assert count_alternating(("", "A", "", "A")) == 0


@given(st.lists(st.sampled_from("ABC"), max_size=12))
def test_what_alternates_holds_exactly_two_marks(marks: list[str]) -> None:
    count = count_alternating(tuple(marks))
    tail = marks[len(marks) - count :]
    assert count == 0 or (len(set(tail)) == 2 and all(one != two for one, two in pairwise(tail)))
    if 0 < count < len(marks):
        longer = marks[len(marks) - count - 1 :]
        assert len(set(longer)) > 2 or longer[0] == longer[1]


def test_tries_are_counted_for_each_task_and_stage() -> None:
    other = Job(Task("t2", ""), JOB.stage)
    history = of(made(), made(job=REVIEW), made(), made(job=other))
    assert (history.attempts(JOB), history.attempts(REVIEW), history.attempts(other)) == (2, 1, 1)
    assert history.latest.job == other
