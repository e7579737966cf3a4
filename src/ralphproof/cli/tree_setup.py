"""A work tree that a run has for itself is prepared before any agent sees it, by the commands of `setup`."""

from __future__ import annotations

import os

from ralphproof.check import Inspection, slugs
from ralphproof.checks.clean import SETUP_TIMEOUT_S, Entered, Step, setup_log
from ralphproof.checks.command import STOPPED, Question
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspace import Change, Snapshot
from ralphproof.world import Eyes

if TYPE_CHECKING:
    from ralphproof.check import Finding
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.world import World

READY = "tree-ready"  # the note that it was prepared
BEFORE = Inspection(0, 1, "", Snapshot(None, None), Change())


def prepare_tree(order: Order, folder: RunFolder, world: World) -> None:
    """Run what prepares the tree, once for a run; raises Refused with what failed of it.

    Who is cut off in the midst of it begins it again: a command that did half of its work may do it twice.
    """
    setup, root = order.loaded.settings.setup, order.project.root
    if not order.wish.apart or not setup or folder.noted(READY):
        return
    entered = Entered(root, world.sandbox, _free_number(folder, setup))
    for command, slug in zip(setup, slugs(setup), strict=True):
        step = Step(Question(command, slug, timeout_s=SETUP_TIMEOUT_S), entered, folder, order.check_env)
        found = step.ask(BEFORE, Eyes(world))
        if not found.passed:
            raise Refused(_refusal(found, folder))
    folder.note(READY, True)


def _refusal(found: Finding, folder: RunFolder) -> str:
    if found.why == STOPPED:
        return "the run was asked to end while its work tree was prepared; nothing was begun"
    log = folder.base(os.path.basename(found.log)) if found.log else ""  # the other copy goes with the tree
    return f"the work tree could not be prepared: setup command {found.command!r} failed ({found.why}); log: {log}"


def _free_number(folder: RunFolder, setup: tuple[str, ...]) -> int:
    """A number by which nothing was prepared before: what a log of that name tells is of another try."""
    number, names = 1, slugs(setup)
    while any(os.path.exists(folder.turn_file(setup_log(BEFORE, slug, number))) for slug in names):
        number += 1
    return number
