"""Folders and files of a git repository, read without starting git."""

from __future__ import annotations

import errno
import os
import stat

from ralphproof.base import interpreter
from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator


# Where a repository keeps its things, read without starting git.


MAX_READ_BYTES = 1 << 26
WORKTREES_FOLDER = "worktrees"  # the folder of runs' own work trees, in the repository's part of the state folder


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
        git_dir = entry if os.path.isdir(entry) else _read_pointer_file(entry, b"gitdir:", root)
        if git_dir is None or not os.path.isfile(os.path.join(git_dir, "HEAD")):
            return None
        common = git_dir
        if os.path.exists(os.path.join(git_dir, "commondir")):
            common = _read_pointer_file(os.path.join(git_dir, "commondir"), b"", git_dir) or git_dir
        wide, ref_files = _read_formats(os.path.join(common, "config"))
    except OSError:
        return None
    return GitFolders(os.path.abspath(git_dir), os.path.abspath(common), "sha256" if wide else "sha1", ref_files)


def _read_pointer_file(file: str, prefix: bytes, base: str) -> str | None:
    if not os.path.isfile(file):
        return None
    line = read_regular_file(os.fsencode(file)).rstrip(b"\r\n")
    if not line.startswith(prefix):
        return None
    return os.path.normpath(os.path.join(base, os.fsdecode(line[len(prefix) :].strip())))


def _read_formats(config: str) -> tuple[bool, bool]:
    """Whether objects are named by sha256, and whether refs are files. Both are set once, when a repository is made."""
    try:
        text = read_regular_file(os.fsencode(config)).lower()
    except FileNotFoundError:
        return False, True
    settings = [line.split(b"=", 1) for line in text.replace(b'"', b"").splitlines() if b"=" in line]
    given = {name.strip(): rest.strip() for name, rest in settings}
    return given.get(b"objectformat") == b"sha256", given.get(b"refstorage", b"files") == b"files"


def read_regular_file(path: bytes, most_bytes: int = MAX_READ_BYTES) -> bytes:
    """A regular file's bytes. A FIFO or device put in its place is an error, never a hang."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most_bytes:
            raise OSError(errno.EINVAL, "not a file of the expected kind", os.fsdecode(path))
        return read_descriptor(descriptor)
    finally:
        os.close(descriptor)


def read_if_there(path: bytes, most_bytes: int = MAX_READ_BYTES) -> bytes | None:
    """The same; None where there is no such file, or it cannot be read."""
    try:
        return read_regular_file(path, most_bytes)
    except OSError:
        return None


def find_blocking_files(folder: str, objects: bool = True) -> Iterator[str]:
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
            elif not entry.is_file(follow_symlinks=False) and _is_blocking(entry):
                yield os.fsdecode(os.path.relpath(entry.path, top))


def _is_blocking(entry: os.DirEntry[bytes]) -> bool:
    """Whether it is, or leads to, a FIFO or a device; a socket cannot be opened."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_descriptor(descriptor: int, most_bytes: int = MAX_READ_BYTES) -> bytes:
    """Everything up to the end, or up to a bound for what grows while it is read."""
    pieces, size = [], 0
    while size <= most_bytes and (piece := os.read(descriptor, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def head_commit(folders: GitFolders) -> str | None:
    """The commit that HEAD names; None before the first one. Raises OSError where HEAD cannot be read."""
    text = read_regular_file(os.fsencode(os.path.join(folders.git_dir, "HEAD")))
    for _ in range(5):
        if not text.startswith(b"ref:"):
            name = text.strip().decode("ascii", "replace")
            if not is_object_id(name):
                raise OSError(errno.EINVAL, "HEAD names nothing", folders.git_dir)
            return name
        reference = text[4:].strip()
        found = read_ref_text(folders, reference)
        if found is None:
            return None
        text = found
    raise OSError(errno.ELOOP, "HEAD goes in circles", folders.git_dir)


def is_run_worktree(directory: str, store: str) -> bool:
    """Whether this is a work tree that a run has, or had, for itself."""
    return os.path.dirname(directory) == os.path.join(os.path.realpath(store), WORKTREES_FOLDER)


def is_object_id(name: str) -> bool:
    return len(name) in (40, 64) and not set(name) - set("0123456789abcdef")


def read_ref_text(folders: GitFolders, reference: bytes) -> bytes | None:
    """The text of a ref, loose or packed; None where there is none."""
    own = reference.startswith((b"refs/worktree/", b"refs/bisect/", b"refs/rewritten/"))
    folder = os.fsencode(folders.git_dir if own else folders.common)
    try:
        return read_regular_file(os.path.join(folder, reference))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return _read_packed_ref(folder, reference)


def _read_packed_ref(folder: bytes, reference: bytes) -> bytes | None:
    try:
        packed = b"\n" + read_regular_file(os.path.join(folder, b"packed-refs"))
    except FileNotFoundError:
        return None
    at = packed.find(b" " + reference + b"\n")
    return packed[packed.rindex(b"\n", 0, at) + 1 : at] if at >= 0 else None


def find_project_root(start: str) -> str:
    """The project around `start`: the nearest folder with `.ralph/settings.json` or `.git`, else `start` itself."""
    here = start = os.path.realpath(start)
    while True:
        if os.path.isfile(os.path.join(here, ".ralph", "settings.json")) or _has_repository(here, start):
            return here
        above = os.path.dirname(here)
        if above == here:
            return start
        here = above


def _has_repository(here: str, start: str) -> bool:
    """Whether `.git` is one: an empty folder above counts for nothing, as with git itself.

    Codex 0.166 makes such a folder in /tmp while it works; one in the project itself is a repository that broke.
    """
    entry = os.path.join(here, ".git")
    return os.path.lexists(entry) and (here == start or not os.path.isdir(entry) or bool(os.listdir(entry)))


def enclosing_repository(root: str) -> str | None:
    """The git repository that a project is a mere folder of; None where it is one itself, or in none."""
    here = os.path.realpath(root)
    if git_folders(here):
        return None
    while (above := os.path.dirname(here)) != here:
        if git_folders(above):
            return above
        here = above
    return None


def is_inside_project(path: str, root: str) -> bool:
    """Whether a path, which need not exist, lies in a project: in its folder, or in any work tree of its repository."""
    here, root = os.path.realpath(path), os.path.realpath(root)
    if f"{here}/".startswith(f"{root}/"):
        return True
    own = git_folders(root)
    if own is None:
        return False
    common = os.path.realpath(own.common)
    if f"{here}/".startswith(f"{common}/"):
        return True
    while (above := os.path.dirname(here)) != here:
        found = git_folders(here)
        if found is not None and os.path.realpath(found.common) == common:
            return True
        here = above
    return False


# The project that a folder belongs to, without the rest of a project: who posts a message needs no more.


def resolve_project_root(folder: str | None) -> str:
    """The top of the project that a folder belongs to; None is the folder we are in."""
    if folder == "":
        raise Refused("the project's folder has an empty name; name one with --project-dir, or leave it out")
    try:
        start = os.path.abspath(folder or os.getcwd())
    except FileNotFoundError as error:
        raise Refused("the current directory no longer exists; go to a project, or name its --project-dir") from error
    if not os.path.isdir(start):
        raise Refused(f"{start} is not a directory; name a project with --project-dir")
    root = find_project_root(start)
    interpreter.exclude_project(root)
    return root
