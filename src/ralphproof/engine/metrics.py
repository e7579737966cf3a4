"""Calculation of a run's metrics from the state in which it ends."""

from __future__ import annotations

import hashlib
import time

from ralphproof.base.value import Json, assert_never
from ralphproof.engine.check import Finding
from ralphproof.engine.outcome import (
    ABORTED,
    COMPLETED,
    ERROR,
    Aborted,
    Completed,
    Failed,
    Metrics,
    Outcome,
    StoryReview,
    review_totals_json,
    total_reviews,
)
from ralphproof.engine.plan import Iteration
from ralphproof.engine.state import Checking, State, TurnFinished

UUID_NAMESPACE = b"ralphproof run "
MAX_STORIES = 1000  # stored individually; the totals count all


def compute_run_metrics(
    state: State, outcome: Outcome, ended_s: float, reviewed: tuple[StoryReview, ...] = ()
) -> Metrics:
    """The figures of a run that ends in this state; `reviewed` are its stories."""
    status, reason = _status_and_reason(outcome)
    iterations = _all_iterations(state)
    spend = outcome.spend
    changed = {path for facts in iterations for path in facts.change.agent_paths}
    return Metrics(
        run=state.run.id, began_s=state.run.began_s, ended_s=ended_s, status=status, reason=reason,
        skill=_label(state, "skill"), task_type=_label(state, "taskType"), agent=_label(state, "agent"),
        model=_model(state) or _label(state, "model"), preset=_label(state, "preset"),
        iterations=outcome.iterations, seconds=max(0.0, outcome.seconds),
        micro_usd=None if spend.unpriced else spend.micro_usd, at_least_micro_usd=spend.micro_usd,
        tokens=spend.tokens, files=len(changed), tests_fixed=_tests_fixed(state),
        claimed=any(_has_claim(facts) for facts in iterations), verified=_is_verified(state, outcome),
        reviews=total_reviews(reviewed), reviewed=reviewed[:MAX_STORIES], sandbox=_sandbox(state),
    )  # fmt: skip


def _status_and_reason(outcome: Outcome) -> tuple[str, str]:
    """(status, reason)."""
    match outcome:
        case Completed():
            return COMPLETED, ""
        case Aborted():
            return ABORTED, outcome.breach.reason
        case Failed():
            return ERROR, ""
        case _:
            assert_never(outcome)


def _is_verified(state: State, outcome: Outcome) -> bool:
    """Whether the checks passed at the end, with no later iteration."""
    if isinstance(outcome, Completed):
        return outcome.verified
    past = state.history.iterations
    last_verified = bool(past) and past[-1].number == state.iteration and past[-1].report.verified
    return last_verified or (isinstance(outcome, Aborted) and outcome.checks_passed)


def _all_iterations(state: State) -> tuple[Iteration, ...]:
    """Every iteration, including a last one that was not judged."""
    past = state.history.iterations
    return (*past, state.phase.facts) if isinstance(state.phase, Checking) else past


def _label(state: State, name: str) -> str:
    found = state.run.facts.get(name)
    return found if isinstance(found, str) else ""


def _sandbox(state: State) -> tuple[str, str] | None:
    """Name and strength of the run's sandbox; None where not recorded."""
    found = state.run.facts.get("sandbox")
    return (str(found.get("name")), str(found.get("strength"))) if isinstance(found, dict) else None


def _model(state: State) -> str:
    """The model last reported."""
    turns = [facts.turn for facts in _all_iterations(state)]
    if isinstance(state.phase, TurnFinished):
        turns.append(state.phase.reply)
    return next((turn.model for turn in reversed(turns) if turn.model), "")


def _has_claim(facts: Iteration) -> bool:
    return facts.claim is not None and not facts.claim.waiting and facts.job.stage.claim.accepts(facts.claim)


def _tests_fixed(state: State) -> int | None:
    """The decrease in failing tests since before the first iteration, over the checks where both counts are known."""
    last = {finding.check: finding for facts in _all_iterations(state) for finding in facts.report.findings}
    pairs = [(earlier, last[earlier.check]) for earlier in state.baseline.report.findings if earlier.check in last]
    counts = [(_count_failing(earlier, later), _count_failing(later, earlier)) for earlier, later in pairs]
    known = [before - after for before, after in counts if before is not None and after is not None]
    return sum(known) if known else None


def _count_failing(finding: Finding, other: Finding) -> int | None:
    """The number of failing tests. Where one of two findings has test results, one that passed counts as zero."""
    if finding.tests is not None:
        return finding.tests.failed
    return 0 if finding.passed and other.tests is not None else None


def run_metrics_json(metrics: Metrics) -> dict[str, Json]:
    """The figures of a run in JSON form."""
    return {
        "loopId": _uuid(metrics.run),
        "run": metrics.run,
        "skill": metrics.skill,
        "taskType": metrics.task_type,
        "agent": metrics.agent,
        "model": metrics.model,
        "preset": metrics.preset,
        "startTime": _format_time(metrics.began_s),
        "endTime": _format_time(metrics.ended_s),
        "status": metrics.status,
        **({"abortReason": metrics.reason} if metrics.reason else {}),
        "iterations": metrics.iterations,
        "costUSD": _usd(metrics.micro_usd),
        "atLeastUSD": _usd(metrics.at_least_micro_usd),
        "tokens": metrics.tokens,
        "durationSeconds": round(metrics.seconds, 3),
        "filesModified": metrics.files,
        "testsFixed": metrics.tests_fixed,
        "completionPromiseDetected": metrics.claimed,
        "verificationPassed": metrics.verified,
        "savedUSD": _usd(metrics.saved_micro_usd),
        **(review_totals_json(metrics.reviews) if metrics.reviews else {}),
    }


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else micro_usd / 1_000_000


def _format_time(epoch_s: float) -> str:
    """In UTC, as `2026-02-20T13:05:07Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))


def _uuid(run: str) -> str:
    """A run's name as a stable UUID of version 5."""
    from uuid import UUID

    digest = hashlib.sha1(UUID_NAMESPACE + run.encode("utf-8", "surrogatepass")).digest()  # noqa: S324
    return str(UUID(bytes=digest[:16], version=5))
