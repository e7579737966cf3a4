"""Looking on at a turn that is not ours, as if it were a sandbox that runs it."""

from __future__ import annotations

from ralphproof.keeper import journal
from ralphproof.keeper.log import SIZES
from ralphproof.keeper.onlooker import LOOK_S, Onlooker, pause
from ralphproof.keeper.patience import Patience
from ralphproof.keeper.tree import alive
from ralphproof.keeper.view import View
from ralphproof.sandbox import STOP, Exit
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.keeper.journal import Past
    from ralphproof.sandbox import Command, Watch


class Following:
    """Runs nothing: hands the output of a turn to a watcher while its keeper runs it, and tells how it ended.

    It takes no lock, not even for a moment: whoever comes to resume the turn must not think that somebody is
    responsible. Of the command only `turn_file` and `out` matter.
    """

    name = "following"
    strength = "none"

    def __init__(
        self,
        while_: Callable[[], bool],
        *,
        steering: bool = False,
        wake_fd: int | None = None,
        sizes: tuple[int, int, int] = SIZES,
    ) -> None:
        """A turn that has not begun is waited for while `while_` says so.

        With `steering` the keeper is told what the watcher wants; meant for a turn whose harness is dead, since a
        living one may be at its next turn when the keeper hears of it.
        """
        self._while, self._steering, self._wake_fd, self._sizes = while_, steering, wake_fd, sizes

    def run(self, command: Command, watch: Watch) -> Exit:
        """Follow to the end. A watcher that wants an end and may not steer is let go at once: `stopped`."""
        view = View(command, watch, self._sizes)
        onlooker = Onlooker(lambda: journal.read(command.turn_file), view, steering=self._steering)
        woken, patience = False, Patience(replace(command, timeout_s=float("inf")))  # the keeper knows its own time
        while True:
            past = onlooker.look(woken=woken)
            if self._steering and past.began:
                patience.urge(onlooker.wanted)
                patience.look(past.keeper)
            if past.result is not None:
                return view.finish(past.result)
            if onlooker.wanted >= STOP and not self._steering:
                return Exit(None, why="stopped")
            if onlooker.ticked and not self._goes_on(past):
                now = journal.read(command.turn_file)  # it may have ended, or begun, just before
                if now.result is None and now.began == past.began:
                    return _abandoned(past, view)
            woken = pause(0.0 if onlooker.behind else LOOK_S, self._wake_fd)

    def _goes_on(self, past: Past) -> bool:
        return alive(*past.keeper) if past.began else self._while()


def _abandoned(past: Past, view: View) -> Exit:
    if not past.began:
        return Exit(None, why="unstartable", error="it never began")
    while view.pull():
        pass
    return Exit(None, why="interrupted")
