"""The metrics of one run, and its story reviews."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value

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


def sum_reviews(totals: tuple[ReviewTotals, ...]) -> ReviewTotals:
    """The sum of all fields."""
    return ReviewTotals(*(sum(getattr(total, name) for total in totals) for name in ReviewTotals.__match_args__))


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
