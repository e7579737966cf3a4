"""Where a repository keeps its things, read without starting git."""

from __future__ import annotations

import errno
import os
import stat

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 1 << 26
OFFSHOOTS = "worktrees"  # the folder of runs' own work trees, in the repository's part of the state folder


@value
class GitFolders:
    """The folders behind one work tree. Linked worktrees share `common` and have a `git_dir` each."""

    git_dir: str
    common: str
    algorithm: str = "sha1"
    ref_files: bool = True  # else a reftable, which only git reads

    @property
    def objects(self) -> str:
        return os.path.join(self.common, "objects")


def git_folders(root: str) -> GitFolders | None:
    """The repository whose work tree begins at `root`, or None where there is none."""
    entry = os.path.join(root, ".git")
    try:
        git_dir = entry if os.path.isdir(entry) else _pointed(entry, b"gitdir:", root)
        if git_dir is None or not os.path.isfile(os.path.join(git_dir, "HEAD")):
            return None
        common = git_dir
        if os.path.exists(os.path.join(git_dir, "commondir")):
            common = _pointed(os.path.join(git_dir, "commondir"), b"", git_dir) or git_dir
        wide, ref_files = _formats(os.path.join(common, "config"))
    except OSError:
        return None
    return GitFolders(os.path.abspath(git_dir), os.path.abspath(common), "sha256" if wide else "sha1", ref_files)


def _pointed(file: str, prefix: bytes, base: str) -> str | None:
    if not os.path.isfile(file):
        return None
    line = read_small(os.fsencode(file)).rstrip(b"\r\n")
    if not line.startswith(prefix):
        return None
    return os.path.normpath(os.path.join(base, os.fsdecode(line[len(prefix) :].strip())))


def _formats(config: str) -> tuple[bool, bool]:
    """Whether objects are named by sha256, and whether refs are files. Both are set once, when a repository is made."""
    try:
        text = read_small(os.fsencode(config)).lower()
    except FileNotFoundError:
        return False, True
    settings = [line.split(b"=", 1) for line in text.replace(b'"', b"").splitlines() if b"=" in line]
    given = {name.strip(): rest.strip() for name, rest in settings}
    return given.get(b"objectformat") == b"sha256", given.get(b"refstorage", b"files") == b"files"


def read_small(path: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """A regular file's bytes. A FIFO or device put in its place is an error, never a hang."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most_bytes:
            raise OSError(errno.EINVAL, "not a file of the expected kind", os.fsdecode(path))
        return read_all(descriptor)
    finally:
        os.close(descriptor)


def blocking_in(folder: str, objects: bool = True) -> Iterator[str]:
    """What stands in a repository that git would wait for and never get, such as a FIFO.

    Without `objects` those that have a file of their own are not looked at: there may be many.
    """
    top = os.fsencode(folder)
    store, open_ones = os.path.join(top, b"objects", b""), [top]
    while open_ones:
        try:
            with os.scandir(open_ones.pop()) as listed:
                entries = list(listed)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if objects or len(entry.name) != 2 or not entry.path.startswith(store):
                    open_ones.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and _blocks(entry):
                yield os.fsdecode(os.path.relpath(entry.path, top))


def _blocks(entry: os.DirEntry[bytes]) -> bool:
    """Whether it is, or leads to, a FIFO or a device; a socket cannot be opened."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_all(descriptor: int, most_bytes: int = MOST_BYTES) -> bytes:
    """Everything up to the end, or up to a bound for what grows while it is read."""
    pieces, size = [], 0
    while size <= most_bytes and (piece := os.read(descriptor, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def head_commit(folders: GitFolders) -> str | None:
    """The commit that HEAD names; None before the first one. Raises OSError where HEAD cannot be read."""
    text = read_small(os.fsencode(os.path.join(folders.git_dir, "HEAD")))
    for _ in range(5):
        if not text.startswith(b"ref:"):
            name = text.strip().decode("ascii", "replace")
            if not is_id(name):
                raise OSError(errno.EINVAL, "HEAD names nothing", folders.git_dir)
            return name
        reference = text[4:].strip()
        found = read_reference(folders, reference)
        if found is None:
            return None
        text = found
    raise OSError(errno.ELOOP, "HEAD goes in circles", folders.git_dir)


def lies_apart(directory: str, store: str) -> bool:
    """Whether this is a work tree that a run has, or had, for itself."""
    return os.path.dirname(directory) == os.path.join(os.path.realpath(store), OFFSHOOTS)


def is_id(name: str) -> bool:
    return len(name) in (40, 64) and not set(name) - set("0123456789abcdef")


def read_reference(folders: GitFolders, reference: bytes) -> bytes | None:
    """The text of a ref, loose or packed; None where there is none."""
    own = reference.startswith((b"refs/worktree/", b"refs/bisect/", b"refs/rewritten/"))
    folder = os.fsencode(folders.git_dir if own else folders.common)
    try:
        return read_small(os.path.join(folder, reference))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return _packed(folder, reference)


def _packed(folder: bytes, reference: bytes) -> bytes | None:
    try:
        packed = b"\n" + read_small(os.path.join(folder, b"packed-refs"))
    except FileNotFoundError:
        return None
    at = packed.find(b" " + reference + b"\n")
    return packed[packed.rindex(b"\n", 0, at) + 1 : at] if at >= 0 else None
