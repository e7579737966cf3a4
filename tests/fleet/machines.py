"""Workers of a fleet on one machine: each with a work folder, a home and, where root may say so, a user of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralphproof.cli.notes import wish_text
from ralphproof.cli.order import Wish
from ralphproof.fleet.order import LoopOrder, packed_order
from tests.ralph import SOURCE, Step, until

LOOP = "20270101-120000-abcd"
PROGRAM = (sys.executable, "-m", "ralphproof.cli.fleet_turn")
FIX = {"check.sh": "test \"$(cat done 2>/dev/null)\" = 3\n"}
TIMEOUT_S = 60.0


def git(*words: str, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """git, as somebody; its standard output."""
    who = ("-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "init.defaultBranch=main")
    own = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1", **(env or {})}
    done = subprocess.run(["git", *who, *words], cwd=cwd, env=own, capture_output=True, text=True, check=True)
    return done.stdout


@dataclass
class Remote:
    """A bare repository with one commit on `main`, in a folder of its own."""

    folder: Path
    files: Mapping[str, str] = field(default_factory=lambda: FIX)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        seed = self.folder / "seed"
        seed.mkdir()
        for name, text in self.files.items():
            (seed / name).parent.mkdir(parents=True, exist_ok=True)
            (seed / name).write_text(text, encoding="utf-8")
        git("init", "-q", cwd=seed)
        git("add", "-A", cwd=seed)
        git("commit", "-qm", "the beginning", cwd=seed)
        git("clone", "-q", "--bare", str(seed), str(self.bare), cwd=self.folder)
        self.url = f"file://{self.bare}"

    @property
    def bare(self) -> Path:
        return self.folder / "bare.git"

    def refs(self) -> dict[str, str]:
        """All refs of the loop, without what is the same in all, and its branch."""
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=self.bare).splitlines()
        named = dict(line.split() for line in lines)
        return {ref.removeprefix(f"refs/ralph/fleet/{LOOP}/"): commit for ref, commit in named.items()}

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """The kinds and the data of the loop's records."""
        record, found = f"refs/ralph/fleet/{LOOP}/record", []
        for path in git("ls-tree", "-r", "--name-only", record, "records/", cwd=self.bare).split():
            for line in git("show", f"{record}:{path}", cwd=self.bare).splitlines():
                row = json.loads(line)
                found.append((row[4], json.loads(row[6])))
        return found

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.records()]

    def show(self, ref: str, path: str) -> str:
        """A file of a commit."""
        return git("show", f"{ref}:{path}", cwd=self.bare)


@dataclass
class Live:
    """A step that is at work."""

    process: subprocess.Popen[bytes]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def say(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> None:
        """Wait for a line of this kind."""
        until(lambda: any(line["type"] == kind for line in self.lines) or self.process.poll() is not None, kind)
        assert any(line["type"] == kind for line in self.lines), self.lines

    def end(self) -> dict[str, Any]:
        """The last line, when the step is over."""
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return self.lines[-1]

    def kill(self) -> None:
        """kill -9 of the program alone."""
        self.process.kill()
        self.process.wait()


@dataclass
class Machine:
    """A worker: its own folder, home and user settings. With `uid` it is another user than the others."""

    folder: Path
    remote: Remote
    uid: int = 0
    name: str = "a"
    env: dict[str, str] = field(default_factory=dict)
    live: list[Live] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in (self.home, self.work):
            path.mkdir(parents=True)
            if self.uid:
                os.chown(path, self.uid, self.uid)
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8",
               "GIT_CONFIG_NOSYSTEM": "1", "PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        self.env = own | self.env

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def tree(self) -> Path:
        return self.work / "loops" / LOOP / "tree"

    def start(self, order: LoopOrder, epoch: int = 1, known: int = 0, **more: Any) -> Live:
        """Begin a step."""
        via = ("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups") if self.uid else ()
        process = subprocess.Popen(
            [*via, *PROGRAM, str(self.work)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=(self.folder / "log").open("ab"), cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        first = {"order": packed_order(order), "epoch": epoch, "standing": self.name, "known": known, **more}
        live = Live(process)
        live.say(json.dumps(first))
        self.live.append(live)
        return live

    def step(self, order: LoopOrder, epoch: int = 1, known: int = 0, **more: Any) -> dict[str, Any]:
        """Take a step to its end; the last line."""
        return self.start(order, epoch, known, **more).end()

    def to_the_end(self, order: LoopOrder, epoch: int = 1, known: int = 0, steps: int = 12) -> list[dict[str, Any]]:
        """Step until the run is over; all last lines."""
        said: list[dict[str, Any]] = []
        while len(said) < steps:
            finish = bool(said) and said[-1]["next"] == "End"
            said.append(self.step(order, epoch, known, finish=finish))
            assert said[-1]["type"] == "rest", (said[-1], self.log)
            known += len(said[-1]["records"])
            if said[-1]["next"] == "Finish":
                return said
        raise AssertionError([one["next"] for one in said])

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def close(self) -> None:
        for live in self.live:
            if live.process.poll() is None:
                live.kill()


def script(folder: Path, *iterations: list[Step], name: str = "script") -> str:
    """An agent's command that plays these iterations, wherever it is started."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"iterations": list(iterations)}), encoding="utf-8")
    return f"scripted {path}"


def order_for(remote: Remote, agent: str, **more: Any) -> LoopOrder:
    """A loop with `check.sh` as its check."""
    flags = {"agent": {"command": agent}, "maximumIterations": 10, **more.pop("flags", {})}
    wish = Wish(("make it so", None), flags, checks=("sh check.sh",))
    user = {"limits": {"pauseMilliseconds": 0, **more.pop("limits", {})}, **more.pop("user", {})}
    noted = json.loads(wish_text(wish, str))
    return LoopOrder(LOOP, more.pop("repo", remote.url), "main", noted, user, "somebody", **more)


def lines_in(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait(condition: Any, what: str) -> None:
    until(condition, what, TIMEOUT_S)


def now() -> float:
    return time.monotonic()
