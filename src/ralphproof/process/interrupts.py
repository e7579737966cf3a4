"""Handling of SIGINT, SIGTERM, SIGHUP and SIGTSTP for every command.

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

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

SHUTDOWN_MESSAGE = b"Received signal, shutting down...\n"
KILLED_MESSAGE = b"ralph: ended at once, with everything that it had started; the record is kept (see ralph status)\n"
EXIT_INTERRUPTED = 130
ORDERLY_EXIT_S = 0.8  # what the second signal leaves for an end in good order
SIGNALS: tuple[int, ...] = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(_signal, name)
)
_TSTP: int = getattr(_signal, "SIGTSTP", 0)


class _SignalState:
    """Who is told of signals, and how many have come."""

    def __init__(self) -> None:
        self.count = 0
        self.tell: Callable[[int], None] | None = None
        self.watching = False
        self.before: set[int] = set()  # children that whoever started us left to us: not ours to end


_signal_state = _SignalState()


def install_signal_handlers() -> None:
    """Have the first signal raise KeyboardInterrupt from now on."""
    _set_handlers(_on_signal)


def take_over_signals(tell: Callable[[int], None], *, to_the_end: bool = True) -> None:
    """Have `tell` told, with how many came in all, instead; of those that have come already too.

    `to_the_end`: the program is ours to end. A library may not end the program that uses it.
    """
    _signal_state.tell = tell
    if to_the_end and not _signal_state.watching:
        _start_watcher()
    _set_handlers(_on_signal)
    if _TSTP and _signal.getsignal(_TSTP) is _signal.SIG_DFL:
        _signal.signal(_TSTP, _on_suspend)
    if _signal_state.count:
        tell(_signal_state.count)


def current_signal_listener() -> Callable[[int], None] | None:
    """Who is told of signals now."""
    return _signal_state.tell


def restore_signal_listener(before: Callable[[int], None] | None) -> None:
    """Whoever was told before is told again, of what has come too; whoever took signals over sets their handlers again.

    Where that was nobody, what came is forgotten.
    """
    _signal_state.tell = before
    if before is not None:
        if _signal_state.count:
            before(_signal_state.count)
        return
    _signal_state.count = 0
    if _TSTP and _signal.getsignal(_TSTP) is _on_suspend:
        _signal.signal(_TSTP, _signal.SIG_DFL)


class RaiseOnSignal:
    """While somebody is asked something, the first signal raises KeyboardInterrupt, whoever took signals over."""

    def __enter__(self) -> None:
        self._tell, _signal_state.tell = _signal_state.tell, None

    def __exit__(self, *_: object) -> None:
        _signal_state.tell = self._tell


def ignore_end_signals() -> None:
    """The exit code is known, and nothing is left to be done: no signal may turn it into a death."""
    _set_handlers(_signal.SIG_IGN)


def kill_with_children() -> NoReturn:
    """End this process, and first all that it started. For the record it is as after `kill -9`."""
    try:
        _kill_children()
        os.write(2, KILLED_MESSAGE)
    finally:
        os._exit(EXIT_INTERRUPTED)


def _set_handlers(how: Callable[[int, object], None] | int) -> None:
    for number in SIGNALS:
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, how)


def _on_signal(_number: int, _frame: object) -> None:
    _signal_state.count += 1
    if _signal_state.tell is not None:
        if _signal_state.count == 1:
            _write_message(SHUTDOWN_MESSAGE)
        _signal_state.tell(_signal_state.count)
    elif _signal_state.count == 1:
        raise KeyboardInterrupt
    else:
        kill_with_children()


def _write_message(word: bytes) -> None:
    """Tell who pressed Ctrl-C that it was heard."""
    try:
        os.write(2, word)
    except OSError:
        pass  # the terminal is gone


def _start_watcher() -> None:
    """Hear signals in a thread too: the main one may be in a call that no handler can interrupt."""
    from ralphproof.process import cleanup

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _signal_state.watching, _signal_state.before = True, cleanup.own_children()
    start_new_thread(_count_signals, (reader, _signal_state.count))


def _count_signals(reader: int, came: int) -> None:
    while came < 2:
        came += sum(number in SIGNALS for number in os.read(reader, 64))
    sleep(ORDERLY_EXIT_S)
    kill_with_children()


def _kill_children() -> None:
    """Whatever is in mid-turn is killed, stopped or not, with its keeper."""
    aftermath = sys.modules.get("ralphproof.process.cleanup")
    for _ in range(3):  # what is orphaned on the way comes to us
        if aftermath is None or not aftermath.kill_all(_signal_state.before):
            return
        sleep(0.02)


def _on_suspend(_number: int, _frame: object) -> None:
    """Ctrl-Z: stop what runs, then ourselves; when we are continued, so is what runs."""
    client = sys.modules.get("ralphproof.process.client")
    if client is not None:
        client.suspend()
    os.kill(os.getpid(), _signal.SIGSTOP)
    if client is not None:
        client.resume()
