"""So many loops at once in this process, as `ralph work --parallel` and `ralph race` drive them; for bench/parallel.py.

    python lanes_drive.py LOOPS ITERATIONS AGENT

Each loop has a work tree of its own, laid in its own thread. Prints one JSON object: what all of it took.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from ralphproof.cli.race import race_parser, race_request
from ralphproof.cli.run_flags import parse_with_prompt
from ralphproof.display.terminal import DisplayFlags
from ralphproof.landing.worktree_run import move_to_worktree
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.displays import PoolDisplay
from ralphproof.runs.execute import RunPool
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import FRESH_RUN
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.spend import InProcessSharedBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphproof.runs.request import RunTarget
    from ralphproof.runs.spec import RunSpec

TICKS = os.sysconf("SC_CLK_TCK")


class Weighed(KeeperClient):
    """A keeper that says what it used before it goes: its own, and that of what it ran."""

    own_s = below_s = 0.0

    def close(self) -> None:
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
                words = file.read().rpartition(")")[2].split()
            Weighed.own_s += (int(words[11]) + int(words[12])) / TICKS
            Weighed.below_s += (int(words[13]) + int(words[14])) / TICKS
        except OSError:
            pass  # it died before
        super().close()


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main() -> None:
    import ralphproof.runs.execute as lanes_module

    count, iterations, agent = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    lanes_module.__dict__["Keeper"] = Weighed
    flags = ["-f", "PROMPT.md", "--check", "./verify.sh", "-m", iterations, "--agent", agent, "-q"]
    args = parse_with_prompt(["2", *flags], race_parser())
    project = open_project(None, os.environ)
    lanes = RunPool(PoolDisplay(DisplayFlags.of(args)), SignalRouter(), InProcessSharedBudget())

    def ordered(name: str) -> tuple[RunSpec, RunTarget]:
        wish, _, _ = move_to_worktree(race_request(args, agent, ""), project, name)
        return prepare_spec(wish), FRESH_RUN

    began = time.perf_counter()
    for number in range(count):
        lanes.begin(f"lane{number}", lambda number=number: ordered(f"lane{number}"))  # type: ignore[misc]
    ends = lanes.drain()
    wall_s = time.perf_counter() - began
    if wrong := [one for one in ends if one.outcome is None or one.outcome.exit_code != 1]:
        raise SystemExit(f"{len(wrong)} loops did not end as expected: {wrong[0]}")
    git_s = cpu_s(resource.RUSAGE_CHILDREN) - Weighed.own_s - Weighed.below_s
    used = {"harness": cpu_s(resource.RUSAGE_SELF), "keepers": Weighed.own_s, "turns": Weighed.below_s, "git": git_s}
    print(json.dumps({"wall_s": wall_s, "cpu_s": used}))


if __name__ == "__main__":
    main()
