"""Ways to verify by their names: our own four, and those that installed packages bring."""

from __future__ import annotations

import re

from ralphproof.config.keys import VERIFICATION
from ralphproof.config.registry import TABLE, brought, knows, resolve
from ralphproof.errors import Refused
from ralphproof.plan import Task
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

NAMES = ("method", "config", "template")  # the keys under which a guardrail has them
STAGE_NAMES = ("verification", "verificationConfig", "verificationTemplate")  # and a stage of the settings
_NO_TASK = Task("", "")
ANY_TASK = Task("", "", acceptance=("it is done",))  # every task has acceptance criteria
_ABOUT = {
    "string_match": "The promise alone: the agent's word, which nothing verifies.",
    "semantic": "A model's judgement of the work, criterion by criterion; a forbidden pattern refuses it without one.",
    "external": "A command: its exit code, and what its output holds and lacks.",
    "multi_stage": "Several ways together, each required or only a warning.",
}


def plugged(method: str) -> bool:
    """Whether a package brings this method, or it is written as `package.module:Name`. Nothing is loaded for it."""
    if method in VERIFICATION or method in TABLE["checks"]:
        return False
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", method) is not None or knows("checks", method)


def described() -> tuple[tuple[str, str], ...]:
    """Every method with the first line of its documentation; what a package brings is loaded for that."""
    return (*_ABOUT.items(), *((name, _first_line(name)) for name in brought("checks")))


def _first_line(name: str) -> str:
    try:
        said = (getattr(resolve("checks", name), "__doc__", None) or "").strip()
    except Refused as error:
        return str(error)
    return said.partition("\n")[0] or "It says nothing of itself."


def problems(
    method: str, config: dict[str, Any], path: str, names: tuple[str, str, str] = NAMES, promise: str | None = None,
    task: Task = _NO_TASK,
) -> tuple[str, ...]:  # fmt: skip
    """All that is wrong with a method and its config, each line with the path of what it means."""
    from ralphproof.plans.criteria import Scope, way_problems

    found = dict.fromkeys(way_problems(method, config, path, Scope(task, plugged, promise), names))
    return tuple(line + _installed(method) if line.startswith(f"{path}.{names[0]} must") else line for line in found)


def _installed(method: str) -> str:
    """The end of the sentence about a method that there is not: which ones there are beside ours."""
    from ralphproof.config.schema import nearest

    others = brought("checks")
    return f"; installed: {', '.join(others)}{nearest(method, others)}" if others else ""
