"""Trying a kind of sandbox out: a small program inside tries to break out of it, around a throw-away project."""

from __future__ import annotations

import os

from ralphproof import interpreter
from ralphproof.config.boxes import Boxes, Terrain
from ralphproof.sandbox import Command
from ralphproof.sandboxes.box import Lack
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.sandboxes.box import Backend, Box
    from ralphproof.workspaces.gitcall import Reply

TRIAL_S = 60.0  # a container engine's first start takes seconds
HELD = "held"
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
    """What is wrong with it, found by trying; None where it holds."""
    import shutil
    import tempfile

    folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-trial-"))
    try:
        return _tried(backend, environ, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(backend: Backend, environ: Mapping[str, str], folder: str) -> Lack | None:
    import _socket
    import json

    root, store, outside = (os.path.join(folder, name) for name in ("project", "store", "outside"))
    for made in (root, store, outside):
        os.mkdir(made, 0o700)
    held, hidden = os.path.join(root, HELD), os.path.join(outside, "hidden")
    for file in (held, hidden):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    what = {
        "root": root, "outside": outside, "hidden": hidden, "held": held if backend.holds else "",
        "port": listener.getsockname()[1], "pid": os.getpid(),
    }  # fmt: skip
    reply = entered(backend, _terrain(root, store, environ), ("probe.py", json.dumps(what)))
    listener.close()
    return reply if isinstance(reply, Lack) else _judged(reply)


def _terrain(root: str, store: str, environ: Mapping[str, str]) -> Terrain:
    return Terrain(root, store, "", tuple(environ.items()), protected=(HELD,))


def entered(backend: Backend, terrain: Terrain, program: tuple[str, ...]) -> Reply | Lack:
    """Run a program of ours inside; its answer, or why it could not be asked."""
    from ralphproof.sandboxes import boxed, load
    from ralphproof.workspaces.gitcall import call

    base = os.path.join(terrain.store, "trial")
    inside = interpreter.script(os.path.join(os.path.dirname(boxed.OUTER), program[0]), *program[1:])
    command = Command(inside, terrain.root, terrain.environ, f"{base}.log", f"{base}.turn", "trial/0")
    box = Boxes(terrain, backend).box(command)
    _lay(box)
    if why := backend.ready(box, command):
        return Lack(why)
    load.write_load(base + boxed.LOAD, load.Load(box, backend.way(box), base + boxed.AUDIT, base + boxed.REPORT))
    started = boxed.entering(command, base + boxed.LOAD)
    reply = call(list(started.argv), dict(terrain.environ), timeout_s=TRIAL_S)
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
