"""What is worked on next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.plan import (
    AllDone,
    Blocked,
    CompletionCriteria,
    Job,
    Pipeline,
    Plan,
    Stage,
    Task,
    choose_next_job,
)

HATS = tuple(Stage(name, ClaimRule(name.upper())) for name in ("coder", "reviewer", "tester", "qa"))
FOUR = Pipeline(HATS)
ONE = Pipeline(HATS[:1])
NONE: frozenset[tuple[str, str]] = frozenset()


def walk(plan: Plan, pipeline: Pipeline) -> list[tuple[str, str]]:
    """The jobs in the order in which they are chosen, each passing at its first try."""
    passed: set[tuple[str, str]] = set()
    order: list[tuple[str, str]] = []
    while isinstance(job := choose_next_job(plan, pipeline, frozenset(passed)), Job):
        assert job.key not in passed
        passed.add(job.key)
        order.append(job.key)
    assert job == AllDone()
    return order


def test_a_task_goes_through_the_four_stages_in_order_before_the_next_task() -> None:
    plan = Plan((Task("a", ""), Task("b", "")))
    names = ["coder", "reviewer", "tester", "qa"]
    assert walk(plan, FOUR) == [("a", name) for name in names] + [("b", name) for name in names]


def test_stage_first_takes_the_earliest_stage_over_all_tasks() -> None:
    plan = Plan((Task("a", "", stage="coder"), Task("b", "", stage="reviewer"), Task("c", "", stage="qa")))
    review_first = Pipeline((HATS[1], HATS[3], HATS[0]), stage_first=True)
    chosen = choose_next_job(plan, review_first, NONE)
    assert isinstance(chosen, Job)
    assert chosen.key == ("b", "reviewer")
    without = choose_next_job(plan, Pipeline((HATS[1], HATS[3], HATS[0])), NONE)
    assert isinstance(without, Job)
    assert without.key == ("a", "coder")


def test_stage_first_takes_all_tasks_through_one_stage() -> None:
    plan = Plan((Task("a", ""), Task("b", "")))
    assert walk(plan, Pipeline(HATS[:2], stage_first=True)) == [
        ("a", "coder"),
        ("b", "coder"),
        ("a", "reviewer"),
        ("b", "reviewer"),
    ]


@pytest.mark.parametrize("stage_first", [True, False])
def test_the_lowest_priority_number_comes_first_and_the_plans_order_breaks_ties(stage_first: bool) -> None:
    plan = Plan((Task("late", "", priority=5), Task("first", "", priority=1), Task("second", "", priority=1)))
    pipeline = Pipeline(HATS[:1], stage_first=stage_first)
    assert [task for task, _ in walk(plan, pipeline)] == ["first", "second", "late"]


def test_a_task_waits_for_what_it_depends_on_whatever_its_priority() -> None:
    plan = Plan((Task("roof", "", priority=-9, depends_on=("walls",)), Task("walls", "")))
    assert walk(plan, FOUR)[:4] == [("walls", stage.name) for stage in HATS]
    assert walk(plan, FOUR)[4:] == [("roof", stage.name) for stage in HATS]


def test_a_task_that_its_source_calls_done_is_not_worked_on_and_frees_others() -> None:
    plan = Plan((Task("walls", "", done=True), Task("roof", "", depends_on=("walls",))))
    chosen = choose_next_job(plan, ONE, NONE)
    assert isinstance(chosen, Job)
    assert chosen.key == ("roof", "coder")


def test_the_stage_that_the_source_names_beats_the_stages_seen_to_pass() -> None:
    chosen = choose_next_job(Plan((Task("a", "", stage="coder"),)), FOUR, frozenset({("a", "coder")}))
    assert isinstance(chosen, Job)
    assert chosen.stage.name == "coder"


@pytest.mark.parametrize(
    ("tasks", "blocked", "why"),
    [
        pytest.param(
            (Task("a", "", depends_on=("b",)), Task("b", "", depends_on=("a",))),
            ("a", "b"),
            "each waits for another",
            id="a circle",
        ),
        pytest.param(
            (Task("a", "", depends_on=("ghost",)),),
            ("a",),
            "depends on ghost, which the plan does not have",
            id="an unknown dependency",
        ),
        pytest.param(
            (Task("a", "", stage="design"), Task("b", "", depends_on=("a",))),
            ("a", "b"),
            "in stage design, which the pipeline does not have",
            id="an unknown stage is not done",
        ),
    ],
)
def test_a_plan_that_cannot_go_on_is_blocked_and_says_why(
    tasks: tuple[Task, ...], blocked: tuple[str, ...], why: str
) -> None:
    assert choose_next_job(Plan(tasks), FOUR, NONE) == Blocked(blocked, why)


def test_work_that_can_be_done_is_done_before_the_plan_is_called_blocked() -> None:
    plan = Plan((Task("stuck", "", depends_on=("ghost",)), Task("free", "")))
    chosen = choose_next_job(plan, ONE, NONE)
    assert isinstance(chosen, Job)
    assert chosen.key == ("free", "coder")
    assert isinstance(choose_next_job(plan, ONE, frozenset({("free", "coder")})), Blocked)


def test_passing_in_one_task_says_nothing_of_another() -> None:
    chosen = choose_next_job(Plan((Task("a", ""), Task("b", ""))), ONE, frozenset({("a", "coder")}))
    assert isinstance(chosen, Job)
    assert chosen.key == ("b", "coder")


def test_a_pipeline_knows_its_stages_by_name_and_a_task_its_criteria() -> None:
    assert FOUR.find_stage("tester") == HATS[2]
    assert FOUR.find_stage("nobody") is None
    task = Task("a", "", criteria=(("qa", CompletionCriteria("QA_OK", max_iterations=2)),))
    assert task.criteria_for("qa") == CompletionCriteria("QA_OK", max_iterations=2)
    assert task.criteria_for("coder") is None


@given(
    tasks=st.lists(
        st.builds(
            Task,
            st.sampled_from("abcdef"),
            st.just(""),
            priority=st.integers(0, 3),
            depends_on=st.lists(st.sampled_from("abcdefg"), max_size=2).map(tuple),
            done=st.booleans(),
            stage=st.sampled_from([None, "coder", "qa", "design"]),
        ),
        unique_by=lambda task: task.id,
        max_size=6,
    ),
    stage_first=st.booleans(),
)
def test_only_a_plan_of_done_tasks_is_all_done_and_a_job_is_always_ready(tasks: list[Task], stage_first: bool) -> None:
    choice = choose_next_job(Plan(tuple(tasks)), Pipeline(HATS, stage_first), NONE)
    done = {task.id for task in tasks if task.done}
    match choice:
        case AllDone():
            assert len(done) == len(tasks)
        case Job(task, stage):
            assert task in tasks
            assert not task.done
            assert stage.name == (task.stage or "coder")
            assert set(task.depends_on) <= done
        case Blocked(blocked, why):
            assert set(blocked) == {task.id for task in tasks} - done
            assert why


def test_a_title_with_escape_codes_is_plain_words_in_a_commit() -> None:
    job = Job(
        Task("US-1", "do it", "First \x1b[31mred\x1b]0;pwn\x07\nline"),
        Stage("implement", commit="feat: [{id}] - {title}"),
    )
    assert job.message("") == "feat: [US-1] - First red line"
