"""How fast an agent's output goes all the way through, and in how much memory: python bench/stream.py [--quick]"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import Place, arguments, machine

EVENTS_MB, FLOOD_MB = 100, 1024
QUICK = 10  # so much less with --quick
MEGA = 1 << 20
CLAIM = "<response>DONE</response>"


@dataclass(frozen=True)
class Run:
    """One program with everything below it: how long, and how much memory its largest process had."""

    wall_s: float
    resident_mb: float


def measured(argv: list[str], cwd: str, env: dict[str, str]) -> Run:
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[0]}: exit code {process.returncode}\n{said[-2000:]}")
    return Run(time.perf_counter() - began, usage.ru_maxrss / 1024)


def events(path: str, megabytes: int) -> int:
    """A recording of Claude Code's kind: words, calls and their results, each message with an id and usage."""
    count = size = 0
    usage = {"input_tokens": 1, "cache_read_input_tokens": 9, "cache_creation_input_tokens": 0, "output_tokens": 1}
    with open(path, "w", encoding="utf-8") as file:
        while size < megabytes * MEGA:
            for line in _exchange(count, usage):
                size += file.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
        done = {"type": "result", "subtype": "success", "is_error": False, "result": CLAIM, "total_cost_usd": 0.5}
        file.write(json.dumps(done) + "\n")
    return count + 1


def _exchange(number: int, usage: dict[str, int]) -> list[dict[str, object]]:
    session, call = "3ce80ed7-df6f-4a9c-a6f1-923529b3bd1a", f"toolu_{number:020d}"
    frame: dict[str, object] = {"parent_tool_use_id": None, "session_id": session}
    head = {"id": f"msg_{number:020d}", "role": "assistant", "model": "no-price-is-known", "usage": usage}
    said: list[object] = [{"type": "text", "text": f"Now I look at part {number} of it."}]
    uses: list[object] = [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"cat part{number}"}}]
    gave: list[object] = [{"type": "tool_result", "tool_use_id": call, "content": "one line\nand another one\n"}]
    return [
        {"type": "assistant", "message": {**head, "content": said}, **frame},
        {"type": "assistant", "message": {**head, "content": uses}, **frame},
        {"type": "user", "message": {"role": "user", "content": gave}, **frame},
    ]


class Streams:
    """The same bytes through `cat` and through a whole run."""

    def __init__(self, place: Place) -> None:
        self._place, self._root = place, place.repository("project", 10)

    def floor(self, agent: str) -> Run:
        sink = os.path.join(self._place.folder, "sink")
        return measured(["sh", "-c", '"$1" | cat > "$2"', "sh", agent, sink], self._root, self._place.env)

    def ralph(self, agent: str) -> Run:
        flags = ["-m", "1", "--check", "true", "--no-stream-agent-output", "--agent", agent]
        return measured([self._place.ralph, "run", "-p", "x", *flags], self._root, self._place.env)

    def agent(self, folder: str, name: str, script: str) -> str:
        os.makedirs(os.path.join(self._place.folder, folder), exist_ok=True)
        return self._place.script(os.path.join(folder, name), f"#!/bin/sh\n{script}\n")


def compared(streams: Streams, agent: str, idle: str, megabytes: float, times: int) -> dict[str, float]:
    """The best of so many runs each, in turns; what a run costs that says almost nothing is taken off."""
    floors, runs, idles = [], [], []
    for _ in range(times):
        floors.append(streams.floor(agent))
        runs.append(streams.ralph(agent))
        idles.append(streams.ralph(idle))
    floor_s = min(run.wall_s for run in floors)
    own_s = min(run.wall_s for run in runs) - min(run.wall_s for run in idles)
    return {
        "megabytes": megabytes, "cat_s": floor_s, "ralph_s": own_s, "of_cat": floor_s / own_s,
        "resident_mb": max(run.resident_mb for run in runs), "idle_mb": max(run.resident_mb for run in idles),
    }  # fmt: skip


def main() -> None:
    args = arguments(__doc__ or "")
    less, times = (QUICK, 2) if args.quick else (1, 3)
    with Place(args.python, dependencies=True) as place:
        streams, path = Streams(place), os.path.join(place.folder, "events.ndjson")
        count = events(path, EVENTS_MB // less)
        done = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": CLAIM})
        idle = streams.agent("idle", "claude", f"echo '{done}'")
        plain = streams.agent("idle", "plain", f"echo '{CLAIM}'")
        flood = FLOOD_MB // less
        endless = f"head -c {flood * MEGA} /dev/zero | tr '\\0' x; echo"
        rows = {
            f"{count:,} events of claude's": compared(
                streams, streams.agent("events", "claude", f"exec cat '{path}'"), idle, EVENTS_MB / less, times
            ),
            "no newline, then a claim; a plain program": compared(
                streams, streams.agent("flood", "plain", f"{endless}; echo '{CLAIM}'"), plain, flood, times
            ),
            "no newline, then a result of claude's": compared(
                streams, streams.agent("flood", "claude", f"{endless}; echo '{done}'"), idle, flood, times
            ),
        }
        show(rows, machine(place.python), args.json)


def show(rows: dict[str, dict[str, float]], facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"title": "streams", "machine": facts, "rows": rows}))
        return
    print("An agent's output, all the way through: goal 0.25 x the speed of cat for events, at most 64 MB")
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"{'':<44}{'MB':>6}{'cat MB/s':>10}{'ralph MB/s':>12}{'x cat':>8}{'MB resident':>13}{'(idle)':>8}")
    for name, row in rows.items():
        size = row["megabytes"]
        speeds = f"{size / row['cat_s']:>10.0f}{size / row['ralph_s']:>12.0f}{row['of_cat']:>8.2f}"
        print(f"{name:<44}{size:>6.0f}{speeds}{row['resident_mb']:>13.0f}{row['idle_mb']:>8.0f}")


if __name__ == "__main__":
    main()
