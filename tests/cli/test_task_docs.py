"""What the pages about tasks show can be used as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ralphproof.base.yaml_text import parse_yaml_documents
from ralphproof.checks.templates import TASK_VARIABLES, list_templates
from ralphproof.cli.task import TASK_VERBS
from ralphproof.planning.task_generation import find_code_blocks
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.settings.loader import load_settings
from ralphproof.settings.skills import load_skill
from ralphproof.tasks.draft import TaskDraft, validate_draft
from ralphproof.tasks.files import parse_tasks
from ralphproof.tasks.pipeline import TEMPLATE_FIELDS, load_stage_template

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLUGGED = "bundle_size"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [fence.text for fence in find_code_blocks(page(name)) if fence.language == language]


def wrong_with(text: str) -> list[str]:
    readings = parse_tasks(text.encode(), "page")
    assert readings
    unread = [problem for reading in readings for problem in reading.problems]
    return unread + [
        line for reading in readings if reading.draft for line in validate_draft(reading.draft, PLUGGED.__eq__)
    ]


@pytest.mark.parametrize("text", blocks("tasks", "yaml"), ids=["one", "list"])
def test_the_files_of_tasks_on_the_page_are_valid(text: str) -> None:
    assert wrong_with(text) == []


def test_the_example_that_agents_are_shown_is_valid() -> None:
    (example,) = (
        fence.text for fence in find_code_blocks(load_skill("/nowhere", "tasks").body) if fence.language == "yaml"
    )
    assert wrong_with(example) == []


@pytest.mark.parametrize("text", blocks("verification", "yaml"), ids=lambda text: text.partition("\n")[0])
def test_every_way_to_verify_on_the_page_is_valid(text: str) -> None:
    (block,) = parse_yaml_documents(text.encode(), "page")
    assert isinstance(block, dict)
    completion: Any = {"outcome": "It is there", "acceptance_criteria": ["It can be seen"]}
    completion["coder"] = {"promise": "DONE", **block}
    assert validate_draft(TaskDraft("T-1", "", "A title", completion=completion), PLUGGED.__eq__) == ()


@pytest.mark.parametrize("name", ["verification", "pipeline"])
def test_the_settings_on_the_page_can_be_loaded(name: str, tmp_path: Path) -> None:
    (text,) = blocks(name, "json")
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/settings.json").write_text(text, encoding="utf-8")
    raw = load_settings(str(tmp_path), {"HOME": str(tmp_path)}).raw
    (group,) = json.loads(text).keys() & {"guardrails", "stages"}
    assert raw[group]


def test_the_plug_in_on_the_page_answers(tmp_path: Path) -> None:
    (code,) = blocks("verification", "python")
    made: dict[str, Any] = {}
    exec(code, made)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/app.js").write_bytes(b"x" * 300 * 1024)
    context = SimpleNamespace(root=str(tmp_path))
    assert made[PLUGGED]("size", {"most_kib": 250}, context).run(None, None) == (
        False, "the bundle has 300 KiB, and may have 250",
    )  # fmt: skip


def test_the_template_on_the_page_can_be_used(tmp_path: Path) -> None:
    (text,) = blocks("pipeline", "markdown")
    folder = tmp_path / ".ralph/templates"
    folder.mkdir(parents=True)
    (folder / "qa.md").write_text(text, encoding="utf-8")
    assert load_stage_template(str(tmp_path), "qa") == text


def test_the_pages_name_everything_that_there_is() -> None:
    tasks, verification, pipeline = page("tasks"), page("verification"), page("pipeline")
    assert [verb for verb in TASK_VERBS if f"| `ralph task {verb}" not in tasks] == []
    shown = next(fence.text.split() for fence in find_code_blocks(tasks) if not fence.language)
    assert shown == [template.name for template in list_templates()]
    assert [name for name in TASK_VARIABLES if f"`{{{{{name}}}}}`" not in verification] == []
    assert [name for name in TASK_VARIABLES.values() if f"`{name}`" not in verification] == []
    listed = re.search(r"(?s)Fields: (.*?)\. A section", pipeline)
    assert listed is not None
    assert tuple(re.findall(r"`(\w+)`", listed[1])) == TEMPLATE_FIELDS
    assert [stage for stage in PIPELINE_STAGES if f"| `{stage}` |" not in pipeline] == []
