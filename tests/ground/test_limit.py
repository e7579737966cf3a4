"""What may not be exceeded, repeated or touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof import limit
from ralphproof.budget import Budget, Spend
from ralphproof.iteration import History
from ralphproof.limit import Breach, Limits
from ralphproof.plan import Criteria, Task
from ralphproof.stage import Job, Stage
from ralphproof.workspace import Change

from .small_world import EDITED, JOB, NOTHING
from .test_iteration import made, of, red

FRESH = Spend()


def edits(count: int) -> History:
    """So many iterations that are unlike each other and fail in nothing."""
    return of(*(made(EDITED, tree=f"t{number}") for number in range(count)))


@pytest.mark.parametrize(
    ("budget", "history", "spend", "elapsed_s", "reason"),
    [
        pytest.param(Budget(), edits(99), Spend(10**9, 10**9), 10.0**9, None, id="no limits"),
        pytest.param(Budget(iterations=3), edits(2), FRESH, 0.0, None, id="one iteration left"),
        pytest.param(Budget(iterations=3), edits(3), FRESH, 0.0, "MAX_ITERATIONS", id="iterations used"),
        pytest.param(Budget(iterations=3), edits(4), FRESH, 0.0, "MAX_ITERATIONS", id="more than allowed"),
        pytest.param(Budget(micro_usd=500), edits(1), Spend(500), 0.0, None, id="the last cent may be used"),
        pytest.param(Budget(micro_usd=500), edits(1), Spend(501), 0.0, "COST_LIMIT", id="over the money"),
        pytest.param(Budget(micro_usd=0), History(), FRESH, 0.0, None, id="nothing may be spent and nothing was"),
        pytest.param(Budget(tokens=100), edits(1), Spend(0, 100), 0.0, None, id="the last token may be used"),
        pytest.param(Budget(tokens=100), edits(1), Spend(0, 101), 0.0, "TOKEN_LIMIT", id="over the tokens"),
        pytest.param(Budget(seconds=60.0), edits(1), FRESH, 59.9, None, id="time left"),
        pytest.param(Budget(seconds=60.0), edits(1), FRESH, 60.0, "TIME_LIMIT", id="time used"),
    ],
)
def test_a_budget_that_is_used_up_forbids_another_iteration(
    budget: Budget, history: History, spend: Spend, elapsed_s: float, reason: str | None
) -> None:
    breach = Limits(budget).ahead(history, spend, elapsed_s)
    assert (breach.reason if breach else None) == reason


def test_a_breach_tells_the_facts_in_one_sentence() -> None:
    over = Limits(Budget(2, 1_000_000, 100, 90.0))
    assert over.ahead(edits(2), FRESH, 0.0) == Breach("MAX_ITERATIONS", "2 of 2 iterations are used")
    assert over.ahead(edits(1), FRESH, 99.0) == Breach("TIME_LIMIT", "1.6 of 1.5 minutes are used")
    assert over.overspent(Spend(1_250_000)) == Breach("COST_LIMIT", "spent $1.25 of $1.00")
    assert over.overspent(Spend(0, 150)) == Breach("TOKEN_LIMIT", "used 150 of 100 tokens")


IDLE, STUCK = made(NOTHING), red("A")
BACK = [made(tree="x"), made(tree="y")]
FORTH = [red("A"), red("B")]


@pytest.mark.parametrize(
    ("history", "limits", "reason"),
    [
        pytest.param([IDLE] * 4, Limits(), None, id="four idle turns"),
        pytest.param([IDLE] * 5, Limits(), "STALL", id="five idle turns"),
        pytest.param([IDLE] * 2, Limits(stall=2), "STALL", id="a threshold of two"),
        pytest.param([IDLE] * 99, Limits(stall=None), None, id="not looked for"),
        pytest.param([made(Change(known=False))] * 9, Limits(), None, id="unknown changes are no stall"),
        pytest.param([STUCK] * 4, Limits(), None, id="four equal errors"),
        pytest.param([STUCK] * 5, Limits(), "SAME_ERROR_5X", id="five equal errors"),
        pytest.param([STUCK] * 99, Limits(same_error=None), None, id="errors not looked for"),
        pytest.param([made(NOTHING, STUCK.report)] * 5, Limits(), "STALL", id="stall and same error at once"),
        pytest.param(BACK * 4 + BACK[:1], Limits(), None, id="the tree, nine times back and forth"),
        pytest.param(BACK * 5, Limits(), "OSCILLATION", id="the tree, ten times back and forth"),
        pytest.param(BACK * 9, Limits(stall=None), None, id="the tree, not looked for"),
        pytest.param(FORTH * 5, Limits(stall=None), "OSCILLATION", id="errors, ten times back and forth"),
        pytest.param(FORTH * 9, Limits(stall=None, same_error=None), None, id="neither looked for"),
        pytest.param(FORTH * 2, Limits(same_error=2), "OSCILLATION", id="a smaller threshold"),
    ],
)
def test_a_pattern_ends_the_run_at_its_threshold(history: list, limits: Limits, reason: str | None) -> None:  # type: ignore[type-arg]
    breach = limits.ahead(of(*history), FRESH, 0.0)
    assert (breach.reason if breach else None) == reason


GUARDED = Limits(protected=("src/auth/", ".env", "migrations"))


@pytest.mark.parametrize(
    ("path", "touched"),
    [
        ("src/auth/login.py", True),
        ("src/auth", True),
        ("src/authors.py", False),
        ("src/auth.py", False),
        ("lib/src/auth/x", False),
        (".env", True),
        (".env.local", False),
        (".env/x", True),
        ("migrations/0001.sql", True),
        ("migrations2/x", False),
        ("src/a.py", False),
    ],
)
def test_a_protected_path_protects_itself_and_what_is_below_it(path: str, touched: bool) -> None:
    breach = GUARDED.tripped(made(Change(("README", path))))
    assert breach == (Breach("PROHIBITED_PATH", f"protected paths were changed: {path}", (path,)) if touched else None)


def test_a_breach_names_all_paths_and_its_sentence_the_first_ten() -> None:
    paths = tuple(f"src/auth/{number}" for number in range(12))
    breach = GUARDED.tripped(made(Change(paths)))
    assert breach is not None
    assert breach.paths == paths
    assert breach.message.endswith("src/auth/9")


def test_rewritten_history_trips_without_any_protected_path() -> None:
    breach = Limits().tripped(made(Change((), rewritten=True)))
    assert breach is not None
    assert breach.reason == limit.HISTORY_REWRITTEN


def test_each_stage_of_each_task_has_its_own_counter() -> None:
    stage, other = Stage("coder", max_iterations=2), Stage("qa", max_iterations=1)
    task = Task("t1", "")
    history = of(made(job=Job(task, stage)), made(job=Job(task, stage)), made(job=Job(Task("t2", ""), stage)))
    limits = Limits()
    assert limits.stage_used_up(history, Job(task, stage)) == Breach(
        "MAX_ITERATIONS", "stage coder of t1 was tried 2 times"
    )
    assert limits.stage_used_up(history, Job(Task("t2", ""), stage)) is None
    assert limits.stage_used_up(history, Job(task, other)) is None


def test_a_tasks_own_criteria_beat_the_stages_limit() -> None:
    stage = Stage("coder", max_iterations=9)
    strict = Job(Task("t1", "", criteria=(("coder", Criteria("X", max_iterations=1)),)), stage)
    silent = Job(Task("t1", "", criteria=(("coder", Criteria("X")),)), stage)
    history = of(made(job=strict))
    assert Limits().stage_used_up(history, strict) is not None
    assert Limits().stage_used_up(history, silent) is None
    assert Limits().stage_used_up(history, JOB) is None


@given(st.integers(1, 20), st.integers(0, 30))
def test_the_iteration_limit_is_exact(most: int, done: int) -> None:
    limits = Limits(Budget(iterations=most), stall=None, same_error=None)
    assert (limits.ahead(edits(done), FRESH, 0.0) is None) == (done < most)
