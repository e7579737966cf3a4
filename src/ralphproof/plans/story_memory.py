"""What the harness knows of stories, whatever stands in their file, and where both are."""

from __future__ import annotations

from ralphproof.notebook import NOTHING, Examined
from ralphproof.story import WATCHED
from ralphproof.value import TYPE_CHECKING, Protocol, pack, unpack, value

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json

    Document = dict[str, Any]

REVIEWED = (*WATCHED, "reviewFeedback")  # what a review cycle decides of a story


class Shelf(Protocol):
    """Where the file lies, and what is kept out of the agent's reach."""

    def look(self) -> bytes | None:
        """The file's bytes; None where there is no file that can be read."""

    def write(self, data: bytes) -> None:
        """Put the whole file in its place."""

    def others(self) -> dict[str, bytes | None]:
        """What stands in the files beside it that nobody may change."""

    def restore(self, name: str, data: bytes | None) -> None:
        """Put one of these back as it was."""

    def note(self, name: str, data: Json) -> None:
        """Keep something, durably."""

    def noted(self, name: str) -> Json | None:
        """What was kept."""

    def light(self, marker: dict[str, Json]) -> None:
        """Show whoever looks from inside a turn what is asked of it."""

    def quench(self) -> None:
        """Nobody is inside a turn."""


@value
class Remembered:
    """What the harness knows. `good` is the truth; the rest is of the turn that was last examined.

    `before` is what its iteration found, `written` what it left of it, as far as that was legal, and `story` the one
    that it was for. `settled` is the iteration that was last settled, by this `verdict`. `proven` says that a check, or
    whatever else decides, has seen work of this run pass, and that nobody has written since that all is done. `tally`
    is what reviews came to, by the ids of stories.
    """

    good: dict[str, Any]
    before: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    written: dict[str, Any] = {}  # noqa: RUF012
    name: str = ""
    story: str = ""
    examined: Examined = NOTHING
    proven: bool = False
    settled: int = 0
    verdict: str = ""
    tally: dict[str, dict[str, Any]] = {}  # noqa: RUF012

    @property
    def open(self) -> bool:
        """Whether the iteration of that turn is not over."""
        return self.name != "" and iteration_of(self.name) != self.settled


def iteration_of(name: str) -> int:
    """That of a turn, by its name: `2`, `2.2`, `2-joined`."""
    return int(name.partition("-")[0].partition(".")[0])


def story_in(document: Document, name: str) -> dict[str, Any]:
    """The story of this id; empty where there is none."""
    return next((one for one in document.get("userStories", ()) if one["id"] == name), {})


def with_story(document: Document, name: str, made: dict[str, Any]) -> Document:
    """The document with this in the place of the story of this id."""
    return document | {"userStories": [made if one["id"] == name else one for one in document["userStories"]]}


def undone(known: Remembered, document: Document) -> Document:
    """What somebody wrote in the middle of an iteration, without what a turn of it had done to its story."""
    before, left, now = (story_in(one, known.story) for one in (known.before, known.good, document))
    if not before or not now or any(now[name] != left[name] for name in REVIEWED):
        return document
    return with_story(document, known.story, now | {name: before[name] for name in REVIEWED})


def redone(known: Remembered, document: Document) -> Document:
    """The other way round: with what a turn had done to its story, where that was taken back meanwhile."""
    before, left, now = (story_in(one, known.story) for one in (known.before, known.good, document))
    if not left or not now or any(now[name] != before.get(name) for name in REVIEWED):
        return document
    return with_story(document, known.story, now | {name: left[name] for name in REVIEWED})


def decided(known: Remembered, document: Document) -> Document:
    """What somebody wrote since a turn was examined, with what was decided of its story meanwhile."""
    left, made, now = (story_in(one, known.story) for one in (known.written, known.good, document))
    if not made or not now or any(now[name] != left.get(name) for name in REVIEWED):
        return document
    return with_story(document, known.story, now | {name: made[name] for name in REVIEWED})


def noted(known: Remembered) -> dict[str, Any]:
    """For a note. Documents are anybody's: they stay as they are, and nothing in them is taken for a value of ours."""
    plain = ("good", "before", "written", "name", "story", "proven", "settled", "verdict", "tally")
    return {**{name: getattr(known, name) for name in plain}, "examined": pack(known.examined)}


def recalled(note: dict[str, Any]) -> Remembered:
    return Remembered(**{**note, "examined": unpack(note["examined"])})
