"""Validation of a plan: prd.md and the stories."""

from __future__ import annotations

import re

from ralphproof.base.graph import find_cycles
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.stories import review, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NO_FILE = "there is no such file, or none that can be read"
SCAFFOLD = "is still the scaffold; write down what is wanted"
NEEDED = ("Summary", "Problem Statement", "Technical Design")  # sections that every PRD has, however small
PLACEHOLDER = "ralph/feature-name"  # the branch of the scaffold
UNVERIFIED = "verifyCommands is empty: reviews alone will say that a story is done; name the project's tests there"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FIELD = re.compile(r"\\\{\\\{.*?\\\}\\\}")
_HEADING = re.compile(r"#+\s*(?:\d+\w?\.\s*)?(.+)")


# The PRD


def substance(text: str) -> list[str]:
    """The lines that say something: comments and blank lines do not count."""
    return [line for raw in _COMMENT.sub("", text).splitlines() if (line := " ".join(raw.split()))]


def is_scaffold(text: str, template: str) -> bool:
    """Whether a PRD says no more than its template, whatever stands in the fields of that. Sections may be missing."""
    known = [re.compile(_FIELD.sub(".*", re.escape(line))) for line in substance(template)]
    return all(any(one.fullmatch(line) for one in known) for line in substance(text))


def prd_faults(data: bytes | None, template: str, name: str) -> Iterator[str]:
    """Why this is no PRD to plan by."""
    text = text_of(data)
    if text is None:
        yield f"{name}: {NO_FILE if data is None else 'it is not UTF-8 text'}"
    elif is_scaffold(text, template):
        yield f"{name} {SCAFFOLD}"


def prd_remarks(text: str, name: str) -> Iterator[str]:
    """What a PRD should have, and has not."""
    for section in NEEDED:
        if not _section(substance(text), section):
            yield f"{name} says nothing under {section}, which every PRD should"


def _section(lines: list[str], title: str) -> bool:
    """Whether something stands under a heading of this title, or of those below it."""
    level = 0
    for line in lines:
        found = _HEADING.fullmatch(line)
        depth = len(line) - len(line.lstrip("#")) if found else 0
        if level and not found:
            return True
        if found and found[1].strip().casefold() == title.casefold():
            level = depth
        elif found and depth <= level:
            level = 0
    return False


def text_of(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


# The stories


def stories_in(data: bytes | None) -> dict[str, Any] | schema.UnreadableStories:
    return schema.UnreadableStories(NO_FILE) if data is None else schema.parse_stories(data)


def story_faults(document: dict[str, Any] | schema.UnreadableStories) -> tuple[str, ...]:
    """Why a loop could not begin with these stories, or would not know what to do."""
    if isinstance(document, schema.UnreadableStories):
        return (document.why,)
    return schema.validate_stories(document) or tuple(_plan_faults(document))[: schema.MAX_NAMED]


def _plan_faults(document: dict[str, Any]) -> Iterator[str]:
    stories = document["userStories"]
    if not stories:
        yield "userStories is empty; a plan has at least one story"
    for one in stories:
        for field in ("title", "description"):
            if not schema.is_nonblank_text(one.get(field)):
                yield f"Story {one['id']}: {field} is empty; say what is to be done"
        if schema.is_nonblank_text(one["reviewFeedback"]):
            yield f"Story {one['id']}: reviewFeedback must be empty before the first review"
    yield from review.check_stories_kept({}, document)
    for circle in find_cycles({one["id"]: tuple(one.get("dependsOn", ())) for one in stories}):
        yield f"Story {circle[0]}: dependsOn goes in a circle: {' -> '.join(circle)}"


def story_remarks(document: dict[str, Any]) -> Iterator[str]:
    """What a loop can begin with, and the user may want to mend before."""
    if not document.get("verifyCommands"):
        yield UNVERIFIED
    for field in ("project", "description"):
        if not document[field].strip():
            yield f"{field} is empty"
    if document["branchName"].strip() in ("", PLACEHOLDER):
        yield "branchName is that of the scaffold; say which branch the work belongs to"


def progress_in(document: dict[str, Any]) -> list[str]:
    """The stories, well-formed or not, that somebody has worked on: id and how it stands."""
    stories = document.get("userStories")
    found = [one for one in stories if isinstance(one, dict)] if isinstance(stories, list) else []
    return [f"{one.get('id')} {_stands(one)}" for one in found if _stands(one)]


def _stands(one: dict[str, Any]) -> str:
    """How a story stands; empty for one that nobody has worked on."""
    moved = any(one.get(name, first) != first for name, first in schema.INITIAL_REVIEW.items())
    return str(one.get("reviewStatus") or ("passes" if one.get("passes") is True else "begun")) if moved else ""


def planned(document: dict[str, Any]) -> bool:
    """Whether somebody has written stories here, and not only the scaffold."""
    stories = document.get("userStories")
    return isinstance(stories, list) and any(isinstance(one, dict) and one.get("title") for one in stories)
