"""A command in the sandbox by hand: with the terminal that we have, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import os
import sys

from ralphproof.keeper.tree import become_subreaper, below, children, end_all, signal_each
from ralphproof.sandbox import Command
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
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
    box = replace(boxes.box(command), attended=os.isatty(0))
    ghosts = Ghosts(boxes.private)
    ghosts.lift()
    held = ghosts.lay([path for path in box.ghosts if path not in box.hollow], box.hollow)
    try:
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
    env = dict(command.env)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.chdir(command.cwd)
        try:
            os.execve(command.argv[0], command.argv, env)
        finally:
            os._exit(126)
    for name in PASSED_ON:
        signal.signal(getattr(signal, name), lambda got, _: signal_each(_unheard(child, got), got))
    _, status = os.waitpid(child, 0)
    end_all(_left)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


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
