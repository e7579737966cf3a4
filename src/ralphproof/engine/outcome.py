"""Verdicts on iterations, the outcome of a run, its metrics and story reviews."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, assert_never, value
from ralphproof.engine.check import CheckReport
from ralphproof.engine.limits import (
    CHECKS_WEAKENED,
    NOTHING_SPENT,
    Breach,
    DaySpend,
    Limits,
    Spend,
    abort_reason,
    find_tripwire_breach,
)
from ralphproof.engine.plan import History
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


COMPLETED, ABORTED, ERROR = "COMPLETED", "ABORTED", "ERROR"


@value
class StoryReview:
    """One story of a run. `reviews` counts all its reviews, `made` those by this run.

    `status` is approved, changes_requested, needs_review or open, and passes where it is done without a review.
    `capped`: it was approved only because the review cap was reached. `requested` counts how often this run requested
    changes, `found` lists those requests, oldest first. `finished`: it was completed during this run.
    """

    story: str
    title: str
    status: str
    reviews: int = 0
    capped: bool = False
    found: tuple[str, ...] = ()
    made: int = 0
    requested: int = 0
    finished: bool = False


@value
class ReviewTotals:
    """Sums over the stories of runs. Stories that were done or reviewed before are not counted.

    `stories` were finished, `capped` of them at the review cap, and `first` approved in their first review. `reviews`
    were made; after `changes_requested` of them, the review or the checks asked for changes. `counted` is the number of
    reviews of the finished stories; the remaining fields group these by number of reviews.
    """

    runs: int = 0
    stories: int = 0
    reviews: int = 0
    changes_requested: int = 0
    capped: int = 0
    first: int = 0
    counted: int = 0
    once: int = 0
    twice: int = 0
    thrice: int = 0
    four_times: int = 0
    oftener: int = 0

    @property
    def spread(self) -> tuple[tuple[str, int], ...]:
        """The number of finished stories by number of reviews."""
        counts = (self.once, self.twice, self.thrice, self.four_times, self.oftener)
        return tuple(zip(("1", "2", "3", "4", "5+"), counts, strict=True))

    @property
    def reviewed(self) -> int:
        """The number of finished stories with at least one review."""
        return sum(count for _, count in self.spread)

    @property
    def mean(self) -> float | None:
        """The mean number of reviews of the finished stories that had one."""
        return self.counted / self.reviewed if self.reviewed else None


def total_reviews(stories: tuple[StoryReview, ...]) -> ReviewTotals | None:
    """The totals of one run; None where it had no stories."""
    if not stories:
        return None
    done = [story for story in stories if story.finished]
    review_counts = [min(story.reviews, 5) for story in done]
    return ReviewTotals(
        1, len(done), sum(story.made for story in stories), sum(story.requested for story in stories),
        sum(story.capped for story in done), sum(story.reviews == 1 and not story.capped for story in done),
        sum(story.reviews for story in done), *(review_counts.count(times) for times in range(1, 6)),
    )  # fmt: skip


@value
class Metrics:
    """The figures of one run. None is unknown, never zero.

    `micro_usd` is None where a part of the cost is unknown; `at_least_micro_usd` is the known part. `tests_fixed` is
    the decrease in failing tests since before the first iteration. `saved_micro_usd` is how much more the run would
    have cost with only the last model of its ladder. `reviews` is None unless the run had stories; `reviewed` has the
    first of them. `sandbox` is the sandbox at the end: name and strength.
    """

    run: str
    began_s: float
    ended_s: float
    status: str
    reason: str = ""
    skill: str = ""
    task_type: str = ""
    agent: str = ""
    model: str = ""
    preset: str = ""
    iterations: int = 0
    seconds: float = 0.0
    micro_usd: int | None = None
    at_least_micro_usd: int = 0
    tokens: int = 0
    files: int = 0
    tests_fixed: int | None = None
    claimed: bool = False
    verified: bool = False
    saved_micro_usd: int | None = None
    reviews: ReviewTotals | None = None
    reviewed: tuple[StoryReview, ...] = ()
    sandbox: tuple[str, str] | None = None


def review_totals_json(reviews: ReviewTotals) -> dict[str, Json]:
    """Review totals in JSON form."""
    return {
        "storiesDone": reviews.stories,
        "reviews": reviews.reviews,
        "changesRequested": reviews.changes_requested,
        "cappedApprovals": reviews.capped,
        "approvedAtFirstReview": reviews.first,
        "avgReviewsPerStory": reviews.mean,
        "reviewsPerStory": dict(reviews.spread),
    }


NO_REPORT = CheckReport()


@value
class Passed:
    """This stage of this task is done, as far as checked."""

    report: CheckReport


@value
class Retry:
    """Not done; the next prompt says why."""

    feedback: Feedback


@value
class SentBack:
    """A stage found faults that another stage has to fix: the task repeats these stages in order."""

    reopened: tuple[str, ...]
    feedback: Feedback


@value
class Waiting:
    """The agent waits for a person."""

    reason: str


@value
class Stopped:
    """A limit ends the run."""

    breach: Breach


Verdict = Passed | Retry | SentBack | Waiting | Stopped


def judge_iteration(
    history: History, spend: Spend, limits: Limits, day: DaySpend = NOTHING_SPENT, baseline: CheckReport = NO_REPORT
) -> Verdict:
    """The verdict on the latest iteration; tripwires and overspending take precedence over success."""
    now = history.latest
    if breach := find_tripwire_breach(now):
        return Stopped(breach)
    if now.claim is not None and now.claim.waiting:
        return Waiting(now.claim.word)
    if breach := limits.find_overspent(spend, day):
        return Stopped(breach)
    stage, report = now.job.stage, now.report
    accepted = stage.claim.accepts(now.claim)
    sufficient = report.passed or (stage.trusts and not report.faults)
    if accepted and sufficient and not (now.tripwires.touched or now.plan_violations or changed_read_only_tree(now)):
        return _weakened_pass(report, baseline, limits) or Passed(report)
    refused = bool(report.faults) and now.claim is not None and accepted
    comparison = compare_with_baseline(report.visible, baseline)
    if (
        stage.back
        and not now.plan_violations
        and (stage.claim.refuses(now.claim) or (accepted and report.faults and not stage.edits))
    ):
        return SentBack(stage.back, Feedback(report.visible.failed, (*send_back_notes(now), *comparison), refused))
    return Retry(Feedback(report.visible.failed, (*comparison, *iteration_notes(now)), refused))


def _weakened_pass(report: CheckReport, baseline: CheckReport, limits: Limits) -> Stopped | None:
    """A pass without any test, or, where tests are protected, with fewer tests than before."""
    weakened = [check for check in find_weakened_checks(report, baseline) if check.hollow or limits.protect_tests]
    return Stopped(Breach(CHECKS_WEAKENED, "; ".join(check.message for check in weakened))) if weakened else None


def verdict_word(verdict: Verdict) -> str:
    """The verdict as one word for programs."""
    return {Passed: "passed", Retry: "retry", SentBack: "sentBack", Waiting: "waiting", Stopped: "stopped"}[
        type(verdict)
    ]


class _OutcomeBase:
    """Fields common to all outcomes. `run` is the run's id, for callers; records hold it separately."""

    __slots__ = ()
    if TYPE_CHECKING:
        spend: Spend
        seconds: float

    @property
    def cost_usd(self) -> float | None:
        """Dollars; None where a part is unknown."""
        return self.spend.usd

    @property
    def duration_seconds(self) -> float:
        return self.seconds


