"""The program `ralph` on a throw-away project, as a user would run it.

    def test_a_lie_is_refused(ralph: Ralph) -> None:
        ralph.write({"check.sh": "test -f done"})
        ralph.commit()
        agent = ralph.script([say("<response>DONE</response>")], [write(done="yes"), say("<response>DONE</response>")])
        ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh")
        assert ended.code == 0 and ralph.outcome()["iterations"] == 2

The project, the state, the settings of the user and the home directory are all below one `tmp_path`. A script's steps
are those of `ralphproof.agents.script_player`; they run with the project as the current directory. Put
`from tests.ralph import ralph as ralph` into a `conftest.py` to have the fixture.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from ralphproof.engine.records import Record
from ralphproof.engine.state import State, build_state
from ralphproof.process import dead_turns, tree
from ralphproof.runs.open_project import open_project
from ralphproof.store.ledger import RunRow
from ralphproof.store.project import Project
from tests import warm
from tests.warm import Begun

Step = dict[str, Any]
SOURCE = Path(__file__).resolve().parents[1] / "src"
PROGRAM = (sys.executable, "-m", "ralphproof")
TIMEOUT_S = 60.0


def say(text: str) -> Step:
    """A step: the agent says this."""
    return {"text": text}


def done(word: str = "DONE") -> Step:
    """A step: the agent claims that it is done."""
    return {"text": f"<response>{word}</response>"}


def write(**files: str) -> Step:
    """A step: the agent writes these files; `__` in a name stands for `.`."""
    return {"write": {name.replace("__", "."): content for name, content in files.items()}}


def until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Wait for something that is sure to come; fail where it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


@dataclass(frozen=True)
class Ended:
    """What came of one command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON object."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Live:
    """A command line that is still at work; its output goes to files."""

    process: subprocess.Popen[str] | Begun
    out: IO[str]
    err: IO[str]

    def end(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait until it is over."""
        code = self.process.wait(timeout_s)
        self.out.seek(0)
        self.err.seek(0)
        return Ended(code, self.out.read(), self.err.read())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.err.close()


@dataclass
class Ralph:
    """A project in `root`, its records in `state_dir`, and the program.

    Where it is `warm`, what is called or started is forked from a process that has read the program; `via` begins a
    fresh one.
    """

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    live: list[Live] = field(default_factory=list)
    warm: bool = True

    def __post_init__(self) -> None:
        for path in (self.root, self.home, self.bin):
            path.mkdir(parents=True)
        self.env = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8",
            "RALPH_STATE_DIR": str(self.state_dir), "RALPH_CONFIG_DIR": str(self.folder / "config"),
            "PYTHONPATH": str(SOURCE), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONWARNINGS": "error", "TERM": "xterm",
            "RALPH__LIMITS__PAUSE_MILLISECONDS": "0",
        }  # fmt: skip

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def bin(self) -> Path:
        """First on PATH; `program` puts things into it."""
        return self.folder / "bin"

    # The project

    def git(self, *words: str) -> str:
        """git in the project, as the user; its standard output."""
        who = ("-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "init.defaultBranch=main")
        done = subprocess.run(
            ["git", *who, *words], cwd=self.root, env=self.env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of the project."""
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def commit(self) -> None:
        """Make the project a git repository if it is none, and commit everything."""
        if not (self.root / ".git").exists():
            self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "a state of the project", "--allow-empty")

    def settings(self, **keys: Any) -> None:
        """Write `.ralph/settings.json`."""
        self.write({".ralph/settings.json": json.dumps(keys)})

    def program(self, name: str, text: str) -> Path:
        """Put a program on PATH, as a shell script or with a first line of its own."""
        path = self.bin / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def script(
        self, *iterations: list[Step], message: list[Step] | None = None, answer: list[Step] | None = None,
        name: str = "script",
    ) -> str:  # fmt: skip
        """Write a script, one list of steps an iteration (the last one repeats); the agent's command that plays it.

        `message` answers the question for a commit message, `answer` a judge's.
        """
        path = self.folder / f"{name}.json"
        script = {"iterations": list(iterations), "message": message, "answer": answer}
        path.write_text(json.dumps({key: part for key, part in script.items() if part is not None}), encoding="utf-8")
        return f"scripted {path}"

    # The program

    def __call__(
        self, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None,
        timeout_s: float = TIMEOUT_S, via: Sequence[str] = (), dies: Sequence[str] = (),
    ) -> Ended:  # fmt: skip
        """Run `ralph ARGV` to its end. Standard input is a pipe with `stdin` in it, never a terminal.

        `via` is a command that starts another one, such as `nohup`. `dies` is explained in `crash_points`.
        """
        place, variables = cwd or self.root, self.env | dict(env or {})
        suits = self.warm and not via and warm.suits(variables, stdin.encode())
        assert suits or not dies, "only a forked program can have a crash point"
        if suits:
            code, out, err = warm.called(argv, place, variables, stdin.encode(), timeout_s, dies)
            return Ended(code, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape"))
        done = subprocess.run(
            [*via, *PROGRAM, *argv], cwd=place, env=variables, input=stdin,
            capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=timeout_s, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *argv: str, env: Mapping[str, str] | None = None, via: Sequence[str] = ()) -> Live:
        """Begin `ralph ARGV` in a session of its own and go on; it is ended with the test at the latest."""
        number = len(self.live)
        out = (self.folder / f"live-{number}.out").open("w+", encoding="utf-8", errors="surrogateescape")
        err = (self.folder / f"live-{number}.err").open("w+", encoding="utf-8", errors="surrogateescape")
        variables = self.env | dict(env or {})
        self.live.append(Live(self._begun(argv, variables, out, err, via), out, err))
        return self.live[-1]

    def _begun(
        self, argv: Sequence[str], variables: Mapping[str, str], out: IO[str], err: IO[str], via: Sequence[str]
    ) -> subprocess.Popen[str] | Begun:
        with open(os.devnull) as nothing:
            if self.warm and not via and warm.suits(variables, b""):
                return Begun(argv, self.root, variables, (nothing, out, err), alone=True)
            return subprocess.Popen(
                [*via, *PROGRAM, *argv], cwd=self.root, env=variables, stdin=nothing,
                stdout=out, stderr=err, start_new_session=True, text=True,
            )  # fmt: skip

    # The record

    @property
    def project(self) -> Project:
        return open_project(str(self.root), self.env)

    def runs(self) -> tuple[RunRow, ...]:
        """All runs of the project, the newest first."""
        ledger = self.project.ledger()
        try:
            return ledger.runs()
        finally:
            ledger.close()

    def records(self, run: str = "latest") -> tuple[Record, ...]:
        """All records of a run, oldest first."""
        ledger = self.project.ledger()
        try:
            return ledger.records(ledger.find(run))
        finally:
            ledger.close()

    def state(self, run: str = "latest") -> State:
        """Where a run stands, by its records."""
        return build_state(self.records(run))

    def outcome(self, run: str = "latest") -> dict[str, Any]:
        """`outcome.json` of a run."""
        found: dict[str, Any] = json.loads((self.run_folder(run) / "outcome.json").read_text(encoding="utf-8"))
        return found

    def run_folder(self, run: str = "latest") -> Path:
        """`.ralph/runs/<run>`."""
        return self.root / ".ralph" / ("latest" if run == "latest" else f"runs/{run}")

    def processes(self, run: str) -> list[int]:
        """Processes that carry this run's mark."""
        return tree.find_marked_processes(f"{run}/")

    def close(self) -> None:
        """End what the test left behind, by its mark."""
        for live in self.live:
            live.close()
        if self.root.exists() and self.state_dir.exists():
            for row in self.runs():
                if row.process.alive and row.pid != os.getpid():  # one that was detached, or is another's child
                    os.kill(row.pid, signal.SIGKILL)
                dead_turns.end_turn_processes(f"{row.id}/")


@pytest.fixture
def ralph(tmp_path: Path) -> Iterator[Ralph]:
    """A project without git; `commit()` makes it a repository."""
    made = Ralph(tmp_path)
    yield made
    made.close()
