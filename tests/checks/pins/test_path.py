"""Programs inside the project that are found before those of the machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.checks.pins.project import STOPS, TOLD, Pinned

SHIM = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def machine(tmp_path: Path, pinned: Pinned) -> Path:
    """A folder of programs outside of the project, behind two inside it."""
    made = tmp_path / "usr"
    made.mkdir()
    for name in ("pytest", "git", "node", "npm"):
        (made / name).write_text(SHIM)
        (made / name).chmod(0o755)
    pinned.env["PATH"] = os.pathsep.join((f"{pinned.root}/bin", "tools", "", str(made), f"{pinned.root}/late"))
    return made


@pytest.mark.parametrize("path", ["bin/pytest", "tools/pytest", "pytest", "bin/git"])
def test_a_program_that_stands_before_the_machines_stops(pinned: Pinned, machine: Path, path: str) -> None:
    """RH-04"""
    pinned.begin("pytest -q")
    pinned.write({path: SHIM})
    assert pinned.told() == [(f"{path}: new; it shadows {path.rpartition('/')[2]}", STOPS)]


@pytest.mark.parametrize(
    ("path", "text"),
    [("late/pytest", SHIM), ("bin/app", SHIM), ("bin/pytest", "no program\n"), ("other/pytest", SHIM), (".envrc", SHIM),
     ("bin/pytest/x", SHIM), ("node_modules/.bin/pytest", SHIM)],
)  # fmt: skip
def test_what_nobody_would_find_first_is_not_told(pinned: Pinned, machine: Path, path: str, text: str) -> None:
    """RH-04"""
    pinned.begin("python -m nothing; git status")
    pinned.write({path: text})
    assert pinned.told() == []


def test_a_program_of_the_project_may_not_change(pinned: Pinned, machine: Path) -> None:
    pinned.write({"bin/mine": SHIM})
    pinned.begin("mine --all")
    pinned.write({"bin/mine": SHIM + "#\n"})
    assert pinned.told() == [("bin/mine: was changed; it shadows mine", STOPS)]
    pinned.write({"bin/mine": None})
    assert pinned.told() == [("bin/mine: the program mine of the check is gone", STOPS)]


def test_npm_finds_its_own_programs_first(pinned: Pinned, machine: Path) -> None:
    """RH-04"""
    pinned.write({"package.json": '{"scripts": {"test": "node --test && jest"}}'})
    pinned.begin("npm test")
    pinned.write({"node_modules/.bin/node": SHIM})
    assert pinned.told() == [("node_modules/.bin/node: new; it shadows node", STOPS)]


def test_a_program_that_was_nowhere_was_installed(pinned: Pinned, machine: Path) -> None:
    pinned.write({"package.json": '{"scripts": {"test": "jest"}}'})
    pinned.begin("npm test")
    pinned.write({"node_modules/jest/bin.js": SHIM})
    (pinned.root / "node_modules/.bin").mkdir()
    (pinned.root / "node_modules/.bin/jest").symlink_to("../jest/bin.js")
    assert pinned.told() == [
        ("node_modules/.bin/jest: the program jest of the check was installed during the run", TOLD)
    ]


@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("package", ["node", "@scope/node"])
def test_a_program_of_a_package_that_was_always_needed_may_be_installed(
    pinned: Pinned, machine: Path, needs: bool, package: str
) -> None:
    """RH-04: the check itself may install them, and the machine may have one of that name."""
    needed = {"devDependencies": {package: "1"}} if needs else {}
    pinned.write({"package.json": json.dumps({"scripts": {"test": "node --test"}} | needed)})
    pinned.begin("npm ci && npm test")
    pinned.write({"package.json": json.dumps({"scripts": {"test": "node --test"}, "dependencies": {package: "1"}})})
    pinned.write({f"node_modules/{package}/bin/node": SHIM})
    (pinned.root / "node_modules/.bin").mkdir()
    (pinned.root / "node_modules/.bin/node").symlink_to(f"../{package}/bin/node")
    installed = "the program node of the check was installed during the run"
    what = (installed, TOLD) if needs else ("new; it shadows node", STOPS)
    assert pinned.told() == [(f"node_modules/.bin/node: {what[0]}", what[1])]


def test_what_a_link_to_a_program_leads_to_may_not_change(pinned: Pinned, machine: Path) -> None:
    """RH-04"""
    pinned.write({"package.json": '{"scripts": {"test": "jest"}}', "node_modules/jest/bin.js": SHIM})
    (pinned.root / "node_modules/.bin").mkdir()
    (pinned.root / "node_modules/.bin/jest").symlink_to("../jest/bin.js")
    pinned.begin("npm test")
    assert pinned.told() == []
    pinned.write({"node_modules/jest/bin.js": SHIM + "#\n"})
    assert pinned.told() == [("node_modules/.bin/jest: was changed; it shadows jest", STOPS)]


def test_what_is_installed_into_a_virtual_environment_is_told_unless_a_check_names_it(
    pinned: Pinned, machine: Path
) -> None:
    pinned.env["PATH"] = f"{pinned.root}/.venv/bin:{machine}"
    pinned.write({".venv/pyvenv.cfg": "", ".venv/bin/python": SHIM})
    pinned.begin("pytest")
    pinned.write({".venv/bin/git": SHIM, ".venv/bin/pytest": SHIM})
    assert pinned.told() == [
        (".venv/bin/pytest: new; it shadows pytest", STOPS),
        (".venv/bin/git: new; it shadows git", TOLD),
    ]
