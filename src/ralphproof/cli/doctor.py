"""`ralph doctor`: what this machine and this project have and lack for a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.setup import doctor

ABOUT = """Check what this machine and this project have and lack for a run.

Agents on PATH are asked for their version if no package provides it, and every kind of sandbox is tried on a
throw-away project. Nothing that the repository names is executed.
Exit codes: 0 a run can start, 1 something prevents it."""
STATUS_LABELS = {doctor.OK: "[OK]  ", doctor.NOTE: "[NOTE]", doctor.PROBLEM: "[ERR] "}


def build_parser() -> Parser:
    return Parser("doctor", ABOUT, ("ralph doctor", "ralph doctor --json"))


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    root = resolve_project_root(args.project_dir)
    os.chdir("/")  # version managers on PATH ask the current directory which program to run
    items = list(_examine_all(root))
    possible = all(item.state != doctor.PROBLEM for item in items)
    if args.json:
        data: list[Json] = [_item_json(item) for item in items]
        print_json("doctor", {"ok": possible, "items": data})
    else:
        for item in items:
            print_lines(
                f"{STATUS_LABELS[item.state]} {item.name}: {item.text}", *(f"         {line}" for line in item.more)
            )
        print_lines("", "A run can start." if possible else "A run cannot start: see [ERR].")
    return 0 if possible else 1


def _item_json(item: doctor.DoctorItem) -> dict[str, Json]:
    data: dict[str, Json] = {"name": item.name, "state": item.state, "text": item.text}
    return data if item.data is None else data | {item.about: item.data}


def _examine_all(root: str) -> Iterator[doctor.DoctorItem]:
    yield from doctor.examine_machine()
    yield doctor.examine_project(root)
    yield doctor.examine_git(root, os.environ)
    yield from doctor.examine_packages()
    yield from doctor.examine_agents(root, os.environ)
    yield doctor.examine_state_folder(os.environ)
    yield from doctor.examine_settings(root, os.environ)
    yield from doctor.examine_spend(root, os.environ)
    yield from doctor.examine_optional_packages()
    yield doctor.examine_keeper()
    yield from doctor.examine_sandboxes(root, os.environ)
    yield from doctor.examine_runs(root, os.environ)
    yield doctor.examine_terminal()
