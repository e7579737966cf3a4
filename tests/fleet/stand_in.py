"""A stand-in for the program that takes one step: the same words, a shell script as agent, a folder as remote.

`spec["repo"]` is the remote. `spec["request"]["play"]` says what happens: so many `turns`, each of `cost` micro-dollars
and `seconds`, and none ends before the file `hold` is there. The first
`fails` steps cannot say what came of them. Its agent outlives it and is adopted, as the real one is.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ralphproof.base.value import pack, unpack
from ralphproof.engine.agent import Turn
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import CANCELLED, COST_LIMIT, Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Outcome, Retry
from ralphproof.engine.plan import AllDone, Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import Judged, Picked, Record, RunBegan, RunEnded, Saved, TurnBegan, TurnEnded
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import RunOver, build_state
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.fleet.messages import loop_end

AGENT = """
echo "start $LOOP $ITERATION" >> "$LOG"
sleep "$SECONDS_"
while [ -n "$HOLD" ] && [ ! -e "$HOLD" ]; do sleep 0.05; done
echo "end $LOOP $ITERATION" >> "$LOG"
echo done > "$RESULT.new"; mv "$RESULT.new" "$RESULT"
"""
TREE = Snapshot("tree", "tree")


class Fenced(Exception):
    pass


class Remote:
    """What all machines see of the loop."""

    def __init__(self, folder: str, loop: str, epoch: int) -> None:
        self._path, self._epoch = Path(folder) / f"{loop}.json", epoch

    def change(self, new: list[Record]) -> list[Any]:
        """All records, with these added; whoever has a lower epoch than another is told so."""
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data: Any = {"epoch": 0, "records": []}
            data = json.loads(self._path.read_text()) if self._path.exists() else data
            if data["epoch"] > self._epoch:
                raise Fenced
            data = {"epoch": self._epoch, "records": [*data["records"], *map(pack, new)]}
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(data))
            os.replace(fresh, self._path)
            return list(data["records"])


def say(**report: Any) -> None:
    print(json.dumps(report), flush=True)


class Play:
    def __init__(self, folder: str, asked: dict[str, Any]) -> None:
        self.asked, self.spec = asked, asked["spec"]
        self.loop, self.play = self.spec["loop"], self.spec["request"]["play"]
        self.folder = Path(folder) / self.loop
        self.folder.mkdir(parents=True, exist_ok=True)
        self.remote = Remote(self.spec["repo"], self.loop, asked["epoch"])
        self.buffer = b""

    def take(self) -> None:
        records = self.remote.change([])
        if not records:
            records = self.remote.change([RunBegan(self.loop, TREE, {})])
        judged = sum(one["is"] == "Judged" for one in records)
        if any(one["is"] == "RunEnded" for one in records):
            return self.rest(records, "Finish")
        if self.asked["allot"] == 0 and self.play["cost"]:
            word = self.word(0.2)
            reason = CANCELLED if word in ("cancel", "kill") else COST_LIMIT
            return self.end(Aborted(Breach(reason, "told so"), judged, Spend(), 0.0, ""))
        iteration = judged + 1
        if self.agent(iteration) in ("cancel", "kill"):
            return self.end(Aborted(Breach(CANCELLED, "asked to end"), iteration, Spend(), 0.0, ""))
        failed = self.folder / "failed"
        if (times := len(failed.read_text()) if failed.exists() else 0) < self.play.get("fails", 0):
            failed.write_text("x" * (times + 1))
            return say(type="failed", message="the remote is away", exitCode=3)
        cost = self.play["cost"]
        turn = Turn(Exit(0), "text", micro_usd=cost)
        job = Job(Task("task", "do it"), Stage("coder"))
        self.remote.change([Picked(iteration, job), TurnBegan(iteration, 1, ""), TurnEnded(iteration, 1, turn)])
        self.remote.change([Saved(iteration, 1, TREE, Change(("f",)), ParsedClaim())])
        records = self.remote.change([Judged(iteration, 1, Retry(Feedback()), 1.0)])
        if iteration < self.play["turns"]:
            return self.rest(records, "PickNextJob")
        self.remote.change([Picked(iteration + 1, AllDone())])
        return self.end(Completed(iteration, Spend(cost * iteration), 1.0, "done", True))

    def end(self, outcome: Outcome) -> None:
        self.rest(self.remote.change([RunEnded(outcome)]), "Finish")

    def rest(self, records: list[Any], word: str) -> None:
        until = time.time() + self.play["pause"] if self.play.get("pause") and word == "PickNextJob" else None
        state = build_state(map(unpack, records))
        outcome = state.phase.outcome if isinstance(state.phase, RunOver) else None
        judged = sum(one["is"] == "Judged" for one in records)
        say(
            type="rest", next="WaitForService" if until else word, until=until, head="c0ffee",
            spend=pack(state.spend), iterations=outcome.iterations if outcome else judged,
            end=pack(loop_end(outcome)) if outcome else None,
        )  # fmt: skip

    def agent(self, iteration: int) -> str:
        """Start the agent, or adopt it; the word that ended it before its end."""
        result, pid_file = self.folder / f"{iteration}.result", self.folder / f"{iteration}.pid"
        if not result.exists() and not (pid_file.exists() and alive(int(pid_file.read_text()))):
            env = {"LOG": self.play["log"], "LOOP": self.loop, "ITERATION": str(iteration), "RESULT": str(result)}
            env |= {"SECONDS_": str(self.play.get("seconds", 0)), "HOLD": self.play.get("hold", "")}
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(
                ["sh", "-c", AGENT], env=os.environ | env, start_new_session=True,
                stdin=quiet, stdout=quiet, stderr=quiet,
            )  # fmt: skip
            pid_file.write_text(str(process.pid))
        say(type="begun", iteration=iteration, turn=1, agent="sh")
        group = int(pid_file.read_text())
        while not result.exists():
            if word := self.word(0.05):
                os.killpg(group, signal.SIGKILL)
                with open(self.play["log"], "a") as log:
                    log.write(f"{word} {self.loop} {iteration}\n")
                say(type="spent", microUsd=self.play["cost"] // 2, tokens=1)
                return word
            if not alive(group):
                break
        if not result.exists():
            pid_file.unlink()
            return self.agent(iteration)
        say(type="spent", microUsd=self.play["cost"], tokens=2)
        return ""

    def word(self, patience_s: float) -> str:
        """What the worker says; its silence for ever is its death."""
        if not select.select([0], [], [], patience_s)[0]:
            return ""
        piece = os.read(0, 4096)
        if not piece:
            os._exit(9)
        return piece.decode().split()[-1]


def alive(pid: int) -> bool:
    try:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
    except ChildProcessError:
        pass
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(9)
        line += piece
    return line


if __name__ == "__main__":
    try:
        Play(sys.argv[1], json.loads(first_line())).take()
    except Fenced:
        say(type="fenced")
