"""The stories of a run as lines: what became of each, and how often it was reviewed."""

from __future__ import annotations

from ralphproof.display.colours import YELLOW, Line
from ralphproof.display.excerpt import one_line
from ralphproof.display.words import count
from ralphproof.metric import Reviewed, reviews_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN = 50  # stories; there may be thousands
NAME_CHARS, TITLE_CHARS, FOUND_CHARS = 30, 80, 160
CUT = "..."
STATUS = {"passes": "done, not reviewed", "needs_review": "needs review", "changes_requested": "changes requested"}
DONE = ("approved", "passes")
CAPPED = "APPROVED AT THE CAP"


def table(stories: tuple[Reviewed, ...], mask: Callable[[str], str] = str, found: bool = False) -> list[Line]:
    """A line about all, then one for each; with `found` below each what was asked for in this run.

    Those that were approved only at the cap are marked: somebody should look at them.
    """
    if not stories:
        return []
    shown = stories[:SHOWN]
    rows = [(_short(one.story, NAME_CHARS, mask), _status(one), count(one.reviews, "review")) for one in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [_summary(stories)]
    for one, row in zip(shown, rows, strict=True):
        told = f"  {'  '.join(map(str.ljust, row, widths))}  {_short(one.title, TITLE_CHARS, mask)}"
        lines.append((told.rstrip(), YELLOW if one.capped else ""))
        asked = one.found if found else ()
        lines += ((f"      asked for: {_short(what, FOUND_CHARS, mask)}", "") for what in asked)
    return [*lines, *([(f"  and {len(stories) - SHOWN} more", "")] if len(stories) > SHOWN else [])]


def _summary(stories: tuple[Reviewed, ...]) -> Line:
    done, reviews = sum(one.status in DONE for one in stories), reviews_of(stories)
    told = [f"Stories: {done} of {len(stories)} done"]
    if reviews and reviews.reviews:
        told.append(f"{count(reviews.reviews, 'review')} in this run")
    if reviews and reviews.changes_requested:
        told.append(f"changes requested {count(reviews.changes_requested, 'time')}")
    capped = sum(one.capped for one in stories)
    if capped:
        told.append(f"{capped} approved at the review cap and may need manual attention")
    return "; ".join(told), YELLOW if capped else ""


def _status(one: Reviewed) -> str:
    return CAPPED if one.capped else STATUS.get(one.status, one.status)


def _short(text: str, chars: int, mask: Callable[[str], str]) -> str:
    return one_line(text, chars, CUT, mask)
