"""What follows from one iteration, and how a run ends."""

from __future__ import annotations

from ralphproof.agent import bounded
from ralphproof.budget import Spend
from ralphproof.check import Finding, Report, clip, fenced
from ralphproof.claim import QUOTED_CHARS, harmless, quoted
from ralphproof.fault import fault_of
from ralphproof.iteration import History, Iteration
from ralphproof.limit import CANCELLED, INTERRUPTED, WAITING, Breach, Limits, tripped
from ralphproof.purse import NOTHING_SPENT, Day
from ralphproof.value import TYPE_CHECKING, assert_never, replace, value

if TYPE_CHECKING:
    from ralphproof.value import Json


NOT_ASKED = Report()
TOUCHED_TOLD = 20
DENIALS_TOLD = 5  # of those in a turn, in the next prompt
FAULT_CHARS = 500  # of why a turn failed
TESTS_TOLD = 20
FINDINGS_CHARS = 10_000  # of what a stage says that found faults


@value
class Feedback:
    """What the next prompt must say of the last iteration."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    refused: bool = False  # it claimed to be done, and its checks say otherwise


@value
class Passed:
    """This stage of this task is done, as far as anything was asked."""

    report: Report


@value
class Retry:
    """Not done; the next prompt says why."""

    feedback: Feedback


@value
class SentBack:
    """A stage found faults that are not its to mend: the task goes through these stages again, the first one first."""

    reopened: tuple[str, ...]
    feedback: Feedback


@value
class Waiting:
    """The agent waits for somebody."""

    reason: str


@value
class Stopped:
    """A limit says stop."""

    breach: Breach
    checks_passed: bool = False


Verdict = Passed | Retry | SentBack | Waiting | Stopped


def judge(
    history: History, spend: Spend, limits: Limits, day: Day = NOTHING_SPENT, baseline: Report = NOT_ASKED
) -> Verdict:
    """Decide what follows from the latest iteration; tripwires beat success, and so does money."""
    now = history.latest
    if breach := tripped(now):
        return Stopped(breach, now.report.verified)
    if now.claim is not None and now.claim.waiting:
        return Waiting(now.claim.word)
    if breach := limits.overspent(spend, day):
        return Stopped(breach, now.report.verified)
    stage, report = now.job.stage, now.report
    accepted = stage.claim.accepts(now.claim)
    settled = report.passed or (stage.trusts and not report.faults)
    if accepted and settled and not now.sprung.touched and not _meddled(now):
        return Passed(report)
    refused = bool(report.faults) and now.claim is not None and accepted
    told = Feedback(report.failed, (*_before(report, baseline), *_notes(now)), refused)
    if stage.back and (stage.claim.refuses(now.claim) or (accepted and report.faults and not stage.edits)):
        return SentBack(stage.back, replace(told, notes=(_sent_back(now), *told.notes)))
    return Retry(told)


def _meddled(now: Iteration) -> bool:
    """A stage that only looks left another tree or history behind than the one that it looked at."""
    return now.job.stage.looks and (now.change.committed or bool(now.change.paths))


def _sent_back(now: Iteration) -> str:
    """What the stage that mends a fault is told by the one that found it: foreign words, and kept apart as such."""
    said = fenced(clip(harmless(now.turn.text).strip(), FINDINGS_CHARS))
    return f"Stage {now.job.stage.name} found faults, and sent the task back. This is what its agent said:\n\n{said}"


def _before(report: Report, baseline: Report) -> tuple[str, ...]:
    """Which failures were there before the run began, and which are new."""
    return tuple(
        note
        for finding in report.failed
        if (earlier := baseline.of(finding.check)) and (note := _compared(finding, earlier))
    )


def _compared(finding: Finding, earlier: Finding) -> str:
    name = f'Guardrail "{finding.command or finding.check}"'
    if earlier.passed:
        return f"{name} passed before the run began: what fails in it is new."
    if finding.tests is None or earlier.tests is None:
        return f"{name} failed in the same way before the run began." if finding.same_as(earlier) else ""
    known = set(earlier.tests.failing)
    new = [test for test in finding.tests.failing if test not in known]
    old = len(finding.tests.failing) - len(new)
    if not new:
        all_of = "its one failing test" if old == 1 else f"all {old} failing tests"
        return f"{name}: {all_of} failed before the run began as well." if old else ""
    named = "\n".join(f"- {_named(test)}" for test in new[:TESTS_TOLD])
    more = f"\n- and {len(new) - TESTS_TOLD} more" if len(new) > TESTS_TOLD else ""
    return f"{name}: {old} of its failing tests failed before the run began as well; these are new:\n{named}{more}"


def _named(name: str) -> str:
    """A name that anybody may have chosen: quoted where it would not stay in its line, or is long."""
    return name if name.isprintable() and len(name) <= QUOTED_CHARS else quoted(name)


def _notes(now: Iteration) -> tuple[str, ...]:
    """What the agent should know of its own claim, and of what it could not do or get to know."""
    notes = [f"A completion tag in your last reply was not counted: {why}." for why in now.uncounted]
    rule = now.job.stage.claim
    if rule.refuses(now.claim):
        return tuple(notes)
    if now.claim is not None and not rule.accepts(now.claim):
        notes.append(f"Your last reply said {quoted(now.claim.word)}; completion is claimed with {rule.how}.")
    elif now.claim is not None and now.report.faults:
        notes.append("Your last reply said that the work is done. The checks say that it is not.")
    return (*notes, *_hindrances(now))


def _hindrances(now: Iteration) -> tuple[str, ...]:
    """What stood in its way, as far as another way can be taken."""
    notes = []
    if _meddled(now):
        files = "".join(f"\n- {_named(path)}" for path in now.change.paths[:TOUCHED_TOLD])
        what = f"these files changed. Look at all of it again:{files}" if files else "you committed. Look at it again."
        notes.append(f"You only look in this stage, and yet {what}")
    if now.sprung.touched:
        touched = now.sprung.touched[:TOUCHED_TOLD]
        rules = "\n".join(dict.fromkeys(f"- {_named(one.path)} ({one.rule})" for one in touched))
        notes.append(f"You changed files that you may not change. They were put back; leave them alone:\n{rules}")
    if fault := fault_of(now.turn):
        why = bounded(fault.message, FAULT_CHARS).rstrip(" .")
        notes.append(f"Your last turn failed: {why}. What it did until then is there.")
    if now.turn.denied:
        denied = "\n".join(f"- {call}" for call in now.turn.denied[:DENIALS_TOLD])
        notes.append(f"These tool calls of yours were not permitted; do the work without them:\n{denied}")
    if now.turn.asked or (now.change.nothing and now.turn.text.rstrip().endswith("?")):
        notes.append("You asked a question. Nobody is there to answer: decide yourself, and say what you decided.")
    return tuple(notes)


class _Ended:
    """What every end tells of a run's price."""

    __slots__ = ()
    if TYPE_CHECKING:
        spend: Spend
        seconds: float

    @property
    def cost_usd(self) -> float | None:
        """Dollars; None where a part is not known."""
        return self.spend.usd

    @property
    def duration_seconds(self) -> float:
        return self.seconds


