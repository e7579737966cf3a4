"""The demo: a throw-away repository, a scripted agent, and a check of the outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from shlex import quote

from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.programs import NOT_STARTED, run_in_terminal
from ralphproof.engine.outcome import Completed
from ralphproof.engine.state import RunOver, State
from ralphproof.runs.open_project import open_project

BROKEN_SOURCE = "def add(a, b):\n    return a - b\n"
WRONG_SOURCE = "def add(a, b):\n    return a * b\n"
FIXED_SOURCE = "def add(a, b):\n    return a + b\n"
TEST_SOURCE = """import unittest

from calc import add


class Add(unittest.TestCase):
    def test_two_and_three_make_five(self):
        self.assertEqual(add(2, 3), 5)

    def test_zero_changes_nothing(self):
        self.assertEqual(add(7, 0), 7)


if __name__ == "__main__":
    unittest.main()
"""
AGENT_SCRIPT = {
    "iterations": [
        [{"text": "Perhaps it should multiply.\n"}, {"write": {"calc.py": WRONG_SOURCE}}],
        [{"text": "Everything works now.\n\n<response>DONE</response>"}],
        [
            {"text": "The log shows 6 where 5 is expected. It must add.\n"},
            {"write": {"calc.py": FIXED_SOURCE}},
            {"text": "add() adds now.\n\n<response>DONE</response>"},
        ],
    ]
}
INTRODUCTION = """A throw-away repository with a failing test. The scripted agent fails, then lies, then does the work.
Its word does not count: `python3 test_calc.py` decides.
"""


def demo_environment(folder: str) -> dict[str, str]:
    """The environment with the state and config folders in the throw-away folder."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "RALPH_"))}
    return inherited | {
        "RALPH_STATE_DIR": os.path.join(folder, "state"),
        "RALPH_CONFIG_DIR": os.path.join(folder, "config"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def create_demo_project(project: str, script: str, environ: Mapping[str, str]) -> None:
    os.mkdir(project)
    for path, content in (
        (os.path.join(project, "calc.py"), BROKEN_SOURCE),
        (os.path.join(project, "test_calc.py"), TEST_SOURCE),
        (script, json.dumps(AGENT_SCRIPT)),
    ):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for argv in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "a calculator that is wrong")):
        if run_program(["git", "-C", project, *argv], project, environ):
            raise Refused("the demo needs git; install it and try again")


def demo_command(project: str, script: str, as_json: bool) -> list[str]:
    return [
        *interpreter.ralph_command("run", "--project-dir", project, "--agent", f"scripted {quote(script)}"),
        "--check", "python3 test_calc.py", "-p", "Make the tests pass.", "-m", "5", *(["--json"] if as_json else []),
    ]  # fmt: skip


def run_program(argv: list[str], folder: str, environ: Mapping[str, str]) -> int:
    code = run_in_terminal(argv, environ, folder, capture=False).code
    if code == NOT_STARTED:
        raise Refused(f"the demo needs {argv[0]}; install it and try again")
    return code


def load_demo_state(project: str, environ: Mapping[str, str]) -> State:
    """The recorded state of the demo's run."""
    return open_project(project, environ).state("latest")


def verify_demo(state: State, code: int) -> None:
    """Check the records: the false claim was refused, and the work was verified."""
    second, end = state.history.iterations[1:2], state.phase
    refused = bool(second) and second[0].claim is not None and bool(second[0].report.failed)
    if not (code == 0 and refused and isinstance(end, RunOver) and isinstance(end.outcome, Completed)):
        raise HarnessFailed("the demo failed: the false claim was not refused, or the work was not completed")
    if not end.outcome.verified:
        raise HarnessFailed("the demo failed: nothing verified the final claim")
