"""What a sandbox costs: to enter one, and in each iteration of a loop: python bench/sandbox.py [--quick]"""

from __future__ import annotations

import os
import sys
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(sys.path[0], "src"))
from bench.iteration import agent_of, pairs
from bench.measure import Cost, Place, Row, arguments, cost_of, interleaved, machine, row, show, slope

from ralphproof.engine.sandbox import Command
from ralphproof.sandbox import runner
from ralphproof.sandbox.plan import LaunchSpec, write_launch_spec
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
from ralphproof.sandbox.selection import KINDS, try_backends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.sandbox.plan import Backend

FLOOR, NONE = "true", "ralph run without a sandbox"
FILES = 1000


class Entered:
    """`true` inside a sandbox of one kind, entered as the keeper of a turn does it."""

    def __init__(self, place: Place, root: str, backend: Backend) -> None:
        self._root, self._env = root, place.env
        store = os.path.join(place.folder, f"store-{backend.name}")
        base = os.path.join(store, "turn")
        terrain = SandboxConfig(root, store, "", tuple(place.env.items()))
        command = Command(("true",), root, terrain.environ, f"{base}.log", f"{base}.turn", "bench/0")
        box = SandboxPlanner(terrain, backend).plan(command)
        if why := backend.prepare(box, command):
            raise SystemExit(f"{backend.name}: {why}")
        write_launch_spec(
            base + runner.LAUNCH_SPEC_SUFFIX,
            LaunchSpec(box, backend.entry(box), base + runner.AUDIT_SUFFIX, base + runner.REPORT_SUFFIX),
        )
        self._argv = list(runner.wrap_command(command, base + runner.LAUNCH_SPEC_SUFFIX).argv)
        self._laid = [
            path for path in (*box.protection.folders, *box.protection.placeholders) if not os.path.lexists(path)
        ]
        for path in self._laid:
            os.makedirs(path, exist_ok=True) if path in box.protection.folders else open(path, "x").close()

    def cost(self) -> Cost:
        return cost_of(self._argv, self._root, self._env)


def entering(place: Place, backends: list[Backend], quick: bool) -> list[Row]:
    """A project of its own each: what lies over absent files is in the way of another kind."""
    entered = [Entered(place, place.repository(f"start-{one.name}", 10), one) for one in backends]
    root = place.repository("start", 10)
    jobs: list[Callable[[], Cost]] = [partial(cost_of, ["true"], root, place.env), *(one.cost for one in entered)]
    costs = interleaved(5 if quick else 30, *jobs)
    names = [FLOOR, *(f"{one.name}, {one.strength}" for one in backends)]
    return [row(name, costs[at], FLOOR) for at, name in enumerate(names)]


def looping(place: Place, backends: list[Backend], quick: bool) -> list[Row]:
    """One iteration: the agent and a check, each in a sandbox."""
    agent, _ = agent_of(place)

    def loop(root: str, flags: list[str], times: int) -> Cost:
        argv = [place.ralph, "run", "-f", "PROMPT.md", "--agent", agent, "--check", "./verify.sh", *flags]
        return cost_of([*argv, "--maximum-iterations", str(times)], root, place.env, code=1)

    kinds = {NONE: [], **{f"with {one.name}": [f"--sandbox={one.name}"] for one in backends}}
    roots = [place.repository(f"loop{at}", FILES) for at in range(len(kinds))]
    loops = [partial(loop, root, flags) for root, flags in zip(roots, kinds.values(), strict=True)]
    short, long, rounds = (2, 8, 2) if quick else (2, 22, 7)
    for one in loops:
        one(1)
    costs = interleaved(rounds, *pairs(short, long, *loops))
    return [slope(name, costs[2 * at], costs[2 * at + 1], long - short, NONE) for at, name in enumerate(kinds)]


def main() -> None:
    args = arguments(__doc__ or "")
    with Place(args.python) as place:
        root = place.repository("project", 1)
        backends = [
            one.backend for kind in KINDS for one in try_backends(kind.name, place.env, root) if one.problem is None
        ]
        facts = machine(place.python)
        show("to enter", entering(place, backends, args.quick), facts, args.json)
        show(f"one iteration, {FILES} files", looping(place, backends, args.quick), facts, args.json)


if __name__ == "__main__":
    main()
