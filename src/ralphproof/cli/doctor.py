"""`ralph doctor`: what this machine and this project have and lack for a run."""

from __future__ import annotations

import os

from ralphproof.cli import examine, examine_agents, examine_sandboxes, examine_spend
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.value import Json

ABOUT = """what this machine and this project have and lack for a run.

Known agents on PATH are asked for their version where no package tells it, and every kind of sandbox is tried out on
a throw-away project. Nothing that the repository names is executed.
Exit codes: 0 a run can start, 1 something makes it impossible."""
SIGNS = {examine.OK: "[OK]  ", examine.NOTE: "[NOTE]", examine.PROBLEM: "[ERR] "}


def parser() -> Parser:
    return Parser("doctor", ABOUT, ("ralph doctor", "ralph doctor --json"))


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    root = root_of(args.project_dir)
    os.chdir("/")  # version managers on PATH ask the current directory which program to run
    items = list(_all(root))
    possible = all(item.state != examine.PROBLEM for item in items)
    if args.json:
        listed: list[Json] = [_as_json(item) for item in items]
        put_json("doctor", {"ok": possible, "items": listed})
    else:
        for item in items:
            put(f"{SIGNS[item.state]} {item.name}: {item.text}", *(f"         {line}" for line in item.more))
        put("", "A run can start." if possible else "A run cannot start: see [ERR].")
    return 0 if possible else 1


def _as_json(item: examine.Item) -> dict[str, Json]:
    told: dict[str, Json] = {"name": item.name, "state": item.state, "text": item.text}
    return told if item.data is None else told | {item.about: item.data}


def _all(root: str) -> Iterator[examine.Item]:
    yield from examine.machine()
    yield examine.project(root)
    yield examine.git(root, os.environ)
    yield from examine_agents.packages()
    yield from examine_agents.agents(root, os.environ)
    yield examine.state_folder(os.environ)
    yield from examine.settings(root, os.environ)
    yield from examine_spend.spending(root, os.environ)
    yield from examine_spend.extras()
    yield examine.keeper()
    yield from examine_sandboxes.sandboxes(root, os.environ)
    yield from examine.runs(root, os.environ)
    yield examine.terminal()
