"""Workers of a fleet on one machine: each with a work folder, a home and, where root may say so, a user of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ralphproof.base import interpreter
from ralphproof.fleet.messages import LoopSpec, loop_spec_json
from ralphproof.process import tree
from ralphproof.runs.request import CheckRequest, RunRequest, serialize_request
from ralphproof.store.run_folder import new_run_id
from tests.needs import require
from tests.ralph import SOURCE, Step, until

PROGRAM = ("-I", interpreter.LAUNCHER, sysconfig.get_path("purelib"), "--", "ralphproof.fleet.step")
FIX = {"check.sh": 'test "$(cat done 2>/dev/null)" = 3\n'}
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
    url: str = ""

    def __post_init__(self) -> None:
        self.loop = new_run_id(time.time(), os.urandom(3))
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
        return {ref.removeprefix(f"refs/ralph/fleet/{self.loop}/"): commit for ref, commit in named.items()}

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """The kinds and the data of the loop's records."""
        record, found = f"refs/ralph/fleet/{self.loop}/record", []
        for path in git("ls-tree", "-r", "--name-only", record, "records/", cwd=self.bare).split():
            for line in git("show", f"{record}:{path}", cwd=self.bare).splitlines():
                row = json.loads(line)
                found.append((row[4], json.loads(row[6])))
        return found

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.records()]

    def ended_turns(self) -> list[dict[str, Any]]:
        """What the agent replied in each turn that ended."""
        return [data["reply"] for kind, data in self.records() if kind == "TurnEnded"]

    def saved(self, name: str) -> str:
        """The ref of a saved tree."""
        return "/".join(("refs/ralph/fleet", self.loop, "work", name))

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

    def close(self) -> None:
        self.kill()
        self._reader.join(TIMEOUT_S)
        for end in (self.process.stdin, self.process.stdout):
            if end and not end.closed:
                end.close()


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
        code = os.pathsep.join((str(SOURCE), sysconfig.get_path("purelib")))
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": code, "LANG": "C.UTF-8",
               "GIT_CONFIG_NOSYSTEM": "1", "PYTHONWARNINGS": "error", "RALPH_FLEET_PATIENCE_SECONDS": "3"}  # fmt: skip
        self.env = own | self.env

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def tree(self) -> Path:
        return self.work / "loops" / self.remote.loop / "tree"

    def start(self, order: LoopSpec, epoch: int = 1, **more: Any) -> Live:
        """Begin a step."""
        log = (self.folder / "log").open("ab")
        via = ("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups") if self.uid else ()
        process = subprocess.Popen(
            [*via, python(self.uid), *PROGRAM, str(self.work)], env=self.env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        log.close()
        first = {"spec": loop_spec_json(order), "epoch": epoch, "worker": self.name, **more}
        live = Live(process)
        live.say(json.dumps(first))
        self.live.append(live)
        return live

    def step(self, order: LoopSpec, epoch: int = 1, **more: Any) -> dict[str, Any]:
        """Take a step to its end; the last line."""
        return self.start(order, epoch, **more).end()

    def to_the_end(self, order: LoopSpec, epoch: int = 1) -> list[dict[str, Any]]:
        """Step until the run is over; all last lines."""
        said: list[dict[str, Any]] = []
        while len(said) < 12:
            said.append(self.step(order, epoch))
            assert said[-1]["type"] == "rest", (said[-1], self.log)
            if said[-1]["next"] == "Finish":
                return said
        raise AssertionError([one["next"] for one in said])

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def close(self) -> None:
        for live in self.live:
            live.close()


def script(folder: Path, *iterations: list[Step], message: list[Step] | None = None) -> str:
    """An agent's command that plays these iterations, wherever it is started."""
    path = folder / "script.json"
    told = {"iterations": list(iterations)} | ({"message": message} if message else {})
    path.write_text(json.dumps(told), encoding="utf-8")
    return f"scripted {path}"


def order_for(remote: Remote, agent: str, **more: Any) -> LoopSpec:
    """A loop whose check is `check.sh`, or another one."""
    checks = (more.pop("check", "sh check.sh"),)
    flags = {"agent": {"command": agent}, "maximumIterations": 10, **more.pop("flags", {})}
    wish = RunRequest(("make it so", None), flags, checks=CheckRequest(checks))
    user = {"limits": {"pauseMilliseconds": 0, **more.pop("limits", {})}, **more.pop("user", {})}
    noted = json.loads(serialize_request(wish, str))
    return LoopSpec(remote.loop, more.pop("repo", remote.url), "main", noted, user, "somebody", **more)


@cache
def python(uid: int) -> str:
    """An interpreter that this user may start, and that may start itself again."""
    if not uid:
        return sys.executable
    ask = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', '']) or sys.version_info[:2] != {})"
    known = (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}")
    for found in known:
        words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", found, "-c"]
        tried = subprocess.run([*words, ask.format(sys.version_info[:2])], capture_output=True)
        if tried.returncode == 0:
            return found
    require(False, "an interpreter that other users may start")
    return ""


def processes_of(remote: Remote) -> list[int]:
    """The agents and checks of the loop that are alive, whoever started them."""
    return tree.find_marked_processes(f"{remote.loop}/")


def kill_all(live: Live, remote: Remote) -> None:
    """kill -9 of a step, of the keeper and of its agent, as when a machine goes down."""
    live.kill()
    for pid in processes_of(remote):
        for victim in (parent_of(pid), pid):
            if victim > 1:
                os.kill(victim, signal.SIGKILL)
    wait(lambda: not processes_of(remote), "they are gone")


def parent_of(pid: int) -> int:
    """The process above another one; that of an agent is its keeper."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    above = int(stat.rpartition(")")[2].split()[1])
    return above if b"ralphproof" in Path(f"/proc/{above}/cmdline").read_bytes() else 0


def wait(condition: Callable[[], object], what: str) -> None:
    until(condition, what, TIMEOUT_S)


@contextmanager
def daemon(remote: Remote) -> Iterator[Remote]:
    """The same remote behind a git server of its own, that takes pushes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = subprocess.Popen(
        ["git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={remote.folder}",
         "--export-all", "--enable=receive-pack", str(remote.folder)],
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    remote.url = f"git://127.0.0.1:{port}/bare.git"
    try:
        wait(lambda: subprocess.run(["git", "ls-remote", remote.url], capture_output=True).returncode == 0, "a server")
        yield remote
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait()
