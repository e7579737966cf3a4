"""Tasks and judges from Python."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import ralphproof
from ralphproof.base.errors import Refused
from ralphproof.engine.outcome import Completed
from ralphproof.runs.open_project import open_project
from ralphproof.store.tasks import TaskRow

SPEC = {
    "outcome": "The file `made` exists", "acceptance_criteria": ["The file is there"],
    "coder": {
        "promise": "CODED", "verification_method": "external", "verification_config": {"command": "test -f made"},
    },
    "reviewer": {"promise": "REVIEWED", "verification_method": "string_match"},
    "tester": {"promise": "TESTED", "verification_method": "string_match"},
    "qa": {"promise": "CHECKED", "verification_method": "string_match"},
}  # fmt: skip


class Worker:
    """An agent that writes a file, says whatever its prompt asks for, and judges as it is told."""

    def __init__(self, root: Path, met: bool = True) -> None:
        self.root, self.met, self.asked = root, met, list[str]()
        self.__name__ = "worker"

    def __call__(self, prompt: str) -> str:
        if nonce := re.search(r"\b[0-9a-f]{32}\b", prompt):
            self.asked.append(prompt)
            ruling = {"number": 1, "met": self.met, "evidence": "made by the worker", "reason": "seen"}
            return json.dumps({"nonce": nonce[0], "criteria": [ruling]})
        (self.root / "made").write_text("made by the worker\n")
        word = re.search(r"<promise>(?!CHANGES)(\w+)</promise>", prompt)
        return f"So it is.\n<promise>{word[1] if word else 'DONE'}</promise>"


def add(root: Path, id: str) -> None:
    ledger = open_project(str(root), os.environ).ledger(read_only=False)
    ledger.tasks.add([TaskRow(id, "spec", "Make it", completion=json.dumps(SPEC))])
    ledger.close()


def test_a_task_of_the_ledger_is_worked_on(project: Path) -> None:
    add(project, "T-1")
    outcome = ralphproof.run(task="T-1", agent=Worker(project), project_dir=project)
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.proof) == (4, "verified")
    assert "stage reviewer: it was claimed; nothing verified it" in outcome.concerns


@pytest.mark.parametrize(("met", "proof"), [(True, "judged"), (False, None)])
def test_a_criterion_is_judged_by_the_agent_that_works(project: Path, met: bool, proof: str | None) -> None:
    worker = Worker(project, met)
    outcome = ralphproof.run("Make it.", judge="it is made", agent=worker, project_dir=project, max_iterations=1)
    assert (outcome.proof if isinstance(outcome, Completed) else None) == proof
    (question,) = worker.asked
    assert "it is made" in question
    assert "+made by the worker" in question


def test_a_task_with_a_prompt_is_refused(project: Path) -> None:
    add(project, "T-1")
    with pytest.raises(Refused, match="leave the prompt out"):
        ralphproof.run("Make it.", task="T-1", agent=Worker(project), project_dir=project)
    with pytest.raises(Refused, match="there is no task T-2"):
        ralphproof.run(task="T-2", agent=Worker(project), project_dir=project)
