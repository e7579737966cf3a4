"""What follows from one iteration, and how a run ends."""

from __future__ import annotations

from ralphproof.budget import Spend
from ralphproof.check import Report
from ralphproof.feedback import Feedback, before_the_run, meddled, notes_on, sent_back
from ralphproof.iteration import History
from ralphproof.limit import CANCELLED, CHECKS_WEAKENED, GOES_ON, INTERRUPTED, Breach, Limits, tripped
from ralphproof.purse import NOTHING_SPENT, Day
from ralphproof.value import TYPE_CHECKING, assert_never, value
from ralphproof.weakening import weaker

if TYPE_CHECKING:
    from ralphproof.value import Json


NOT_ASKED = Report()


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


Verdict = Passed | Retry | SentBack | Waiting | Stopped


def judge(
    history: History, spend: Spend, limits: Limits, day: Day = NOTHING_SPENT, baseline: Report = NOT_ASKED
) -> Verdict:
    """Decide what follows from the latest iteration; tripwires beat success, and so does money."""
    now = history.latest
    if breach := tripped(now):
        return Stopped(breach)
    if now.claim is not None and now.claim.waiting:
        return Waiting(now.claim.word)
    if breach := limits.overspent(spend, day):
        return Stopped(breach)
    stage, report = now.job.stage, now.report
    accepted = stage.claim.accepts(now.claim)
    settled = report.passed or (stage.trusts and not report.faults)
    if accepted and settled and not (now.sprung.touched or now.illegal or meddled(now)):
        return _hollow(report, baseline, limits) or Passed(report)
    refused = bool(report.faults) and now.claim is not None and accepted
    earlier = before_the_run(report.shown, baseline)
    if (
        stage.back
        and not now.illegal
        and (stage.claim.refuses(now.claim) or (accepted and report.faults and not stage.edits))
    ):
        return SentBack(stage.back, Feedback(report.shown.failed, (*sent_back(now), *earlier), refused))
    return Retry(Feedback(report.shown.failed, (*earlier, *notes_on(now)), refused))


def _hollow(report: Report, baseline: Report, limits: Limits) -> Stopped | None:
    """A pass that shows nothing, because no test is left; or less than before, where tests are protected."""
    less = [one for one in weaker(report, baseline) if one.hollow or limits.protect_tests]
    return Stopped(Breach(CHECKS_WEAKENED, "; ".join(one.told for one in less))) if less else None


def verdict_word(verdict: Verdict) -> str:
    """One word for programs."""
    return {Passed: "passed", Retry: "retry", SentBack: "sentBack", Waiting: "waiting", Stopped: "stopped"}[
        type(verdict)
    ]


class _Ended:
    """What every end tells of a run. `run` is the id of the run, which its records know anyway: callers are told it."""

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
    run: str = ""

    status = "COMPLETED"
    reason = error = ""
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
    """A limit, a tripwire, a person or a signal ended the run. `error` is how its last turn failed, if it did."""

    breach: Breach
    iterations: int
    spend: Spend
    seconds: float
    output: str
    checks_passed: bool = False
    error: str = ""
    run: str = ""

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
        error = self.breach.error or self.error
        return found | ({"error": error} if error else {})

    @property
    def exit_code(self) -> int:
        if self.breach.reason in (INTERRUPTED, CANCELLED):
            return 130
        return 4 if self.breach.reason in GOES_ON else 1


@value
class Failed(_Ended):
    """The run could not go on: by configuration (2) or by our own fault (3).

    `check` is the one that could not be run, where no turn was taken because of that.
    """

    error: str
    iterations: int
    exit_code: int = 3
    spend: Spend = Spend()
    seconds: float = 0.0
    run: str = ""
    check: str = ""

    status = "ERROR"
    reason = ""


Outcome = Completed | Aborted | Failed


def result(outcome: Outcome) -> dict[str, Json]:
    """The outcome in its published form: status COMPLETED, ABORTED or ERROR."""
    common: dict[str, Json] = {
        "iterations": outcome.iterations,
        "costUSD": outcome.spend.known_usd,
        **({"costAtLeast": True} if outcome.spend.unpriced else {}),
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
