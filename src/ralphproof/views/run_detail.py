"""All about one run as JSON: status, limits, iterations and checks."""

from __future__ import annotations

import time

from ralphproof.base.value import TYPE_CHECKING, assert_never
from ralphproof.display import phrases
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.outcome import Passed, Retry, SentBack, Stopped, Verdict, Waiting, outcome_json, verdict_word
from ralphproof.engine.records import (
    Escalated,
    HookEnded,
    Noticed,
    Paused,
    Resumed,
    ScmEnded,
    UserChangesSaved,
    UserMessageAdded,
    Warned,
)
from ralphproof.engine.state import RunOver, count_begun_iterations
from ralphproof.store.run_state import CRASHED
from ralphproof.views.interrupted_run import last_active_s
from ralphproof.views.run_list import open_run_line
from ralphproof.views.run_status import describe_verdict, service_retry_time
from ralphproof.views.timeline import BASELINE_NUMBER, TimelineCheck, TimelineIteration, TimelineTurn, close_iteration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.store.ledger import SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.views.run_records import RunHistory
    from ralphproof.views.run_status import RunStatus
    from ralphproof.views.timeline import TimelineNote


# One iteration as JSON. Text of any origin in it is limited and masked.


MAX_FILES, MAX_TESTS, MAX_LINES, MAX_CHARS = 200, 50, 50, 1000  # that are told of one iteration


def iteration_json(span: TimelineIteration) -> dict[str, Json]:
    """An iteration, finished or not."""
    job, saved = span.job, span.saved
    change, heard = (saved.change, saved.heard) if saved else (None, None)
    paths = change.agent_paths if change else ()
    uncounted: tuple[str, ...] = heard.uncounted if heard else ()
    notices = [line[:MAX_CHARS] for line in _iteration_notices(span)][:MAX_LINES]
    return {
        "number": span.number, "stage": job.stage.name if job else "", "task": job.task.id if job else "",
        "title": job.task.title if job else "", "beganAt": span.began_s, "endedAt": span.ended_s,
        "seconds": span.seconds, "countsFrom": span.counts_s,
        "turns": [_turn_json(span.number, leg) for leg in span.legs],
        "files": [*paths[:MAX_FILES]], "fileCount": len(paths), "filesKnown": change.known if change else False,
        "claim": heard.claim.word if heard and heard.claim else None, "uncounted": [*uncounted[:MAX_LINES]],
        "saved": saved.snapshot.ref if saved else None,
        "checks": [check_json(one) for one in span.checks],
        "verdict": _verdict_json(span.verdict) if span.verdict else None,
        "notices": [*notices], "commit": _commit_json(span.kept),
    }  # fmt: skip


def check_json(check: TimelineCheck) -> dict[str, Json]:
    """A check: its result, or that it runs."""
    finding = check.finding
    if finding is None:
        return {
            "name": check.check, "command": "", "state": "stopped" if check.stopped else "running", "exitCode": None,
            "why": "", "seconds": None, "log": "", "judged": False, "hidden": False, "flaky": 0, "failing": [],
            "output": "", "beganAt": check.began_s,
        }  # fmt: skip
    state = (
        "passed" if finding.passed else "errored" if finding.errored else "failed" if finding.required else "advisory"
    )
    state = "stopped" if finding.why == phrases.STOPPED else state
    failing = finding.tests.failing if finding.tests else ()
    return {
        "name": finding.check, "command": finding.command, "state": state, "exitCode": finding.code, "why": finding.why,
        "seconds": finding.seconds, "log": _log_name(finding.log), "judged": finding.judged, "hidden": finding.hidden,
        "flaky": finding.flaky, "failing": [*failing[:MAX_TESTS]], "output": finding.output, "beganAt": check.began_s,
    }  # fmt: skip


def count_failing(span: TimelineIteration) -> int | None:
    """How many tests failed, where they were counted, else how many checks; None where no check ran."""
    found = [one.finding for one in span.checks if one.finding]
    if not found:
        return None
    return sum(one.tests.failed if one.tests else 1 for one in found if not one.passed)


def _log_name(path: str) -> str:
    """The name of a check's log; empty where it has none."""
    return path.rpartition("/")[2].removesuffix(".log").removesuffix(".ndjson")


def _turn_json(iteration: int, leg: TimelineTurn) -> dict[str, Json]:
    reply, spent = leg.reply, leg.reply.spent if leg.reply else None
    exit = reply.exit if reply else None
    usage = spent.usage if spent else None
    return {
        "turn": leg.turn, "name": turn_file_name(f"agent_{iteration:03d}", leg.turn), "agent": leg.agent,
        "model": (reply.model or "") if reply else "", "beganAt": leg.began_s, "endedAt": leg.ended_s,
        "why": exit.why if exit else None, "exitCode": exit.code if exit else None,
        "signal": exit.signal if exit else None, "error": reply.error if reply else None,
        "tools": reply.tools if reply else 0, "tokens": usage.total if usage else None,
        "usd": None if spent is None or spent.micro_usd is None else spent.micro_usd / 1_000_000,
        "text": reply.text if reply else "", "denied": [*reply.denied] if reply else [],
        "blocked": [*exit.blocked[:MAX_LINES]] if exit else [], "again": leg.again or None,
    }  # fmt: skip


def _verdict_json(verdict: Verdict) -> dict[str, Json]:
    return {
        "kind": verdict_word(verdict),
        "words": describe_verdict(verdict),
        "why": _verdict_reason(verdict)[:MAX_CHARS],
    }


