"""What reviewers said of a run's work: judges, stages that only look, and the reviews of stories."""

from __future__ import annotations

from ralphproof import story
from ralphproof.check import Finding, clip
from ralphproof.iteration import History
from ralphproof.record import Judged, Record, RunEnded
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Passed, Retry, SentBack, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.value import Json

MOST = 100  # the last ones
WHAT_CHARS = 1000


def reviews(records: Iterable[Record], history: History) -> list[dict[str, Json]]:
    """Who looked, what they decided, and what they said of it, oldest first."""
    known = {facts.number: facts for facts in history.iterations}
    found: list[dict[str, Json]] = []
    for record in records:
        if isinstance(record, Judged) and (facts := known.get(record.iteration)):
            found += [_judge(facts.number, one) for one in facts.report.findings if one.judged]
            found += _look(facts.number, facts.job, record.verdict)
        elif isinstance(record, RunEnded):
            found += _stories(record)
    return found[-MOST:]


def _judge(number: int, finding: Finding) -> dict[str, Json]:
    answered = "no answer" if finding.errored else "passed" if finding.passed else "failed"
    why = finding.output or ("" if finding.why == "exit" else finding.why)
    return _told(f"judge {finding.check}, iteration {number}", answered, why)


def _look(number: int, job: Job, verdict: Verdict) -> Iterator[dict[str, Json]]:
    """The verdict of a stage that changes nothing; what it said is in the feedback that it sent back."""
    if job.stage.edits and not job.stage.looks and job.stage.name != story.REVIEW:
        return
    of = f" of {job.task.title or job.task.id}" if job.task.title or job.task.id else ""
    who = f"stage {job.stage.name}{of}, iteration {number}"
    match verdict:
        case Passed():
            yield _told(who, "passed", "")
        case SentBack(reopened, feedback):
            yield _told(who, "sent back", "\n".join((f"to {', '.join(reopened)}", *feedback.notes)))
        case Retry(feedback):
            yield _told(who, "undecided", "\n".join(feedback.notes))
        case _:
            yield _told(who, type(verdict).__name__.lower(), "")


def _stories(record: RunEnded) -> Iterator[dict[str, Json]]:
    for one in record.metrics.reviewed if record.metrics else ():
        capped = "approved only because it had been reviewed so often; " if one.capped else ""
        asked = "".join(f"\n{what}" for what in one.found)
        yield _told(f"story {one.story} {one.title}".strip(), one.status, f"{capped}reviews: {one.reviews}{asked}")


def _told(who: str, verdict: str, what: str) -> dict[str, Json]:
    return {"who": clip(who, WHAT_CHARS, "head"), "verdict": verdict, "what": clip(what, WHAT_CHARS, "head")}
