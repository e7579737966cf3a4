"""`ralph demo`: a whole loop in a throw-away repository, with a scripted agent that fails, lies, then does the work."""

from __future__ import annotations

import json
import os
import sys

from ralphproof import interpreter
from ralphproof.cli.parser import Parser
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.phase import Over
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKEN = "def add(a, b):\n    return a - b\n"
WRONG = "def add(a, b):\n    return a * b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TESTS = """import unittest

from calc import add


class Add(unittest.TestCase):
    def test_two_and_three_make_five(self):
        self.assertEqual(add(2, 3), 5)

    def test_zero_changes_nothing(self):
        self.assertEqual(add(7, 0), 7)


if __name__ == "__main__":
    unittest.main()
"""
SCRIPT = {
    "iterations": [
        [{"text": "Perhaps it should multiply.\n"}, {"write": {"calc.py": WRONG}}],
        [{"text": "Everything works now.\n\n<response>DONE</response>"}],
        [
            {"text": "The log shows 6 where 5 is expected. It must add.\n"},
            {"write": {"calc.py": RIGHT}},
            {"text": "add() adds now.\n\n<response>DONE</response>"},
        ],
    ]
}
STORY = """A throw-away repository with a failing test. The agent is scripted: it tries, then it lies, then it works.
Nobody believes it; `python3 test_calc.py` decides.
"""

ABOUT = "a whole loop in a throw-away repository, with a scripted agent that fails, lies, then does the work."


def parser() -> Parser:
    made = Parser("demo", ABOUT, ["ralph demo", "ralph demo --keep"])
    made.add_argument("--keep", action="store_true", help="leave the repository, and say where it is")
    return made


def main(argv: list[str]) -> int:
    """Set the stage, run the shipped program on it, and look whether it did what it promises."""
    import shutil
    import tempfile

    args = parser().parse(argv)
    stage = tempfile.mkdtemp(prefix="ralph-demo-")
    project, environ = os.path.join(stage, "project"), _environ(stage)
    try:
        _set_stage(project, os.path.join(stage, "script.json"), environ)
        print(STORY, file=sys.stderr)
        code = _run(_command(project, os.path.join(stage, "script.json"), args.json), project, environ)
        _look_back(_state(project, environ), code)
        if not args.json:
            print(EPILOGUE + (f"\nThe repository is in {project}." if args.keep else ""), file=sys.stderr)
        return code
    finally:
        if not args.keep:
            shutil.rmtree(stage, ignore_errors=True)


EPILOGUE = """
What you saw: after every iteration the checks ran, by the harness. The claim of iteration 2 was refused, its failing
test went into the next prompt, and the run ended when the tests passed and the agent said so.
Now in a project of yours: ralph run -p 'make the tests pass'"""


def _environ(stage: str) -> dict[str, str]:
    """Ours, with all that a run keeps in the throw-away folder."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "RALPH_"))}
    return kept | {
        "RALPH_STATE_DIR": os.path.join(stage, "state"),
        "RALPH_CONFIG_DIR": os.path.join(stage, "config"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _set_stage(project: str, script: str, environ: Mapping[str, str]) -> None:
    os.mkdir(project)
    for path, content in (
        (os.path.join(project, "calc.py"), BROKEN),
        (os.path.join(project, "test_calc.py"), TESTS),
        (script, json.dumps(SCRIPT)),
    ):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    who = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "a calculator that is wrong")):
        if _run(["git", "-C", project, *words], project, environ):
            raise Refused("the demo needs git; install it and try again")


def _command(project: str, script: str, as_json: bool) -> list[str]:
    from shlex import quote

    return [
        *interpreter.ralph("run", "--project-dir", project, "--agent", f"scripted {quote(script)}"),
        "--check", "python3 test_calc.py", "-p", "Make the tests pass.", "-m", "5", *(["--json"] if as_json else []),
    ]  # fmt: skip


def _run(argv: list[str], folder: str, environ: Mapping[str, str]) -> int:
    import subprocess

    try:
        return subprocess.run(argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError as error:
        raise Refused(f"the demo needs {argv[0]}; install it and try again") from error


def _state(project: str, environ: Mapping[str, str]) -> State:
    """What the run's own record says."""
    from ralphproof.views.project import Project

    return Project.at(project, environ).state("latest")


def _look_back(state: State, code: int) -> None:
    """A demo that only looks right would be a lie of its own: hold the record against the promise."""
    lie, end = state.history.iterations[1:2], state.phase
    refused = bool(lie) and lie[0].claim is not None and bool(lie[0].report.failed)
    if not (code == 0 and refused and isinstance(end, Over) and isinstance(end.outcome, Completed)):
        raise HarnessFailed("the demo did not go as it must: a lie was not refused, or the work was not completed")
    if not end.outcome.verified:
        raise HarnessFailed("the demo ended on a claim that nothing verified")
