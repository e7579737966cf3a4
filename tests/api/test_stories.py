"""The stories preset from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ralphproof
from ralphproof.base.errors import Refused
from ralphproof.engine.outcome import Completed
from tests.misbehaviour.stories import story, text

PATH = "work/stories/tasks.json"


class Worker:
    """An agent that does with its story whatever its prompt asks for."""

    def __init__(self, root: Path, objects: bool = False) -> None:
        self.file, self.objects, self.modes = root / PATH, objects, list[str]()
        self.__name__ = "worker"

    def __call__(self, prompt: str) -> str:
        mode = prompt.partition("Mode: **")[2].partition("**")[0]
        self.modes.append(mode)
        document = json.loads(self.file.read_text("utf-8"))
        document["userStories"][0] |= self.done(mode, document["userStories"][0], "passes` of" in prompt)
        self.file.write_text(json.dumps(document), encoding="utf-8")
        return "ok"

    def done(self, mode: str, one: dict[str, Any], skips: bool) -> dict[str, Any]:
        if mode != "review":
            return {"notes": "made", **({"passes": True} if skips else {"reviewStatus": "needs_review"})}
        counted = {"reviewCount": one["reviewCount"] + 1}
        if self.objects:
            return {**counted, "reviewStatus": "changes_requested", "reviewFeedback": "louder"}
        return {**counted, "reviewStatus": "approved", "passes": True}


def write_stories(root: Path) -> None:
    (root / PATH).parent.mkdir(parents=True)
    (root / PATH).write_text(text(story(), verifyCommands=["true"]), encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "objects", "modes", "concerns"),
    [
        ({}, False, ["implement", "review"], 0),
        ({"review": False}, False, ["implement"], 0),
        ({"review_cap": 1}, True, ["implement", "review"], 1),
    ],
    ids=["reviewed", "without reviews", "at the cap"],
)
def test_stories_run_to_the_end(
    project: Path, options: dict[str, Any], objects: bool, modes: list[str], concerns: int
) -> None:
    write_stories(project)
    worker = Worker(project, objects)
    outcome = ralphproof.run(agent=worker, preset="stories", ralph_dir="work/stories", project_dir=project, **options)
    assert isinstance(outcome, Completed)
    assert (worker.modes, len(outcome.concerns)) == (modes, concerns)


def test_a_function_agent_has_no_sandbox(project: Path) -> None:
    """Stories ask for one by default; who asks for one in so many words is refused: it would hold nothing."""
    write_stories(project)
    ralphproof.run(agent=Worker(project, False), preset="stories", ralph_dir="work/stories", project_dir=project)
    outcome = json.loads((project / ".ralph/latest/outcome.json").read_text(encoding="utf-8"))
    assert (outcome["sandbox"]["name"], outcome["sandbox"]["strength"]) == ("direct", "none")
    (project / ".ralph/settings.json").write_text('{"sandbox": {"backend": "auto"}}', encoding="utf-8")
    with pytest.raises(Refused, match="an agent that is a function runs in this process"):
        ralphproof.run("make it", agent=lambda _: "x", project_dir=project)


@pytest.mark.parametrize(
    ("prompt", "options", "why"),
    [
        ("make it", {"preset": "stories"}, "leave the prompt out"),
        ("make it", {"ralph_dir": "ralph"}, "are for runs by stories"),
        ("", {"preset": "stories", "ralph_dir": ".."}, "must be a folder inside the project"),
        ("", {"preset": "stories", "ralph_dir": 5}, "ralph_dir"),
        ("", {"preset": "stories", "ralph_dir": "none"}, "ralph init --preset stories"),
    ],
)
def test_what_makes_no_sense_is_refused(project: Path, prompt: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        ralphproof.run(prompt, agent=lambda _: "x", project_dir=project, **options)
