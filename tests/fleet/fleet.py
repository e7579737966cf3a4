"""A fleet on this machine: a real server, workers as processes, and what is asked of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ralphproof.base.interpreter import LAUNCHER
from ralphproof.base.value import unpack
from ralphproof.fleet.dev_server import dev_server_argv, find_free_port, find_temporal
from ralphproof.fleet.governor import Allowance, Governor
from ralphproof.fleet.messages import FleetTiming, LoopSpec
from ralphproof.fleet.submission import FleetSubmission, SubmittedLoop
from tests.fleet.machines import python
from tests.ralph import SOURCE, Step, until

T = TypeVar("T")
STAND_IN = f"{sys.executable} {Path(__file__).with_name('stand_in.py')}"
ROOT = SOURCE.parent
TEMPO = FleetTiming(heartbeat_s=3.0, cancel_s=3.0, kill_s=3.0, sweep_s=2.0)


@dataclass
class Server:
    """A development server on a file; it can be killed and comes back on the same."""

    folder: Path
    port: int = field(default_factory=find_free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        words = dev_server_argv(find_temporal(), self.port, None, str(self.folder / "temporal.db"))
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: asyncio.run(_answers(self.address)), "the server answers", 60.0)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


async def _answers(address: str) -> bool:
    from ralphproof.base.errors import Refused
    from ralphproof.fleet.client import TemporalServer as Place
    from ralphproof.fleet.client import connect

    try:
        await connect(Place(address))
    except Refused:
        return False
    return True


@dataclass
class Crew:
    """Workers of one namespace, a remote, and the log of all agents."""

    folder: Path
    address: str
    namespace: str = "default"
    workers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.remote.mkdir(parents=True)

    @property
    def remote(self) -> Path:
        return self.folder / "remote"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def lines(self, word: str) -> list[str]:
        """What agents did: so many lines of the log begin with this word."""
        return [
            line for line in (self.log.read_text() if self.log.exists() else "").splitlines() if line.startswith(word)
        ]

    def work(self, name: str, *flags: str, uid: int = 0, program: str | None = STAND_IN) -> None:
        """Start a worker, of another user where a `uid` is given, and wait until it is ready."""
        own, work = self.folder / f"home-{name}", self.folder / name
        for path in (own, work):
            path.mkdir(exist_ok=True)
            if uid:
                os.chown(path, uid, uid)
        code = os.pathsep.join((str(SOURCE), str(ROOT), sysconfig.get_path("purelib")))
        env = {"PATH": os.environ["PATH"], "HOME": str(own), "PYTHONPATH": code, "LANG": "C.UTF-8"}
        words = ["fleet", "worker", "--json", "--address", self.address, "--namespace", self.namespace, "--name", name]
        words += ["--work-dir", str(work), *(["--turn-program", program] if program else []), *flags]
        via = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups") if uid else ()
        with open(self.folder / f"{name}.err", "a") as err:
            process = subprocess.Popen(
                [*via, python(uid), "-I", LAUNCHER, *code.split(os.pathsep), "--", "ralphproof.__main__", *words],
                env=env, stdout=subprocess.PIPE, stderr=err, text=True, cwd=own,
            )  # fmt: skip
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.stdout.close()
        assert ready, (self.folder / f"{name}.err").read_text()
        assert json.loads(ready)["name"] == name
        self.workers[name] = process

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a worker a signal; one that it does not outlive is waited for."""
        process = self.workers[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            del self.workers[name]

    def close(self) -> None:
        for process in self.workers.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def spec(self, loop: str, **play: Any) -> LoopSpec:
        """An order for the stand-in."""
        wish: Any = {"play": {"turns": 1, "cost": 1000, "log": str(self.log), **play}}
        return LoopSpec(loop, str(self.remote), "main", wish, submitter="ann")

    def bare(self) -> Path:
        """A bare repository, for the real program: its check wants the file `done`."""
        bare, tree = self.folder / "bare.git", self.folder / "tree"
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        who = ("-c", "user.name=user", "-c", "user.email=user@localhost")

        def git(*words: str) -> None:
            subprocess.run(["git", *who, *words], env=env, check=True, capture_output=True)

        git("init", "-q", "--bare", "-b", "main", str(bare))
        git("init", "-q", "-b", "main", str(tree))
        (tree / "check.sh").write_text("test -f done\n")
        git("-C", str(tree), "add", "-A")
        git("-C", str(tree), "commit", "-qm", "a beginning")
        git("-C", str(tree), "push", "-q", str(bare), "main")
        return bare

    def real_order(self, loop: str, bare: Path | str, *iterations: list[Step]) -> LoopSpec:
        """An order for the real program, whose agent plays this."""
        from ralphproof.runs.request import CheckRequest, RunRequest, serialize_request

        script = self.folder / f"{loop}.json"
        script.write_text(json.dumps({"iterations": list(iterations)}))
        flags = {"agent": {"command": f"scripted {script}"}, "limits": {"pauseMilliseconds": 0}}
        wish = json.loads(
            serialize_request(RunRequest(("make it so", None), flags, checks=CheckRequest(("sh check.sh",))), str)
        )
        return LoopSpec(loop, str(bare), "main", wish, submitter="ann")

    def loop(self, name: str) -> dict[str, Any]:
        """Where a loop stands."""
        from ralphproof.fleet import client

        return self.ask(lambda server: client.find_loop(server, name))

    def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Something asked of the server by a client of its own."""
        from ralphproof.fleet.client import TemporalServer as Place
        from ralphproof.fleet.client import connect

        async def through() -> T:
            return await work(await connect(Place(self.address, self.namespace)))

        return asyncio.run(through())

    def submit(
        self, id: str, *orders: LoopSpec, timing: FleetTiming = TEMPO, budget: int | None = None,
        after: Mapping[str, tuple[str, ...]] | None = None, **allowance: Any,
    ) -> None:  # fmt: skip
        from ralphproof.fleet import client

        held = after or {}
        loops = tuple(SubmittedLoop(one, one.loop, budget=budget, after=held.get(one.loop, ())) for one in orders)
        submission = FleetSubmission(id, "ann", loops, Allowance(**allowance), timing)
        self.ask(lambda server: client.submit_loops(server, submission))

    def outcome(self, id: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """How each loop of a submission ended."""
        from ralphproof.fleet import client

        ended = self.ask(lambda server: asyncio.wait_for(client.wait_for_submission(server, id), timeout_s))
        return {one["loop"]: one for one in ended}


async def query_governor(client: Any) -> Governor | None:
    """The governor's state; None where none is at work."""
    from temporalio.service import RPCError

    from ralphproof.fleet.workflows import GOVERNOR_ID, GovernorWorkflow

    try:
        state = await client.get_workflow_handle_for(GovernorWorkflow.run, GOVERNOR_ID).query(GovernorWorkflow.state)
    except RPCError:
        return None
    governor: Governor = unpack(state["governor"])
    return governor


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
