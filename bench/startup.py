"""How long ralph takes to start, against an interpreter that does nothing: python bench/startup.py [--quick]"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import Cost, Place, arguments, cost_of, interleaved, machine, row, show

FLOOR = "python -c pass"
PATIENCE_S = 60
FILES = 1000


class FirstAgent:
    """Times `ralph run` up to the moment in which its agent runs: the agent writes to a FIFO that we listen to."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._bell = os.path.join(place.folder, "bell")
        os.mkfifo(self._bell)
        agent = place.script("agent", f"#!/bin/sh\necho here > {self._bell}\necho '<response>DONE</response>'\n")
        self._argv = [place.ralph, "run", "-f", "PROMPT.md", "--agent", agent, "--check", "./verify.sh", "-m", "1"]
        self._root = place.repository("first", FILES)
        self._states = 0

    def again(self) -> Cost:
        """In a repository that ralph knows."""
        return self._time(self._place.env)

    def anew(self) -> Cost:
        """In one that it has never seen."""
        self._states += 1
        return self._time(self._place.env | {"RALPH_STATE_DIR": os.path.join(self._place.folder, f"s{self._states}")})

    def _time(self, env: dict[str, str]) -> Cost:
        bell = os.open(self._bell, os.O_RDONLY | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        began = time.perf_counter()
        process = subprocess.Popen(
            self._argv, cwd=self._root, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        rung = poll.poll(PATIENCE_S * 1000)
        wall_s = time.perf_counter() - began
        os.close(bell)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not rung or process.returncode:
            raise SystemExit(f"ralph run started no agent, or failed: exit code {process.returncode}")
        return Cost(wall_s, usage.ru_utime + usage.ru_stime)


def main() -> None:
    args = arguments(__doc__ or "")
    with Place(args.python) as place:
        first = FirstAgent(place)
        root = place.repository("plain", 1)
        jobs = {
            FLOOR: [place.python, "-c", "pass"],
            "ralph --version": [place.ralph, "--version"],
            "ralph --help": [place.ralph, "--help"],
            "ralph status": [place.ralph, "status"],
        }
        agent = place.script("done", "#!/bin/sh\necho '<response>DONE</response>'\n")
        cost_of([place.ralph, "run", "-p", "x", "--agent", agent], root, place.env)  # so that status has a run to show
        commands = [partial(cost_of, argv, root, place.env) for argv in jobs.values()]
        first.again()
        costs = interleaved(7 if args.quick else 40, *commands, first.again, first.anew)
        goals = {"ralph --version": "<= 2.5 x", "ralph status": "<= 5 x"}
        rows = [row(name, costs[at], FLOOR, goals.get(name, "")) for at, name in enumerate(jobs)]
        rows.append(row("ralph run to the agent's start", costs[-2], FLOOR, "<= 12 x"))
        rows.append(row("the same, repository unknown", costs[-1], FLOOR))
        notes = ("the goals are for wall time; the CPU time of `run` is that of the whole run, its end included",)
        show("start-up", rows, machine(place.python), args.json, notes)


if __name__ == "__main__":
    main()
