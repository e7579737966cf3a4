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
        feedback = "\n\n".join(filter(None, (_concern(now), red)))
        count = min(now["reviewCount"], max(cap, before["reviewCount"]))
        return _requested(now, feedback) | {"reviewCount": count}
    if not stands or red:
        return now | {name: before[name] for name in (*WATCHED, "reviewFeedback") if name in before}
    if mode == REVIEW and at_cap(now) and now["passes"] and not approve:
        return _requested(now, _concern(now) or f"{CAPPED} was written, and nobody may approve so here.")
    if mode == REVIEW and now["reviewStatus"] == CHANGES_REQUESTED and capped and approve:
        return _approved_at_cap(now, now["reviewFeedback"])
    if mode != REVIEW and now["reviewStatus"] == NEEDS_REVIEW:  # who submits it has no say in its review
        submitted = now | {"reviewFeedback": ""}
        decided = mode == FIX and capped and approve
        return _approved_at_cap(submitted, before.get("reviewFeedback", "")) if decided else submitted
    return now


def _requested(story: dict[str, Any], feedback: str) -> dict[str, Any]:
    return story | {"passes": False, "reviewStatus": CHANGES_REQUESTED, "reviewFeedback": feedback}


def _approved_at_cap(story: dict[str, Any], concerns: str) -> dict[str, Any]:
    notes = story.get("notes") if said(story.get("notes")) else "Approved by the harness at the review cap."
    feedback = f"{CAPPED} {_uncapped(concerns)}".strip()
    return story | {"passes": True, "reviewStatus": APPROVED, "reviewFeedback": feedback, "notes": notes}


def _concern(story: Mapping[str, Any]) -> str:
    """What its review found wrong with a story, approved at the cap or not."""
    objects = story["reviewStatus"] == CHANGES_REQUESTED or at_cap(story)
    return _uncapped(story["reviewFeedback"]) if objects else ""


def _uncapped(feedback: str) -> str:
    return feedback.strip().removeprefix(CAPPED).strip()


def concerns(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What somebody should look at although it is approved."""
    capped = [story for story in document["userStories"] if story["passes"] and at_cap(story)]
    return tuple(
        f"story {story['id']} was approved at the review cap: {_concern(story) or 'its review says no more'}"
        for story in capped
    )
