"""The agent, once, where the loop around it broke before it began, and the user prefers that to nothing."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.action import Rules
from ralphproof.cli.order import Order
from ralphproof.cli.signals import Present
from ralphproof.config import build
from ralphproof.keeper.client import Keeper
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.ledgers.memory import Memory
from ralphproof.ledgers.spend import SpendBook
from ralphproof.loop import Loop
from ralphproof.sandboxes.direct import Direct
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Outcome
from ralphproof.world import World

if TYPE_CHECKING:
    from ralphproof.cli.begin import Watching


def single_pass(order: Order, keeper: Keeper, error: str, watching: Watching) -> Outcome:
    """One iteration with all limits and checks, in the same sandbox, and no record but what is printed."""
    import tempfile

    print(f"[Ralph] Wrapper failed: {error}", file=sys.stderr)
    print("[Ralph] Falling back to normal execution...", file=sys.stderr, flush=True)
    settings, project = order.loaded.settings, order.project
    run, present = new_run_id(time.time(), os.urandom(3)), Present(settings.shutdown_grace_s)
    present.listen()
    keeper.wake_fd = present.wake_fd
    keeper.hide(project.secrets)
    lock, purse = DirectoryLock(project.state_dir, project.root, run), SpendBook.open(project.state_dir)
    lock.take()
    try:
        with tempfile.TemporaryDirectory(prefix="ralph-single-pass-") as kept:
            folder, sandbox = RunFolder(kept, run, kept, project.mask), Direct(keeper)
            workspace = build.workspace_of(project.root, os.path.join(kept, "trees"), os.environ)
            try:
                checks = build.checks_of(settings, sandbox, folder, project.root, order.check_env)
                checks |= {check.name: check for check in order.brought.checks}
                world = World(
                    order.plan, order.agents, sandbox, workspace, checks, Memory(), folder, present, purse, order.env,
                    observers=watching(folder),
                    wires=build.tripwires_of(settings, workspace, folder, order.prompt_file, os.environ),
                )  # fmt: skip
                return Loop(run, _once(order), world, {"checks": list(checks)}).run()
            finally:
                workspace.close()
    finally:
        purse.close()
        lock.release()


def _once(order: Order) -> Rules:
    rules = order.rules
    budget = replace(rules.limits.budget, iterations=1)
    return replace(rules, limits=replace(rules.limits, budget=budget), scm=False, baseline=False)
