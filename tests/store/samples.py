"""Records for tests, one of each kind."""

from __future__ import annotations

from collections.abc import Iterable

from ralphproof.base.value import replace
from ralphproof.engine import records as told
from ralphproof.engine.agent import Limited, Spent, Turn, Usage
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import Claim, ParsedClaim
from ralphproof.engine.limits import Spend, utc_day
from ralphproof.engine.outcome import Completed, Metrics, Passed, ReviewTotals
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import Exit, HookResult
from ralphproof.engine.workspace import Change, CommitResult, Snapshot
from ralphproof.store.statistics import PeriodTotals, RunGroupTotals, RunTotals, nearest_rank, to_milliseconds

DAY = 20_504  # 2026-02-20
NOON_S = DAY * 86_400 + 43_200.0
SNAPSHOT = Snapshot("c0ffee", "7ee", "refs/ralph/r/1", "4ead", ("big.bin",))
FINDING = Finding("make test", False, "make test", 2, seconds=0.1, output="bad \udcff byte", fingerprint="f")


def metrics(**others: object) -> Metrics:
    """The figures of a completed run that ended at noon of 2026-02-20, UTC."""
    made = Metrics("r", NOON_S - 60.0, NOON_S, "COMPLETED", skill="tdd", agent="claude", iterations=1, verified=True)
    return replace(replace(made, micro_usd=12, at_least_micro_usd=12, seconds=60.0), **others)


def turn(text: str = "said") -> Turn:
    return Turn(Exit(0, seconds=1.5), text, usage=Usage(), micro_usd=12, session="s")


def one_of_each() -> tuple[Record, ...]:
    """A whole run of two iterations in two sessions, with every kind of record."""
    job = Job(Task("a", "title"), Stage("work", checks=("make test",)))
    outcome = Completed(1, Spend(), 2.0, "said", True, ("slow",))
    return (
        told.RunBegan("r", SNAPSHOT, {"preset": "verify", "limits": {"iterations": 3}, "dry": False}),
        told.Picked(1, job),
        told.Paused(1, 0),
        told.UserChangesSaved(1, 0, SNAPSHOT, ("mine.py", "caf\udce9")),
        told.CheckBegan(0, 1, "make test"),
        told.CheckEnded(0, 1, FINDING),
        told.BaselineSaved(SNAPSHOT),
        told.UserMessageAdded(1, 1, "use the \udcff parser"),
        told.TurnBegan(1, 1, "digest", ("agent", "-p"), "claude"),
        told.TurnEnded(1, 1, Turn(Exit(None, "killed", 9), limited=Limited("five_hour", None))),
        told.Saved(1, 1, SNAPSHOT, Change(), ParsedClaim()),
        told.TurnRetried(1, 1, False, "service", 1_800_000_000.5),
        told.TurnBegan(1, 2, "digest"),
        told.TurnEnded(1, 2, turn()),
        told.Saved(1, 2, SNAPSHOT, Change(("a.py", "caf\udce9"), tree="7ee"), ParsedClaim(None, ("late",))),
        told.CheckBegan(1, 2, "make test"),
        told.CheckEnded(1, 2, FINDING),
        told.CheckStopped(1, 2, "judge", Spent(9, Usage(1, 2)), 1),
        told.Judged(1, 2, Passed(CheckReport((FINDING,))), 4.25),
        told.ScmBegan(1),
        told.ScmEnded(1, CommitResult("abc"), turn("message"), "message"),
        told.Noticed(1, 0, "something"),
        told.HookBegan(1, "afterIteration", 0, 0, "make tidy"),
        told.HookEnded(1, "afterIteration", 0, 0, HookResult("make tidy", False, 2, "exit code 2"), SNAPSHOT, ("x",)),
        told.Warned(1, "cost", "80% of the limit"),
        told.Escalated(2, 1, True, "nothing changed"),
        told.Resumed(2, 1_800_000_100.5, 4.5),
        told.Picked(2, job),
        told.ClaimFound(2, 1),
        told.Saved(2, 1, SNAPSHOT, Change(), ParsedClaim(Claim("DONE", source="marker", stamp="1:2:3"))),
        told.ChildRunsAwaited(2, 1, ("child",), 6.5),
        told.ChildWorkJoined(2, 1, SNAPSHOT, Change(("b.py",), tree="7ef")),
        told.Judged(2, 1, Passed(CheckReport((FINDING,))), 8.25, 2),
        told.RunEnded(outcome, metrics(), 2),
    )


def end(session: int = 1, **others: object) -> told.RunEnded:
    """The end of a session, with the figures of `metrics`."""
    return told.RunEnded(Completed(1, Spend(), 2.0, "said", True), metrics(**others), session)


def notices(count: int, first: int = 0) -> tuple[Record, ...]:
    return tuple(told.Noticed(1, number, f"notice {number} " + "x" * 300) for number in range(first, first + count))


def sum_runs(ended: Iterable[Metrics], first_day: int, last_day: int) -> PeriodTotals:
    """What the ledger adds up for those runs that ended in these days."""
    runs = [run for run in ended if first_day <= utc_day(run.ended_s) <= last_day]
    groups: dict[tuple[str, str, str, str], list[Metrics]] = {}
    for run in runs:
        groups.setdefault((run.skill, run.agent, run.status, run.reason), []).append(run)
    cells = tuple(_sum_group(key, groups[key]) for key in sorted(groups))
    costs = [run.micro_usd for run in runs if run.micro_usd is not None]
    iterations = [run.iterations for run in runs]
    return PeriodTotals(
        first_day, last_day, RunTotals(cells),
        nearest_rank(iterations, 95), nearest_rank(costs, 95),
        _sum_reviews(tuple(run.reviews for run in runs if run.reviews)),
    )  # fmt: skip


def _sum_group(key: tuple[str, str, str, str], runs: list[Metrics]) -> RunGroupTotals:
    return RunGroupTotals(
        *key,
        len(runs),
        sum(run.iterations for run in runs),
        sum(to_milliseconds(run.seconds) for run in runs),
        sum(run.micro_usd is not None for run in runs),
        sum(run.micro_usd or 0 for run in runs),
        sum(run.at_least_micro_usd for run in runs),
        sum(run.tokens for run in runs),
        sum(run.verified for run in runs),
        sum(run.saved_micro_usd or 0 for run in runs),
    )


def _sum_reviews(totals: tuple[ReviewTotals, ...]) -> ReviewTotals:
    """The sum of all fields."""
    return ReviewTotals(*(sum(getattr(total, name) for total in totals) for name in ReviewTotals.__match_args__))
