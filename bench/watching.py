"""What onlookers cost the loop, and whether they keep up: python bench/watching.py [--quick]

The interpreter must have ralph with its extra `web`; that of `.venv` has, and is taken.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.iteration import agent_of
from bench.measure import SOURCE, Cost, Place, arguments, cost_of, interleaved, machine, show, slope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

VENV = os.path.join(SOURCE, ".venv", "bin", "python")
SHORT, LONG, FILES = 5, 25, 1000
ALL_RUNS, ONE_RUN, STUCK = 20, 20, 10  # of the 50 viewers
A_SECOND, SECONDS = 1000, 10
RUNS, RECORDS = 200, 1_000_000
ALONE, WATCHED = "ralph run, nobody looks on", "50 viewers, 10 of them stuck"

# Speaks as Claude Code does: so many lines a second, each with the time at which it was said.
FLOOD = f"""#!{{python}} -S
import json, sys, time
print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s", "model": "m"}}), flush=True)
began = time.time()
for number in range({A_SECOND} * {{seconds}}):
    late = began + number / {A_SECOND} - time.time()
    if late > 0:
        sys.stdout.flush()
        time.sleep(late)
    text = repr(time.time())
    message = {{"role": "assistant", "id": str(number), "content": [{{"type": "text", "text": text}}]}}
    print(json.dumps({{"type": "assistant", "message": message, "session_id": "s"}}))
print(json.dumps({{"type": "result", "subtype": "success", "is_error": False, "result": "end"}}), flush=True)
"""


class Served:
    """`ralph serve` on a project, and connections to it."""

    def __init__(self, place: Place, root: str) -> None:
        argv = [place.ralph, "serve", "--port", "0", "--json"]
        self._process = subprocess.Popen(argv, cwd=root, env=place.env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        address = json.loads(self._process.stdout.readline())["address"]
        where, _, self.token = address.partition("/?token=")
        self.port = int(where.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, path: str, buffer: int = 0) -> socket.socket:
        """A connection on which this was asked for; one with a small `buffer` is soon full."""
        line = socket.socket()
        if buffer:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.connect(("127.0.0.1", self.port))
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
        line.sendall(f"{head}Connection: close\r\n\r\n".encode())
        return line

    def get(self, path: str) -> Any:
        """What an address answers."""
        with self.ask(path) as line, line.makefile("rb") as file:
            data = file.read()
        head, _, body = data.partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise SystemExit(f"{path}: {head.partition(chr(13).encode())[0]!r}")
        return json.loads(body)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """What a stream tells, as it comes: kind and data."""
        with self.ask(path) as line, line.makefile("rb") as file:
            kind = ""
            for raw in file:
                name, _, text = raw.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = text
                elif name == "data" and kind != "still":
                    yield kind, json.loads(text)


class Viewers:
    """Fifty who look on: some at the list, some at the run that is the latest, some who never read."""

    def __init__(self, served: Served, root: str) -> None:
        self._served, self._latest, self._over = served, os.path.join(root, ".ralph", "latest"), threading.Event()
        self._stuck = [served.ask("/api/events", buffer=2048) for _ in range(STUCK)]
        self._threads = [threading.Thread(target=self._list, daemon=True) for _ in range(ALL_RUNS)]
        self._threads += [threading.Thread(target=self._newest, daemon=True) for _ in range(ONE_RUN)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for line in self._stuck:
            line.close()

    def _list(self) -> None:
        for _ in self._served.events("/api/events"):
            if self._over.is_set():
                return

    def _newest(self) -> None:
        seen = ""
        while not self._over.is_set():
            try:
                run = os.path.basename(os.readlink(self._latest))
            except OSError:
                run = seen
            if run == seen:
                time.sleep(0.02)
                continue
            seen = run
            for kind, data in self._served.events(f"/api/runs/{run}/events"):
                if kind == "run" and data["state"] == "ended":
                    break


def speed(place: Place, times: int, facts: dict[str, Any], as_json: bool) -> None:
    """The loop's own speed, with and without viewers, in turns."""
    agent, what = agent_of(place)
    root = place.repository("watched", FILES)

    def loop(steps: int) -> Cost:
        argv = [place.ralph, "run", "-f", "PROMPT.md", "--agent", agent, "--check", "./verify.sh", "-m", str(steps)]
        return cost_of(argv, root, place.env, code=1)

    def watched(steps: int) -> Cost:
        with Served(place, root) as served:
            viewers = Viewers(served, root)
            try:
                return loop(steps)
            finally:
                viewers.close()

    jobs = [partial(loop, SHORT), partial(loop, LONG), partial(watched, SHORT), partial(watched, LONG)]
    short, long, seen_short, seen_long = interleaved(times, *jobs)
    rows = [
        slope(ALONE, short, long, LONG - SHORT, ALONE),
        slope(WATCHED, seen_short, seen_long, LONG - SHORT, ALONE, "1 in CPU"),
    ]
    show("one iteration of a loop that is watched", rows, facts, as_json, [f"the agent is {what}"])


