"""The metrics of one run, and its story reviews."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.base.value import Json

COMPLETED, ABORTED, ERROR = "COMPLETED", "ABORTED", "ERROR"


@value
class StoryReview:
    """One story of a run. `reviews` is how often it was ever reviewed, `made` how often by this run.

    `status` is approved, changes_requested, needs_review or open, and passes where nobody reviewed what is done.
    `capped` says that it was approved only because it had been reviewed so often. `requested` counts how often this
    run found it wanting, `found` has what was asked for then, oldest first. `finished` says that this run saw it done.
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
    """What went on in runs by stories, added up. What they found done, or reviewed, is no work of theirs.

    `stories` were finished, `capped` of them at the review cap, and `first` by an approval in their first review.
    `reviews` were made; `changes_requested` of them, or the checks after them, asked for changes. `counted` is how many
    reviews the finished stories had in all; the rest parts these by how often they were reviewed.
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
        """How many of the finished stories were reviewed so often."""
        counts = (self.once, self.twice, self.thrice, self.four_times, self.oftener)
        return tuple(zip(("1", "2", "3", "4", "5+"), counts, strict=True))

    @property
    def reviewed(self) -> int:
        """How many of the finished stories were reviewed at all."""
        return sum(count for _, count in self.spread)

    @property
    def mean(self) -> float | None:
        """Reviews of a finished story, of those that had one."""
        return self.counted / self.reviewed if self.reviewed else None


def sum_reviews(all_of: tuple[ReviewTotals, ...]) -> ReviewTotals:
    """The sum."""
    return ReviewTotals(*(sum(getattr(one, name) for one in all_of) for name in ReviewTotals.__match_args__))


def total_reviews(stories: tuple[StoryReview, ...]) -> ReviewTotals | None:
    """What one run's reviews come to; None where it went by no stories."""
    if not stories:
        return None
    done = [one for one in stories if one.finished]
    often = [min(one.reviews, 5) for one in done]
    return ReviewTotals(
        1, len(done), sum(one.made for one in stories), sum(one.requested for one in stories),
        sum(one.capped for one in done), sum(one.reviews == 1 and not one.capped for one in done),
        sum(one.reviews for one in done), *(often.count(times) for times in range(1, 6)),
    )  # fmt: skip


@value
class Metrics:
    """The figures of one run. None is unknown, never zero.

    `micro_usd` is None where a part of the cost is not known; `at_least` is what is known of it. `tests_fixed` is how
    many tests fewer fail now than before the first iteration. `saved_micro_usd` is how much more the run would have
    cost with the last model of its ladder alone. `reviews` is None unless the run went by stories, and `reviewed` has
    the first of these. `sandbox` is what held it at the end: name and strength.
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


def outcome_with_metrics(result: dict[str, Json], metrics: Metrics | None) -> dict[str, Json]:
    """A published result, with what held its run, and the stories where it went by them."""
    more: dict[str, Json] = {}
    if metrics and metrics.sandbox:
        name, strength = metrics.sandbox
        more["sandbox"] = {"name": name, "strength": strength}
    if metrics and metrics.reviewed:
        more["stories"] = story_reviews_json(metrics.reviewed)
    return result | more


def story_reviews_json(stories: tuple[StoryReview, ...]) -> list[Json]:
    """Stories as programs read them."""
    return [
        {
            "id": one.story, "title": one.title, "status": one.status, "reviewCount": one.reviews,
            "cappedApproval": one.capped, "reviewsInRun": one.made, "changesRequested": one.requested,
            "doneInRun": one.finished, "found": list(one.found),
        }
        for one in stories
    ]  # fmt: skip


def review_totals_json(reviews: ReviewTotals) -> dict[str, Json]:
    """What the reviews of stories came to, as programs read it."""
    return {
        "storiesDone": reviews.stories,
        "reviews": reviews.reviews,
        "changesRequested": reviews.changes_requested,
        "cappedApprovals": reviews.capped,
        "approvedAtFirstReview": reviews.first,
        "avgReviewsPerStory": reviews.mean,
        "reviewsPerStory": dict(reviews.spread),
    }
