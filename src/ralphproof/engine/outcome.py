"""The outcome of a run: completed, aborted or failed, and its published form."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, assert_never, value
from ralphproof.engine.budget import NOTHING_SPENT, DaySpend, Spend
from ralphproof.engine.check import CheckReport
from ralphproof.engine.iteration import History
from ralphproof.engine.limits import (
    CANCELLED,
    CHECKS_WEAKENED,
    INTERRUPTED,
    RESUMABLE_REASONS,
    Breach,
    Limits,
    find_tripwire_breach,
)
from ralphproof.engine.prompt import (
    Feedback,
    changed_read_only_tree,
    compare_with_baseline,
    iteration_notes,
    send_back_notes,
)
from ralphproof.engine.weakening import find_weakened_checks

if TYPE_CHECKING:
    from ralphproof.base.value import Json


NO_REPORT = CheckReport()


@value
class Passed:
    """This stage of this task is done, as far as anything was asked."""

    report: CheckReport


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


def judge_iteration(
    history: History, spend: Spend, limits: Limits, day: DaySpend = NOTHING_SPENT, baseline: CheckReport = NO_REPORT
) -> Verdict:
    """Decide what follows from the latest iteration; tripwires beat success, and so does money."""
    now = history.latest
    if breach := find_tripwire_breach(now):
        return Stopped(breach)
    if now.claim is not None and now.claim.waiting:
        return Waiting(now.claim.word)
    if breach := limits.find_overspent(spend, day):
        return Stopped(breach)
    stage, report = now.job.stage, now.report
    accepted = stage.claim.accepts(now.claim)
    settled = report.passed or (stage.trusts and not report.faults)
    if accepted and settled and not (now.tripwires.touched or now.plan_violations or changed_read_only_tree(now)):
        return _hollow_pass(report, baseline, limits) or Passed(report)
    refused = bool(report.faults) and now.claim is not None and accepted
    earlier = compare_with_baseline(report.visible, baseline)
    if (
        stage.back
        and not now.plan_violations
        and (stage.claim.refuses(now.claim) or (accepted and report.faults and not stage.edits))
    ):
        return SentBack(stage.back, Feedback(report.visible.failed, (*send_back_notes(now), *earlier), refused))
    return Retry(Feedback(report.visible.failed, (*earlier, *iteration_notes(now)), refused))


def _hollow_pass(report: CheckReport, baseline: CheckReport, limits: Limits) -> Stopped | None:
    """A pass that shows nothing, because no test is left; or less than before, where tests are protected."""
    less = [one for one in find_weakened_checks(report, baseline) if one.hollow or limits.protect_tests]
    return Stopped(Breach(CHECKS_WEAKENED, "; ".join(one.message for one in less))) if less else None


def verdict_word(verdict: Verdict) -> str:
    """One word for programs."""
    return {Passed: "passed", Retry: "retry", SentBack: "sentBack", Waiting: "waiting", Stopped: "stopped"}[
        type(verdict)
    ]


class _OutcomeBase:
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
class Completed(_OutcomeBase):
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
class Aborted(_OutcomeBase):
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
        return 4 if self.breach.reason in RESUMABLE_REASONS else 1


@value
class Failed(_OutcomeBase):
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


def outcome_json(outcome: Outcome) -> dict[str, Json]:
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