@value
class Completed(_Ended):
    """The work is done. `verified` says whether a machine's check showed it, `judged` whether a model at least did.

    Without either it was only claimed.
    """

    iterations: int
    spend: Spend
    seconds: float
    output: str
    verified: bool
    concerns: tuple[str, ...] = ()
    judged: bool = False

    status = "COMPLETED"
    exit_code = 0

    @property
    def verification_passed(self) -> bool:
        return self.verified or self.judged

    @property
    def proof(self) -> str:
        """What shows it: verified, judged or claimed."""
        return "verified" if self.verified else "judged" if self.judged else "claimed"


@value
class Aborted(_Ended):
    """A limit, a tripwire, a person or a signal ended the run."""

    breach: Breach
    iterations: int
    spend: Spend
    seconds: float
    output: str
    checks_passed: bool = False

    status = "ABORTED"

    @property
    def reason(self) -> str:
        return self.breach.reason

    @property
    def last_output(self) -> str:
        return self.output

    @property
    def details(self) -> dict[str, Json]:
        """What else there is to know: the facts in a sentence, files, the error."""
        found: dict[str, Json] = {"message": self.breach.message, "checksPassed": self.checks_passed}
        found |= {"files": list(self.breach.paths)} if self.breach.paths else {}
        return found | ({"error": self.breach.error} if self.breach.error else {})

    @property
    def exit_code(self) -> int:
        if self.breach.reason in (INTERRUPTED, CANCELLED):
            return 130
        return 4 if self.breach.reason == WAITING else 1


@value
class Failed(_Ended):
    """The run could not go on: by configuration (2) or by our own fault (3)."""

    error: str
    iterations: int
    exit_code: int = 3
    spend: Spend = Spend()
    seconds: float = 0.0

    status = "ERROR"


Outcome = Completed | Aborted | Failed


def result(outcome: Outcome) -> dict[str, Json]:
    """The outcome in its published form: status COMPLETED, ABORTED or ERROR."""
    common: dict[str, Json] = {
        "iterations": outcome.iterations,
        "costUSD": outcome.cost_usd,
        "durationSeconds": round(outcome.seconds, 3),
        "exitCode": outcome.exit_code,
    }
    match outcome:
        case Failed(error):
            return {"status": outcome.status, "error": error, **common}
        case Aborted():
            told: dict[str, Json] = {"lastOutput": outcome.output, "details": outcome.details}
            return {"status": outcome.status, "reason": outcome.reason, **common, **told}
        case Completed():
            return {
                "status": outcome.status,
                **common,
                "output": outcome.output,
                "verificationPassed": outcome.verification_passed,
                "proof": outcome.proof,
                "concerns": list(outcome.concerns),
            }
        case _:
            assert_never(outcome)
