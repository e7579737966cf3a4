"""The signals that end this program, for every verb: SIGINT, SIGTERM and SIGHUP.

The first one ends the verb with KeyboardInterrupt, or is told to whoever took the signals over to end in good order.
The second one ends the program within a second, whatever it is in, with everything that it started. It never dies by
the signal itself. One that was ignored at the start (nohup) stays ignored.

This is imported before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys
from _thread import start_new_thread
from time import sleep

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import NoReturn
else:
    import _signal

WORD = b"Received signal, shutting down...\n"
AT_ONCE = b"ralph: ended at once, with everything that it had started; the record is kept (see ralph status)\n"
INTERRUPTED = 130
IN_ORDER_S = 0.8  # what the second signal leaves for an end in good order
SIGNALS: tuple[int, ...] = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(_signal, name)
)
_TSTP: int = getattr(_signal, "SIGTSTP", 0)


class _Router:
    """Who is told of signals, and how many have come."""

    def __init__(self) -> None:
        self.count = 0
        self.tell: Callable[[int], None] | None = None
        self.watching = False
        self.before: set[int] = set()  # children that whoever started us left to us: not ours to end


_router = _Router()


def install() -> None:
    """Have the first signal raise KeyboardInterrupt from now on."""
    _handle(_came)


def take_over(tell: Callable[[int], None], *, to_the_end: bool = True) -> None:
    """Have `tell` told, with how many came in all, instead; of those that have come already too.

    `to_the_end`: the program is ours to end. A library may not end the program that uses it.
    """
    _router.tell = tell
    if to_the_end and not _router.watching:
        _watch()
    _handle(_came)
    if _TSTP and _signal.getsignal(_TSTP) is _signal.SIG_DFL:
        _signal.signal(_TSTP, _suspend)
    if _router.count:
        tell(_router.count)


def told() -> Callable[[int], None] | None:
    """Who is told of signals now."""
    return _router.tell


def give_back(before: Callable[[int], None] | None) -> None:
    """Whoever was told before is told again, of what has come too; whoever took signals over sets their handlers again.

    Where that was nobody, what came is forgotten.
    """
    _router.tell = before
    if before is not None:
        if _router.count:
            before(_router.count)
        return
    _router.count = 0
    if _TSTP and _signal.getsignal(_TSTP) is _suspend:
        _signal.signal(_TSTP, _signal.SIG_DFL)


class Raising:
    """While somebody is asked something, the first signal raises KeyboardInterrupt, whoever took signals over."""

    def __enter__(self) -> None:
        self._tell, _router.tell = _router.tell, None

    def __exit__(self, *_: object) -> None:
        _router.tell = self._tell


def ignore() -> None:
    """The exit code is known, and nothing is left to be done: no signal may turn it into a death."""
    _handle(_signal.SIG_IGN)


def end_now() -> NoReturn:
    """End this process, and first all that it started. For the record it is as after `kill -9`."""
    try:
        _end_children()
        os.write(2, AT_ONCE)
    finally:
        os._exit(INTERRUPTED)


def _handle(how: Callable[[int, object], None] | int) -> None:
    for number in SIGNALS:
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, how)


def _came(_number: int, _frame: object) -> None:
    _router.count += 1
    if _router.tell is not None:
        if _router.count == 1:
            _say(WORD)
        _router.tell(_router.count)
    elif _router.count == 1:
        raise KeyboardInterrupt
    else:
        end_now()


def _say(word: bytes) -> None:
    """Tell who pressed Ctrl-C that it was heard."""
    try:
        os.write(2, word)
    except OSError:
        pass  # the terminal is gone


def _watch() -> None:
    """Hear signals in a thread too: the main one may be in a call that no handler can interrupt."""
    from ralphproof.keeper import aftermath

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _router.watching, _router.before = True, aftermath.own_children()
    start_new_thread(_count, (reader, _router.count))


def _count(reader: int, came: int) -> None:
    while came < 2:
        came += sum(number in SIGNALS for number in os.read(reader, 64))
    sleep(IN_ORDER_S)
    end_now()


def _end_children() -> None:
    """Whatever is in mid-turn is killed, stopped or not, with its keeper."""
    aftermath = sys.modules.get("ralphproof.keeper.aftermath")
    for _ in range(3):  # what is orphaned on the way comes to us
        if aftermath is None or not aftermath.kill_all(_router.before):
            return
        sleep(0.02)


def _suspend(_number: int, _frame: object) -> None:
    """Ctrl-Z: stop what runs, then ourselves; when we are continued, so is what runs."""
    client = sys.modules.get("ralphproof.keeper.client")
    if client is not None:
        client.suspend()
    os.kill(os.getpid(), _signal.SIGSTOP)
    if client is not None:
        client.resume()
