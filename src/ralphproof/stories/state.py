"""Story state that the harness keeps out of the agent's reach, and the tally of reviews."""

from __future__ import annotations

import re

from ralphproof.base.text import TRUNCATION_MARK
from ralphproof.base.value import TYPE_CHECKING, Protocol, pack, unpack, value
from ralphproof.engine.environment import NO_PLAN_EDITS, PlanEdits
from ralphproof.engine.metrics import StoryReview
from ralphproof.stories.review import APPROVED_AT_CAP, is_approved_at_cap
from ralphproof.stories.schema import APPROVED, CHANGES_REQUESTED, REVIEW, REVIEW_FIELDS
from ralphproof.stories.workflow import PASSES

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json

    Document = dict[str, Any]
    Story = dict[str, Any]
    Tally = dict[str, dict[str, Any]]  # by the ids of stories; what is noted of the run so far


# What the harness knows of stories, whatever stands in their file, and where both are.


DECIDED_FIELDS = (*REVIEW_FIELDS, "reviewFeedback")  # what a review cycle decides of a story


class StoryStorage(Protocol):
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
class StoryState:
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
    examined: PlanEdits = NO_PLAN_EDITS
    proven: bool = False
    settled: int = 0
    verdict: str = ""
    tally: dict[str, dict[str, Any]] = {}  # noqa: RUF012

    @property
    def open(self) -> bool:
        """Whether the iteration of that turn is not over."""
        return self.name != "" and iteration_of_turn(self.name) != self.settled


def iteration_of_turn(name: str) -> int:
    """That of a turn, by its name: `2`, `2.2`, `2-joined`."""
    return int(name.partition("-")[0].partition(".")[0])


def find_story(document: Document, name: str) -> dict[str, Any]:
    """The story of this id; empty where there is none."""
    return next((one for one in document.get("userStories", ()) if one["id"] == name), {})


def replace_story(document: Document, name: str, made: dict[str, Any]) -> Document:
    """The document with this in the place of the story of this id."""
    return document | {"userStories": [made if one["id"] == name else one for one in document["userStories"]]}


def without_turn_changes(known: StoryState, document: Document) -> Document:
    """What somebody wrote in the middle of an iteration, without what a turn of it had done to its story."""
    before, left, now = (find_story(one, known.story) for one in (known.before, known.good, document))
    if not before or not now or any(now[name] != left[name] for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: before[name] for name in DECIDED_FIELDS})


def with_turn_changes(known: StoryState, document: Document) -> Document:
    """The other way round: with what a turn had done to its story, where that was taken back meanwhile."""
    before, left, now = (find_story(one, known.story) for one in (known.before, known.good, document))
    if not left or not now or any(now[name] != before.get(name) for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: left[name] for name in DECIDED_FIELDS})


def with_decision(known: StoryState, document: Document) -> Document:
    """What somebody wrote since a turn was examined, with what was decided of its story meanwhile."""
    left, made, now = (find_story(one, known.story) for one in (known.written, known.good, document))
    if not made or not now or any(now[name] != left.get(name) for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: made[name] for name in DECIDED_FIELDS})


def pack_state(known: StoryState) -> dict[str, Any]:
    """For a note. Documents are anybody's: they stay as they are, and nothing in them is taken for a value of ours."""
    plain = ("good", "before", "written", "name", "story", "proven", "settled", "verdict", "tally")
    return {**{name: getattr(known, name) for name in plain}, "examined": pack(known.examined)}


def unpack_state(note: dict[str, Any]) -> StoryState:
    return StoryState(**{**note, "examined": unpack(note["examined"])})


# What the reviews of a run's stories came to: how often each was reviewed, and what they asked for.


MAX_FINDINGS, MAX_FINDING_CHARS, MAX_TITLE_CHARS = (
    10,
    500,
    200,
)  # of a story: the last reviews that asked for something, and how much
OPEN = "open"
EMPTY_TALLY: dict[str, Any] = {"made": 0, "requested": 0, "found": [], "finished": False}


def update_tally(tally: Tally, mode: str, before: Story, written: Story, made: Story) -> Tally:
    """The tally after an iteration on a story: as it was before, as its agent wrote it, and as the harness settled it.

    A review counts if it stands, whatever the harness made of it. A check that fails without one asks for changes too.
    """
    fresh = mode == REVIEW and made["reviewStatus"] != before["reviewStatus"]
    asked = _requested_changes(made) if fresh else ""
    requested = bool(asked) and CHANGES_REQUESTED in (written["reviewStatus"], made["reviewStatus"])
    old = tally.get(made["id"], EMPTY_TALLY)
    new = {
        "made": old["made"] + (fresh and written["reviewCount"] > before["reviewCount"]),
        "requested": old["requested"] + requested,
        "found": [*old["found"], *([_clip_between_words(asked, MAX_FINDING_CHARS)] if asked else [])][-MAX_FINDINGS:],
        "finished": made["passes"] and (old["finished"] or not before["passes"]),
    }
    return tally if new == old else tally | {made["id"]: new}


def _requested_changes(made: Story) -> str:
    """What should be changed in a story after its review; empty where nothing."""
    objects = made["reviewStatus"] == CHANGES_REQUESTED or is_approved_at_cap(made)
    return str(made["reviewFeedback"]).strip().removeprefix(APPROVED_AT_CAP).strip() if objects else ""


def _clip_between_words(text: str, chars: int) -> str:
    """The beginning and the end of a text, cut between words: half a secret would be known to nobody as one."""
    if len(text) <= chars:
        return text
    half = chars // 2
    head, tail = re.sub(r"\S*\Z", "", text[:half]).rstrip(), re.sub(r"\A\S*", "", text[-half:]).lstrip()
    return " ".join(filter(None, (head, TRUNCATION_MARK, tail)))


def summarize_reviews(known: StoryState) -> tuple[StoryReview, ...]:
    """Every story, in the order of the file. What a turn wrote counts once it was judged."""
    document = without_turn_changes(known, known.good) if known.open else known.good
    return tuple(_summarize_story(one, known.tally.get(one["id"], EMPTY_TALLY)) for one in document["userStories"])


def _summarize_story(one: Story, noted: dict[str, Any]) -> StoryReview:
    done, status = one["passes"], one["reviewStatus"]
    return StoryReview(
        one["id"], _clip_between_words(one["title"], MAX_TITLE_CHARS),
        PASSES if done and status != APPROVED else status or OPEN, one["reviewCount"], done and is_approved_at_cap(one),
        tuple(noted["found"]), noted["made"], noted["requested"], done and noted["finished"],
    )  # fmt: skip
