"""A private index of the work tree. git stats the files for us; nothing that the repository configures takes part."""

from __future__ import annotations

import errno
import os
import time

from ralphproof.errors import HarnessFailed, Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.files import LARGEST_BYTES
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call, find_program, plain_environment, quiet_environment
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.workspaces.layout import GitFolders

LAG_S = 0.02  # the clock that stamps files goes in steps, behind the one that we ask
TIMEOUT_S = 60.0  # a FIFO named .gitignore holds git up for ever
OURS = (b".ralph", b".ralph-active")
NOT_OURS = [f"--exclude=/{name.decode()}" for name in OURS]  # on the command line: a `!` rule cannot undo it
ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff\n"  # raw bytes, no driver
CONFIG = """[core]
\trepositoryformatversion = {version}
\tbare = false
\tlooseCompression = 1
\tignoreCase = false
\tprotectNTFS = false
\tprotectHFS = false
\tfsync = loose-object
\tfsyncMethod = batch
[extensions]
{extensions}
"""


class GitFailed(HarnessFailed):
    """git could not do what bookkeeping asked of it, or tell what it was asked for."""


class PrivateIndex:
    """The index in `folder`, over the files of `root` and the object store of `folders`.

    git tells ctimes apart by the second. A file in `fresh` changed in the very second in which the index was written:
    if it changes again before that is over, and is given its old size and mtime, git does not see it.
    """

    def __init__(self, root: str, folder: str, folders: GitFolders, environ: Mapping[str, str]) -> None:
        self.root, self.folder, self.folders = root, folder, folders
        found = find_program("git", environ.get("PATH", os.defpath), outside=root)
        if found is None:
            raise Refused("git was not found in PATH")
        self.git = found
        self.environ = dict(environ)
        self.env = quiet_environment(environ, folder, folders.objects, root)
        self._left: tuple[int, ...] | None = None
        self.fresh: set[bytes] = set()

    def ask(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Reply:
        """What git answers; raises GitFailed where it does not."""
        argv = [self.git, "-C", self.root, *NOTHING_RUNS, *args]
        reply = call(argv, env or self.env, stdin, timeout_s=TIMEOUT_S)
        if b"No space left on device" in reply.err or b"Disk quota exceeded" in reply.err:
            raise OSError(errno.ENOSPC, reply.said)
        if reply.lost:
            raise GitFailed(f"git {args[0]}: {reply.said or reply.code}")
        return reply

    def must(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Reply:
        reply = self.ask(*args, stdin=stdin, env=env)
        if reply.code != 0:
            raise GitFailed(f"git {args[0]}: {reply.said}")
        return reply

    def make(self) -> None:
        """Make the private folder what git accepts as a repository."""
        for name in ("refs/heads", "info"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        wide = self.folders.algorithm == "sha256"
        config = CONFIG.format(version=int(wide), extensions="\tobjectFormat = sha256" if wide else "")
        self._put("HEAD", "ref: refs/heads/none\n")
        self._put("config", config)
        self._put("info/attributes", ATTRIBUTES)

    def _put(self, name: str, text: str | bytes) -> None:
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def take_rules(self) -> None:
        """Copy the ignore rules that lie outside the work tree; later edits of theirs change nothing."""
        env = plain_environment(self.environ) | {"GIT_DIR": self.folders.git_dir}
        named = self.ask("config", "--path", "--get", "core.excludesFile", env=env)
        home = os.path.join(self.environ.get("HOME", "/nonexistent"), ".config")
        usual = os.path.join(self.environ.get("XDG_CONFIG_HOME") or home, "git", "ignore")
        wide = named.out.rstrip(b"\n") if named.code == 0 else os.fsencode(usual)
        own = os.fsencode(os.path.join(self.folders.common, "info", "exclude"))
        self._put("info/exclude", _text(wide) + b"\n" + _text(own))

    def note(self, name: str, text: str | bytes) -> str:
        """Keep a note in the private folder; return its path."""
        self._put(name, text)
        return os.path.join(self.folder, name)

    def noted(self, name: str) -> bytes:
        """A note kept earlier, or nothing."""
        return _text(os.fsencode(os.path.join(self.folder, name)))

    def fill(self, paths: Iterable[bytes]) -> tuple[str, set[bytes]]:
        """Make the index anew from these paths; return its tree and the paths that could not be read."""
        for name in ("index", "index.lock"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.unlink(os.path.join(self.folder, name))
        self.fresh = set()
        return self._add(paths)

    def absorb(self, paths: Iterable[bytes]) -> str:
        """Bring the index up to date at these paths; return its tree."""
        tree, unreadable = self._add(paths)
        if unreadable:
            raise GitFailed("files became unreadable")
        return tree

    def refresh(self) -> None:
        """Take over the times of files that were touched and not changed."""
        self.ask("update-index", "-q", "--refresh")
        self._left = self._signature()
        self._count_fresh(self._seconds(self.must("ls-files", "-z").out.split(b"\0")[:-1]))

    @property
    def ripe(self) -> bool:
        """Whether the second is over in which `fresh` files can change unseen."""
        return bool(self.fresh) and time.time() >= self._written_s() + 1 + LAG_S

    def _seconds(self, paths: Iterable[bytes]) -> dict[bytes, float]:
        """The paths, less files that are too large, each with the time of its last change; 0 where nothing is."""
        root, found = os.fsencode(self.root), {}
        for path in paths:
            try:
                state = os.lstat(os.path.join(root, path))
            except OSError:
                found[path] = 0.0
                continue
            if state.st_size <= LARGEST_BYTES:
                found[path] = state.st_ctime
        return found

    def _count_fresh(self, seconds: Mapping[bytes, float]) -> None:
        written_s = self._written_s()
        self.fresh = (self.fresh - seconds.keys()) | {path for path, at in seconds.items() if at >= written_s}

    def _written_s(self) -> int:
        return int(os.stat(os.path.join(self.folder, "index")).st_ctime)

    def _add(self, wished: Iterable[bytes]) -> tuple[str, set[bytes]]:
        paths, unreadable = self._seconds(wished), set[bytes]()
        for _ in range(100):
            wanted = b"".join(path + b"\0" for path in paths if path not in unreadable)
            reply = self.ask("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=wanted)
            if reply.code == 0:
                break
            _, found, path = reply.err.rpartition(b"fatal: Unable to process path ")
            if not found or path.rstrip(b"\n") in unreadable:
                raise GitFailed(f"git update-index: {reply.said}")
            unreadable.add(path.removesuffix(b"\n"))
        else:
            raise GitFailed(f"too many files cannot be read, among them {min(unreadable)!r}")
        tree = self.must("write-tree", "--missing-ok").out.strip().decode()
        self._left = self._signature()
        self._count_fresh({path: at for path, at in paths.items() if path not in unreadable})
        return tree, unreadable

    @property
    def as_left(self) -> bool:
        """Whether the index is still the one that we wrote."""
        return self._left is not None and self._left == self._signature()

    def _signature(self) -> tuple[int, ...] | None:
        try:
            state = os.stat(os.path.join(self.folder, "index"))
        except FileNotFoundError:
            return None
        return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _text(path: bytes) -> bytes:
    try:
        return read_small(path, 1 << 20)
    except OSError:
        return b""
