"""Runs that are resumed from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import ralphproof
from ralphproof.base.errors import Refused
from ralphproof.engine.outcome import Aborted, Completed


def test_a_run_is_resumed_with_new_functions(project: Path) -> None:
    prompts: list[str] = []

    def worker(prompt: str) -> str:
        prompts.append(prompt)
        (project / "count").write_text(str(len(prompts)))
        return "<response>DONE</response>"

    def enough(_: object) -> bool:
        return (project / "count").exists() and (project / "count").read_text() == "2"

    first = ralphproof.run("Count.", agent=worker, checks=[enough], project_dir=project, max_iterations=1)
    assert isinstance(first, Aborted)
    with pytest.raises(Refused, match='max_iterations="N" is the new total'):
        ralphproof.run(agent=worker, checks=[enough], project_dir=project, resume="latest")
    with pytest.raises(Refused, match="functions of its own"):
        ralphproof.run(project_dir=project, resume="latest", max_iterations=2)
    with pytest.raises(Refused, match="leave the prompt out"):
        ralphproof.run("Count.", agent=worker, project_dir=project, resume="latest", max_iterations=2)
    outcome = ralphproof.run(agent=worker, checks=[enough], project_dir=project, resume="latest", max_iterations=2)
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, len(prompts)) == (2, 2)
    assert all("Count." in prompt for prompt in prompts)
