"""The state of stories that the harness keeps out of the agent's reach, and the tally of reviews."""

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


# The state, and its storage.


DECIDED_FIELDS = (*REVIEW_FIELDS, "reviewFeedback")  # what a review cycle decides of a story


class StoryStorage(Protocol):
    """Storage of the stories file, of the harness's state and of the marker."""

    def read(self) -> bytes | None:
        """The file's bytes; None where there is no readable file."""

    def write(self, data: bytes) -> None:
        """Replace the file."""

    def read_only_files(self) -> dict[str, bytes | None]:
        """The content of the read-only files beside it, by name."""

    def restore(self, name: str, data: bytes | None) -> None:
        """Restore one of the read-only files."""

    def note(self, name: str, data: Json) -> None:
        """Store a note durably."""

    def noted(self, name: str) -> Json | None:
        """A stored note."""

    def write_marker(self, marker: dict[str, Json]) -> None:
        """Write the marker for hooks: a turn begins."""

    def remove_marker(self) -> None:
        """Remove the marker: no turn runs."""


@value
class StoryState:
    """The state of the stories. `good` is the accepted document; the other fields are about the turn that was last
    examined.

    `before` is the document that its iteration found, `written` what it wrote, as far as that was legal, and `story`
    its story. `settled` is the iteration that was last settled, by this `verdict`. `proven` says that a check has seen
    work of this run pass, and that nobody has written since that everything is done. `tally` counts reviews, by story
    id.
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
        """Whether the iteration of the last examined turn is not settled."""
        return self.name != "" and iteration_of_turn(self.name) != self.settled


def iteration_of_turn(name: str) -> int:
    """The iteration of a turn, from its name: `2`, `2.2`, `2-joined`."""
    return int(name.partition("-")[0].partition(".")[0])


def find_story(document: Document, name: str) -> dict[str, Any]:
    """The story of this id; empty where there is none."""
    return next((one for one in document.get("userStories", ()) if one["id"] == name), {})


def replace_story(document: Document, name: str, made: dict[str, Any]) -> Document:
    """The document with this story replaced."""
    return document | {"userStories": [made if one["id"] == name else one for one in document["userStories"]]}


def without_turn_changes(known: StoryState, document: Document) -> Document:
    """A document without what the open turn changed in its story."""
    before, left, now = (find_story(one, known.story) for one in (known.before, known.good, document))
    if not before or not now or any(now[name] != left[name] for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: before[name] for name in DECIDED_FIELDS})


def with_turn_changes(known: StoryState, document: Document) -> Document:
    """A document with what the open turn changed in its story, where that was reverted meanwhile."""
    before, left, now = (find_story(one, known.story) for one in (known.before, known.good, document))
    if not left or not now or any(now[name] != before.get(name) for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: left[name] for name in DECIDED_FIELDS})


def with_decision(known: StoryState, document: Document) -> Document:
    """A document written since a turn was examined, with the decision about its story."""
    left, made, now = (find_story(one, known.story) for one in (known.written, known.good, document))
    if not made or not now or any(now[name] != left.get(name) for name in DECIDED_FIELDS):
        return document
    return replace_story(document, known.story, now | {name: made[name] for name in DECIDED_FIELDS})


def pack_state(known: StoryState) -> dict[str, Any]:
    """For a note. Documents are not packed: nothing in them may be mistaken for one of our values."""
    plain = ("good", "before", "written", "name", "story", "proven", "settled", "verdict", "tally")
    return {**{name: getattr(known, name) for name in plain}, "examined": pack(known.examined)}


def unpack_state(note: dict[str, Any]) -> StoryState:
    return StoryState(**{**note, "examined": unpack(note["examined"])})


# The tally of reviews.


MAX_FINDINGS, MAX_FINDING_CHARS, MAX_TITLE_CHARS = (
    10,
    500,
    200,
)  # of a story: the last reviews that asked for something, and how much
OPEN = "open"
EMPTY_TALLY: dict[str, Any] = {"made": 0, "requested": 0, "found": [], "finished": False}


def update_tally(tally: Tally, mode: str, before: Story, written: Story, made: Story) -> Tally:
    """The tally after an iteration on a story: before it, as its agent wrote it, and as the harness settled it.

    A review counts if it stands. A failed check without a review counts as requested changes too.
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
    """The changes that a review requests; empty where none."""
    objects = made["reviewStatus"] == CHANGES_REQUESTED or is_approved_at_cap(made)
    return str(made["reviewFeedback"]).strip().removeprefix(APPROVED_AT_CAP).strip() if objects else ""


def _clip_between_words(text: str, chars: int) -> str:
    """The beginning and the end of a text, cut between words: half a secret would not be recognized and masked."""
    if len(text) <= chars:
        return text
    half = chars // 2
    head, tail = re.sub(r"\S*\Z", "", text[:half]).rstrip(), re.sub(r"\A\S*", "", text[-half:]).lstrip()
    return " ".join(filter(None, (head, TRUNCATION_MARK, tail)))


def summarize_reviews(known: StoryState) -> tuple[StoryReview, ...]:
    """The review results of every story, in the order of the file. What a turn wrote counts once it was judged."""
    document = without_turn_changes(known, known.good) if known.open else known.good
    return tuple(_summarize_story(one, known.tally.get(one["id"], EMPTY_TALLY)) for one in document["userStories"])


def _summarize_story(one: Story, noted: dict[str, Any]) -> StoryReview:
    done, status = one["passes"], one["reviewStatus"]
    return StoryReview(
        one["id"], _clip_between_words(one["title"], MAX_TITLE_CHARS),
        PASSES if done and status != APPROVED else status or OPEN, one["reviewCount"], done and is_approved_at_cap(one),
        tuple(noted["found"]), noted["made"], noted["requested"], done and noted["finished"],
    )  # fmt: skip