def _verdict_reason(verdict: Verdict) -> str:
    match verdict:
        case Passed(report):
            return phrases.describe_report(report)
        case Retry(feedback) | SentBack(_, feedback):
            return phrases.describe_feedback(feedback)
        case Waiting(reason):
            return reason
        case Stopped(breach):
            return breach.message
        case _:
            assert_never(verdict)


def _iteration_notices(span: TimelineIteration) -> Iterator[str]:
    if span.saved:
        yield from phrases.describe_touched_paths(span.saved.sprung)
        yield from span.saved.sprung.remarks
        yield from phrases.describe_altered_checks(span.saved.altered)
        yield from (f"against the rules of the plan: {rule}" for rule in span.saved.illegal)
    yield from (_describe_remark(one) for one in span.remarks)


def _describe_remark(remark: TimelineNote) -> str:
    match remark:
        case Noticed(message=message) | Warned(message=message):
            return message
        case Escalated():
            return phrases.describe_escalation(remark)
        case UserMessageAdded(text=text):
            return f"you said: {text}"
        case Paused():
            return "it rests"
        case UserChangesSaved(paths=paths):
            return f"it goes on; changed meanwhile, and yours: {', '.join(paths) or 'nothing'}"
        case Resumed():
            return phrases.describe_resume(remark)
        case HookEnded():
            return phrases.describe_hook(remark)
        case _:
            assert_never(remark)


def _commit_json(record: ScmEnded | None) -> Json:
    if record is None:
        return None
    return {"id": record.committed.commit, "message": record.message[:MAX_CHARS], "error": record.committed.error}


# One run as JSON.


LIMIT_UNITS = {"iterations": "count", "cost": "usd", "day's cost": "usd", "tokens": "tokens", "time": "seconds"}


def run_detail_json(
    ledger: SqliteLedger, status: RunStatus, followed: RunHistory, project: Project, after: int, today: Spend | None
) -> dict[str, Json]:
    """Everything about a run, with the iterations that changed after the record of this number."""
    summary, timeline = status.summary, followed.timeline
    phase, now_s = summary.state.phase, time.time()
    outcome = phase.outcome if isinstance(phase, RunOver) else None
    until = None if status.state == CRASHED else service_retry_time(summary, now_s)
    before = timeline.spans.get(BASELINE_NUMBER)
    until_s = last_active_s(project, status.row.id, followed.at_s) if status.state == CRASHED else None
    details: dict[str, Json] = {
        "v": 1, "seq": followed.seq, "complete": after == 0, "facts": summary.facts,
        "outcome": outcome_json(outcome) if outcome else None,
        "words": [*(phrases.describe_outcome(outcome) if outcome else ())],
        "headline": status.first_line(), "since": status.since, "unread": status.unread,
        "found": status.interruption or None, "limits": _limits_json(status, followed, today, until_s or now_s),
        "waits": None if until is None else {"until": until, "why": summary.refused},
        "failing": _failing_history(followed), "kin": [{"run": run, "state": state} for run, state in status.children],
        "stages": _stages_json(summary.facts.get("stages")), "stories": "stories" in summary.facts,
        "baseline": [check_json(one) for one in (before.checks if before else ())],
        "iterations": [iteration_json(span) for span in _iterations_since(followed, after, until_s)],
    }  # fmt: skip
    return open_run_line(ledger, status.row, status.state, followed, project) | details


def _iterations_since(followed: RunHistory, after: int, until_s: float | None) -> list[TimelineIteration]:
    """The iterations that changed. The last one of a crashed run ended when the run was last active."""
    spans, pace, changed = followed.timeline.spans, followed.timeline.pace, followed.timeline.touched
    last, numbers = (
        max(spans, default=BASELINE_NUMBER),
        {number for number, seq in changed.items() if number and seq > after},
    )
    if until_s is None or not last or spans[last].ended_s is not None:
        return [spans[number] for number in sorted(numbers)]
    left = close_iteration(spans[last], until_s, pace.seconds(last, pace.age_s(until_s)))  # no record says so
    return [*(spans[number] for number in sorted(numbers - {last})), left]


def _limits_json(status: RunStatus, followed: RunHistory, today: Spend | None, until_s: float) -> list[Json]:
    """How much of each limit is used by then. Unknown amounts are null; what has no limit is listed too."""
    state, facts = followed.state, status.summary.facts
    outcome = state.phase.outcome if isinstance(state.phase, RunOver) else None
    spend = status.total_spend or status.spend
    used: dict[str, tuple[Json, str]] = {
        "iterations": (outcome.iterations if outcome else count_begun_iterations(state), "maximumIterations"),
        "cost": (spend.known_usd, "maxCostUsd"),
        "day's cost": (today.known_usd if today else None, "dailyCostUsd"),
        "tokens": (spend.tokens or None, "maxTokens"),  # who tells none may have used any number
        "time": (outcome.seconds if outcome else followed.timeline.pace.age_s(until_s), "maxSeconds"),
    }  # fmt: skip
    rough = {"cost": spend.unpriced, "day's cost": today.unpriced if today else 0}
    return [
        {
            "name": name,
            "used": amount,
            "most": facts.get(fact),
            "unit": LIMIT_UNITS[name],
            "atLeast": bool(rough.get(name)),
        }
        for name, (amount, fact) in used.items()
    ]


def _failing_history(followed: RunHistory) -> list[Json]:
    spans = followed.timeline.spans
    return [{"iteration": number, "failing": count_failing(spans[number])} for number in sorted(spans)]


def _stages_json(stages: Json) -> list[Json]:
    return [one.get("name") for one in stages if isinstance(one, dict)] if isinstance(stages, list | tuple) else []
