"""How a run works through stories: which are done, what agents are told, and which rules hold."""

from __future__ import annotations

import re
from functools import cache

from ralphproof.base.text import truncate
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.plan import STORY_MEMORY_NOTE, Task
from ralphproof.engine.prompt import substitute_variables
from ralphproof.store.run_folder import RunFolder
from ralphproof.stories import review, schema

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.engine.metrics import StoryReview
    from ralphproof.engine.workspace import Change
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow


# The stories of a run: how it goes through them, and what became of each so far.


def story_workflow_in(facts: dict[str, Json]) -> StoryWorkflow | None:
    """How a run went through stories, as its beginning tells; None for a run of another kind."""
    match facts.get("stories"):
        case {"folder": str(folder), "cap": int(cap), "skipReview": bool(skips), "capIsFailure": bool(fails)}:
            return StoryWorkflow(folder, cap, skips, fails)
        case _:
            return None


def story_criteria(project: Project, row: RunRow) -> dict[str, tuple[str, ...]]:
    """What each story of a run asks for, masked, as its harness remembers it."""
    from ralphproof.stories.state import unpack_state

    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(STORY_MEMORY_NOTE)
    stories = unpack_state(note).good["userStories"] if isinstance(note, dict) else ()
    return {one["id"]: tuple(map(project.mask, one["acceptanceCriteria"])) for one in stories}


def story_reviews(project: Project, row: RunRow, facts: dict[str, Json]) -> tuple[StoryReview, ...]:
    """What became of a run's stories so far, masked, as its harness remembers them; nothing where it has none."""
    if story_workflow_in(facts) is None:
        return ()
    from ralphproof.stories.state import summarize_reviews, unpack_state

    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(STORY_MEMORY_NOTE)
    stories, mask = summarize_reviews(unpack_state(note)) if isinstance(note, dict) else (), project.mask
    return tuple(replace(one, title=mask(one.title), found=tuple(map(mask, one.found))) for one in stories)


# Stories as tasks: which are done, what their agents are told, and by which rules their writing is judged.


# What a review may write beside its verdict: the log, and what outlives the loop.
AGENT_MEMORY_FILES, AGENT_RULES_FOLDER = ("CLAUDE.md", "AGENTS.md"), ".claude/rules/"
# What tools leave behind when tests run.
TOOL_CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"))
INSTRUCTION_WITHOUT_REVIEW = (
    "Implement this iteration's story, and set its passes to true once every verify command passes."
)
FEEDBACK_CHARS = 10_000  # of what a review says, in the prompt; the file has all of it
PASSES = "passes"  # what a story says that is done where nobody reviews
_BLOCK = re.compile(r"^<!-- (?:for: ([a-z, -]+)|end) -->\n?", re.MULTILINE)


@value
class StoryWorkflow:
    """How stories are gone through. `folder` is where they lie, from the project's root, `template` the prompt's.

    `verify` are their commands, as they were when the run began.
    """

    folder: str = "ralph"
    cap: int = review.DEFAULT_REVIEW_CAP
    skip_review: bool = False
    cap_is_failure: bool = False
    template: str = ""
    verify: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What a story says of itself that is done."""
        return PASSES if self.skip_review else schema.APPROVED

    @property
    def files(self) -> tuple[str, ...]:
        """The files that every turn writes."""
        return f"{self.folder}/tasks.json", f"{self.folder}/progress.txt"

    @property
    def fixed(self) -> dict[str, str]:
        """The files that nobody changes while the stories are gone through, and what each is."""
        return {f"{self.folder}/prd.md": "the PRD is read-only"}

    @property
    def may_run(self) -> tuple[str, ...]:
        """What agents are asked to run: the harness runs the same after them, and commits for who cannot."""
        return ("git add:*", "git commit:*", *self.verify)

    def done(self, one: dict[str, Any]) -> bool:
        return one["passes"] is True and (self.skip_review or one["reviewStatus"] == schema.APPROVED)

    def stage_of(self, one: dict[str, Any]) -> str:
        """What an iteration on this story is for."""
        if self.skip_review or one["reviewStatus"] is None:
            return schema.IMPLEMENT
        return schema.FIX if one["reviewStatus"] == schema.CHANGES_REQUESTED else schema.REVIEW

    def word_of(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """What a turn says of its story by what it wrote; empty where it says nothing new. And what to tell of that.

        A review that asks for changes at the cap is the last one: what it found wrong is put to the checks.
        """
        if self.skip_review:
            return PASSES if now["passes"] and not before["passes"] else "", ()
        status = now["reviewStatus"] if now["reviewStatus"] != before["reviewStatus"] else None
        if status == schema.CHANGES_REQUESTED and now["reviewCount"] >= self.cap and not self.cap_is_failure:
            return schema.APPROVED, (f"story {now['id']}: changes are requested at the review cap; the checks decide",)
        return status or "", ()

    def faults(self, before: dict[str, Any], now: dict[str, Any], mode: str, name: str) -> tuple[str, ...]:
        """Every rule that a turn in this mode broke on this story."""
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
        """What nobody may do to the stories while no agent is at work."""
        known = schema.review_snapshot(before)
        return schema.validate_stories(now) or (
            *review.check_unchanged(known, now),
            *review.check_not_weakened(before, now),
        )

    def strays(self, change: Change, mode: str) -> tuple[str, ...]:
        """What a review changed that is not its to change."""
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
        """What the agent is told: the parts of the template that are for this mode, with the story's names in it."""
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
    """The template without the blocks that are for somebody else: from `<!-- for: a, b -->` to `<!-- end -->`."""
    kept: list[str] = []
    at, wanted = 0, True
    for mark in _BLOCK.finditer(template):
        kept.append(template[at : mark.start()] if wanted else "")
        wanted = mark[1] is None or not whom.isdisjoint(name.strip() for name in mark[1].split(","))
        at = mark.end()
    return "".join((*kept, template[at:] if wanted else ""))


def tasks_from_stories(document: dict[str, Any], manner: StoryWorkflow, proven: bool) -> tuple[Task, ...]:
    """Every story as a task. Where all are done and nothing has shown it yet, the last one is looked at once more."""
    stories = document["userStories"]
    ranks = {priority: rank for rank, priority in enumerate(sorted({one["priority"] for one in stories}))}
    open_again = stories[-1]["id"] if stories and not proven and all(map(manner.done, stories)) else None
    return tuple(
        Task(
            one["id"], manner.prompt(document, one, manner.stage_of(one)), one["title"],
            ranks[one["priority"]], tuple(one.get("dependsOn", ())), manner.done(one) and one["id"] != open_again,
            manner.stage_of(one), acceptance=tuple(one["acceptanceCriteria"]),
        )
        for one in stories
    )  # fmt: skip


def pinned_fields(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What must stay of every story, for whoever judges without the whole file."""
    return [
        {"id": one["id"], "acceptanceCriteria": one["acceptanceCriteria"], "dependsOn": one.get("dependsOn", [])}
        for one in document["userStories"]
    ]
