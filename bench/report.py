"""How long a report over a million runs takes, from the ledger: python bench/report.py [--quick]"""

from __future__ import annotations

import glob
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import Cost, Place, arguments, cost_of, interleaved, machine, row, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FLOOR = "python -c pass"
RUNS, QUICK_RUNS = 1_000_000, 100_000
DAYS, LAST_DAY = 365, 20_453  # 2025
CHUNK = 1000  # runs whose rows lie together in the file, as they do where loops write it one after the other
SKILLS, AGENTS = ("tdd", "systematic-debugging", "code-cleanup", ""), ("claude", "codex", "amp")
REASONS = ("MAX_ITERATIONS", "COST_LIMIT", "STALL", "SAME_ERROR_5X", "PROHIBITED_PATH", "TIME_LIMIT", "INTERRUPTED")
DROP = "/proc/sys/vm/drop_caches"

Figure = tuple[object, ...]


class Ledger:
    """A ledger that ralph made, filled with so many runs through its own tables and triggers."""

    def __init__(self, place: Place, runs: int) -> None:
        self._place = place
        self.root = place.repository("project", 1)
        agent = place.script("done", "#!/bin/sh\necho '<response>DONE</response>'\n")
        cost_of([place.ralph, "run", "-p", "x", "--agent", agent], self.root, place.env)
        (self.path,) = glob.glob(os.path.join(place.env["RALPH_STATE_DIR"], "repos", "*", "ledger.db"))
        began = time.perf_counter()
        _fill(self.path, runs)
        self.filled_s = time.perf_counter() - began
        self._must_hold(runs)

    def report(self, *argv: str) -> Cost:
        return cost_of([self._place.ralph, "report", *argv], self.root, self._place.env)

    def cold(self, *argv: str) -> Cost:
        """The same with nothing of the file, and if that may be done of any other, in the system's memory."""
        forget(self.path)
        return self.report(*argv)

    def _must_hold(self, runs: int) -> None:
        argv = [self._place.ralph, "report", *YEAR, "--json"]
        told = subprocess.run(argv, cwd=self.root, env=self._place.env, check=True, capture_output=True, text=True)
        if (counted := json.loads(told.stdout)["overall"]["loops"]) != runs:
            raise SystemExit(f"the report counts {counted} runs, not {runs}")


YEAR = ("--from", "2025-01-01", "--to", "2025-12-31")
DAY = ("--date", "2025-12-31")


def _fill(path: str, runs: int) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -1000000", "temp_store = MEMORY"):
        database.execute(f"PRAGMA {pragma}")
    ((first,),) = database.execute("SELECT max(seq) + 1 FROM run")
    ((data,),) = database.execute("SELECT data FROM record WHERE step = 'RunEnded'")
    database.execute("BEGIN")
    for start in range(0, runs, CHUNK):
        some = range(start, min(start + CHUNK, runs))
        names = [f"run-{number:07d}" for number in some]
        database.executemany(
            "INSERT INTO run VALUES (?, ?, 0, '/project', 'host', 1, '', '', '')",
            [(first + number, name) for number, name in zip(some, names, strict=True)],
        )
        database.executemany(
            "INSERT INTO record VALUES (NULL, ?, 0, 0, 'RunEnded', 'RunEnded', 0, ?, ?)",
            [(name, data, "0" * 64) for name in names],
        )
        marks = ", ".join("?" * 21)
        database.executemany(f"INSERT INTO run_stats VALUES ({marks})", _figures(first, some, runs))
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _figures(first: int, some: range, runs: int) -> Iterator[Figure]:
    """Rows as they come: costs spread as real ones are, one in twenty unknown."""
    dice = random.Random(some.start)
    for number in some:
        day = LAST_DAY - DAYS + 1 + number * DAYS // runs
        ended = day * 86_400 + dice.random() * 86_400
        luck = dice.random()
        status = "COMPLETED" if luck < 0.73 else "ABORTED" if luck < 0.97 else "ERROR"
        reason = dice.choice(REASONS) if status == "ABORTED" else ""
        cost = int(dice.lognormvariate(0, 0.8) * 1_000_000) if dice.random() < 0.95 else None
        iterations, ms = min(50, 1 + int(dice.expovariate(1 / 7))), int(dice.random() * 3_600_000)
        words = (dice.choice(SKILLS), "feature", dice.choice(AGENTS), "a-model-of-2025", "wrapper")
        counts = (iterations, ms, cost, cost or 0, int(dice.random() * 900_000), 3, 2, 1, luck < 0.7, None)
        yield (first + number, day, ended - ms / 1000, ended, status, reason, *words, *counts)


def forget(path: str) -> None:
    """Drop everything that the system remembers of files; without the right to, at least of this one."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    if may_drop():
        with open(DROP, "w", encoding="ascii") as drop:
            drop.write("3\n")


def may_drop() -> bool:
    return os.access(DROP, os.W_OK) and os.geteuid() == 0


def main() -> None:
    args = arguments(__doc__ or "")
    runs, times = (QUICK_RUNS, 3) if args.quick else (RUNS, 9)
    with Place(args.python) as place:
        ledger = Ledger(place, runs)
        floor = partial(cost_of, [place.python, "-c", "pass"], ledger.root, place.env)
        jobs = (partial(ledger.report, *YEAR), partial(ledger.report, *DAY), partial(ledger.cold, *YEAR))
        costs = interleaved(times, floor, *jobs)
        rows = [
            row(FLOOR, costs[0], FLOOR),
            row("ralph report, all runs, cold", costs[3], FLOOR, "<= 500 ms"),
            row("ralph report, all runs", costs[1], FLOOR, "<= 500 ms"),
            row("ralph report, one day of them", costs[2], FLOOR),
        ]
        size = os.path.getsize(ledger.path) / 1_000_000
        cold = "every cache of the system is dropped before it" if may_drop() else "the ledger alone is dropped from it"
        notes = (
            f"{runs:,} runs in {DAYS} days, {size:,.0f} MB, filled in {ledger.filled_s:.0f} s; by skill and agent, "
            "with averages, p95, stall rate and abort reasons; whole processes",
            f"cold: {cold}",
        )
        show(f"report over {runs:,} runs", rows, machine(place.python), args.json, notes)


if __name__ == "__main__":
    main()
