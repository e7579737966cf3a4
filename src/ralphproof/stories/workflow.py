"""How a run works through stories: which are done, prompts, rules for edits, the harness's own state, and the tally
of reviews.
"""

from __future__ import annotations

import re
from functools import cache

from ralphproof.base.text import TRUNCATION_MARK, truncate
from ralphproof.base.value import TYPE_CHECKING, Protocol, pack, replace, unpack, value
from ralphproof.engine.environment import NO_PLAN_EDITS, PlanEdits
from ralphproof.engine.outcome import StoryReview
from ralphproof.engine.plan import STORY_MEMORY_NOTE, Task
from ralphproof.engine.prompt import substitute_variables
from ralphproof.store.run_folder import RunFolder
from ralphproof.stories import review, schema

if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]
    Story = dict[str, Any]
    Tally = dict[str, dict[str, Any]]  # by the ids of stories; what is noted of the run so far

    from ralphproof.base.value import Json
    from ralphproof.engine.workspace import Change
    from ralphproof.store.ledger import RunRow
    from ralphproof.store.project import Project


# Stories of a recorded run


def story_workflow_in(facts: dict[str, Json]) -> StoryWorkflow | None:
    """The workflow of a run, from the facts of its beginning; None for a run without stories."""
    match facts.get("stories"):
        case {"folder": str(folder), "cap": int(cap), "skipReview": bool(skips), "capIsFailure": bool(fails)}:
            return StoryWorkflow(folder, cap, skips, fails)
        case _:
            return None


def story_criteria(project: Project, row: RunRow) -> dict[str, tuple[str, ...]]:
    """The acceptance criteria of each story of a run, masked."""
    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(STORY_MEMORY_NOTE)
    stories = unpack_state(note).good["userStories"] if isinstance(note, dict) else ()
    return {one["id"]: tuple(map(project.mask, one["acceptanceCriteria"])) for one in stories}


def story_reviews(project: Project, row: RunRow, facts: dict[str, Json]) -> tuple[StoryReview, ...]:
    """The review results of a run's stories so far, masked; empty for a run without stories."""
    if story_workflow_in(facts) is None:
        return ()
    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(STORY_MEMORY_NOTE)
    stories, mask = summarize_reviews(unpack_state(note)) if isinstance(note, dict) else (), project.mask
    return tuple(replace(one, title=mask(one.title), found=tuple(map(mask, one.found))) for one in stories)


# Stories as tasks


# Files that a review may write besides its verdict.
AGENT_MEMORY_FILES, AGENT_RULES_FOLDER = ("CLAUDE.md", "AGENTS.md"), ".claude/rules/"
# Folders that tools create when tests run.
TOOL_CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"))
INSTRUCTION_WITHOUT_REVIEW = (
    "Implement this iteration's story, and set its passes to true once every verify command passes."
)
FEEDBACK_CHARS = 10_000  # of what a review says, in the prompt; the file has all of it
PASSES = "passes"  # what a story says that is done where nobody reviews
_BLOCK = re.compile(r"^<!-- (?:for: ([a-z, -]+)|end) -->\n?", re.MULTILINE)


