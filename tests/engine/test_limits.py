"""What may not be exceeded, repeated or touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.value import replace
from ralphproof.engine import limits
from ralphproof.engine.check import CheckReport, SuiteResult
from ralphproof.engine.limits import Breach, Budget, DaySpend, Limits, Spend, describe_last_error, find_tripwire_breach
from ralphproof.engine.plan import History, Iteration, Job, Stage, Task
from ralphproof.engine.workspace import Change, TouchedPath, TripwireReport
from tests.engine.fake_environment import EDITED, NOTHING, make_finding
from tests.engine.test_iteration import made, of, red

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
        pytest.param(Budget(micro_usd=500), edits(1), Spend(499), 0.0, None, id="a last cent is left"),
        pytest.param(Budget(micro_usd=500), edits(1), Spend(500), 0.0, "COST_LIMIT", id="the money is gone"),
        pytest.param(Budget(tokens=100), edits(1), Spend(0, 99), 0.0, None, id="a last token is left"),
        pytest.param(Budget(tokens=100), edits(1), Spend(0, 100), 0.0, "TOKEN_LIMIT", id="the tokens are gone"),
        pytest.param(Budget(seconds=60.0), edits(1), FRESH, 59.9, None, id="time left"),
        pytest.param(Budget(seconds=60.0), edits(1), FRESH, 60.0, "TIME_LIMIT", id="time used"),
    ],
)
def test_a_budget_that_is_used_up_forbids_another_iteration(
    budget: Budget, history: History, spend: Spend, elapsed_s: float, reason: str | None
) -> None:
    breach = Limits(budget).find_exhausted(history, spend, DaySpend(), elapsed_s)
    assert (breach.reason if breach else None) == reason


def test_a_breach_tells_the_facts_in_one_sentence() -> None:
    over = Limits(Budget(2, 1_000_000, 100, 90.0))
    assert over.find_exhausted(edits(2), FRESH, DaySpend(), 0.0) == Breach(
        "MAX_ITERATIONS", "2 of 2 iterations are used"
    )
    assert over.find_exhausted(edits(1), FRESH, DaySpend(), 99.0) == Breach("TIME_LIMIT", "1.6 of 1.5 minutes are used")
    assert over.find_overspent(Spend(1_250_000)) == Breach("COST_LIMIT", "spent $1.25 of $1.00")
    assert over.find_overspent(Spend(0, 150)) == Breach("TOKEN_LIMIT", "used 150 of 100 tokens")


IDLE, STUCK = made(NOTHING), red("A")
BACK = [made(tree="x"), made(tree="y")]
FORTH = [red("A"), red("B")]


def patterns(stall: int | None = 5, same_error: int | None = 5) -> Limits:
    return Limits(stall_iterations=stall, same_error_iterations=same_error)


@pytest.mark.parametrize(
    ("history", "limits", "reason"),
    [
        pytest.param([IDLE] * 4, patterns(), None, id="four idle turns"),
        pytest.param([IDLE] * 5, patterns(), "STALL", id="five idle turns"),
        pytest.param([IDLE] * 2, patterns(stall=2), "STALL", id="a threshold of two"),
        pytest.param([IDLE] * 99, patterns(stall=None), None, id="not looked for"),
        pytest.param([made(Change(known=False))] * 9, patterns(), None, id="unknown changes are no stall"),
        pytest.param([STUCK] * 4, patterns(), None, id="four equal errors"),
        pytest.param([STUCK] * 5, patterns(), "SAME_ERROR_5X", id="five equal errors"),
        pytest.param([STUCK] * 99, patterns(same_error=None), None, id="errors not looked for"),
        pytest.param([made(NOTHING, STUCK.report)] * 5, patterns(), "STALL", id="stall and same error at once"),
        pytest.param(BACK * 4 + BACK[:1], patterns(), None, id="the tree, nine times back and forth"),
        pytest.param(BACK * 5, patterns(), "OSCILLATION", id="the tree, ten times back and forth"),
        pytest.param(BACK * 9, patterns(stall=None), None, id="the tree, not looked for"),
        pytest.param(FORTH * 5, patterns(stall=None), "OSCILLATION", id="errors, ten times back and forth"),
        pytest.param(FORTH * 9, patterns(stall=None, same_error=None), None, id="neither looked for"),
        pytest.param(FORTH * 2, patterns(same_error=2), "OSCILLATION", id="a smaller threshold"),
    ],
)
def test_a_pattern_ends_the_run_at_its_threshold(history: list, limits: Limits, reason: str | None) -> None:  # type: ignore[type-arg]
    breach = limits.find_lack_of_progress(of(*history))
    assert (breach.reason if breach else None) == reason


def touched(*paths: TouchedPath, patch: str = "") -> Iteration:
    return replace(made(), tripwires=TripwireReport(paths, patch))


def test_a_protected_path_that_was_touched_trips_and_everything_about_it_is_said() -> None:
    assert find_tripwire_breach(touched(TouchedPath(".mcp.json", "tools of the agent's"))) is None
    breach = find_tripwire_breach(
        touched(
            TouchedPath("src/auth/a", "protectedPaths: src/auth/", stops=True),
            TouchedPath(".env", "protectedPaths: .env", stops=True, trouble="no space"),
            TouchedPath("src/auth/a", "protectedPaths: src/auth/", stops=True, held_by="branch x"),
            patch="agent_001.patch",
        )
    )
    told = (
        "protected paths were changed: src/auth/a, .env, src/auth/a (branch x); .env could not be put back: no space; "
        "the attempt is kept in agent_001.patch"
    )
    assert breach == Breach("PROHIBITED_PATH", told, ("src/auth/a", ".env"))


def test_many_protected_paths_are_counted() -> None:
    breach = find_tripwire_breach(touched(*(TouchedPath(f"p{n}", "protectedPaths: *", stops=True) for n in range(12))))
    assert breach is not None
    assert breach.message.endswith("p9 and 2 more; their files were put back")
    assert len(breach.paths) == 12


@pytest.mark.parametrize(
    ("spent", "day", "reason"),
    [
        pytest.param(0, DaySpend(999_999), None, id="a little is left of the day"),
        pytest.param(0, DaySpend(1_000_000), "DAILY_COST_LIMIT", id="the day is used up"),
        pytest.param(0, DaySpend(0, "spend.db was changed"), "DAILY_COST_LIMIT", id="nobody knows what is left"),
        pytest.param(500, DaySpend(2_000_000), "COST_LIMIT", id="the run's own limit is named first"),
    ],
)
def test_all_runs_of_a_day_share_a_budget(spent: int, day: DaySpend, reason: str | None) -> None:
    limits = Limits(Budget(micro_usd=500, daily_micro_usd=1_000_000))
    breach = limits.find_exhausted(History(), Spend(spent), day, 0.0)
    assert (breach.reason if breach else None) == reason
    assert Limits(Budget()).find_exhausted(History(), Spend(spent), day, 0.0) is None


def test_the_last_cent_of_a_day_may_be_spent() -> None:
    limits = Limits(Budget(daily_micro_usd=1_000_000))
    assert limits.find_overspent(Spend(), DaySpend(1_000_000)) is None
    assert limits.find_overspent(Spend(), DaySpend(1_000_001)) == Breach(
        "DAILY_COST_LIMIT", "all runs of this UTC day together spent $1.00 of $1.00"
    )


@pytest.mark.parametrize(
    ("iteration", "spent", "day", "told"),
    [
        (8, 3_999_999, 0, []),
        (8, 4_000_000, 0, ["[Ralph] Cost at 80% of limit: $4.00 / $5"]),
        (9, 0, 0, ["[Ralph] Iteration at 90% of limit: 9 / 10"]),
        (1, 0, 40_000_000, ["[Ralph] Daily cost at 80% of limit: $40.00 / $50"]),
    ],
)
def test_a_limit_that_comes_near_is_told(iteration: int, spent: int, day: int, told: list[str]) -> None:
    limits = Limits(Budget(10, 5_000_000, daily_micro_usd=50_000_000))
    assert [warning.message for warning in limits.warnings(iteration, Spend(spent), DaySpend(day))] == told


def test_a_run_of_one_iteration_is_not_warned_of_it() -> None:
    assert Limits(Budget(1)).warnings(1, Spend(), DaySpend()) == ()


def test_the_same_error_is_told_by_its_tests_where_they_can_be_read() -> None:
    failing = replace(make_finding(False), tests=SuiteResult("pytest", ("a.py::x", "b.py::y"), 2), output="E   boom\n")
    breach = patterns(same_error=2).find_lack_of_progress(of(*[made(report=CheckReport((failing,)))] * 2))
    assert breach == Breach(
        "SAME_ERROR_5X",
        "2 iterations in a row failed in the same way (the same tests failed)",
        error="boom (a.py::x, b.py::y)",
    )
    unread = replace(failing, tests=None)
    breach = patterns(same_error=2).find_lack_of_progress(of(*[made(report=CheckReport((unread,)))] * 2))
    assert breach is not None
    assert breach.message.endswith("(by the text of the output)")
    assert breach.error == "boom"


def test_rewritten_history_trips_without_any_protected_path() -> None:
    breach = find_tripwire_breach(made(Change((), rewritten=True)))
    assert breach is not None
    assert breach.reason == limits.HISTORY_REWRITTEN


def test_each_stage_of_each_task_has_its_own_counter() -> None:
    stage, other = Stage("coder", max_iterations=2), Stage("qa", max_iterations=1)
    task = Task("t1", "")
    history = of(made(job=Job(task, stage)), made(job=Job(task, stage)), made(job=Job(Task("t2", ""), stage)))
    limits = patterns()
    assert limits.find_stage_exhausted(history, Job(task, stage)) == Breach(
        "MAX_ITERATIONS", "stage coder of t1 was tried 2 times"
    )
    assert limits.find_stage_exhausted(history, Job(Task("t2", ""), stage)) is None
    assert limits.find_stage_exhausted(history, Job(task, other)) is None


@given(st.integers(1, 20), st.integers(0, 30))
def test_the_iteration_limit_is_exact(most: int, done: int) -> None:
    limits = Limits(Budget(iterations=most))
    assert (limits.find_exhausted(edits(done), FRESH, DaySpend(), 0.0) is None) == (done < most)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ("unittest-3.13.0/fail", "AssertionError: 2 != 1"),
        ("pytest-9.2.0/fail", "assert (2 * 2) == 5"),
        ("pytest-9.2.0/collect", "SyntaxError: invalid syntax"),
        ("go-1.27.3/twice", "3-1 = 2, want 1"),
        ("cargo-1.95.0/fail", "assertion `left == right` failed left: 2 right: 1"),
        ("jest-30.5.2/fail", "expect(received).toBe(expected) // Object.is equality Expected: 5 Received: 4"),
        ("node-24.21.0/fail-tap", "known"),
        ("node-24.21.0/fail-spec", "AssertionError [ERR_ASSERTION]: Expected values to be strictly equal: 4 !== 5"),
    ],
)
def test_the_last_error_is_the_message_that_a_runner_printed(recorded: str, message: str) -> None:
    output = (Path(__file__).parents[1] / f"checks/recorded/{recorded}.txt").read_text(encoding="utf-8")
    assert describe_last_error(made(report=CheckReport((replace(make_finding(False), output=output),)))) == message
