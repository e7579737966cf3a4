"""The board at a terminal: it is left as it was found, however the board ends."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading

from textual.worker import WorkerFailed

from ralphproof.errors import HarnessFailed
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from ralphproof.tui.watch import Watch

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
PATIENCE_S = 3.0  # for the board to end by itself
LOOK_MS = 500
# Keys, mouse, focus and pasting as they were; lines wrap; the other screen is left; the cursor is seen.
RESTORE = b"\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?1049l\x1b[?25h\n"


class Seat:
    """Somebody at a terminal, who may get up, be sent away, or whose terminal may be taken away."""

    def __init__(self, app: Watch) -> None:
        self._app = app
        self._modes = termios.tcgetattr(0)
        self._signal = 0
        self._over = threading.Event()

    def sit(self) -> int:
        """Show the board until somebody leaves; 0, or 130 after a signal. Raises what went wrong in it."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, known in before.items():
            if known is not signal.SIG_IGN:
                signal.signal(number, self._rung)
        threading.Thread(target=self._guard, daemon=True, name="terminal").start()
        try:
            self._app.run()
        finally:
            self._over.set()
            for number, known in before.items():
                signal.signal(number, known)
        self._raise_fault()
        return INTERRUPTED if self._signal else 0

    def _raise_fault(self) -> None:
        fault = self._app._exception
        if isinstance(fault, WorkerFailed):
            fault = fault.error if isinstance(fault.error, Exception) else fault
        if fault is not None:
            raise fault
        if self._app.return_code and not self._signal:
            raise HarnessFailed("the terminal could not be read")

    def _rung(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        loop: Any = self._app._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._app.exit)
        threading.Thread(target=self._insist, daemon=True, name="leaving").start()

    def _insist(self) -> None:
        """Where the board does not end, because nobody takes what it writes: end without it."""
        if not self._over.wait(PATIENCE_S):
            self._restore()
            os._exit(INTERRUPTED)

    def _guard(self) -> None:
        """Leave when the terminal is taken away, also where nobody told us so by a signal."""
        looked = select.poll()
        looked.register(0, select.POLLHUP | select.POLLERR)
        while not self._over.is_set():
            if looked.poll(LOOK_MS):
                self._rung(signal.SIGHUP, None)
                return

    def _restore(self) -> None:
        try:
            termios.tcsetattr(0, termios.TCSANOW, self._modes)
            os.set_blocking(2, False)
            os.write(2, RESTORE)
        except (OSError, termios.error):
            pass  # it is gone
