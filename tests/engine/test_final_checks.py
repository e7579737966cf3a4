"""What is asked last of all, what a run must see fail first, and what takes the worth from a pass."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.check import AlteredCheckInput, CheckReport, Finding, SuiteResult
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import CHECKS_WEAKENED, Limits, Spend, find_tripwire_breach
from ralphproof.engine.outcome import Aborted, Completed, Failed, Passed, Stopped, judge_iteration
from ralphproof.engine.plan import History, Job, Pipeline, Plan, Stage, Task, choose_next_job
from tests.engine.fake_environment import CLAIMING, RULES, STAGE, FakeEnvironment, Step
from tests.engine.test_iteration import made

GREEN, BROKEN = Finding("tests", True), Finding("tests", False)
HIDDEN = Finding("final: x", False, command="x", output="the answer", hidden=True)


@pytest.mark.parametrize(
    ("findings", "claimed", "last", "due"),
    [
        pytest.param((), True, True, ("tests",), id="visible ones first"),
        pytest.param((GREEN,), True, True, ("judge",), id="then judges"),
        pytest.param((GREEN, Finding("judge", True)), True, True, ("one",), id="then the last ones, one by one"),
        pytest.param((GREEN, Finding("judge", True), Finding("one", True)), True, True, ("two",), id="all of them"),
        pytest.param((GREEN, Finding("judge", True)), True, False, (), id="not while other tasks are open"),
        pytest.param((GREEN, Finding("judge", True)), False, True, (), id="not without a claim"),
        pytest.param((GREEN, Finding("judge", False)), True, True, (), id="not about work that a judge refuses"),
        pytest.param((BROKEN,), True, True, (), id="not about work that is red"),
        pytest.param((GREEN, Finding("judge", True), Finding("one", False)), True, True, (), id="a red one ends it"),
    ],
)
def test_the_last_checks_are_asked_about_work_that_would_be_all(
    findings: tuple[Finding, ...], claimed: bool, last: bool, due: tuple[str, ...]
) -> None:
    stage = Stage("work", checks=("tests",), judges=("judge",), final=("one", "two"))
    assert stage.due(CheckReport(findings), claimed, last) == due


def test_a_job_is_the_last_one_where_no_other_task_is_open() -> None:
    pipeline = Pipeline((Stage("work"),))
    both = Plan((Task("a", "x"), Task("b", "x")))
    first = choose_next_job(both, pipeline, frozenset())
    assert isinstance(first, Job)
    assert not first.last
    second = choose_next_job(both, pipeline, frozenset({("a", "work")}))
    assert isinstance(second, Job)
    assert (second.task.id, second.last) == ("b", True)


def test_what_is_held_out_is_not_part_of_what_an_agent_may_know() -> None:
    assert CheckReport((GREEN, HIDDEN)).visible == CheckReport((GREEN,))
    assert not CheckReport((GREEN, HIDDEN)).passed


@pytest.mark.parametrize(
    ("altered", "stops"),
    [
        pytest.param((AlteredCheckInput("Makefile", "target test was changed", True),), True, id="pinned"),
        pytest.param((AlteredCheckInput("conftest.py", "new"),), False, id="a finding"),
        pytest.param((AlteredCheckInput("Makefile", "target test was changed", True, True),), False, id="allowed"),
        pytest.param((), False, id="nothing"),
    ],
)
def test_a_change_of_what_decides_over_checks_stops_unless_it_is_allowed(
    altered: tuple[AlteredCheckInput, ...], stops: bool
) -> None:
    breach = find_tripwire_breach(replace(made(), altered_inputs=altered))
    assert (breach is not None) == stops
    if breach:
        assert (breach.reason, breach.paths) == (CHECKS_WEAKENED, ("Makefile",))
        assert "Makefile: target test was changed" in breach.message
        assert "--may-change" in breach.message


def test_many_changes_are_counted_and_a_few_named() -> None:
    many = tuple(AlteredCheckInput(f"f{n}", "was changed", True) for n in range(25))
    breach = find_tripwire_breach(replace(made(), altered_inputs=many))
    assert breach is not None
    assert "f9: was changed" in breach.message
    assert "f10:" not in breach.message
    assert "and 15 more" in breach.message
    assert len(breach.paths) == 25


def test_a_run_that_must_see_red_is_refused_where_all_is_green() -> None:
    env = FakeEnvironment(
        Step(CLAIMING), rules=replace(RULES, checks=replace(RULES.checks, baseline=True, must_fail_first=True))
    )
    outcome = env.run()
    assert isinstance(outcome, Failed)
    assert (outcome.exit_code, env.turn_inputs) == (2, [])
    assert "mustFailFirst" in outcome.error


def test_without_that_rule_green_checks_let_a_run_begin() -> None:
    assert isinstance(
        FakeEnvironment(Step(CLAIMING), rules=replace(RULES, checks=replace(RULES.checks, baseline=True))).run(),
        Completed,
    )


def test_a_check_that_runs_no_test_any_more_is_no_pass() -> None:
    before = CheckReport((Finding("tests", False, tests=SuiteResult("node", ("a",), 1, 4)),))
    none = CheckReport((Finding("tests", True, tests=SuiteResult("node", (), 0, 0)),))
    fewer = CheckReport((Finding("tests", True, tests=SuiteResult("node", (), 0, 3)),))
    word = STAGE.claim.word or "DONE"

    def judged(report: CheckReport, protect: bool = False) -> object:
        now = replace(made(report=report), claim=Claim(word), job=Job(Task("t", "x"), STAGE))
        return judge_iteration(History((now,)), Spend(), Limits(protect_tests=protect), baseline=before)

    stopped = judged(none)
    assert isinstance(stopped, Stopped)
    assert stopped.breach.reason == CHECKS_WEAKENED
    assert isinstance(judged(fewer), Passed), "that is told, and no stop"
    strict = judged(fewer, protect=True)
    assert isinstance(strict, Stopped)
    assert strict.breach.reason == CHECKS_WEAKENED


def test_a_weakened_check_ends_a_run_with_exit_code_1() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.altered_check_inputs = (AlteredCheckInput("Makefile", "target test was changed", True),)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.exit_code) == (CHECKS_WEAKENED, 1)
    assert env.checks_run == [], "nothing that it left behind is run"


def test_what_is_no_stop_is_a_concern_of_the_completed_run() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.altered_check_inputs = (AlteredCheckInput("tests/conftest.py", "new; it only defines fixtures"),)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.concerns == ("tests/conftest.py: new; it only defines fixtures",)
