"""Rules of the review cycle: legal states and transitions of stories, and their approval after an iteration."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.stories.schema import (
    APPROVED,
    CHANGES_REQUESTED,
    FIX,
    IMPLEMENT,
    INITIAL_REVIEW,
    MAX_NAMED,
    NEEDS_REVIEW,
    REVIEW,
    REVIEW_FIELDS,
    is_nonblank_text,
    show_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    Stories = Mapping[str, Mapping[str, Any]]  # by their ids


# The loop and the Stop hook share these rules. Every rule returns what is wrong, in sentences. Documents are
# well-formed here (`stories.schema`).


DEFAULT_REVIEW_CAP = 5  # reviews of one story, unless somebody says otherwise
APPROVED_AT_CAP = "[AUTO-APPROVED AT CAP]"


# Rules for every state


def check_invariants(
    document: Mapping[str, Any], cap: int = DEFAULT_REVIEW_CAP, before: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Violated invariants of a well-formed document. `before` excuses a count that a higher cap had allowed."""
    return tuple(_invariants(document, cap, before or {}))[:MAX_NAMED]


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
        if status == CHANGES_REQUESTED and not is_nonblank_text(story["reviewFeedback"]):
            yield (
                f"Story {name} has reviewStatus 'changes_requested' but an empty reviewFeedback: feedback required. "
                "Say what must be fixed, and where."
            )
        most = max(cap, before.get(name, INITIAL_REVIEW).get("reviewCount", 0)) + 1
        if count > most:
            yield f"Story {name} has reviewCount {show_value(count)}, more than the review cap of {cap} allows."


# Rules for the changes of an iteration, by its mode


def check_transitions(
    before: Stories, document: Mapping[str, Any], mode: str, cap: int = DEFAULT_REVIEW_CAP, story: str = ""
) -> tuple[str, ...]:
    """Illegal changes in this mode since the snapshot. `story` is that of this iteration, where it is known."""
    stories = _by_id(document)
    ruled = _RULES[mode](_field_changes(before, stories), stories, cap, story)
    return (*check_stories_kept(before, document), *ruled)[:MAX_NAMED]


