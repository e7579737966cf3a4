"""Lines that agents have typed, or might: dangerous ones with their category, and harmless ones. `␤` is a newline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralphproof.guard.tools import objection
from ralphproof.guard.verdict import Exceptions, Ground, Objection

HERE = Path(__file__).parent
ROOT, HOME = "/home/dev/shop", "/home/dev"
GROUND = Ground(ROOT, ROOT, HOME, ("kept/", "*.lock.json"), task_folder="/srv/given")
NOTHING = Exceptions()


def _lines(name: str) -> list[str]:
    return [line for line in (HERE / name).read_text("utf-8").split("\n") if line]


def dangerous() -> list[tuple[str, str]]:
    """(category, line) of each."""
    return [(category, line) for category, _, line in (one.partition("\t") for one in _lines("dangerous.txt"))]


def harmless() -> list[str]:
    return _lines("harmless.txt")


def known_misses() -> set[str]:
    """Dangerous lines to which the guard has no objection, and cannot well have one."""
    return set(_lines("known_misses.txt"))


def judged(line: str, at: Ground = GROUND, lists: Exceptions = NOTHING) -> Objection | None:
    """What the guard says to a line of a shell."""
    return objection("Bash", {"command": line.replace("␤", "\n")}, at, lists)


def asked(tool: str, lists: Any = NOTHING, at: Any = GROUND, **arguments: Any) -> str:
    """The rule that speaks against a call; empty where none does."""
    found = objection(tool, arguments, at, lists)
    return "" if found is None else found.rule
