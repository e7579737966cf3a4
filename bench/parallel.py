"""Many loops at once in one process, beside the ideal: python bench/parallel.py [--quick] [--loops N] [--turns S,S]

Every loop has a keeper and a work tree of its own, as in `ralph work --parallel` and `ralph race`. The agent sleeps
for a stated time and changes a file; then a check runs; two iterations. Ideal is the agents' time alone: 2 x that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import SOURCE, Place, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DRIVE = os.path.join(SOURCE, "bench", "lanes_drive.py")
ITERATIONS, FILES = 2, 100
LOOPS, TURNS_S = (2, 16, 64, 200), (10.0, 60.0)
QUICK_LOOPS, QUICK_TURNS_S = (2, 16), (5.0,)
STILL_S = 5.0  # so long before and after its middle a turn is looked at
TICKS = os.sysconf("SC_CLK_TCK")

# Says that it begins, changes a file, sleeps. As cheap as a program can be.
AGENT_C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static void say(const char *name) {
    int file = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (write(file, "x", 1) != 1) _exit(1);
    close(file);
}
int main(void) {
    char text[4096];
    struct timespec now, turn = {SECONDS, NANOS};
    while (read(0, text, sizeof text) > 0) {}
    say("FOLDER/begun");
    clock_gettime(CLOCK_REALTIME, &now);
    int file = open("work.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int size = snprintf(text, sizeof text, "%020lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    if (write(file, text, size) != size) return 1;
    nanosleep(&turn, 0);
    say("FOLDER/ended");
    return write(1, "worked on it\n", 13) != 13;
}
"""
AGENT_SH = """#!/bin/sh
while read -r _; do :; done
printf x >> FOLDER/begun
echo $$ > work.txt
sleep SECONDS
printf x >> FOLDER/ended
echo worked on it
"""


@dataclass
class Look:
    """All loops in the middle of a turn: memory in kilobytes, and CPU in milliseconds for a loop and a second."""

    harness_kb: int = 0
    keepers_kb: list[int] = field(default_factory=list)  # what each has for itself alone
    files: int = 0
    threads: int = 0
    processes: int = 0
    harness_ms: float = 0.0
    keepers_ms: float = 0.0


@dataclass
class Measured:
    """One run of so many loops with turns of so many seconds."""

    loops: int
    turn_s: float
    wall_s: float
    cpu_s: dict[str, float]
    look: Look | None

    @property
    def ratio(self) -> float:
        return self.wall_s / (ITERATIONS * self.turn_s)


def agent_of(place: Place, turn_s: float) -> str:
    """The stub agent."""
    seconds, words = int(turn_s), {"FOLDER": place.folder, "NANOS": str(int(turn_s % 1 * 1e9))}

    def filled(text: str, **more: str) -> str:
        for name, value in {**words, **more}.items():
            text = text.replace(name, value)
        return text

    source, program = os.path.join(place.folder, "agent.c"), os.path.join(place.folder, "agent")
    with open(source, "w", encoding="utf-8") as file:
        file.write(filled(AGENT_C, SECONDS=str(seconds)))
    try:
        if subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=False).returncode == 0:
            return program
    except FileNotFoundError:
        pass
    return place.script("agent.sh", filled(AGENT_SH, SECONDS=str(turn_s)))


def measured(python: str | None, loops: int, turn_s: float) -> Measured:
    """Run them, and look at them once in the middle of the last turn."""
    with Place(python) as place:
        root, agent = place.repository("lanes", FILES), agent_of(place, turn_s)
        argv = [place.python, DRIVE, str(loops), str(ITERATIONS), agent]
        process = subprocess.Popen(
            argv, cwd=root, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        look = None
        while process.poll() is None:
            time.sleep(0.05)
            if look is None and _said(place, "begun") >= ITERATIONS * loops:
                look = looked(process.pid, loops, min(STILL_S, turn_s / 4), place)
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        if process.returncode:
            raise SystemExit(f"{loops} loops: exit code {process.returncode}")
        told = json.loads(said)
        return Measured(loops, turn_s, told["wall_s"], told["cpu_s"], look)


def _said(place: Place, name: str) -> int:
    try:
        return os.path.getsize(os.path.join(place.folder, name))
    except FileNotFoundError:
        return 0


def looked(pid: int, loops: int, still_s: float, place: Place) -> Look | None:
    """What there is while every loop's agent works; None where some have ended their last turn before."""
    time.sleep(min(1.0, still_s))  # the last one has just begun
    everybody = tree_of(pid)
    keepers = [one for one in everybody if b"keeper/__main__.py" in _bytes(one, "cmdline")]
    before = _cpu_s(pid), sum(_cpu_s(one) for one in keepers)
    time.sleep(still_s)
    after = _cpu_s(pid), sum(_cpu_s(one) for one in keepers)
    look = Look(
        _kb(pid, "Pss"), [_kb(one, "Private_Clean", "Private_Dirty") for one in keepers],
        len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), len(everybody),
        (after[0] - before[0]) * 1000 / still_s / loops, (after[1] - before[1]) * 1000 / still_s / loops,
    )  # fmt: skip
    return look if _said(place, "ended") <= (ITERATIONS - 1) * loops else None


