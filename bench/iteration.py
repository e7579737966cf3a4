"""What one iteration costs beside the agent's own time: python bench/iteration.py [--quick]"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import Cost, Place, Row, arguments, cost_of, interleaved, machine, row, show, slope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FLOOR = "bash: cat PROMPT | agent"
STATUS = "git status -uall"

# Reads its prompt, changes one file, says a line. As cheap as a program can be.
AGENT_C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    char text[4096];
    struct timespec now;
    while (read(0, text, sizeof text) > 0) {}
    clock_gettime(CLOCK_REALTIME, &now);
    int file = open("work.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int size = snprintf(text, sizeof text, "%020lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    if (write(file, text, size) != size || write(1, "worked on it\n", 13) != 13) return 1;
    return 0;
}
"""
AGENT_SH = "#!/bin/sh\nwhile read -r _; do :; done\necho $$ > work.txt\necho worked on it\n"

BASH_FLOOR = 'for ((i = 1; i <= $1; i++)); do cat PROMPT.md | "$2"; done'

# The same steps with a shell's means: nothing is durable or bounded, and nobody owns the processes.
BASH_EQUAL = """
export GIT_INDEX_FILE=.git/index.bench
cp .git/index "$GIT_INDEX_FILE"
mkdir -p .ralph/bench
for ((i = 1; i <= $1; i++)); do
  cp PROMPT.md ".ralph/bench/prompt_$i.txt"
  cat ".ralph/bench/prompt_$i.txt" | "$2" > ".ralph/bench/agent_$i.log" 2> ".ralph/bench/agent_$i.err"
  code=$?
  changed=$(git status --porcelain=v2 -uall | wc -l)
  git add -A
  tree=$(git write-tree)
  sh -c ./verify.sh > ".ralph/bench/check_$i.log" 2>&1
  printf '{"iteration":%d,"agent":%d,"changed":%d,"tree":"%s","check":%d}\\n' $i $code $changed $tree $? \\
    >> .ralph/bench/journal.jsonl
done
"""


def agent_of(place: Place) -> tuple[str, str]:
    """The stub agent, and what it is."""
    compiler = shutil.which("cc")
    if compiler:
        source, program = os.path.join(place.folder, "agent.c"), os.path.join(place.folder, "agent")
        with open(source, "w", encoding="utf-8") as file:
            file.write(AGENT_C)
        if subprocess.run([compiler, "-O2", "-static", "-o", program, source], check=False).returncode == 0:
            return program, "a static C program"
    return place.script("agent.sh", AGENT_SH), "a shell script"


class Loops:
    """Three ways to loop the same agent over equal repositories."""

    def __init__(self, place: Place, files: int, agent: str) -> None:
        self._place, self._agent = place, agent
        roots = [place.repository(f"{kind}{files}", files) for kind in ("floor", "equal", "ralph")]
        self._floor, self._equal, self._ralph = roots

    def floor(self, times: int) -> Cost:
        return self._bash(BASH_FLOOR, times, self._floor)

    def equal(self, times: int) -> Cost:
        return self._bash(BASH_EQUAL, times, self._equal)

    def ralph(self, times: int) -> Cost:
        argv = [self._place.ralph, "run", "-f", "PROMPT.md", "--agent", self._agent, "--check", "./verify.sh"]
        return cost_of([*argv, "--maximum-iterations", str(times)], self._ralph, self._place.env, code=1)

    def status(self) -> Cost:
        return cost_of(["git", "status", "--porcelain=v2", "-z", "-uall"], self._floor, self._place.env)

    def _bash(self, text: str, times: int, root: str) -> Cost:
        return cost_of(["bash", "-c", text, "bash", str(times), self._agent], root, self._place.env)


def pairs(short: int, long: int, *loops: Callable[[int], Cost]) -> list[Callable[[], Cost]]:
    """Each loop twice: a few times around, and many times."""
    return [partial(loop, times) for loop in loops for times in (short, long)]


def small(place: Place, agent: str, quick: bool) -> list[Row]:
    loops = Loops(place, 1000, agent)
    short, long, rounds = (2, 14, 3) if quick else (5, 45, 15)
    loops.ralph(1)
    costs = interleaved(rounds, *pairs(short, long, loops.floor, loops.equal, loops.ralph))
    steps = long - short
    return [
        slope(FLOOR, costs[0], costs[1], steps, FLOOR),
        slope("bash with equal work", costs[2], costs[3], steps, FLOOR),
        slope("ralph run", costs[4], costs[5], steps, FLOOR, "<= 8 x in CPU"),
    ]


def large(place: Place, agent: str) -> list[Row]:
    loops = Loops(place, 20_000, agent)
    short, long = 2, 12
    loops.ralph(1)
    looped = pairs(short, long, loops.equal, loops.ralph)
    costs = interleaved(5, loops.status, *looped)
    return [
        row(STATUS, costs[0], STATUS),
        slope("bash with equal work", costs[1], costs[2], long - short, STATUS),
        slope("ralph run", costs[3], costs[4], long - short, STATUS, "<= 3.5 x, < 200 ms"),
    ]


def main() -> None:
    args = arguments(__doc__ or "")
    with Place(args.python) as place:
        agent, kind = agent_of(place)
        facts = machine(place.python)
        note = (f"the agent is {kind}; one check, `sh -c ./verify.sh`; per iteration, start-up taken off",)
        show("one iteration, 1,000 files", small(place, agent, args.quick), facts, args.json, note)
        if not args.quick:
            show("one iteration, 20,000 files", large(place, agent), facts, args.json, note)


if __name__ == "__main__":
    main()
