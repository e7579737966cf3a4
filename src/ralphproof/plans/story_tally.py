"""What the reviews of a run's stories came to: how often each was reviewed, and what they asked for."""

from __future__ import annotations

import re

from ralphproof.check import CUT
from ralphproof.metric import Reviewed
from ralphproof.plans.story_memory import Remembered, undone
from ralphproof.plans.story_tasks import PASSES
from ralphproof.review import CAPPED, at_cap
from ralphproof.story import APPROVED, CHANGES_REQUESTED, REVIEW
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    Story = dict[str, Any]
    Tally = dict[str, dict[str, Any]]  # by the ids of stories; what is noted of the run so far

FOUND, FOUND_CHARS, TITLE_CHARS = 10, 500, 200  # of a story: the last reviews that asked for something, and how much
OPEN = "open"
NOTHING: dict[str, Any] = {"made": 0, "requested": 0, "found": [], "finished": False}


def counted(tally: Tally, mode: str, before: Story, written: Story, made: Story) -> Tally:
    """The tally after an iteration on a story: as it was before, as its agent wrote it, and as the harness settled it.

    A review counts if it stands, whatever the harness made of it. A check that fails without one asks for changes too.
    """
    fresh = mode == REVIEW and made["reviewStatus"] != before["reviewStatus"]
    asked = _asked(made) if fresh else ""
    requested = bool(asked) and CHANGES_REQUESTED in (written["reviewStatus"], made["reviewStatus"])
    old = tally.get(made["id"], NOTHING)
    new = {
        "made": old["made"] + (fresh and written["reviewCount"] > before["reviewCount"]),
        "requested": old["requested"] + requested,
        "found": [*old["found"], *([_clipped(asked, FOUND_CHARS)] if asked else [])][-FOUND:],
        "finished": made["passes"] and (old["finished"] or not before["passes"]),
    }
    return tally if new == old else tally | {made["id"]: new}


def _asked(made: Story) -> str:
    """What should be changed in a story after its review; empty where nothing."""
    objects = made["reviewStatus"] == CHANGES_REQUESTED or at_cap(made)
    return str(made["reviewFeedback"]).strip().removeprefix(CAPPED).strip() if objects else ""


def _clipped(text: str, chars: int) -> str:
    """The beginning and the end of a text, cut between words: half a secret would be known to nobody as one."""
    if len(text) <= chars:
        return text
    half = chars // 2
    head, tail = re.sub(r"\S*\Z", "", text[:half]).rstrip(), re.sub(r"\A\S*", "", text[-half:]).lstrip()
    return " ".join(filter(None, (head, CUT, tail)))


def reviewed(known: Remembered) -> tuple[Reviewed, ...]:
    """Every story, in the order of the file. What a turn wrote counts once it was judged."""
    document = undone(known, known.good) if known.open else known.good
    return tuple(_reviewed(one, known.tally.get(one["id"], NOTHING)) for one in document["userStories"])


def _reviewed(one: Story, noted: dict[str, Any]) -> Reviewed:
    done, status = one["passes"], one["reviewStatus"]
    return Reviewed(
        one["id"], _clipped(one["title"], TITLE_CHARS),
        PASSES if done and status != APPROVED else status or OPEN, one["reviewCount"], done and at_cap(one),
        tuple(noted["found"]), noted["made"], noted["requested"], done and noted["finished"],
    )  # fmt: skip
