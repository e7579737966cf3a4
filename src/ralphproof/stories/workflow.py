"""How a run works through stories: which are done, the prompts, and the rules for edits."""

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
    from ralphproof.stories.state import unpack_state

    note = RunFolder(row.directory, row.id, project.store, project.mask).noted(STORY_MEMORY_NOTE)
    stories = unpack_state(note).good["userStories"] if isinstance(note, dict) else ()
    return {one["id"]: tuple(map(project.mask, one["acceptanceCriteria"])) for one in stories}


def story_reviews(project: Project, row: RunRow, facts: dict[str, Json]) -> tuple[StoryReview, ...]:
    """The review results of a run's stories so far, masked; empty for a run without stories."""
    if story_workflow_in(facts) is None:
        return ()
    from ralphproof.stories.state import summarize_reviews, unpack_state

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
