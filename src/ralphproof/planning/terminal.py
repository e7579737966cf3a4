"""Handing the user's terminal to a program and taking it back."""

from __future__ import annotations

import os
import signal
import termios
import warnings

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import Exit
from ralphproof.process.interrupts import SIGNALS
from ralphproof.process.tree import (
    become_subreaper,
    child_pids,
    die_with_parent,
    kill_until_gone,
    signal_group,
    with_descendants,
)

if TYPE_CHECKING:
    from typing import Any, NoReturn

TTY = 0  # our standard input
DEFAULTS = (*SIGNALS, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGTSTP, signal.SIGTTIN,
            signal.SIGTTOU, signal.SIGALRM)  # fmt: skip
BACKGROUND = "ralph plan needs the terminal, and runs in the background; bring it to the front: fg"
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SAID_SO = (129, 130, 131, 143)  # how programs say that such a signal made them leave


def at_terminal() -> bool:
    """Whether somebody sits at our standard input."""
    try:
        return os.isatty(TTY)
    except OSError:
        return False


def interrupted(left: Exit) -> bool:
    """Whether a signal ended it: somebody wants to leave."""
    return left.why == "stopped" or left.signal in INTERRUPTING or left.code in SAID_SO


class Terminal:
    """The user's terminal. `grace_s` is what a program that has it gets to leave when we are told to end."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s, self._rung, self._child = grace_s, 0, 0
        self._behind = False  # a shell has sent the job to the background
        self._modes = termios.tcgetattr(TTY)
        self._group = _foreground()  # None: the terminal is not ours to hand over
        if self._group is not None and self._group != os.getpgrp():
            raise Refused(BACKGROUND)
        self._before: dict[int, Any] = {}

    def play(self, argv: tuple[str, ...], cwd: str, env: dict[str, str]) -> Exit:
        """Run it to its end in the foreground. Ctrl-C and Ctrl-Z are its own. No process of it is left then."""
        become_subreaper()
        known = set(child_pids(os.getpid()))
        self._rung = 0
        self._listen()
        try:
            self._child, told = _spawn(argv, cwd, env, self._group is not None)
            self._hand_over()
            if self._rung:  # we were told before there was anybody to tell
                signal_group(self._child, signal.SIGTERM)
            left = self._wait()
            self._take_back()
            return _unstartable(told) or left
        finally:
            self._take_back()
            self._end(known)
            self._deafen()

    # Signals: those of the terminal reach the program alone; whoever else wants our end wants its end too.

    def _listen(self) -> None:
        for number in (*SIGNALS, signal.SIGALRM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._ring)
        self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # we rest with the program
        self._before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else taking it back stops us
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _deafen(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def _ring(self, *_: object) -> None:
        self._rung += 1
        if not self._child:
            return
        signal_group(self._child, signal.SIGTERM if self._rung == 1 else signal.SIGKILL)
        signal_group(self._child, signal.SIGCONT)
        signal.setitimer(signal.ITIMER_REAL, self._grace_s)

    def _wait(self) -> Exit:
        """How it ended. One that is suspended suspends us, as a shell expects of its job."""
        while True:
            _, status = os.waitpid(self._child, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            self._suspend()
        why = "stopped" if self._rung else "exit"
        if os.WIFSIGNALED(status):
            return Exit(None, why, signal=os.WTERMSIG(status))
        return Exit(os.WEXITSTATUS(status), why)

    def _suspend(self) -> None:
        if self._rung:  # it is to end, not to rest
            signal_group(self._child, signal.SIGCONT)
            return
        its_own = _modes()
        self._take_back()
        os.kill(0, signal.SIGTSTP)  # the whole job; here we rest, unless there is no shell that could wake us
        self._behind = self._group is not None and _foreground() != self._group
        if not self._behind:
            self._hand_over()
            _set_modes(its_own)
        signal_group(self._child, signal.SIGCONT)

    # The terminal

    def _hand_over(self) -> None:
        if self._group is not None:
            _to_the_front(self._child)

    def _take_back(self) -> None:
        """Be in front again, with the modes that the terminal had; unless a shell has it meanwhile."""
        if self._behind:
            return
        if self._group is not None:
            _to_the_front(self._group)
        _set_modes(self._modes)

    def _end(self, known: set[int]) -> None:
        """End what it left behind: files are looked at when nobody writes them any more."""
        if self._child:
            signal_group(self._child, signal.SIGKILL)
            kill_until_gone(
                lambda: with_descendants(
                    pid for pid in child_pids(os.getpid()) if pid not in known and not _reaped(pid)
                )
            )
        self._child = 0


def _spawn(argv: tuple[str, ...], cwd: str, env: dict[str, str], in_front: bool) -> tuple[int, int]:
    """The child's process id, and a pipe on which it complains if it cannot become the program."""
    told, tell = os.pipe()
    us = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child becomes another program at once
            child = os.fork()
        if child == 0:
            _become(argv, cwd, env, tell, us if in_front else -us)
    finally:
        os.close(tell)
    try:
        os.setpgid(child, child)  # whoever is first: it does so too
    except OSError:
        pass  # it is the program already
    return child, told


def _become(argv: tuple[str, ...], cwd: str, env: dict[str, str], tell: int, us: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() != abs(us):
            os._exit(127)
        if us > 0:
            _to_the_front(os.getpgrp())
        for number in (1, 2):  # one that goes to a file or a pipe is for our own words
            if not os.isatty(number):
                os.dup2(os.open(os.ttyname(TTY), os.O_WRONLY | os.O_NOCTTY), number)
        for number in DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(tell, f"{argv[0]} cannot be started: {error.strerror}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _unstartable(told: int) -> Exit | None:
    with open(told, "rb") as pipe:
        why = pipe.read().decode("utf-8", "replace")
    return Exit(None, "unstartable", error=why) if why else None


def _foreground() -> int | None:
    """The process group in front at our terminal; None where it is not the terminal of our session."""
    try:
        return os.tcgetpgrp(TTY)
    except OSError:
        return None


def _to_the_front(group: int) -> None:
    try:
        os.tcsetpgrp(TTY, group)
    except OSError:
        pass  # the group is gone, or the terminal is


def _modes() -> Any:
    try:
        return termios.tcgetattr(TTY)
    except termios.error:
        return None


def _set_modes(modes: Any) -> None:
    try:
        if modes is not None:
            termios.tcsetattr(TTY, termios.TCSANOW, modes)
    except termios.error:
        pass  # the terminal is gone


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
