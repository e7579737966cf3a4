"""Stories as tasks: which are done, what their agents are told, and by which rules their writing is judged."""

from __future__ import annotations

import re
from functools import cache

from ralphproof import review, story
from ralphproof.check import clip
from ralphproof.plan import Task
from ralphproof.prompt import named
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.workspace import Change

# What a review may write beside its verdict: the log, and what outlives the loop.
MEMORIES, RULES = ("CLAUDE.md", "AGENTS.md"), ".claude/rules/"
# What tools leave behind when tests run.
LEFT_BEHIND = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"))
HOW_SKIPPED = "Implement this iteration's story, and set its passes to true once every verify command passes."
FEEDBACK_CHARS = 10_000  # of what a review says, in the prompt; the file has all of it
PASSES = "passes"  # what a story says that is done where nobody reviews
_BLOCK = re.compile(r"^<!-- (?:for: ([a-z, -]+)|end) -->\n?", re.MULTILINE)


@value
class Manner:
    """How stories are gone through. `folder` is where they lie, from the project's root, `template` the prompt's.

    `verify` are their commands, as they were when the run began.
    """

    folder: str = "ralph"
    cap: int = review.CAP
    skip_review: bool = False
    cap_is_failure: bool = False
    template: str = ""
    verify: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What a story says of itself that is done."""
        return PASSES if self.skip_review else story.APPROVED

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
        return one["passes"] is True and (self.skip_review or one["reviewStatus"] == story.APPROVED)

    def stage_of(self, one: dict[str, Any]) -> str:
        """What an iteration on this story is for."""
        if self.skip_review or one["reviewStatus"] is None:
            return story.IMPLEMENT
        return story.FIX if one["reviewStatus"] == story.CHANGES_REQUESTED else story.REVIEW

    def word_of(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """What a turn says of its story by what it wrote; empty where it says nothing new. And what to tell of that.

        A review that asks for changes at the cap is the last one: what it found wrong is put to the checks.
        """
        if self.skip_review:
            return PASSES if now["passes"] and not before["passes"] else "", ()
        status = now["reviewStatus"] if now["reviewStatus"] != before["reviewStatus"] else None
        if status == story.CHANGES_REQUESTED and now["reviewCount"] >= self.cap and not self.cap_is_failure:
            return story.APPROVED, (f"story {now['id']}: changes are requested at the review cap; the checks decide",)
        return status or "", ()

    def faults(self, before: dict[str, Any], now: dict[str, Any], mode: str, name: str) -> tuple[str, ...]:
        """Every rule that a turn in this mode broke on this story."""
        if faults := story.schema(now):
            return faults
        known = story.snapshot(before)
        if self.skip_review:
            return (*review.kept(known, now), *review.alone(known, now, name), *review.constancy(before, now))
        return (
            *review.transitions(known, now, mode, self.cap, name),
            *review.invariants(now, self.cap, known),
            *review.constancy(before, now),
        )

    def idle_faults(self, before: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
        """What nobody may do to the stories while no agent is at work."""
        known = story.snapshot(before)
        return story.schema(now) or (*review.still(known, now), *review.constancy(before, now))

    def strays(self, change: Change, mode: str) -> tuple[str, ...]:
        """What a review changed that is not its to change."""
        if mode != story.REVIEW or self.skip_review:
            return ()
        return tuple(
            path
            for path in change.paths
            if path not in self.files
            and path not in change.older
            and path.rpartition("/")[2] not in MEMORIES
            and not path.startswith(RULES)
            and LEFT_BEHIND.isdisjoint(path.split("/"))
        )

    def prompt(self, document: dict[str, Any], one: dict[str, Any], mode: str) -> str:
        """What the agent is told: the parts of the template that are for this mode, with the story's names in it."""
        for_whom = frozenset((mode, "skip-review" if self.skip_review else f"{mode} with review"))
        names = {
            "RALPH_MODE": mode, "RALPH_DIR": self.folder, "RALPH_STORY": one["id"], "RALPH_TITLE": one["title"],
            "RALPH_REVIEW_CAP": str(self.cap), "RALPH_REVIEW_COUNT": str(one["reviewCount"]),
            "RALPH_FEEDBACK": clip(one["reviewFeedback"], FEEDBACK_CHARS) or "(none)",
            "RALPH_PROJECT": document["project"],
            "RALPH_CRITERIA": "\n".join(f"- {line}" for line in one["acceptanceCriteria"]),
            "RALPH_VERIFY": "\n".join(f"- `{line}`" for line in document.get("verifyCommands", [])) or "- (none)",
        }  # fmt: skip
        return named(_part(self.template, for_whom), names)


@cache
def _part(template: str, whom: frozenset[str]) -> str:
    return only_for(template, whom)


def only_for(template: str, whom: set[str] | frozenset[str]) -> str:
    """The template without the blocks that are for somebody else: from `<!-- for: a, b -->` to `<!-- end -->`."""
    kept: list[str] = []
    at, wanted = 0, True
    for mark in _BLOCK.finditer(template):
        kept.append(template[at : mark.start()] if wanted else "")
        wanted = mark[1] is None or not whom.isdisjoint(name.strip() for name in mark[1].split(","))
        at = mark.end()
    return "".join((*kept, template[at:] if wanted else ""))


def tasks_of(document: dict[str, Any], manner: Manner, proven: bool) -> tuple[Task, ...]:
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


def spare(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What must stay of every story, for whoever judges without the whole file."""
    return [
        {"id": one["id"], "acceptanceCriteria": one["acceptanceCriteria"], "dependsOn": one.get("dependsOn", [])}
        for one in document["userStories"]
    ]