def flood(place: Place, seconds: int) -> dict[str, Any]:
    """A thousand events a second, from an agent's lips to an onlooker."""
    root = place.repository("flooded", 1)
    agent = place.script("claude", FLOOD.replace("{python}", place.python).replace("{seconds}", str(seconds)))
    with Served(place, root) as served:
        argv = [place.ralph, "run", "-p", "x", "--agent", agent, "-m", "1", "--no-sandbox", "-q"]
        run = subprocess.Popen(argv, cwd=root, env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (runs := served.get("/api/runs")["runs"]):
            time.sleep(0.01)
        late, dropped, last = list[float](), 0, 0
        for kind, data in served.events(f"/api/runs/{runs[0]['run']}/events"):
            now = time.time()
            for event in data["events"] if kind == "agent" else ():
                dropped += max(0, event["n"] - last - 1) if event["n"] > last else 0
                last = max(last, event["n"])
                late += [now - float(event["text"])] if event["kind"] == "said" else []
            if kind == "run" and data["state"] == "ended":
                break
        run.wait()
    late_ms = sorted(one * 1000 for one in late)
    return {
        "events": len(late), "missing": dropped, "p50 ms": round(statistics.median(late_ms)),
        "p99 ms": round(late_ms[len(late_ms) * 99 // 100]), "last ms": round(late[-1] * 1000),
    }  # fmt: skip


def many_runs(place: Place) -> dict[str, Any]:
    """A list of two hundred runs, and how soon a new record of one is on the page."""
    root = place.repository("many", 1)
    code = (
        "import os, sys, time\n"
        "from ralphproof.base.processes import current_process\n"
        "from ralphproof.engine.records import Noticed, RunBegan\n"
        "from ralphproof.store.project import Project\n"
        "from ralphproof.engine.workspace import Snapshot\n"
        "ledger = Project.at(None, os.environ).ledger(read_only=False)\n"
        f"for number in range({RUNS}):\n"
        "    run = f'20260101-000000-{number:04d}'\n"
        "    ledger.begin_run(run, os.getcwd(), time.time(), current_process())\n"
        "    ledger.append(run, (RunBegan(run, Snapshot(None, None), {'agent': 'x', 'title': 'number'}),))\n"
        "print('ready', flush=True)\n"
        "for number, line in enumerate(sys.stdin):\n"
        "    ledger.append(f'20260101-000000-{number:04d}', (Noticed(0, number, line),))\n"
        "    print(repr(time.time()), flush=True)\n"
    )
    pipe = subprocess.PIPE
    writer = subprocess.Popen(
        [place.python, "-c", code], cwd=root, env=place.env, stdin=pipe, stdout=pipe, text=True, bufsize=1
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdout.readline()
    with Served(place, root) as served:
        began = time.perf_counter()
        first = len(served.get("/api/runs")["runs"])
        cold_s, began = time.perf_counter() - began, time.perf_counter()
        served.get("/api/runs")
        warm_s = time.perf_counter() - began
        late: list[float] = []
        stream = served.events("/api/events")
        next(stream)
        for _ in range(30):
            writer.stdin.write("word\n")
            written = float(writer.stdout.readline())
            next(stream)
            late.append(time.time() - written)
    writer.stdin.close()
    writer.wait()
    writer.stdout.close()
    return {
        "runs": first, "cold ms": round(cold_s * 1000), "warm ms": round(warm_s * 1000),
        "to the page, p50 ms": round(statistics.median(late) * 1000), "most ms": round(max(late) * 1000),
    }  # fmt: skip


def many_records(place: Place, records: int) -> dict[str, Any]:
    """How long a look takes that finds nothing new, beside so many records."""
    root = place.repository("long", 1)
    agent = place.script("done", "#!/bin/sh\necho '<response>DONE</response>'\n")
    cost_of([place.ralph, "run", "-p", "x", "--agent", agent, "--check", "true"], root, place.env)
    store = os.path.join(place.env["RALPH_STATE_DIR"], "repos")
    files = [os.path.join(store, name, "ledger.db") for name in os.listdir(store)]
    path = max(files, key=os.path.getmtime)
    with sqlite3.connect(path) as database:
        run = "INSERT INTO run SELECT NULL, 'old' || value, 0, '', '', 0, '', '', '' FROM generate(?)"
        numbers = "WITH RECURSIVE generate(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM generate LIMIT {})"
        database.execute(numbers.format(records // 100) + " " + run.replace("generate(?)", "generate"))
        note = "SELECT NULL, 'old' || (value / 100 + 1), 1, 0, 'Noticed ' || value, 'Noticed', 0, ?, '' FROM generate"
        data = json.dumps({"is": "Noticed", "iteration": 1, "number": 0, "message": "word"})
        database.execute(f"{numbers.format(records - 100)} INSERT INTO record {note}", (data,))
    code = (
        "import os, time, statistics\n"
        "from ralphproof.views.read_model import ReadModel\n"
        "from ralphproof.runs.open_project import view_project\n"
        "board = ReadModel(view_project(None, os.environ))\n"
        "began = time.perf_counter(); board.moment(); first = time.perf_counter() - began\n"
        "def took(look):\n"
        "    began = time.perf_counter(); look(); return time.perf_counter() - began\n"
        "print(first, statistics.median(took(board.moment) for _ in range(50)), took(board.runs))\n"
    )
    told = subprocess.run(
        [place.python, "-c", code], cwd=root, env=place.env, check=True, capture_output=True, text=True
    )
    first, idle, listed = (float(word) * 1000 for word in told.stdout.split())
    return {"records": records, "first look ms": round(first), "idle look ms": round(idle, 1), "list ms": round(listed)}


def main() -> None:
    args = arguments(__doc__ or "")
    with Place(args.python or VENV) as place:
        facts = machine(place.python)
        speed(place, 3 if args.quick else 7, facts, args.json)
        tables = {
            f"{A_SECOND} events a second": flood(place, 3 if args.quick else SECONDS),
            f"{RUNS} runs in the list": many_runs(place),
            "a long record": many_records(place, RECORDS // 10 if args.quick else RECORDS),
        }
    for title, told in tables.items():
        if args.json:
            print(json.dumps({"title": title, "machine": facts, "figures": told}))
        else:
            print(f"{title}: " + ", ".join(f"{name} {figure}" for name, figure in told.items()))


if __name__ == "__main__":
    main()
