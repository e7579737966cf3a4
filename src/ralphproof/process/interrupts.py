"""Handling of SIGINT, SIGTERM, SIGHUP and SIGTSTP for every command.

The first signal raises KeyboardInterrupt, or is passed to the listener that took the signals over, which ends in good
order. The second one ends the program within a second, whatever it is doing, with everything that it started. The
program never dies by the signal itself. A signal that was ignored at the start (nohup) stays ignored.

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
    from collections.abc import Callable
    from typing import NoReturn
else:
    import _signal

SHUTDOWN_MESSAGE = b"Received signal, shutting down...\n"
KILLED_MESSAGE = b"ralph: ended at once, with everything that it had started; the record is kept (see ralph status)\n"
EXIT_INTERRUPTED = 130
ORDERLY_EXIT_S = 0.8  # what the second signal leaves for an end in good order
SIGNALS: tuple[int, ...] = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(_signal, name)
)
_TSTP: int = getattr(_signal, "SIGTSTP", 0)


class _SignalState:
    """The listener for signals, and how many have come."""

    def __init__(self) -> None:
        self.count = 0
        self.listener: Callable[[int], None] | None = None
        self.watching = False
        self.children_before: set[int] = set()  # inherited from our parent: not ours to kill


_signal_state = _SignalState()


def install_signal_handlers() -> None:
    """Have the first signal raise KeyboardInterrupt from now on."""
    _set_handlers(_on_signal)


def take_over_signals(listener: Callable[[int], None], *, owns_process: bool = True) -> None:
    """Call `listener` with the number of signals so far at each signal; at once if some have come already.

    `owns_process`: the second signal may end the process. A library may not end the program that uses it.
    """
    _signal_state.listener = listener
    if owns_process and not _signal_state.watching:
        _start_watcher()
    _set_handlers(_on_signal)
    if _TSTP and _signal.getsignal(_TSTP) is _signal.SIG_DFL:
        _signal.signal(_TSTP, _on_suspend)
    if _signal_state.count:
        listener(_signal_state.count)


def current_signal_listener() -> Callable[[int], None] | None:
    """The listener that is called at signals now."""
    return _signal_state.listener


def restore_signal_listener(listener: Callable[[int], None] | None) -> None:
    """Reinstate an earlier listener, which is called at once if signals have come. None forgets them."""
    _signal_state.listener = listener
    if listener is not None:
        if _signal_state.count:
            listener(_signal_state.count)
        return
    _signal_state.count = 0
    if _TSTP and _signal.getsignal(_TSTP) is _on_suspend:
        _signal.signal(_TSTP, _signal.SIG_DFL)


class RaiseOnSignal:
    """While the user is asked something, the first signal raises KeyboardInterrupt, whatever listener there is."""

    def __enter__(self) -> None:
        self._listener, _signal_state.listener = _signal_state.listener, None

    def __exit__(self, *_: object) -> None:
        _signal_state.listener = self._listener


def ignore_end_signals() -> None:
    """The exit code is decided, and nothing is left to do: no signal may change it."""
    _set_handlers(_signal.SIG_IGN)


def kill_with_children() -> NoReturn:
    """Kill everything that this process started, then exit. For the record it is as after `kill -9`."""
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
    if _signal_state.listener is not None:
        if _signal_state.count == 1:
            _write_message(SHUTDOWN_MESSAGE)
        _signal_state.listener(_signal_state.count)
    elif _signal_state.count == 1:
        raise KeyboardInterrupt
    else:
        kill_with_children()


def _write_message(message: bytes) -> None:
    """Tell the user that Ctrl-C was received."""
    try:
        os.write(2, message)
    except OSError:
        pass  # the terminal is gone


def _start_watcher() -> None:
    """Count signals in a thread too: the main thread may be in a call that no handler can interrupt."""
    from ralphproof.process import dead_turns

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _signal_state.watching, _signal_state.children_before = True, dead_turns.own_children()
    start_new_thread(_count_signals, (reader, _signal_state.count))


def _count_signals(reader: int, count: int) -> None:
    while count < 2:
        count += sum(number in SIGNALS for number in os.read(reader, 64))
    sleep(ORDERLY_EXIT_S)
    kill_with_children()


def _kill_children() -> None:
    """Kill running turns with their keepers, stopped or not."""
    dead_turns = sys.modules.get("ralphproof.process.dead_turns")
    for _ in range(3):  # what is orphaned on the way comes to us
        if dead_turns is None or not dead_turns.kill_all(_signal_state.children_before):
            return
        sleep(0.02)


def _on_suspend(_number: int, _frame: object) -> None:
    """Ctrl-Z: stop running programs, then ourselves; continue them when we are continued."""
    client = sys.modules.get("ralphproof.process.keeper_client")
    if client is not None:
        client.suspend()
    os.kill(os.getpid(), _signal.SIGSTOP)
    if client is not None:
        client.resume()
