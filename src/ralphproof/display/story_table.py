"""The stories of a run as a table: state, reviews and findings."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.agent_output import one_line
from ralphproof.display.phrases import format_count
from ralphproof.display.style import YELLOW, Line
from ralphproof.engine.metrics import StoryReview, total_reviews

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_STORIES = 50  # stories; there may be thousands
NAME_CHARS, TITLE_CHARS, FOUND_CHARS = 30, 80, 160
ELLIPSIS = "..."
STATUS_PHRASES = {
    "passes": "done, not reviewed",
    "needs_review": "needs review",
    "changes_requested": "changes requested",
}
DONE_STATES = ("approved", "passes")
CAPPED_PHRASE = "APPROVED AT THE CAP"


def story_table(stories: tuple[StoryReview, ...], mask: Callable[[str], str] = str, found: bool = False) -> list[Line]:
    """A line about all, then one for each; with `found` below each what was asked for in this run.

    Those that were approved only at the cap are marked: somebody should look at them.
    """
    if not stories:
        return []
    shown = stories[:MAX_STORIES]
    rows = [
        (_one_line(one.story, NAME_CHARS, mask), _status_phrase(one), format_count(one.reviews, "review"))
        for one in shown
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [_summary_line(stories)]
    for one, row in zip(shown, rows, strict=True):
        told = f"  {'  '.join(map(str.ljust, row, widths))}  {_one_line(one.title, TITLE_CHARS, mask)}"
        lines.append((told.rstrip(), YELLOW if one.capped else ""))
        asked = one.found if found else ()
        lines += ((f"      asked for: {_one_line(what, FOUND_CHARS, mask)}", "") for what in asked)
    return [*lines, *([(f"  and {len(stories) - MAX_STORIES} more", "")] if len(stories) > MAX_STORIES else [])]


def _summary_line(stories: tuple[StoryReview, ...]) -> Line:
    done, reviews = sum(one.status in DONE_STATES for one in stories), total_reviews(stories)
    told = [f"Stories: {done} of {len(stories)} done"]
    if reviews and reviews.reviews:
        told.append(f"{format_count(reviews.reviews, 'review')} in this run")
    if reviews and reviews.changes_requested:
        told.append(f"changes requested {format_count(reviews.changes_requested, 'time')}")
    capped = sum(one.capped for one in stories)
    if capped:
        told.append(f"{capped} approved at the review cap and may need manual attention")
    return "; ".join(told), YELLOW if capped else ""


def _status_phrase(one: StoryReview) -> str:
    return CAPPED_PHRASE if one.capped else STATUS_PHRASES.get(one.status, one.status)


def _one_line(text: str, chars: int, mask: Callable[[str], str]) -> str:
    return one_line(text, chars, ELLIPSIS, mask)
