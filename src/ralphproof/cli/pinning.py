"""What is pinned of a project when a run of it begins: all that decides over its checks."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.ledgers.memory import Memory
from ralphproof.pin import Unpinned
from ralphproof.plan import External
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.pin import Pins
    from ralphproof.workspace import Workspace


def pins_of(order: Order, folder: RunFolder, workspace: Workspace, ledger: Sqlite | Memory) -> Pins:
    """The pins of a run of this order; raises Refused for a path that may change and cannot be one."""
    pins = _pins(order, folder, workspace)
    if isinstance(ledger, Memory):
        return pins
    from ralphproof.cli.still_weakened import StillWeakened, weakened_before

    before = weakened_before(ledger, workspace, order.project.root, folder.run)
    return StillWeakened(pins, workspace, before, _allowed(order.wish.may_change)) if before else pins


def _pins(order: Order, folder: RunFolder, workspace: Workspace) -> Pins:
    allowed, settings = _allowed(order.wish.may_change), order.loaded.settings
    leaves = order.course.leaves.values() if order.course else ()
    commands = [(leaf.how.command, leaf.how.folder) for leaf in leaves if isinstance(leaf.how, External)]
    commands += [(command, ".") for command in settings.setup]
    if not commands and not settings.protect_tests:
        return Unpinned()
    from ralphproof.checks.pins import CheckPins

    unlike = tuple(dict.fromkeys(commands))
    return CheckPins(
        order.project.root, unlike, order.check_env, folder, workspace, allowed, settings.protect_tests
    )  # fmt: skip


def _allowed(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether the user lets the work change a path."""
    if not patterns:
        return lambda _: False
    from ralphproof.workspaces.protected import bad_pattern, protects

    for pattern in patterns:
        problem = bad_pattern(pattern)
        if problem and "would protect every file" not in problem:
            raise Refused(f"--may-change {pattern!r} {problem}")
    return lambda path: any(_means(pattern, path, protects) for pattern in patterns)


def _means(pattern: str, path: str, protects: Callable[[str, str], bool]) -> bool:
    return pattern.strip("/") in ("*", "**") or protects(pattern, path)
