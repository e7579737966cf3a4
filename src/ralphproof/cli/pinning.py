"""What is pinned of a project when a run of it begins: all that decides over its checks."""

from __future__ import annotations

from ralphproof.pin import Unpinned
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.pin import Pins
    from ralphproof.workspace import Workspace


def pins_of(order: Order, folder: RunFolder, workspace: Workspace) -> Pins:
    """The pins of a run of this order."""
    return Unpinned()