def tree_of(pid: int) -> list[int]:
    """A process and everything below it."""
    above: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (words := _bytes(int(name), "stat").rpartition(b")")[2].split()):
            above.setdefault(int(words[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += above.get(one, [])
    return found


def _bytes(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _cpu_s(pid: int) -> float:
    words = _bytes(pid, "stat").rpartition(b")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS if words else 0.0


def _kb(pid: int, *names: str) -> int:
    lines = (line.split() for line in _bytes(pid, "smaps_rollup").decode("ascii", "replace").splitlines())
    return sum(int(words[1]) for words in lines if len(words) > 1 and words[0].rstrip(":") in names)


def show(all_of: list[Measured], facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        rows = [{**asdict(one), "ratio": one.ratio} for one in all_of]
        print(json.dumps({"title": "loops at once in one process", "machine": facts, "rows": rows}))
        return
    print("loops at once in one process, two iterations each; ideal: the agents' own time. Goal at 200: 1.5 x")
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"{'loops':>5}  {'turn s':>6}  {'ideal s':>7}  {'wall s':>7}  {'x ideal':>7}  ", end="")
    print("CPU ms an iteration, start-up included: harness, keepers, git, agent and check")
    for one in all_of:
        ms = {name: used * 1000 / one.loops / ITERATIONS for name, used in one.cpu_s.items()}
        line = f"{one.loops:>5}  {one.turn_s:>6g}  {ITERATIONS * one.turn_s:>7g}  {one.wall_s:>7.1f}  {one.ratio:>7.2f}"
        parts = (ms["harness"], ms["keepers"], ms["git"], ms["turns"])
        print(f"{line}  {sum(parts):>6.0f}: {', '.join(f'{part:.0f}' for part in parts)}")
    print()
    show_middle([one for one in all_of if one.look])


def show_middle(all_of: list[Measured]) -> None:
    print("in the middle of a turn. Goals: 64 KB more in the harness for each loop, 1,024 KB of its own a keeper")
    head = ("harness KB", "a keeper KB", "files", "threads", "processes", "CPU ms a loop and second: harness, keeper")
    print(f"{'loops':>5}  {'turn s':>6}  {head[0]:>10}  {head[1]:>11}  {'  '.join(head[2:])}")
    for one in all_of:
        look = one.look
        assert look is not None
        own = sorted(look.keepers_kb)[len(look.keepers_kb) // 2] if look.keepers_kb else 0
        print(
            f"{one.loops:>5}  {one.turn_s:>6g}  {look.harness_kb:>10,}  {own:>11,}  {look.files:>5}  "
            f"{look.threads:>7}  {look.processes:>9}  {look.harness_ms:.2f}, {look.keepers_ms:.2f}"
        )
    for turn_s in sorted({one.turn_s for one in all_of}):
        those = sorted((one.loops, one.look) for one in all_of if one.turn_s == turn_s and one.loops >= 16)
        if len(those) > 1 and (few := those[0])[1] and (many := those[-1])[1]:
            slope = (many[1].harness_kb - few[1].harness_kb) / (many[0] - few[0])
            print(
                f"turns of {turn_s:g} s: {slope:.0f} KB more in the harness for each loop, from {few[0]} to {many[0]}"
            )
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2 and 16 loops, turns of 5 s")
    parser.add_argument("--json", action="store_true", help="a JSON object instead of tables")
    parser.add_argument("--python", metavar="PATH", help="an interpreter with ralph beside it (default: a new one)")
    parser.add_argument("--loops", metavar="N,N", help=f"how many at once (default: {','.join(map(str, LOOPS))})")
    parser.add_argument("--turns", metavar="S,S", help="how long a turn takes (default: 10,60)")
    args = parser.parse_args()
    many = [int(word) for word in args.loops.split(",")] if args.loops else QUICK_LOOPS if args.quick else LOOPS
    turns = [float(word) for word in args.turns.split(",")] if args.turns else QUICK_TURNS_S if args.quick else TURNS_S
    with Place(args.python and os.path.abspath(args.python)) as place:  # one interpreter for all
        facts = machine(place.python)
        show([measured(place.python, loops, turn_s) for turn_s in turns for loops in many], facts, args.json)


if __name__ == "__main__":
    main()