@value
class Completed(_OutcomeBase):
    """The work is done: `verified` by a machine's check, or at least `judged` by a model, otherwise only claimed."""

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
        """The kind of evidence: verified, judged or claimed."""
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
        """Further details: the facts in a sentence, files, the error."""
        found: dict[str, Json] = {"message": self.breach.message, "checksPassed": self.checks_passed}
        found |= {"files": list(self.breach.paths)} if self.breach.paths else {}
        error = self.breach.error or self.error
        return found | ({"error": error} if error else {})

    @property
    def exit_code(self) -> int:
        return abort_reason(self.breach.reason).exit_code


@value
class Failed(_OutcomeBase):
    """The run could not continue: exit code 2 for configuration, 3 for a fault of the harness. `check` is the one that
    could not be run, where no turn was taken because of that.
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


# The published form: outcome.json, and the objects in it. `views/published_json.py` describes them for programs.


JSON_VERSION = 1


def published(noun: str, fields: dict[str, Json]) -> dict[str, Json]:
    """A published object."""
    return {"v": JSON_VERSION, "type": noun, **fields}


def money_json(spend: Spend) -> dict[str, Json]:
    """Money. Unknown is null, never zero."""
    return published(
        "money", {"usd": spend.known_usd, "atLeast": spend.unpriced > 0, "notional": spend.notional > 0}
    )  # fmt: skip


def sandbox_json(sandbox: dict[str, Json]) -> dict[str, Json]:
    """A sandbox, from the facts about it."""
    return published("sandbox", {name: sandbox.get(name) for name in ("name", "strength")})


def finding_json(
    kind: str, message: str, path: str | None = None, stops: bool = False, allowed: bool = False
) -> dict[str, Json]:
    """Something that was found wrong with the work."""
    return published(
        "finding", {"kind": kind, "message": message, "path": path, "stops": stops, "allowed": allowed}
    )  # fmt: skip


def story_json(story: StoryReview) -> dict[str, Json]:
    """A story with its reviews."""
    return published("story", {
        "id": story.story, "title": story.title, "status": story.status, "reviewCount": story.reviews,
        "cappedApproval": story.capped, "reviewsInRun": story.made, "changesRequested": story.requested,
        "doneInRun": story.finished, "findings": [finding_json("review", text) for text in story.found],
    })  # fmt: skip


def outcome_fields(outcome: Outcome) -> dict[str, Json]:
    """The outcome of a run: status COMPLETED, ABORTED or ERROR."""
    common: dict[str, Json] = {
        "iterations": outcome.iterations, "costUSD": outcome.spend.known_usd, "cost": money_json(outcome.spend),
        "durationSeconds": round(outcome.seconds, 3), "exitCode": outcome.exit_code,
    }  # fmt: skip
    match outcome:
        case Failed(error):
            return {"status": outcome.status, "error": error, **common}
        case Aborted():
            details: dict[str, Json] = {"lastOutput": outcome.output, "details": outcome.details}
            return {"status": outcome.status, "reason": outcome.reason, **common, **details}
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


def outcome_json(outcome: Outcome, run: str, metrics: Metrics | None = None) -> dict[str, Json]:
    """What outcome.json holds: the outcome with its sandbox, and with stories where the run had them."""
    fields: dict[str, Json] = {"run": run, **outcome_fields(outcome)}
    if metrics and metrics.sandbox:
        fields["sandbox"] = published("sandbox", {"name": metrics.sandbox[0], "strength": metrics.sandbox[1]})
    if metrics and metrics.reviewed:
        fields["stories"] = [story_json(story) for story in metrics.reviewed]
    return published("outcome", fields)
