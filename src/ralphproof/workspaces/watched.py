"""Watched files: what they hold now, told by content, and read again only where they may have changed."""

from __future__ import annotations

import os
import stat
import time

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.files import LARGEST_BYTES, SETTLED_NS, Files, Unreadable, mode_of
from ralphproof.workspaces.layout import read_all
from ralphproof.workspaces.protected import GIT, is_glob, leftover, plain, protects
from ralphproof.workspaces.trees import LINK, decode
from ralphproof.workspaces.wire import globs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspaces.wire import Glob, Wire

    Seen = tuple[bytes, str, int]  # mode, digest, permissions
    Sight = dict[bytes, Seen]
    Root = tuple[bytes, int]  # a path that is watched with all below it, and the number of its wire

NO_ACCESS = b"?"  # in the place of a mode: it is there and cannot be read; the digest is that of its signature
LARGE = "large:"  # before the digest of what is too large to keep a copy of
MOST_LINKS = 10  # that are followed one after the other
GONE = (FileNotFoundError, NotADirectoryError)


class Place:
    """A folder in which wires are laid. `prefix` comes before its paths where people see them.

    Links are never followed, but where a plain path leads over one to another place in here, that is watched as well.
    """

    def __init__(
        self, folder: str, wires: tuple[Wire, ...], keep: Callable[[bytes], str], prefix: str = "",
        skips: Callable[[bytes], bool] = leftover,
    ) -> None:  # fmt: skip
        self.folder, self.prefix, self._skips = folder, prefix, skips
        self._top = os.fsencode(folder)
        self._files = Files(folder, keep)
        self._settled: dict[bytes, tuple[tuple[int, ...], Seen]] = {}
        self.lay(wires)

    def lay(self, wires: tuple[Wire, ...], roots: tuple[Root, ...] = ()) -> None:
        """Watch by these wires from now on, and what they led to when they were armed."""
        self.wires, self.roots = wires, roots
        numbered = enumerate(wire.pattern for wire in wires)
        self._plain = tuple((plain(pattern), number) for number, pattern in numbered if not is_glob(pattern))
        self._globs = globs_of([wire.pattern for wire in wires if is_glob(wire.pattern)])

    def arm(self) -> None:
        """Follow the links that lie on the way of plain paths, as they are now, link by link."""
        found: list[Root] = []
        for path, wire in self._plain:
            onwards: bytes | None = path
            for _ in range(MOST_LINKS):
                if onwards is None:
                    break
                found.append((onwards, wire))
                onwards = self._onwards(onwards)
        self.roots = tuple(found)

    def _onwards(self, path: bytes) -> bytes | None:
        """Where a path leads over its first link; None where it has none, or leads out of here."""
        link = self._link(path + b"/")
        if not link:
            return None
        full = os.path.join(self._top, link)
        target = os.path.join(os.path.dirname(full), os.readlink(full)) + path[len(link) :]
        for way in (os.path.normpath(target), os.path.realpath(target)):
            inside = os.path.relpath(way, self._top)
            if inside != b"." and not {b"..", GIT} & set(inside.split(b"/")):
                return inside
        return None

    def look(self, known: Sight | None = None) -> Sight:
        """Everything that is watched and there. `known` is an earlier look, None where this is the first."""
        self._files.begin()
        found: Sight = {}
        for path, _ in self.roots:
            if self._clear(path, known, found):
                self._see(path, found)
        for glob in self._globs:
            if self._clear(glob.folder + b"/", known, found):
                self._search(glob, found)
        return found

    def _clear(self, path: bytes, known: Sight | None, found: Sight) -> bool:
        """Whether no link lies on the way. One that does is seen; a new one only if it leads to what is watched."""
        link = self._link(path)
        if link and (known is None or link in known or os.path.lexists(os.path.join(self._top, path))):
            self._see(link, found)
        return not link

    def _link(self, path: bytes) -> bytes:
        """The first link on the way to a path, if there is one."""
        at = path.find(b"/", 1)
        while at > 0:
            try:
                if stat.S_ISLNK(os.lstat(os.path.join(self._top, path[:at])).st_mode):
                    return path[:at]
            except OSError:
                return b""
            at = path.find(b"/", at + 1)
        return b""

    def _see(self, path: bytes, found: Sight) -> None:
        try:
            state = os.lstat(os.path.join(self._top, path))
        except GONE:
            return
        except OSError as error:
            found[path] = (NO_ACCESS, str(error.errno), 0)
            return
        if stat.S_ISDIR(state.st_mode):
            self._all_below(path, found)
        else:
            self._file(path, state, found)

    def _all_below(self, path: bytes, found: Sight) -> None:
        folders, skips, see = [path], self._skips, self._file
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder, found):
                inner = folder + b"/" + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif not skips(inner):
                    try:
                        state = entry.stat(follow_symlinks=False)
                    except GONE:
                        continue
                    see(inner, state, found)

    def _search(self, glob: Glob, found: Sight) -> None:
        folders = [(glob.folder, 1)]
        while folders:
            folder, depth = folders.pop()
            for entry in self._entries(folder, found):
                inner = folder + b"/" + entry.name if folder else entry.name
                if entry.name in glob.passed_over or self._skips(inner):
                    continue
                if glob.means.fullmatch(inner):
                    self._see(inner, found)
                elif (glob.deep is None or depth < glob.deep) and entry.is_dir(follow_symlinks=False):
                    folders.append((inner, depth + 1))

    def _entries(self, folder: bytes, found: Sight) -> list[os.DirEntry[bytes]]:
        """What lies in a folder, without the insides of repositories. One that cannot be read is itself a sight."""
        full = os.path.join(self._top, folder)
        try:
            with os.scandir(full) as entries:
                return [entry for entry in entries if entry.name != GIT]
        except GONE:
            return []
        except OSError as error:
            found[folder] = (NO_ACCESS, str(error.errno), 0)
            return []

    def _file(self, path: bytes, state: os.stat_result, found: Sight) -> None:
        # The change time cannot be set back, so it tells of every change; the inode tells of a replacement.
        signature = (state.st_ctime_ns, state.st_ino, state.st_size, state.st_mode, state.st_dev)
        known = self._settled.get(path)
        if known is not None and known[0] == signature:
            found[path] = known[1]
            return
        started = time.time_ns()
        seen = self._read(path, state, signature)
        if seen is not None:
            found[path] = seen
            if started - state.st_ctime_ns > SETTLED_NS:
                self._settled[path] = (signature, seen)

    def _read(self, path: bytes, state: os.stat_result, signature: tuple[int, ...]) -> Seen | None:
        try:
            if state.st_size > LARGEST_BYTES and stat.S_ISREG(state.st_mode):
                digest = LARGE + _digest_of(os.path.join(self._top, path))
                return mode_of(state), digest, stat.S_IMODE(state.st_mode)
            entry = self._files.look(path)
        except (Unreadable, OSError):
            return NO_ACCESS, ":".join(map(str, signature)), 0
        return None if entry is None else (*entry, stat.S_IMODE(state.st_mode))

    def later(self, path: bytes, instant_ns: int) -> bool:
        """Whether what is at this path was last touched after an instant. Of what is not there nobody can tell."""
        try:
            return os.lstat(os.path.join(self._top, path)).st_ctime_ns > instant_ns
        except OSError:
            return False

    def at(self, path: bytes) -> Seen | None:
        """What is at this path now, whether it is watched or not."""
        found: Sight = {}
        self._see(path, found)
        return found.get(path)

    def content(self, path: bytes, seen: Seen) -> bytes:
        """The bytes of a file that was just seen, or where a link leads. Raises OSError where that cannot be told."""
        full = os.path.join(self._top, path)
        if seen[0] == LINK:
            return os.readlink(full)
        descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_all(descriptor, LARGEST_BYTES)
        finally:
            os.close(descriptor)

    def wire_of(self, path: bytes) -> Wire:
        """The first wire that watches this path. For a link on the way to what is watched: the one that leads there."""
        below = (self.wires[number] for root, number in self.roots if root.startswith(path + b"/"))
        return self.watching(path) or next(below, self.wires[0])

    def watching(self, path: bytes) -> Wire | None:
        """The first wire that watches this path, wherever its content came from."""
        shown = decode(path)
        numbers = {number for root, number in self.roots if path == root or path.startswith(root + b"/")}
        named = (wire for number, wire in enumerate(self.wires) if number in numbers or protects(wire.pattern, shown))
        return next(named, None)


def differing(before: Sight, now: Sight) -> list[bytes]:
    """The paths whose kind or content is another. Permissions that make no difference to their owner are no touch."""
    if before == now:
        return []
    changed = [path for path, seen in now.items() if (old := before.get(path)) is None or old[:2] != seen[:2]]
    return sorted([*changed, *(before.keys() - now.keys())])


def _digest_of(full: bytes) -> str:
    """The digest of a file of any size."""
    import hashlib

    digest = hashlib.sha256()
    descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while piece := os.read(descriptor, 1 << 20):
            digest.update(piece)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
