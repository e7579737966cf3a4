"""Names for saved commits, and what HEAD names: by hand where refs are files, by git where they are not."""

from __future__ import annotations

import errno
import os
import time

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import sync_folders, write_all
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.layout import head_commit, read_reference

if TYPE_CHECKING:
    from ralphproof.workspaces.index import PrivateIndex

WAIT_S = 1.0
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def ref_name(run: str, name: str) -> str:
    """`refs/ralph/<run>/<name>`; both must be plain words."""
    for word in (run, name):
        if not word or set(word) - ALLOWED or ".." in word or word[0] in ".-" or word.endswith((".lock", ".")):
            raise ValueError(f"{word!r} cannot be part of a ref")
    return f"refs/ralph/{run}/{name}"


def read_head(index: PrivateIndex) -> str | None:
    """The commit that HEAD names, or None before the first one."""
    if index.folders.ref_files:
        return head_commit(index.folders)
    reply = index.ask("rev-parse", "-q", "--verify", "HEAD", env=_theirs(index, index.folders.git_dir))
    if reply.code not in (0, 1):
        raise GitFailed(f"git rev-parse: {reply.said}")
    return reply.out.strip().decode() or None


def read_ref(index: PrivateIndex, ref: str) -> str | None:
    """What one of our refs names, or None where it is gone."""
    if index.folders.ref_files:
        found = read_reference(index.folders, ref.encode())
        return found.strip().decode("ascii", "replace") if found else None
    reply = index.ask("rev-parse", "-q", "--verify", ref, env=_theirs(index, index.folders.common))
    return reply.out.strip().decode() if reply.code == 0 else None


def write_ref(index: PrivateIndex, ref: str, commit: str) -> None:
    """Let the ref name the commit, durably."""
    if not index.folders.ref_files:
        index.must("update-ref", ref, commit, env=_theirs(index, index.folders.common))
        return
    path = os.path.join(index.folders.common, ref)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
        raise OSError(errno.ELOOP, "a symbolic link stands in for our refs", folder)
    descriptor = _lock(path + ".lock")
    try:
        write_all(descriptor, commit.encode() + b"\n")
        os.fsync(descriptor)
        os.rename(path + ".lock", path)
    except OSError:
        os.unlink(path + ".lock")
        raise
    finally:
        os.close(descriptor)
    sync_folders({os.fsencode(folder)})


def _lock(path: str) -> int:
    """git's own lock. Nobody else writes these refs for long, so one that stays is left from a crash."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if time.monotonic() > deadline:
                os.unlink(path)
            time.sleep(0.01)


def _theirs(index: PrivateIndex, git_dir: str) -> dict[str, str]:
    return {**index.env, "GIT_DIR": git_dir}
