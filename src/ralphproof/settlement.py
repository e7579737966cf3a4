"""What the harness makes of a story when its iteration was judged, whatever its agent wrote."""

from __future__ import annotations

from ralphproof.review import CAPPED, at_cap
from ralphproof.story import APPROVED, CHANGES_REQUESTED, FIX, NEEDS_REVIEW, REVIEW, WATCHED, said
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def settled(
    story: Mapping[str, Any],
    before: Mapping[str, Any],
    mode: str,
    stands: bool,
    red: str,
    cap: int,
    approve: bool = True,
) -> dict[str, Any]:
    """A story after its iteration was judged. Whatever its agent says, only green verify commands make it stand.

    `red` is what the checks found wrong. At the cap somebody else than a reviewer has to decide: the harness approves
    what is green, unless it must not `approve`.
    """
    now = dict(story)
    capped = now["reviewCount"] >= cap
    if mode == REVIEW and stands and red:
        said_so = now["reviewFeedback"].strip() if now["reviewStatus"] == CHANGES_REQUESTED else ""
        feedback = "\n\n".join(filter(None, (said_so, red)))
        held = {"passes": False, "reviewStatus": CHANGES_REQUESTED, "reviewFeedback": feedback}
        return now | held | {"reviewCount": min(now["reviewCount"], max(cap, before["reviewCount"]))}
    if not stands or red:
        return now | {name: before[name] for name in (*WATCHED, "reviewFeedback") if name in before}
    if mode == REVIEW and now["reviewStatus"] == CHANGES_REQUESTED and capped and approve:
        return _approved_at_cap(now, now["reviewFeedback"])
    if mode == FIX and now["reviewStatus"] == NEEDS_REVIEW:
        fixed = now | {"reviewFeedback": ""}
        return _approved_at_cap(fixed, before.get("reviewFeedback", "")) if capped and approve else fixed
    return now


def _approved_at_cap(story: dict[str, Any], concerns: str) -> dict[str, Any]:
    notes = story.get("notes") if said(story.get("notes")) else "Approved by the harness at the review cap."
    feedback = concerns if concerns.startswith(CAPPED) else f"{CAPPED} {concerns}".strip()
    return story | {"passes": True, "reviewStatus": APPROVED, "reviewFeedback": feedback, "notes": notes}


def concerns(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What somebody should look at although it is approved."""
    return tuple(
        f"story {story['id']} was approved at the review cap: {story['reviewFeedback'].strip()[len(CAPPED) :].strip()}"
        for story in document["userStories"]
        if story["passes"] and at_cap(story)
    )
