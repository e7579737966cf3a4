"""All attempts to get out of a sandbox, made in one command, and what came of them as seen from outside."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sandbox.escapes import LEAVES
from tests.sandbox.fenced import Person
from tests.sandbox.protections import CASES, IN_A_CASE, MENDED, PROTECTED
from tests.sandbox.worlds import HOSTS, PORTS, PUBLIC, World, probed_world

START = "import sys; sys.path.insert(0, '.'); from tests.sandbox.escapes import main; main()"
ALL_PROTECTED = [*PROTECTED, *(f"cases/{case}/{path}" for case in CASES for path in IN_A_CASE)]


@dataclass(frozen=True)
class Probed:
    """What came of each attempt: nothing for one that succeeded."""

    protects_paths: bool
    came: dict[str, str]


def probed(kind: str, person: Person) -> Probed:
    """Try everything in a sandbox of this kind."""
    with probed_world(person, CASES) as world, world.neighbour(*PORTS) as told:
        orders = {
            "inside": str(world.project), "outside": str(world.outside), "top": str(world.top),
            "home": str(world.home), "address": PUBLIC, **told,
        }  # fmt: skip
        (world.project / "orders.json").write_text(json.dumps(orders))
        before = seen(world.project)
        entered = world.enter(
            kind, {"argv": [person.python, "-I", "-S", "-c", START, "orders.json"]}, hosts=HOSTS,
            ports=[told["local"]], protected=ALL_PROTECTED, task=str(world.project / ".ralph/task"),
        )  # fmt: skip
        run = entered.one
        assert run.get("exit", {}).get("code") == 0, run
        came = json.loads(run["out"]) | _signed(world, json.loads(run["out"])) | _changed(world, before, run)
        return Probed(entered.protects_paths, came)


def _signed(world: World, came: dict[str, str]) -> dict[str, str]:
    """What attempts left outside; that one could write inside does not count."""
    found = {}
    for name, place in LEAVES.items():
        file = Path(f"{place}{world.top.name}") if place.startswith("/") else world.top / place
        text = file.read_text(errors="replace") if file.exists() else ""
        found[name] = "" if f"signed by {name}" in text else came[name] or "nothing is seen of it outside"
        if place.startswith("/"):
            file.unlink(missing_ok=True)
    return found


def _changed(world: World, before: dict[str, Any], run: dict[str, Any]) -> dict[str, str]:
    """Which attempts changed what is protected, as it is seen outside."""
    said, after = json.loads(run["out"]), seen(world.project)
    places = {case: [f"cases/{case}/{path}" for path in GUARDED] for case in CASES}
    places |= {name: [path] for name, path in MENDED.items()}
    return {
        name: "" if any(before.get(path) != after.get(path) for path in paths) else said[name] or "nothing changed"
        for name, paths in places.items()
    }


GUARDED = ("kept.txt", "a.lock", "src/auth", "src/auth/login.py", "src/auth/new.py", ".env", "vault", "vault/new")


def seen(top: Path) -> dict[str, Any]:
    """Every file and folder, with what can be changed of it."""
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = Path(folder, name)
            state = path.lstat()
            text = path.read_bytes() if path.is_file() and state.st_size < 1 << 16 else b""
            found[str(path.relative_to(top))] = (state.st_mode, state.st_mtime_ns if path.is_file() else 0, text)
    return found