def check_stories_kept(before: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    """Deleted stories, and new ones that do not start open."""
    stories = _by_id(document)
    return (*_removed_stories(before, stories), *_added_stories(before, stories))[:MAX_NAMED]


def check_without_review(before: Stories, document: Mapping[str, Any], story: str) -> tuple[str, ...]:
    """Illegal changes where nothing is reviewed: other stories finished, or review fields written."""
    moves = _field_changes(before, _by_id(document))
    finished = [move.story for move in moves if move.field == "passes" and move.new and move.story != story]
    only = f"This iteration's story is {story}"
    return (
        *(f"{only}; story {name} may not be finished in it." for name in finished),
        *(f"Nobody reviews in this loop. Story {move.story}: {move}." for move in moves if move.field != "passes"),
    )[:MAX_NAMED]


def check_unchanged(before: Stories, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Deleted and new stories as above, and any change to the others."""
    moved = (f"Story {move.story} changed: {move}." for move in _field_changes(before, _by_id(document)))
    return (*check_stories_kept(before, document), *moved)[:MAX_NAMED]


def _by_id(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {one["id"]: one for one in document["userStories"]}


@value
class FieldChange:
    """A changed field of a story."""

    story: str
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field} {show_value(self.old)} → {show_value(self.new)}"


def _field_changes(before: Stories, stories: Stories) -> list[FieldChange]:
    return [
        FieldChange(name, field, old[field], stories[name][field])
        for name, old in before.items()
        if name in stories
        for field in REVIEW_FIELDS
        if (old[field], type(old[field])) != (stories[name][field], type(stories[name][field]))
    ]


def _removed_stories(before: Iterable[str], stories: Mapping[str, Any]) -> Iterator[str]:
    for name in before:
        if name not in stories:
            yield f"Story {name} is gone. Stories may be added, split and reordered, never deleted or renamed."


def _added_stories(before: Mapping[str, Any], stories: Stories) -> Iterator[str]:
    for name, story in stories.items():
        wrong = [
            f"{field} {show_value(story[field])}" for field, first in INITIAL_REVIEW.items() if story[field] != first
        ]
        if name not in before and wrong:
            yield (
                f"Story {name} is new and starts with {', '.join(wrong)}. New stories start incomplete: passes=false, "
                "reviewStatus=null, reviewCount=0."
            )


def _implement_faults(moves: list[FieldChange], stories: Mapping[str, Any], _cap: int, active: str) -> Iterator[str]:
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


def _fix_faults(moves: list[FieldChange], _stories: Mapping[str, Any], _cap: int, active: str) -> Iterator[str]:
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


def _review_faults(moves: list[FieldChange], stories: Stories, cap: int, active: str) -> Iterator[str]:
    touched = list(dict.fromkeys(move.story for move in moves))
    if not touched:
        waiting = [name for name, story in stories.items() if story["reviewStatus"] == NEEDS_REVIEW]
        name = active or (waiting[0] if waiting else "(none)")
        yield _illegal_change(name, "review must increment reviewCount by 1, and approve or request changes")
        return
    if len(touched) > 1:
        for name in [name for name in touched if name != active] if active in touched else touched[1:]:
            yield _illegal_change(name, "review may only modify one story")
    elif active and touched != [active]:
        yield _illegal_change(touched[0], f"this review is of story {active}")
    name = active if active in touched else touched[0]
    own = {move.field: move for move in moves if move.story == name}
    yield from (_illegal_change(name, fault) for fault in _verdict_faults(own, stories[name], cap))


def _verdict_faults(own: Mapping[str, FieldChange], story: Mapping[str, Any], cap: int) -> Iterator[str]:
    """Faults of a review that made these changes."""
    counted, status, passes = own.get("reviewCount"), own.get("reviewStatus"), own.get("passes")
    if counted is None:
        yield "review must increment reviewCount, and it is unchanged"
    elif counted.new != counted.old + 1:
        yield f"reviewCount must grow by exactly 1, and went {show_value(counted.old)} → {show_value(counted.new)}"
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
    if status.new == CHANGES_REQUESTED and not is_nonblank_text(story.get("reviewFeedback")):
        yield "changes_requested needs feedback: feedback required in reviewFeedback"
    if status.new == APPROVED and is_approved_at_cap(story) and story["reviewCount"] < cap:
        yield f"{APPROVED_AT_CAP} is claimed at reviewCount {story['reviewCount']}, below the review cap of {cap}"


def is_approved_at_cap(story: Mapping[str, Any]) -> bool:
    """Whether its feedback says that it was approved at the review cap."""
    return str(story.get("reviewFeedback", "")).lstrip().startswith(APPROVED_AT_CAP)


def _illegal_change(name: str, details: str) -> str:
    return f"Review iteration made illegal transition on story {name}: {details}."


_RULES = {IMPLEMENT: _implement_faults, REVIEW: _review_faults, FIX: _fix_faults}


# Rules for every mode


def check_not_weakened(before: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    """Weakened verify commands, acceptance criteria, dependencies and review feedback."""
    return tuple(_weakening_faults(before, document))[:MAX_NAMED]


def _weakening_faults(before: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    if before.get("verifyCommands", []) != document.get("verifyCommands", []):
        yield "verifyCommands may not be changed during a loop: they say when the work is done."
    stories = _by_id(document)
    for old in before["userStories"]:
        new = stories.get(old["id"])
        if new is None:
            continue
        if not _contains_all(new["acceptanceCriteria"], old["acceptanceCriteria"]):
            yield f"Story {old['id']}: acceptance criteria may be added, never changed or removed."
        if not _contains_all(new.get("dependsOn", []), old.get("dependsOn", [])):
            yield f"Story {old['id']}: dependsOn may grow, nothing may be taken from it."
        if _feedback_rewritten(old, new):
            yield f"Story {old['id']}: what its review wrote in reviewFeedback may grow, never be changed or removed."
    done = frozenset(one["id"] for one in before["userStories"] if one.get("passes"))  # a turn's word is no verdict yet
    if stuck := sorted(_blocked_stories(document, done) - _blocked_stories(before, done))[:MAX_NAMED]:
        yield f"dependsOn goes round in a circle, so that stories could never begin: {', '.join(stuck)}."


def _contains_all(these: list[str], those: list[str]) -> bool:
    return set(those) <= set(these)


def _feedback_rewritten(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the feedback of a review was changed, other than appended to, without a new verdict."""
    status, words = old.get("reviewStatus"), str(old.get("reviewFeedback", "")).strip()
    if status not in (CHANGES_REQUESTED, APPROVED) or new["reviewStatus"] != status:
        return False
    return not new["reviewFeedback"].lstrip().startswith(words) or is_approved_at_cap(new) != is_approved_at_cap(old)


def _blocked_stories(document: Mapping[str, Any], done: frozenset[str]) -> set[str]:
    """Stories in a dependency cycle, and those that depend on them. Stories in `done` wait for nothing."""
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


MODE_INSTRUCTIONS = {
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


# Approval: what the harness makes of a story after the verdict.


def settle_story(
    story: Mapping[str, Any],
    before: Mapping[str, Any],
    mode: str,
    stands: bool,
    red: str,
    cap: int,
    approve: bool = True,
) -> dict[str, Any]:
    """A story after its iteration was judged. Only passing verify commands make the agent's change stand.

    `red` is the output of failed checks. At the cap no reviewer decides: the harness approves what passes its checks,
    unless `approve` is false.
    """
    now = dict(story)
    capped = now["reviewCount"] >= cap
    if mode == REVIEW and stands and red:
        feedback = "\n\n".join(filter(None, (_review_concern(now), red)))
        count = min(now["reviewCount"], max(cap, before["reviewCount"]))
        return _request_changes(now, feedback) | {"reviewCount": count}
    if not stands or red:
        return now | {name: before[name] for name in (*REVIEW_FIELDS, "reviewFeedback") if name in before}
    if mode == REVIEW and is_approved_at_cap(now) and now["passes"] and not approve:
        return _request_changes(
            now, _review_concern(now) or f"{APPROVED_AT_CAP} was written, and nobody may approve so here."
        )
    if mode == REVIEW and now["reviewStatus"] == CHANGES_REQUESTED and capped and approve:
        return _approve_at_cap(now, now["reviewFeedback"])
    if mode != REVIEW and now["reviewStatus"] == NEEDS_REVIEW:  # who submits it has no say in its review
        submitted = now | {"reviewFeedback": ""}
        decided = mode == FIX and capped and approve
        return _approve_at_cap(submitted, before.get("reviewFeedback", "")) if decided else submitted
    return now


def _request_changes(story: dict[str, Any], feedback: str) -> dict[str, Any]:
    return story | {"passes": False, "reviewStatus": CHANGES_REQUESTED, "reviewFeedback": feedback}


def _approve_at_cap(story: dict[str, Any], concerns: str) -> dict[str, Any]:
    notes = story.get("notes") if is_nonblank_text(story.get("notes")) else "Approved by the harness at the review cap."
    feedback = f"{APPROVED_AT_CAP} {_without_cap_note(concerns)}".strip()
    return story | {"passes": True, "reviewStatus": APPROVED, "reviewFeedback": feedback, "notes": notes}


def _review_concern(story: Mapping[str, Any]) -> str:
    """What its review objected to, approved at the cap or not."""
    objects = story["reviewStatus"] == CHANGES_REQUESTED or is_approved_at_cap(story)
    return _without_cap_note(story["reviewFeedback"]) if objects else ""


def _without_cap_note(feedback: str) -> str:
    return feedback.strip().removeprefix(APPROVED_AT_CAP).strip()


def approval_concerns(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Approved stories that a person should look at."""
    capped = [story for story in document["userStories"] if story["passes"] and is_approved_at_cap(story)]
    return tuple(
        f"story {story['id']} was approved at the review cap: {_review_concern(story) or 'its review says no more'}"
        for story in capped
    )
