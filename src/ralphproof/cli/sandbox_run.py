"""A command in the sandbox by hand: with the terminal that we have, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import os
import sys

from ralphproof.keeper.tree import become_subreaper, below, children, end_all, signal_each
from ralphproof.sandbox import Command
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from ralphproof.config.boxes import Terrain
    from ralphproof.sandboxes.box import Backend

PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
KEYS = (2, 3)  # SIGINT, SIGQUIT


def run_inside(backend: Backend, terrain: Terrain, argv: tuple[str, ...], agent: str) -> int:
    """Run it to its end; its exit code."""
    from ralphproof.config.boxes import Boxes
    from ralphproof.sandboxes import boxed
    from ralphproof.sandboxes.egress_audit import blocked_in
    from ralphproof.sandboxes.ghosts import Ghosts
    from ralphproof.sandboxes.load import Load, write_load

    boxes = Boxes(terrain, backend)
    base = os.path.join(boxes.private, f"by-hand-{os.getpid()}")
    here = os.path.realpath(os.getcwd())
    cwd = here if (here + "/").startswith(terrain.root + "/") else terrain.root
    command = Command(argv, cwd, terrain.environ, f"{base}.log", f"{base}.turn", "by-hand", agent=agent)
    ghosts = Ghosts(boxes.private)
    ghosts.lift()
    held = ghosts.hold()
    try:
        box = replace(boxes.box(command), attended=os.isatty(0))
        ghosts.lay([path for path in box.ghosts if path not in box.hollow], box.hollow, box.unseen)
        if why := backend.ready(box, command):
            print(f"ralph: sandbox {backend.name}: {why}", file=sys.stderr)
            return 126
        audit = os.path.join(boxes.private, "by-hand.egress.ndjson")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(audit)
        write_load(base + boxed.LOAD, Load(box, backend.way(box), audit, base + boxed.REPORT, ghosts.lock))
        code = _run(boxed.entering(command, base + boxed.LOAD))
        backend.over(box)
        if blocked_in(audit):
            print(f"ralph: what was called, and what became of it, is in {audit}", file=sys.stderr)
        return code
    finally:
        ghosts.lift(held)
        for ending in (boxed.LOAD, boxed.REPORT):
            if os.path.exists(base + ending):
                os.unlink(base + ending)


def _run(command: Command) -> int:
    import signal

    become_subreaper()
    sys.stdout.flush()
    numbers = [getattr(signal, name) for name in PASSED_ON]
    # Before there is somebody to pass it on to, a signal would end us alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    child = os.fork()
    if child == 0:
        _become(command, before)
    _heed(lambda got, _: signal_each(_unheard(child, got), got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(_awaited(child))
    end_all(_left)
    return code if code >= 0 else 128 - code


def _heed(heard: Callable[[int, object], None]) -> None:
    import signal

    for name in PASSED_ON:
        signal.signal(getattr(signal, name), heard)


def _become(command: Command, mask: Iterable[int]) -> NoReturn:
    import signal

    try:
        for number in (getattr(signal, name) for name in PASSED_ON):
            if callable(signal.getsignal(number)):  # as the program itself will begin
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.chdir(command.cwd)
        os.execve(command.argv[0], command.argv, dict(command.env))
    finally:
        os._exit(126)


def _awaited(child: int) -> int:
    """How it ended. As soon as it is reaped its number may be another's: then nothing is passed on to that any more."""
    if hasattr(os, "waitid"):  # not on macOS before Python 3.13
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        _heed(_nothing)
    status = os.waitpid(child, 0)[1]
    _heed(_nothing)
    return status


def _nothing(*_: object) -> None:
    """What is left of the command is ended in any case."""


def _unheard(child: int, number: int) -> list[int]:
    """Who of the command has not got a signal yet: keys of a terminal reach the group in its foreground by themselves.

    In a sandbox with a session of its own they reach nobody.
    """
    everybody = below([child])
    if number not in KEYS or not os.isatty(0):
        return everybody
    front = os.tcgetpgrp(0)
    return [pid for pid in everybody if _group(pid) != front]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _left() -> list[int]:
    """What came to us of the command, and is still there."""
    for pid in children(os.getpid()):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
    return below(children(os.getpid()))
