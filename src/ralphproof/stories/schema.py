"""The stories file tasks.json: parsing, schema, and review snapshots.

A document is the parsed file. The loop and the hooks share this module.
"""

from __future__ import annotations

from ralphproof.base.json_text import TOO_DEEP, UnusableFile, decode_utf8, parse_json
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

IMPLEMENT, REVIEW, FIX = "implement", "review", "review-fix"
MODES = (IMPLEMENT, REVIEW, FIX)
NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED = "needs_review", "changes_requested", "approved"
STATUSES = (None, NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED)
REVIEW_FIELDS = ("passes", "reviewStatus", "reviewCount")  # what the snapshot before an iteration holds of every story
INITIAL_REVIEW = {"passes": False, "reviewStatus": None, "reviewCount": 0}
MAX_BYTES = 16 << 20
MAX_INDENTED_BYTES = 1 << 20  # characters; nobody reads more, and to indent them takes long
ID_CHARS = 200
MAX_NAMED = 20  # faults that are told at once


@value
class UnreadableStories:
    """Why a stories file cannot be read."""

    why: str


def parse_stories(data: bytes) -> dict[str, Any] | UnreadableStories:
    """The document. Duplicate keys and numbers that are none are refused: readers differ about them."""
    if len(data) > MAX_BYTES:
        return UnreadableStories(f"it is larger than {MAX_BYTES >> 20} MiB")
    text = decode_utf8(data)
    if isinstance(text, UnusableFile):
        return UnreadableStories("it is not UTF-8 text")
    if not text.strip():
        return UnreadableStories("it is not valid JSON: it is empty")
    parsed = parse_json(text)
    if parsed.faults == (TOO_DEEP,):
        return UnreadableStories(f"it {TOO_DEEP}")
    if parsed.faults:
        return UnreadableStories(f"it is not valid JSON: {parsed.faults[0].replace('is not JSON: ', '')}")
    return parsed.data if isinstance(parsed.data, dict) else UnreadableStories("it is no JSON object")


# Schema


def validate_stories(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Schema violations, by story and field."""
    return tuple(_document_faults(document))[:MAX_NAMED]


def _document_faults(document: Mapping[str, Any]) -> Iterator[str]:
    for field in ("project", "branchName", "description"):
        if not isinstance(document.get(field), str):
            yield f"{field} {_type_fault(document, field)} a string"
    commands = document.get("verifyCommands", [])
    if not _is_text_list(commands):
        yield "verifyCommands must be an array of non-empty strings"
    elif not all(map(_is_runnable, commands)):
        yield "verifyCommands holds a command with a character that no command can have"
    stories = document.get("userStories")
    if not isinstance(stories, list):
        yield f"userStories {_type_fault(document, 'userStories')} an array"
        return
    seen: set[str] = set()
    for place, story in enumerate(stories):
        if not isinstance(story, dict):
            yield f"userStories[{place}] must be an object"
            continue
        name = story.get("id")
        if not isinstance(name, str) or not _is_id(name):
            limits = f"a non-empty string on one line, of {ID_CHARS} characters at most"
            yield f"userStories[{place}]: id {_type_fault(story, 'id')} {limits}"
            continue
        if name in seen:
            yield f"the id {show_value(name)} is used by more than one story"
        seen.add(name)
        yield from (f"Story {name}: {fault}" for fault in _story_faults(story))
    yield from _dependency_faults(stories, seen)


def _is_id(name: str) -> bool:
    return bool(name.strip()) and name.isprintable() and len(name) <= ID_CHARS


def _story_faults(story: Mapping[str, Any]) -> Iterator[str]:
    title, priority, count = story.get("title"), story.get("priority"), story.get("reviewCount")
    if not isinstance(title, str):
        yield f"title {_type_fault(story, 'title')} a string"
    if not isinstance(story.get("passes"), bool):
        yield f"passes {_type_fault(story, 'passes')} true or false"
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        yield f"priority {_type_fault(story, 'priority')} a number"
    criteria = story.get("acceptanceCriteria")
    if not criteria or not _is_text_list(criteria):
        yield f"acceptanceCriteria {_type_fault(story, 'acceptanceCriteria')} a non-empty array of non-empty strings"
    status = story.get("reviewStatus", "")
    if status not in STATUSES or not (status is None or isinstance(status, str)):
        allowed = f'null, "{NEEDS_REVIEW}", "{CHANGES_REQUESTED}" or "{APPROVED}"'
        yield f"reviewStatus {_type_fault(story, 'reviewStatus')} {allowed}"
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        yield f"reviewCount {_type_fault(story, 'reviewCount')} a non-negative integer"
    if not isinstance(story.get("reviewFeedback"), str):
        yield f"reviewFeedback {_type_fault(story, 'reviewFeedback')} a string"
    for name in ("description", "notes"):
        if not isinstance(story.get(name, ""), str):
            yield f"{name} must be a string"
    if not _is_text_list(story.get("dependsOn", [])):
        yield "dependsOn must be an array of ids"
    if story.get("passes") is True and not is_nonblank_text(story.get("notes", "")):
        yield "passes is true but notes is empty; write down what was done"


def _dependency_faults(stories: list[Any], known: set[str]) -> Iterator[str]:
    for story in stories:
        name, wanted = (story.get("id"), story.get("dependsOn", [])) if isinstance(story, dict) else (None, [])
        if isinstance(name, str) and name in known and _is_text_list(wanted):
            lost = (one for one in wanted if one not in known)
            yield from (f"Story {name}: dependsOn names {show_value(one)}, which is no story" for one in lost)


def _type_fault(holder: Mapping[str, Any], name: str) -> str:
    return f"is {show_value(holder[name])}, and must be" if name in holder else "is missing; it must be"


def _is_text_list(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) and one.strip() for one in given)


def _is_runnable(command: str) -> bool:
    return "\0" not in command and not any("\ud800" <= sign <= "\udfff" for sign in command)


def is_nonblank_text(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())


def show_value(given: object) -> str:
    import json

    text = json.dumps(given, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."


def review_snapshot(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The review fields of every story, to compare later states with."""
    return {story["id"]: {name: story[name] for name in REVIEW_FIELDS} for story in document["userStories"]}


def serialize_stories(document: Mapping[str, Any]) -> bytes:
    """The file of a document, indented where it is small."""
    import json

    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= MAX_INDENTED_BYTES:
        indented = json.dumps(document, indent=2, ensure_ascii=False)
        text = indented if len(indented) <= MAX_BYTES // 4 else text
    return text.encode("utf-8", "backslashreplace") + b"\n"  # so half a character becomes its escape
