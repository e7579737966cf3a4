"""One iteration as programs read it, finished or not. Whatever strangers wrote in it is bounded and masked."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.display import words
from ralphproof.timeline import CheckRun, Leg, Span
from ralphproof.value import TYPE_CHECKING, assert_never
from ralphproof.verdict import Passed, Retry, SentBack, Stopped, Verdict, Waiting, verdict_word
from ralphproof.views.account import verdict_words
from ralphproof.world import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.timeline import Remark
    from ralphproof.value import Json

FILES, TESTS, LINES, CHARS = 200, 50, 50, 1000  # that are told of one iteration


def iteration_json(span: Span) -> dict[str, Json]:
    """Everything that is known of it."""
    job, saved = span.job, span.saved
    change, heard = (saved.change, saved.heard) if saved else (None, None)
    paths = change.own if change else ()
    uncounted: tuple[str, ...] = heard.uncounted if heard else ()
    notices = [line[:CHARS] for line in _notices(span)][:LINES]
    return {
        "number": span.number, "stage": job.stage.name if job else "", "task": job.task.id if job else "",
        "title": job.task.title if job else "", "beganAt": span.began_s, "endedAt": span.ended_s,
        "seconds": span.seconds, "countsFrom": span.counts_s,
        "turns": [_turn(span.number, leg) for leg in span.legs],
        "files": [*paths[:FILES]], "fileCount": len(paths), "filesKnown": change.known if change else False,
        "claim": heard.claim.word if heard and heard.claim else None, "uncounted": [*uncounted[:LINES]],
        "saved": saved.snapshot.ref if saved else None,
        "checks": [check_json(one) for one in span.checks],
        "verdict": _verdict(span.verdict) if span.verdict else None,
        "notices": [*notices], "commit": _commit(span.kept),
    }  # fmt: skip


def check_json(asked: CheckRun) -> dict[str, Json]:
    """One check: what it said, or that it is at work."""
    found = asked.finding
    if found is None:
        return {
            "name": asked.check, "command": "", "state": "stopped" if asked.stopped else "running", "exitCode": None,
            "why": "", "seconds": None, "log": "", "judged": False, "hidden": False, "flaky": 0, "failing": [],
            "output": "", "beganAt": asked.began_s,
        }  # fmt: skip
    state = "passed" if found.passed else "errored" if found.errored else "failed" if found.required else "advisory"
    state = "stopped" if found.why == words.STOPPED else state
    failing = found.tests.failing if found.tests else ()
    return {
        "name": found.check, "command": found.command, "state": state, "exitCode": found.code, "why": found.why,
        "seconds": found.seconds, "log": _log_name(found.log), "judged": found.judged, "hidden": found.hidden,
        "flaky": found.flaky, "failing": [*failing[:TESTS]], "output": found.output, "beganAt": asked.began_s,
    }  # fmt: skip


def failing_in(span: Span) -> int | None:
    """How many tests failed, where they can be read, else how many checks did; None where nothing was asked."""
    found = [one.finding for one in span.checks if one.finding]
    if not found:
        return None
    return sum(one.tests.failed if one.tests else 1 for one in found if not one.passed)


def _log_name(path: str) -> str:
    """The name under which the log of a check is asked for; empty where it has none."""
    return path.rpartition("/")[2].removesuffix(".log").removesuffix(".ndjson")


def _turn(iteration: int, leg: Leg) -> dict[str, Json]:
    reply, spent = leg.reply, leg.reply.spent if leg.reply else None
    exit = reply.exit if reply else None
    usage = spent.usage if spent else None
    return {
        "turn": leg.turn, "name": numbered(f"agent_{iteration:03d}", leg.turn), "agent": leg.agent,
        "model": (reply.model or "") if reply else "", "beganAt": leg.began_s, "endedAt": leg.ended_s,
        "why": exit.why if exit else None, "exitCode": exit.code if exit else None,
        "signal": exit.signal if exit else None, "error": reply.error if reply else None,
        "tools": reply.tools if reply else 0, "tokens": usage.total if usage else None,
        "usd": None if spent is None or spent.micro_usd is None else spent.micro_usd / 1_000_000,
        "text": reply.text if reply else "", "denied": [*reply.denied] if reply else [],
        "blocked": [*exit.blocked[:LINES]] if exit else [], "again": leg.again or None,
    }  # fmt: skip


def _verdict(verdict: Verdict) -> dict[str, Json]:
    return {"kind": verdict_word(verdict), "words": verdict_words(verdict), "why": _why(verdict)[:CHARS]}


def _why(verdict: Verdict) -> str:
    match verdict:
        case Passed(report):
            return words.report(report)
        case Retry(feedback) | SentBack(_, feedback):
            return words.lacking(feedback)
        case Waiting(reason):
            return reason
        case Stopped(breach):
            return breach.message
        case _:
            assert_never(verdict)


def _notices(span: Span) -> Iterator[str]:
    if span.saved:
        yield from words.touched(span.saved.sprung)
        yield from span.saved.sprung.remarks
        yield from words.altered(span.saved.altered)
        yield from (f"against the rules of the plan: {rule}" for rule in span.saved.illegal)
    yield from (_remark(one) for one in span.remarks)


def _remark(remark: Remark) -> str:
    match remark:
        case told.Noticed(message=message) | told.Warned(message=message):
            return message
        case told.Escalated():
            return words.escalated(remark)
        case told.Told(text=text):
            return f"you said: {text}"
        case told.Paused():
            return "it rests"
        case told.Regained(paths=paths):
            return f"it goes on; changed meanwhile, and yours: {', '.join(paths) or 'nothing'}"
        case told.Resumed():
            return words.resumed(remark)
        case told.HookEnded():
            return words.hooked(remark)
        case _:
            assert_never(remark)


def _commit(kept: told.ScmEnded | None) -> Json:
    if kept is None:
        return None
    return {"id": kept.committed.commit, "message": kept.message[:CHARS], "error": kept.committed.error}
