"""Trying a kind of sandbox out: a small program inside tries to break out of it, around a throw-away project."""

from __future__ import annotations

import os

from ralphproof import interpreter
from ralphproof.config.boxes import Boxes, Terrain
from ralphproof.sandbox import Command
from ralphproof.sandboxes import boxed
from ralphproof.sandboxes.box import Lack
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping

    from ralphproof.sandboxes.box import Backend, Box
    from ralphproof.sandboxes.docker_sandbox import DockerSandbox
    from ralphproof.workspaces.gitcall import Reply

TRIAL_S = 60.0  # a container engine's first start takes seconds
HELD = "held"
ENTERED = "ralph-trial-entered"
# What is tried in another machine: sh OUTSIDE HIDDEN PORT PID ROOT
PROBE = f"""exec 2>/dev/null
(: > "$1/probe"); (: > "$5/probe"); cat "$2"
curl -s -m 2 "http://127.0.0.1:$3/"; bash -c "exec 3<>/dev/tcp/127.0.0.1/$3"; nc -z -w 2 127.0.0.1 "$3" </dev/null
kill -0 "$4" && tr '\\0' ' ' < "/proc/$4/cmdline"
echo; echo {ENTERED}"""
APPARMOR = (
    "Ubuntu 24.04 and later: allow it with an AppArmor profile for bwrap that says `userns,`, or "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
MENDS = (
    ("uid map", APPARMOR),
    ("RTM_NEWADDR", APPARMOR),
    ("No permissions to create new namespace", "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
    ("Creating new namespace failed", "allow user namespaces: sysctl user.max_user_namespaces=10000"),
    ("cgroups in hybrid mode", "install runc: apt install runc"),
)


def trial(backend: Backend, environ: Mapping[str, str]) -> Lack | None:
    """What is wrong with it, found by trying; None where it holds.

    To make another machine takes long: one that has held is not tried again until its program is another.
    """
    import shutil
    import tempfile

    machine = _machine(backend)
    if machine and machine.held_before():
        return None
    folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-trial-"))
    try:
        lack = (_tried_elsewhere if machine else _tried)(backend, environ, folder)
        if lack is None and machine:
            machine.has_held()
        return lack
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(backend: Backend, environ: Mapping[str, str], folder: str) -> Lack | None:
    import json

    root, store, outside = _laid_out(folder)
    held, hidden = os.path.join(root, HELD), os.path.join(outside, "hidden")
    for file in (held, hidden):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    listener = _listening()
    what = {
        "root": root, "outside": outside, "hidden": hidden, "held": held if backend.holds else "",
        "port": listener.getsockname()[1], "pid": os.getpid(),
    }  # fmt: skip
    program = os.path.join(os.path.dirname(boxed.OUTER), "probe.py")
    reply = entered(backend, _terrain(root, store, environ), interpreter.script(program, json.dumps(what)))
    listener.close()
    return reply if isinstance(reply, Lack) else _judged(reply)


def _tried_elsewhere(backend: Backend, environ: Mapping[str, str], folder: str) -> Lack | None:
    """The same of another machine. It may have no Python and own files of these names: what counts is seen here."""
    root, store, outside = _laid_out(folder)
    hidden, token = os.path.join(outside, "hidden"), os.urandom(16).hex()
    with open(hidden, "w", encoding="ascii") as file:
        file.write(token)
    listener = _listening()
    words = (outside, hidden, str(listener.getsockname()[1]), str(os.getpid()), root)
    reply = entered(backend, _terrain(root, store, environ), ("sh", "-c", PROBE, "sh", *words))
    if isinstance(reply, Lack):
        return reply
    said = reply.out.decode("utf-8", "replace")
    if ENTERED not in said:
        return Lack(f"it cannot be entered: {(reply.said or f'it ended with code {reply.code}')[:300]}")
    found = {
        "files outside the project can be written": os.path.exists(os.path.join(outside, "probe")),
        "files outside the project can be read": token in said,
        "this machine's ports can be reached": _called(listener),
        "other processes can be signalled": _own_line() in said,
        "the project may not be written": not os.path.exists(os.path.join(root, "probe")),
    }
    wrong = "; ".join(what for what, true in found.items() if true)
    return Lack(f"it was tried, and {wrong}") if wrong else None


def _machine(backend: Backend) -> DockerSandbox | None:
    """A kind that is another machine: to make one takes long, and it stays until it is removed."""
    found: DockerSandbox | None = backend if getattr(backend, "elsewhere", False) else None  # type: ignore[assignment]
    return found


def _laid_out(folder: str) -> tuple[str, str, str]:
    root, store, outside = (os.path.join(folder, name) for name in ("project", "store", "outside"))
    for made in (root, store, outside):
        os.mkdir(made, 0o700)
    return root, store, outside


def _listening() -> _socket.socket:
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    return listener


def _called(listener: _socket.socket) -> bool:
    """Whether somebody has connected; nobody can any more."""
    listener.setblocking(False)
    try:
        os.close(listener._accept()[0])  # type: ignore[attr-defined]
    except BlockingIOError:
        return False
    finally:
        listener.close()
    return True


def _own_line() -> str:
    """What the kernel tells of this process, as the probe would print it."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ENTERED * 2  # this system tells nobody


def _terrain(root: str, store: str, environ: Mapping[str, str]) -> Terrain:
    return Terrain(root, store, "", tuple(environ.items()), protected=(HELD,))


def entered(backend: Backend, terrain: Terrain, program: tuple[str, ...]) -> Reply | Lack:
    """Run a program inside; its answer, or why it could not be asked."""
    base = os.path.join(terrain.store, "trial")
    command = Command(program, terrain.root, terrain.environ, f"{base}.log", f"{base}.turn", "trial/0")
    box = Boxes(terrain, backend).box(command)
    _lay(box)
    try:
        return _asked(backend, box, command, base)
    finally:
        if machine := _machine(backend):
            machine.remove(box)


def _asked(backend: Backend, box: Box, command: Command, base: str) -> Reply | Lack:
    from ralphproof.sandboxes import load
    from ralphproof.workspaces.gitcall import call

    if why := backend.ready(box, command):
        return Lack(why)
    load.write_load(base + boxed.LOAD, load.Load(box, backend.way(box), base + boxed.AUDIT, base + boxed.REPORT))
    started = boxed.entering(command, base + boxed.LOAD)
    reply = call(list(started.argv), dict(command.env), timeout_s=TRIAL_S)
    backend.over(box)
    return reply


def _lay(box: Box) -> None:
    """What must be there so that something can lie over it. The whole project is thrown away afterwards."""
    for path in box.hollow:
        os.makedirs(path, exist_ok=True)
    for path in box.ghosts:
        if not os.path.exists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _judged(reply: Reply) -> Lack | None:
    import json

    try:
        answer = json.loads(reply.out)
        open_, closed = list(answer["open"]), list(answer["closed"])
    except (ValueError, KeyError, TypeError):
        why = reply.said or f"it ended with code {reply.code}"
        return Lack(f"it cannot be entered: {why[:300]}", next((mend for sign, mend in MENDS if sign in why), ""))
    wrong = "; ".join(map(str, (*open_, *closed)))
    return Lack(f"it was tried, and {wrong}") if wrong else None
