"""Stories as a file has them: how it is read, what makes it well-formed, and what an iteration on it is for.

A document is a `tasks.json` as it was parsed. The loop and the hooks read it alike.
"""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

IMPLEMENT, REVIEW, FIX = "implement", "review", "review-fix"
MODES = (IMPLEMENT, REVIEW, FIX)
NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED = "needs_review", "changes_requested", "approved"
STATUSES = (None, NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED)
WATCHED = ("passes", "reviewStatus", "reviewCount")  # what the snapshot before an iteration holds of every story
INITIAL = {"passes": False, "reviewStatus": None, "reviewCount": 0}
MOST_BYTES = 16 << 20
NAMED = 20  # faults that are told at once


@value
class Unreadable:
    """Why there is no document."""

    why: str


def read(data: bytes) -> dict[str, Any] | Unreadable:
    """The document. A key that stands twice, or a number that is none, would be read by everybody in another way."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in pairs:
            if key in found:
                raise ValueError(f"the key {shown(key)} stands twice in one object")
            found[key] = item
        return found

    def number(text: str) -> Any:
        raise ValueError(f"{text} is no number")

    if len(data) > MOST_BYTES:
        return Unreadable(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=number)
    except UnicodeDecodeError:
        return Unreadable("it is not UTF-8 text")
    except RecursionError:
        return Unreadable("it is nested too deeply")
    except ValueError as error:
        return Unreadable(f"it is not valid JSON: {error}")
    return document if isinstance(document, dict) else Unreadable("it is no JSON object")


# Check 1: the schema


def schema(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What is malformed, by story and field."""
    return tuple(_schema(document))[:NAMED]


def _schema(document: Mapping[str, Any]) -> Iterator[str]:
    for field in ("project", "branchName", "description"):
        if not isinstance(document.get(field), str):
            yield f"{field} {_wants(document, field)} a string"
    if "verifyCommands" in document and not _texts(document["verifyCommands"]):
        yield "verifyCommands must be an array of non-empty strings"
    stories = document.get("userStories")
    if not isinstance(stories, list):
        yield f"userStories {_wants(document, 'userStories')} an array"
        return
    seen: set[str] = set()
    for place, story in enumerate(stories):
        if not isinstance(story, dict):
            yield f"userStories[{place}] must be an object"
            continue
        name = story.get("id")
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            yield f"userStories[{place}]: id {_wants(story, 'id')} a non-empty string on one line"
            continue
        if name in seen:
            yield f"the id {shown(name)} is used by more than one story"
        seen.add(name)
        yield from (f"Story {name}: {fault}" for fault in _malformed(story))
    yield from _astray(stories, seen)


def _malformed(story: Mapping[str, Any]) -> Iterator[str]:
    title, priority, count = story.get("title"), story.get("priority"), story.get("reviewCount")
    if not isinstance(title, str):
        yield f"title {_wants(story, 'title')} a string"
    if not isinstance(story.get("passes"), bool):
        yield f"passes {_wants(story, 'passes')} true or false"
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        yield f"priority {_wants(story, 'priority')} a number"
    criteria = story.get("acceptanceCriteria")
    if not criteria or not _texts(criteria):
        yield f"acceptanceCriteria {_wants(story, 'acceptanceCriteria')} a non-empty array of non-empty strings"
    status = story.get("reviewStatus", "")
    if status not in STATUSES or not (status is None or isinstance(status, str)):
        allowed = f'null, "{NEEDS_REVIEW}", "{CHANGES_REQUESTED}" or "{APPROVED}"'
        yield f"reviewStatus {_wants(story, 'reviewStatus')} {allowed}"
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        yield f"reviewCount {_wants(story, 'reviewCount')} a non-negative integer"
    if not isinstance(story.get("reviewFeedback"), str):
        yield f"reviewFeedback {_wants(story, 'reviewFeedback')} a string"
    for name in ("description", "notes"):
        if not isinstance(story.get(name, ""), str):
            yield f"{name} must be a string"
    if not _texts(story.get("dependsOn", [])):
        yield "dependsOn must be an array of ids"
    if story.get("passes") is True and not said(story.get("notes", "")):
        yield "passes is true but notes is empty; write down what was done"


def _astray(stories: list[Any], known: set[str]) -> Iterator[str]:
    for story in stories:
        if isinstance(story, dict) and _texts(wanted := story.get("dependsOn", [])):
            yield from (
                f"Story {story.get('id')}: dependsOn names {shown(name)}, which is no story"
                for name in wanted
                if name not in known
            )


def _wants(holder: Mapping[str, Any], name: str) -> str:
    return f"is {shown(holder[name])}, and must be" if name in holder else "is missing; it must be"


def _texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) and one.strip() for one in given)


def said(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())


def shown(given: object) -> str:
    import json

    text = json.dumps(given, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."


def snapshot(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What transitions are measured against: the review's fields of every story."""
    return {story["id"]: {name: story[name] for name in WATCHED} for story in document["userStories"]}


def mode_of(document: Mapping[str, Any], skip_review: bool = False) -> str:
    """What an iteration is for: fixes before reviews, reviews before new work."""
    found = {story["reviewStatus"] for story in document["userStories"]}
    if not skip_review and CHANGES_REQUESTED in found:
        return FIX
    return REVIEW if not skip_review and NEEDS_REVIEW in found else IMPLEMENT


def text_of(document: Mapping[str, Any]) -> bytes:
    """The file of a document."""
    import json

    try:
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # half a character, which only its escape can stand for
        return (json.dumps(document, indent=2) + "\n").encode()
