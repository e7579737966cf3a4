"""What a review cycle allows: the states that stories may be in, and what each mode may do to them.

The loop and the Stop hook ask these rules alike. Every rule gives back what is wrong, in sentences; nothing is no
fault. Documents are well-formed here (`story.schema`).
"""

from __future__ import annotations

from ralphproof.story import (
    APPROVED,
    CHANGES_REQUESTED,
    FIX,
    IMPLEMENT,
    INITIAL,
    NAMED,
    NEEDS_REVIEW,
    REVIEW,
    WATCHED,
    said,
    shown,
)
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    Stories = Mapping[str, Mapping[str, Any]]  # by their ids

CAP = 5  # reviews of one story, unless somebody says otherwise
CAPPED = "[AUTO-APPROVED AT CAP]"


# Check 2: what must be true of every state


def invariants(document: Mapping[str, Any], cap: int = CAP, before: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """What no state of a well-formed document may be. `before` excuses a count that a higher cap had allowed."""
    return tuple(_invariants(document, cap, before or {}))[:NAMED]


def _invariants(document: Mapping[str, Any], cap: int, before: Mapping[str, Any]) -> Iterator[str]:
    for story in document["userStories"]:
        name, status, count = story["id"], story["reviewStatus"], story["reviewCount"]
        called = status or "null"
        if story["passes"] and status != APPROVED:
            yield (
                f"Story {name} has passes=true but reviewStatus is '{called}', not 'approved'. Only review "
                "iterations may approve stories. Set passes back to false or complete the review cycle."
            )
        if status == APPROVED and not story["passes"]:
            yield (
                f"Story {name} has reviewStatus 'approved' but passes=false: the two are out of sync. An approved "
                "story has passes=true."
            )
        if status == CHANGES_REQUESTED and not said(story["reviewFeedback"]):
            yield (
                f"Story {name} has reviewStatus 'changes_requested' but an empty reviewFeedback: feedback required. "
                "Say what must be fixed, and where."
            )
        most = max(cap, before.get(name, INITIAL).get("reviewCount", 0)) + 1
        if count > most:
            yield f"Story {name} has reviewCount {shown(count)}, more than the review cap of {cap} allows."


# Check 2.5: what an iteration may do, by its mode


def transitions(
    before: Stories, document: Mapping[str, Any], mode: str, cap: int = CAP, story: str = ""
) -> tuple[str, ...]:
    """What this mode may not have done since the snapshot. `story` is the one of this iteration, where it is known."""
    stories = _by_id(document)
    ruled = _RULES[mode](_moves(before, stories), stories, cap, story)
    return (*kept(before, document), *ruled)[:NAMED]


def kept(before: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    """That no story is gone, and none came with a past."""
    stories = _by_id(document)
    return (*_vanished(before, stories), *_newcomers(before, stories))[:NAMED]


def alone(before: Stories, document: Mapping[str, Any], story: str) -> tuple[str, ...]:
    """Where nobody reviews: that this iteration's story alone was finished, and nobody wrote of a review."""
    moves = _moves(before, _by_id(document))
    finished = [move.story for move in moves if move.field == "passes" and move.new and move.story != story]
    only = f"This iteration's story is {story}"
    return (
        *(f"{only}; story {name} may not be finished in it." for name in finished),
        *(f"Nobody reviews in this loop. Story {move.story}: {move}." for move in moves if move.field != "passes"),
    )[:NAMED]


def still(before: Stories, document: Mapping[str, Any]) -> tuple[str, ...]:
    """The same, and that nothing happened to those that were there."""
    moved = (f"Story {move.story} changed: {move}." for move in _moves(before, _by_id(document)))
    return (*kept(before, document), *moved)[:NAMED]


def _by_id(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {one["id"]: one for one in document["userStories"]}


@value
class Move:
    """A field of a story that changed."""

    story: str
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field} {shown(self.old)} → {shown(self.new)}"


def _moves(before: Stories, stories: Stories) -> list[Move]:
    return [
        Move(name, field, old[field], stories[name][field])
        for name, old in before.items()
        if name in stories
        for field in WATCHED
        if (old[field], type(old[field])) != (stories[name][field], type(stories[name][field]))
    ]


def _vanished(before: Iterable[str], stories: Mapping[str, Any]) -> Iterator[str]:
    for name in before:
        if name not in stories:
            yield f"Story {name} is gone. Stories may be added, split and reordered, never deleted or renamed."


def _newcomers(before: Mapping[str, Any], stories: Stories) -> Iterator[str]:
    for name, story in stories.items():
        wrong = [f"{field} {shown(story[field])}" for field, first in INITIAL.items() if story[field] != first]
        if name not in before and wrong:
            yield (
                f"Story {name} is new and starts with {', '.join(wrong)}. New stories start incomplete: passes=false, "
                "reviewStatus=null, reviewCount=0."
            )


def _implemented(moves: list[Move], stories: Mapping[str, Any], _cap: int, active: str) -> Iterator[str]:
    submitted = [move for move in moves if (move.field, move.old, move.new) == ("reviewStatus", None, NEEDS_REVIEW)]
    for move in moves:
        if move not in submitted:
            yield (
                "Implement iterations cannot set passes=true or approve stories. Only review iterations may approve. "
                f"Story {move.story} had illegal transition: {move}."
            )
    yield from _one_story([move.story for move in submitted], active, "Implement")
    for move in submitted:
        open_ones = [name for name in stories[move.story].get("dependsOn", []) if not stories[name]["passes"]]
        if open_ones:
            yield f"Story {move.story} depends on {', '.join(open_ones)}, and cannot be submitted before that is done."


def _fixed(moves: list[Move], _stories: Mapping[str, Any], _cap: int, active: str) -> Iterator[str]:
    back = ("reviewStatus", CHANGES_REQUESTED, NEEDS_REVIEW)
    for move in moves:
        if (move.field, move.old, move.new) != back:
            yield (
                f"Review-fix iterations cannot approve stories. Story {move.story} must go back to needs_review for "
                f"re-review. Illegal transition: {move}."
            )
    yield from _one_story([m.story for m in moves if (m.field, m.old, m.new) == back], active, "Review-fix")


def _one_story(touched: list[str], active: str, mode: str) -> Iterator[str]:
    if len(touched) > 1:
        yield f"{mode} iterations may submit one story only, and {', '.join(touched)} changed."
    elif touched and active and touched != [active]:
        yield f"This iteration's story is {active}; story {touched[0]} may not be submitted in it."


def _reviewed(moves: list[Move], stories: Stories, cap: int, active: str) -> Iterator[str]:
    touched = list(dict.fromkeys(move.story for move in moves))
    if not touched:
        waiting = [name for name, story in stories.items() if story["reviewStatus"] == NEEDS_REVIEW]
        name = active or (waiting[0] if waiting else "(none)")
        yield _illegal(name, "review must increment reviewCount by 1, and approve or request changes")
        return
    if len(touched) > 1:
        for name in [name for name in touched if name != active] if active in touched else touched[1:]:
            yield _illegal(name, "review may only modify one story")
    elif active and touched != [active]:
        yield _illegal(touched[0], f"this review is of story {active}")
    name = active if active in touched else touched[0]
    own = {move.field: move for move in moves if move.story == name}
    yield from (_illegal(name, fault) for fault in _verdict(own, stories[name], cap))


def _verdict(own: Mapping[str, Move], story: Mapping[str, Any], cap: int) -> Iterator[str]:
    """What is wrong with a review of this story that made these changes."""
    counted, status, passes = own.get("reviewCount"), own.get("reviewStatus"), own.get("passes")
    if counted is None:
        yield "review must increment reviewCount, and it is unchanged"
    elif counted.new != counted.old + 1:
        yield f"reviewCount must grow by exactly 1, and went {shown(counted.old)} → {shown(counted.new)}"
    if status is None or status.old != NEEDS_REVIEW or status.new not in (APPROVED, CHANGES_REQUESTED):
        yield (
            f"a review moves reviewStatus from needs_review to approved or changes_requested, and it went {status}"
            if status
            else "a review sets reviewStatus to approved or changes_requested, and it is unchanged"
        )
        return
    if status.new == APPROVED and (passes is None or not passes.new):
        yield "an approved story has passes=true"
    if status.new == CHANGES_REQUESTED and passes is not None:
        yield f"only an approved story passes, and {passes}"
    if status.new == CHANGES_REQUESTED and not said(story.get("reviewFeedback")):
        yield "changes_requested needs feedback: feedback required in reviewFeedback"
    if status.new == APPROVED and at_cap(story) and story["reviewCount"] < cap:
        yield f"{CAPPED} is claimed at reviewCount {story['reviewCount']}, below the review cap of {cap}"


def at_cap(story: Mapping[str, Any]) -> bool:
    """Whether it says of itself that it was approved because it had been reviewed so often."""
    return str(story.get("reviewFeedback", "")).lstrip().startswith(CAPPED)


def _illegal(name: str, details: str) -> str:
    return f"Review iteration made illegal transition on story {name}: {details}."


_RULES = {IMPLEMENT: _implemented, REVIEW: _reviewed, FIX: _fixed}


# What no mode may do


def constancy(before: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    """What was weakened of that which the work is held against: its commands, criteria and order."""
    return tuple(_constancy(before, document))[:NAMED]


def _constancy(before: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    if before.get("verifyCommands", []) != document.get("verifyCommands", []):
        yield "verifyCommands may not be changed during a loop: they say when the work is done."
    stories = _by_id(document)
    for old in before["userStories"]:
        new = stories.get(old["id"])
        if new is None:
            continue
        if not _holds(new["acceptanceCriteria"], old["acceptanceCriteria"]):
            yield f"Story {old['id']}: acceptance criteria may be added, never changed or removed."
        if not _holds(new.get("dependsOn", []), old.get("dependsOn", [])):
            yield f"Story {old['id']}: dependsOn may grow, nothing may be taken from it."
        if _rewritten(old, new):
            yield f"Story {old['id']}: what its review wrote in reviewFeedback may grow, never be changed or removed."
    done = frozenset(one["id"] for one in before["userStories"] if one.get("passes"))  # a turn's word is no verdict yet
    if stuck := sorted(_stuck(document, done) - _stuck(before, done))[:NAMED]:
        yield f"dependsOn goes round in a circle, so that stories could never begin: {', '.join(stuck)}."


def _holds(these: list[str], those: list[str]) -> bool:
    return set(those) <= set(these)


def _rewritten(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """A review's words, which say what must be mended or what the harness let pass, changed without a new verdict."""
    status, words = old.get("reviewStatus"), str(old.get("reviewFeedback", "")).strip()
    if status not in (CHANGES_REQUESTED, APPROVED) or new["reviewStatus"] != status:
        return False
    return not new["reviewFeedback"].lstrip().startswith(words) or at_cap(new) != at_cap(old)


def _stuck(document: Mapping[str, Any], done: frozenset[str]) -> set[str]:
    """Stories that wait for each other in a circle, and those that wait for these. Who is `done` waits for nobody."""
    waits = {one["id"]: set(() if one["id"] in done else one.get("dependsOn", ())) for one in document["userStories"]}
    behind: dict[str, list[str]] = {}
    for name, wanted in waits.items():
        for other in wanted:
            behind.setdefault(other, []).append(name)
    free = [name for name, wanted in waits.items() if not wanted]
    for name in free:
        for other in behind.get(name, ()):
            waits[other].discard(name)
            if not waits[other]:
                free.append(other)
    return set(waits).difference(free)


HOW = {
    IMPLEMENT: (
        'Implement this iteration\'s story, set its reviewStatus from null to "needs_review", and leave every other '
        "review field as it is."
    ),
    REVIEW: (
        "Review this iteration's story and no other: increment its reviewCount by 1, and set either reviewStatus "
        '"approved" with passes true, or reviewStatus "changes_requested" with what must be fixed in reviewFeedback. '
        "Change no code."
    ),
    FIX: (
        'Address the feedback, clear reviewFeedback, set reviewStatus from "changes_requested" to "needs_review", and '
        "leave every other review field as it is."
    ),
}
