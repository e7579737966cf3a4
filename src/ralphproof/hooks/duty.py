"""What a marker demands of a turn. A field of another type than it must have is a fault: nothing is guessed."""

from __future__ import annotations

import os

from ralphproof import review, story
from ralphproof.hooks.marker import NAME
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


@value
class Duty:
    """The rules of a turn. `before` and `pinned` are None where the marker has none: others write markers too."""

    folder: str
    skip_review: bool
    cap: int
    mode: str
    story: str
    before: dict[str, dict[str, Any]] | None
    pinned: dict[str, Any] | None
    dirty_before: list[str]
    commits: bool
    faults: tuple[str, ...]


def duty_of(marker: Mapping[str, Any]) -> Duty:
    """What this marker demands, with what is usual in place of what is missing or malformed."""
    faults: list[str] = []

    def field(name: str, fits: Callable[[Any], bool], usual: Any, wanted: str) -> Any:
        found = marker.get(name)
        if found is None or fits(found):
            return usual if found is None else found
        faults.append(f"{NAME}: {name} is {story.shown(found)}, and must be {wanted}. That file is the loop's own.")
        return usual

    skip = field("skipReview", _is_flag, False, "true or false")
    before = field("preIterationSnapshot", _is_snapshot, None, "passes, reviewStatus and reviewCount of every story")
    mode = field("iterationMode", story.MODES.__contains__, "", f"one of {', '.join(story.MODES)}")
    if before is not None and not mode and not skip and marker.get("iterationMode") is None:
        faults.append(f"{NAME}: iterationMode is missing. That file is the loop's own.")
    return Duty(
        field("ralphDir", _is_inside, "ralph", "a folder inside the project"),
        skip,
        field("reviewCap", _is_cap, review.CAP, "a positive integer"),
        mode,
        field("story", _is_text, "", "the id of a story"),
        before,
        field("pinned", _is_pinned, None, "the verifyCommands and userStories that must stay"),
        field("dirtyBefore", _is_texts, [], "an array of paths"),
        field("commits", _is_flag, True, "true or false"),
        tuple(faults),
    )


def _is_flag(given: object) -> bool:
    return isinstance(given, bool)


def _is_text(given: object) -> bool:
    return isinstance(given, str)


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _is_cap(given: object) -> bool:
    return _is_count(given) and given != 0


def _is_inside(given: object) -> bool:
    if not isinstance(given, str) or not given.isprintable() or not given:
        return False
    return not os.path.isabs(given) and ".." not in given.split("/")


def _is_snapshot(given: object) -> bool:
    return isinstance(given, dict) and all(
        isinstance(one, dict)
        and _is_flag(one.get("passes"))
        and one.get("reviewStatus", "") in story.STATUSES
        and _is_count(one.get("reviewCount"))
        for one in given.values()
    )


def _is_pinned(given: object) -> bool:
    stories = given.get("userStories") if isinstance(given, dict) else None
    return (
        isinstance(given, dict)
        and _is_texts(given.get("verifyCommands", []))
        and isinstance(stories, list)
        and all(
            isinstance(one, dict)
            and _is_text(one.get("id"))
            and _is_texts(one.get("acceptanceCriteria"))
            and _is_texts(one.get("dependsOn", []))
            for one in stories
        )
    )
