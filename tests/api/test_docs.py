"""The examples in the documentation of the Python API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ralphproof
from ralphproof.engine.outcome import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def my_model(prompt: str, folder: str) -> tuple[str, float]:
    Path(folder, "endpoint").write_text("it is here")
    return "<promise>DONE</promise>", 0.01


def test_the_examples_run(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"make": "true", "agent-cli": '[ "$1" = 1 ] && [ -n "$TASK_FOLDER" ]'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.chdir(project)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    made: dict[str, Any] = {"my_model": my_model, "is_valid": lambda path: True, "hour": lambda: 9}
    stand_in = "sh -c 'echo \"<promise>DONE</promise>\"'"
    ends: list[Outcome] = []
    for example in examples:
        here = example.replace('"claude"', repr(stand_in)).replace("max_cost_usd=5.00", "max_minutes=5")
        here = here.replace("/srv/tasks/17", str(tmp_path / "task")).replace("restart_delay_s=5", "restart_delay_s=0")
        here = here.replace('\nrun("Add', '\noutcome = run("Add')
        exec(compile(here, str(PAGE), "exec"), made)
        ends.append(made["outcome"])
    assert [(end.status, end.iterations) for end in ends] == [("COMPLETED", 1), ("COMPLETED", 1), ("COMPLETED", 2)]


def test_the_page_names_every_public_name() -> None:
    words = set(re.findall(r"\w+", PAGE.read_text()))
    assert set(ralphproof.__all__) <= words
