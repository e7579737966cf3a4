"""What a project's git has not got yet."""

from __future__ import annotations

import os
import select
import time

from ralphproof.hooks.given import say
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMEOUT_S = 10.0
MOST_BYTES = 4 << 20
CHUNK = 64 << 10
SIGKILL = 9  # the `signal` module would import `enum`
# Nothing that the repository configures runs because somebody looks at it.
QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")


def uncommitted(project: str, before: Iterable[str]) -> list[str]:
    """Files that changed and are not committed, without those that were so `before`; none where there is no git."""
    if not os.path.lexists(os.path.join(project, ".git")):
        return []
    listed = _said(("git", "-C", project, *QUIET, *STATUS))
    if listed is None:
        say("git did not tell what is uncommitted; the loop looks again")
        return []
    known = set(before)
    return [path for path in _paths(listed) if path not in known and not _is_ours(path)]


def _is_ours(path: str) -> bool:
    return path == ".ralph-active" or path.startswith(".ralph/")


def _paths(listed: bytes) -> Iterable[str]:
    return (entry[3:].decode("utf-8", "backslashreplace") for entry in listed.split(b"\0") if len(entry) > 3)


def _said(argv: tuple[str, ...]) -> bytes | None:
    """What a program says, as far as it is worth reading; None where it fails or takes too long.

    Nothing that points git to another repository reaches it. `subprocess` takes longer to load than git to answer.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    out, to_us = os.pipe()
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 2)]
    try:
        env = kept | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        actions = [*nowhere, (os.POSIX_SPAWN_DUP2, to_us, 1)]
        child = os.posix_spawnp(argv[0], argv, env, file_actions=actions, setpgroup=0)
    except OSError:
        os.close(to_us)
        os.close(out)
        return None
    os.close(to_us)
    try:
        return _heard(child, out)
    finally:
        os.close(out)


def _kill(group: int) -> None:
    try:
        os.killpg(group, SIGKILL)
    except OSError:
        pass  # it has just ended


def _heard(child: int, out: int) -> bytes | None:
    deadline, said, ended = time.monotonic() + TIMEOUT_S, b"", False
    while not ended and len(said) < MOST_BYTES and (left_s := deadline - time.monotonic()) > 0:
        if select.select([out], [], [], left_s)[0]:
            piece = os.read(out, CHUNK)
            said, ended = said + piece, not piece
    if not ended:
        _kill(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(said) >= MOST_BYTES:
        return said.rpartition(b"\0")[0]
    return said if ended and code == 0 else None
