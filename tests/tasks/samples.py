"""Tasks to begin with, and how to bend one of their fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralphproof.tasks.draft import TaskDraft
from ralphproof.tasks.files import ParsedTask, parse_tasks

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "tasks"
MISSING = object()


def completion(**stages: Any) -> dict[str, Any]:
    return {"outcome": "Every request needs a token", "acceptance_criteria": ["401 without one"], **stages}


def draft(**changes: Any) -> TaskDraft:
    return TaskDraft(**{"id": "T-1", "title": "Tokens", "completion": completion(), **changes})


def block(method: str | None = None, config: Any = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"promise": "DONE_SO", **more}
    if method is not None:
        made["verification_method"] = method
    if config is not None:
        made["verification_config"] = config
    return made


def with_way(method: str, config: Any = None, **more: Any) -> TaskDraft:
    """A task whose coder is verified so."""
    return draft(completion=completion(coder=block(method, config, **more)))


def part(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "method": "external", "config": {"command": "true"}, **more}


def one(text: str, name: str = "tasks.yaml") -> ParsedTask:
    """The only task of a text."""
    (found,) = parse_tasks(text.encode(), name)
    return found


def drafted(text: str, name: str = "tasks.yaml") -> TaskDraft:
    found = one(text, name)
    assert found.problems == ()
    assert found.draft is not None
    return found.draft


def file(name: str) -> bytes:
    return (FILES / name).read_bytes()
