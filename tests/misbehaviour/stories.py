"""Projects that are gone through by stories: their files, agents that write in them, and what came of it."""

from __future__ import annotations

import json
from typing import Any

from ralphproof.engine.plan import Job
from ralphproof.engine.records import Judged, Noticed, Picked, Saved
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.ralph import Ended, Ralph, Step, say

TASKS, PROGRESS, PRD, MARKER = "ralph/tasks.json", "ralph/progress.txt", "ralph/prd.md", ".ralph-active"
VERIFY = "test -f done"
US1, US2, US3 = "US-001", "US-002", "US-003"
NEEDS, REQUESTED, APPROVED = "needs_review", "changes_requested", "approved"
BLANK = (False, None, 0)  # a story that nobody began
FIND: Step = {"run": ["sh", "-ec", "cp ralph/tasks.json ../found-$RALPH_ITERATION"]}  # keep what a turn finds
Story = dict[str, Any]
Fields = tuple[bool, str | None, int]


def story(id: str = US1, **fields: Any) -> Story:
    """A story that nobody began, but for these fields."""
    return {
        "id": id, "title": f"Make {id}", "description": "", "acceptanceCriteria": [f"{id} is made"], "priority": 1,
        "passes": False, "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "", "notes": "", "dependsOn": [],
        **fields,
    }  # fmt: skip


def submitted(id: str = US1, count: int = 0, **fields: Any) -> Story:
    """A story that waits for its review."""
    return story(id, **{"reviewStatus": NEEDS, "reviewCount": count, "notes": "made", **fields})


def requested(id: str = US1, count: int = 1, feedback: str = "say it louder", **fields: Any) -> Story:
    """A story that its review sent back."""
    said = {"reviewStatus": REQUESTED, "reviewCount": count, "reviewFeedback": feedback, "notes": "made"}
    return story(id, **{**said, **fields})


def approved(id: str = US1, count: int = 1, **fields: Any) -> Story:
    """A story that its review approved."""
    said = {"passes": True, "reviewStatus": APPROVED, "reviewCount": count, "notes": "made"}
    return story(id, **{**said, **fields})


def document(*stories: Story, **top: Any) -> dict[str, Any]:
    """A whole file of stories."""
    about = {"project": "p", "branchName": "ralph/x", "description": "d", "verifyCommands": [VERIFY]}
    return {**about, "userStories": list(stories), **top}


def text(*stories: Story, **top: Any) -> str:
    """The same as it stands in the file."""
    return json.dumps(document(*stories, **top), indent=2) + "\n"


def lay(ralph: Ralph, *stories: Story, in_git: bool = True, folder: str = "ralph", **top: Any) -> None:
    """Lay a project with these stories out."""
    files = {"tasks.json": text(*stories, **top), "progress.txt": "# Progress\n---\n", "prd.md": "# What is wanted\n"}
    ralph.write({f"{folder}/{name}": content for name, content in files.items()})
    ralph.write({"README": "A project.\n", ".gitignore": ".ralph-active\n"})
    if in_git:
        ralph.git("init", "-q")
        ralph.git("config", "user.name", "user")
        ralph.git("config", "user.email", "user@localhost")
        ralph.commit()


def turn(*stories: Story, says: str = "ok", top: Any = None, **files: str) -> list[Step]:
    """A turn that keeps what it found, writes these stories where there are any, and these files, and says this.

    `__` in a file's name stands for `.`.
    """
    written = {name.replace("__", "."): content for name, content in files.items()}
    if stories:
        written[TASKS] = text(*stories, **(top or {}))
    return [FIND, *([{"write": written}] if written else []), say(says)]


def loop(ralph: Ralph, *iterations: list[Step], flags: tuple[str, ...] = ()) -> Ended:
    """`ralph run` by stories with an agent that plays these iterations; what holds after any run holds."""
    ended = ralph("run", "--preset", "stories", "--agent", ralph.script(*iterations), *flags)
    hold(ralph, ended)
    assert not (ralph.root / MARKER).exists(), "the marker of a run goes with it"
    return ended


def fields(one: Story) -> Fields:
    return one["passes"], one["reviewStatus"], one["reviewCount"]


def known(ralph: Ralph, path: str = TASKS) -> dict[str, Story]:
    """The stories as they stand in the file, by their ids."""
    return {one["id"]: one for one in json.loads((ralph.root / path).read_text("utf-8"))["userStories"]}


def found(ralph: Ralph, iteration: int) -> dict[str, Story]:
    """The stories as the turn of an iteration found them."""
    return known(ralph, f"../found-{iteration}")


def course(ralph: Ralph) -> list[tuple[str, str, str]]:
    """(story, mode, verdict) of every iteration that was judged."""
    jobs = {one.iteration: one.choice for one in recorded(ralph, Picked) if isinstance(one.choice, Job)}
    return [(*jobs[one.iteration].key, type(one.verdict).__name__) for one in recorded(ralph, Judged)]


def illegal(ralph: Ralph) -> list[tuple[str, ...]]:
    """The rules that each turn broke, the way to do it right last."""
    return [one.illegal for one in recorded(ralph, Saved)]


def told(ralph: Ralph) -> str:
    """What the user was told beside the course of things."""
    return "\n".join(one.message for one in recorded(ralph, Noticed))


def subjects(ralph: Ralph) -> list[str]:
    """What the commits of the run say, oldest first."""
    return ralph.git("log", "--reverse", "--format=%s").splitlines()[1:]
