"""Runs commands in a sandbox as the program itself does: `python -I -S driver.py SOURCE`, with orders as JSON on stdin.

Whoever starts it is the user. It says how each command ended, a line of JSON for each, and what the sandbox holds.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main(source: str) -> None:
    """Follow the orders."""
    sys.path.append(source)
    from ralphproof.process.keeper_client import KeeperClient

    orders = json.load(sys.stdin)
    keeper = KeeperClient(stderr_path=os.path.join(orders["store"], "keeper.log"))
    try:
        sandbox, said = made(orders, Nobody() if orders["unowned"] else keeper)
        print(json.dumps(said), flush=True)
        for number, run in enumerate(orders["runs"]):
            print(json.dumps(ran(sandbox, orders, run, f"{orders['name']}-{os.getpid()}-{number}")), flush=True)
    finally:
        keeper.close()


def made(orders: dict[str, Any], keeper: Any) -> tuple[Any, dict[str, Any]]:
    """The sandbox, and what it says of itself."""
    from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
    from ralphproof.sandbox.project_mounts import Placeholders
    from ralphproof.sandbox.runner import DirectRunner, SandboxedRunner
    from ralphproof.sandbox.selection import create_backends as backends

    if orders["kind"] == "direct":
        return DirectRunner(keeper), {"lack": "", "holds": False}
    backend = next(backends(orders["kind"], orders["env"], orders["root"]))
    problem = backend.problem()
    if problem is not None:
        return None, {"lack": problem.why, "holds": backend.protects_paths}
    config = SandboxConfig(
        orders["root"], orders["store"], orders["task"], tuple(orders["env"].items()), tuple(orders["protected"]),
        hosts=tuple(orders["hosts"]), local_ports=tuple(orders["ports"]),
    )  # fmt: skip
    boxes = SandboxPlanner(config, backend)
    placeholders = Placeholders(boxes.private)
    placeholders.release()
    altered = Weakened(backend, orders["without"]) if orders["without"] else backend
    return SandboxedRunner(keeper, altered, Altered(boxes, orders), placeholders), {
        "lack": "",
        "holds": backend.protects_paths,
    }


class Nobody:
    """Starts commands, and leaves them to themselves."""

    def run(self, command: Any, watch: Any) -> Any:
        import subprocess

        from ralphproof.engine.sandbox import Exit

        with open(command.out, "wb") as out:
            return Exit(subprocess.run(command.argv, env=dict(command.env), cwd=command.cwd, stdout=out).returncode)


class Weakened:
    """A kind of sandbox whose entering program is not told everything: to see what that is good for."""

    def __init__(self, backend: Any, without: list[list[str]]) -> None:
        self._backend, self._without = backend, without

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def entry(self, plan: Any) -> Any:
        from ralphproof.base.value import replace

        way = self._backend.entry(plan)
        argv = list(way.argv)
        for words in self._without:
            at = next(at for at in range(len(argv)) if argv[at : at + len(words)] == words)
            del argv[at : at + len(words)]
        return replace(way, argv=tuple(argv))


class Altered:
    """A plan with another ration, or without the folders that are held in their place."""

    def __init__(self, boxes: Any, orders: dict[str, Any]) -> None:
        self._boxes, self._orders = boxes, orders

    def plan(self, command: Any) -> Any:
        from ralphproof.base.value import replace
        from ralphproof.sandbox.plan import WRITABLE, ResourceLimits

        plan = self._boxes.plan(command)
        if self._orders["ration"]:
            plan = replace(plan, limits=ResourceLimits(*self._orders["ration"]))
        if self._orders["unpinned"]:
            pins = [one for one in plan.mounts if one.kind == WRITABLE and one.path.startswith(plan.root + "/")]
            plan = replace(plan, mounts=tuple(one for one in plan.mounts if one not in pins))
        return plan


class Onlooker:
    """Looks on, and has the command ended once it said a word."""

    def __init__(self, word: str, how: str) -> None:
        self._word, self._how, self._said = word.encode(), how, b""

    def output(self, chunk: bytes) -> None:
        self._said += chunk if self._word else b""

    def tick(self) -> int:
        from ralphproof.engine.sandbox import CONTINUE, KILL, STOP

        return {"kill": KILL, "stop": STOP}[self._how] if self._word and self._word in self._said else CONTINUE


def ran(sandbox: Any, orders: dict[str, Any], run: dict[str, Any], name: str) -> dict[str, Any]:
    """How one command ended, and what it said."""
    from ralphproof.base.errors import RalphError
    from ralphproof.base.value import pack
    from ralphproof.engine.sandbox import Command

    base = os.path.join(orders["store"], "turns", name)
    os.makedirs(os.path.dirname(base), exist_ok=True)
    if run.get("stdin") is not None:
        with open(f"{base}.in", "w") as file:
            file.write(run["stdin"])
    command = Command(
        tuple(run["argv"]), run.get("cwd") or orders["root"], tuple(orders["env"].items()), f"{base}.log",
        f"{base}.turn", f"contract/{name}", err=f"{base}.err", stdin=f"{base}.in" if run.get("stdin") else None,
        timeout_s=120.0, grace_s=10.0,
    )  # fmt: skip
    try:
        end = pack(sandbox.run(command, Onlooker(run.get("until", ""), run.get("then", "kill"))))
    except RalphError as error:
        return {"refused": str(error)}
    return {"exit": end, "out": text_of(f"{base}.log"), "err": text_of(f"{base}.err")}


def text_of(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1])