@value
class StoryWorkflow:
    """The settings of a run by stories. `folder` is relative to the project's root; `template` is the prompt's.

    `verify` are the verify commands from the start of the run.
    """

    folder: str = "ralph"
    cap: int = review.DEFAULT_REVIEW_CAP
    skip_review: bool = False
    cap_is_failure: bool = False
    template: str = ""
    verify: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The word that marks a story as done."""
        return PASSES if self.skip_review else schema.APPROVED

    @property
    def files(self) -> tuple[str, ...]:
        """The files that every turn may write."""
        return f"{self.folder}/tasks.json", f"{self.folder}/progress.txt"

    @property
    def fixed(self) -> dict[str, str]:
        """Read-only files, each with the reason."""
        return {f"{self.folder}/prd.md": "the PRD is read-only"}

    @property
    def may_run(self) -> tuple[str, ...]:
        """Commands that agents may run. The harness runs the same after them, and commits for agents that cannot."""
        return ("git add:*", "git commit:*", *self.verify)

    def done(self, one: dict[str, Any]) -> bool:
        return one["passes"] is True and (self.skip_review or one["reviewStatus"] == schema.APPROVED)

    def stage_of(self, one: dict[str, Any]) -> str:
        """The mode of an iteration on this story."""
        if self.skip_review or one["reviewStatus"] is None:
            return schema.IMPLEMENT
        return schema.FIX if one["reviewStatus"] == schema.CHANGES_REQUESTED else schema.REVIEW

    def word_of(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """The claim in what a turn wrote about its story, empty where there is none, and notices about it.

        A review that requests changes at the cap is the last one: the checks decide.
        """
        if self.skip_review:
            return PASSES if now["passes"] and not before["passes"] else "", ()
        status = now["reviewStatus"] if now["reviewStatus"] != before["reviewStatus"] else None
        if status == schema.CHANGES_REQUESTED and now["reviewCount"] >= self.cap and not self.cap_is_failure:
            return schema.APPROVED, (f"story {now['id']}: changes are requested at the review cap; the checks decide",)
        return status or "", ()

    def faults(self, before: dict[str, Any], now: dict[str, Any], mode: str, name: str) -> tuple[str, ...]:
        """The rules that a turn in this mode broke on this story."""
        if faults := schema.validate_stories(now):
            return faults
        known = schema.review_snapshot(before)
        if self.skip_review:
            return (
                *review.check_stories_kept(known, now),
                *review.check_without_review(known, now, name),
                *review.check_not_weakened(before, now),
            )
        return (
            *review.check_transitions(known, now, mode, self.cap, name),
            *review.check_invariants(now, self.cap, known),
            *review.check_not_weakened(before, now),
        )

    def idle_faults(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
        """The rules that edits broke while no agent ran."""
        known = schema.review_snapshot(before)
        return schema.validate_stories(now) or (
            *review.check_unchanged(known, now),
            *review.check_not_weakened(before, now),
        )

    def strays(self, change: Change, mode: str) -> tuple[str, ...]:
        """Files that a review changed and may not change."""
        if mode != schema.REVIEW or self.skip_review:
            return ()
        return tuple(
            path
            for path in change.paths
            if path not in self.files
            and path not in change.older
            and path.rpartition("/")[2] not in AGENT_MEMORY_FILES
            and not path.startswith(AGENT_RULES_FOLDER)
            and TOOL_CACHES.isdisjoint(path.split("/"))
        )

    def prompt(self, document: dict[str, Any], one: dict[str, Any], mode: str) -> str:
        """The prompt: the blocks of the template for this mode, filled in."""
        for_whom = frozenset((mode, "skip-review" if self.skip_review else f"{mode} with review"))
        names = {
            "RALPH_MODE": mode, "RALPH_DIR": self.folder, "RALPH_STORY": one["id"], "RALPH_TITLE": one["title"],
            "RALPH_REVIEW_CAP": str(self.cap), "RALPH_REVIEW_COUNT": str(one["reviewCount"]),
            "RALPH_FEEDBACK": truncate(one["reviewFeedback"], FEEDBACK_CHARS) or "(none)",
            "RALPH_PROJECT": document["project"],
            "RALPH_CRITERIA": "\n".join(f"- {line}" for line in one["acceptanceCriteria"]),
            "RALPH_VERIFY": "\n".join(f"- `{line}`" for line in document.get("verifyCommands", [])) or "- (none)",
        }  # fmt: skip
        return substitute_variables(_cached_blocks(self.template, for_whom), names)


@cache
def _cached_blocks(template: str, whom: frozenset[str]) -> str:
    return select_blocks(template, whom)


def select_blocks(template: str, whom: set[str] | frozenset[str]) -> str:
    """The template without blocks for other modes: from `<!-- for: a, b -->` to `<!-- end -->`."""
    kept: list[str] = []
    at, wanted = 0, True
    for mark in _BLOCK.finditer(template):
        kept.append(template[at : mark.start()] if wanted else "")
        wanted = mark[1] is None or not whom.isdisjoint(name.strip() for name in mark[1].split(","))
        at = mark.end()
    return "".join((*kept, template[at:] if wanted else ""))


def tasks_from_stories(document: dict[str, Any], workflow: StoryWorkflow, proven: bool) -> tuple[Task, ...]:
    """Every story as a task. Where all are done and no check has shown it, the last one stays open."""
    stories = document["userStories"]
    ranks = {priority: rank for rank, priority in enumerate(sorted({one["priority"] for one in stories}))}
    open_again = stories[-1]["id"] if stories and not proven and all(map(workflow.done, stories)) else None
    return tuple(
        Task(
            one["id"], workflow.prompt(document, one, workflow.stage_of(one)), one["title"],
            ranks[one["priority"]], tuple(one.get("dependsOn", ())), workflow.done(one) and one["id"] != open_again,
            workflow.stage_of(one), acceptance=tuple(one["acceptanceCriteria"]),
        )
        for one in stories
    )  # fmt: skip


def pinned_fields(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of every story that must not shrink, for the Stop hook, which does not see the old file."""
    return [
        {"id": one["id"], "acceptanceCriteria": one["acceptanceCriteria"], "dependsOn": one.get("dependsOn", [])}
        for one in document["userStories"]
    ]


# The state of stories that the harness keeps out of the agent's reach, and its storage.


DECIDED_FIELDS = (*schema.REVIEW_FIELDS, "reviewFeedback")  # what a review cycle decides of a story


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
    return _replace_decision(document, known.story, known.good, known.before)


def with_turn_changes(known: StoryState, document: Document) -> Document:
    """A document with what the open turn changed in its story, where that was reverted meanwhile."""
    return _replace_decision(document, known.story, known.before, known.good)


def with_decision(known: StoryState, document: Document) -> Document:
    """A document written since a turn was examined, with the decision about its story."""
    return _replace_decision(document, known.story, known.written, known.good)


def _replace_decision(document: Document, name: str, old: Document, new: Document) -> Document:
    """A document with the decision of `new` about a story, where it still has that of `old`."""
    left, made, now = (find_story(one, name) for one in (old, new, document))
    if not made or not now or any(now[field] != left.get(field) for field in DECIDED_FIELDS):
        return document
    return replace_story(document, name, now | {field: made[field] for field in DECIDED_FIELDS})


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
    fresh = mode == schema.REVIEW and made["reviewStatus"] != before["reviewStatus"]
    asked = _requested_changes(made) if fresh else ""
    requested = bool(asked) and schema.CHANGES_REQUESTED in (written["reviewStatus"], made["reviewStatus"])
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
    objects = made["reviewStatus"] == schema.CHANGES_REQUESTED or review.is_approved_at_cap(made)
    return str(made["reviewFeedback"]).strip().removeprefix(review.APPROVED_AT_CAP).strip() if objects else ""


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
        one["id"],
        _clip_between_words(one["title"], MAX_TITLE_CHARS),
        PASSES if done and status != schema.APPROVED else status or OPEN,
        one["reviewCount"],
        done and review.is_approved_at_cap(one),
        tuple(noted["found"]),
        noted["made"],
        noted["requested"],
        done and noted["finished"],
    )
