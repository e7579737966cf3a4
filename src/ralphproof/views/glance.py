"""One look at a turn as it is now, as if it were a sandbox that runs it."""

from __future__ import annotations

from ralphproof.keeper import journal
from ralphproof.keeper.log import SIZES
from ralphproof.keeper.tree import alive
from ralphproof.keeper.view import View
from ralphproof.sandbox import Exit
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.sandbox import Command, Watch


class Glance:
    """Runs nothing, and waits for nothing: hands on all that a turn has said so far.

    `unfinished` is called behind it where more may come: what is left of a line is none yet.
    """

    name = "glance"
    strength = "none"

    def __init__(self, unfinished: Callable[[], None]) -> None:
        self._unfinished = unfinished

    def run(self, command: Command, watch: Watch) -> Exit:
        """Read to the end of what there is."""
        past, view = journal.read(command.turn_file), View(command, watch, SIZES)
        if past.result is not None:
            return view.finish(past.result)
        while past.began and view.pull():
            pass
        if alive(*past.keeper):
            self._unfinished()
        return Exit(None, why="stopped")
