"""Files and folders that are there only so that something can lie over them: nobody may make the real ones meanwhile.

What was made is on record before it is made. It is removed when nobody needs it any more, also after a crash.
"""

from __future__ import annotations

import fcntl
import os
import stat

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

BOX, LOCK, LIST = "box", "ghosts.lock", "ghosts.json"
# What lies in a file of this name, where nothing would be an error: to git it means that all is where it was.
CONTENTS = {"commondir": b".\n"}


class Ghosts:
    """Those of one project; `folder` is private, and outside the project. Many commands may need them at a time."""

    def __init__(self, folder: str) -> None:
        self._folder, self.lock = folder, os.path.join(folder, LOCK)
        self._list = os.path.join(folder, LIST)

    def hold(self) -> int:
        """Let nobody remove any; a descriptor to give back to `lift`.

        It comes before a box is planned: what is there for another box then must not vanish before this one is open.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        held = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_SH)
        return held

    def lay(self, files: Iterable[str], folders: Iterable[str], unseen: Container[str] = ()) -> None:
        """Make what is not there, folders first; whoever calls this holds them.

        Files that are `unseen` inside are sockets outside: git does not show them, and who opens one fails at once.
        """
        wanted = [(path, True) for path in folders] + [(path, False) for path in files]
        missing = [(path, folder) for path, folder in wanted if not os.path.lexists(path)]
        if missing:
            self._add({path for path, _ in missing})
        for path, folder in missing:
            _make(path, folder, path in unseen)

    def lift(self, held: int | None = None) -> None:
        """Remove what was made and is still as it was made, unless somebody else still needs it."""
        if held is None and not os.path.exists(self._list):
            return
        file = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if held is None else held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        else:
            self._remove()
        finally:
            os.close(file)

    def _remove(self) -> None:
        for path in sorted(self._known(), key=len, reverse=True):
            try:
                state = os.lstat(path)
                if stat.S_ISDIR(state.st_mode):
                    os.rmdir(path)
                elif stat.S_ISSOCK(state.st_mode) or (stat.S_ISREG(state.st_mode) and _untouched(path, state.st_size)):
                    os.unlink(path)
            except OSError:
                continue  # it is gone, or holds something by now
        try:
            os.unlink(self._list)
        except FileNotFoundError:
            return

    def _known(self) -> set[str]:
        import json

        try:
            with open(self._list, "rb") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return set()
        return {path for path in found if isinstance(path, str)} if isinstance(found, list) else set()

    def _add(self, paths: set[str]) -> None:
        """Put some on record too; others who need ghosts may do so at the same time."""
        alone = os.open(self._list + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(alone, fcntl.LOCK_EX)
            self._record({*self._known(), *paths})
        finally:
            os.close(alone)

    def _record(self, paths: set[str]) -> None:
        import json

        draft = f"{self._list}.{os.getpid()}.tmp"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(sorted(paths)).encode())
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(draft, self._list)


def lift_left(store: str) -> None:
    """Remove what those left around any folder of a project who were killed. `store` is the project's own."""
    boxes = os.path.join(store, BOX)
    try:
        names = os.listdir(boxes)
    except OSError:
        return
    for name in names:
        Ghosts(os.path.join(boxes, name)).lift()


def _untouched(path: str, size: int) -> bool:
    content = CONTENTS.get(os.path.basename(path), b"")
    if size != len(content):
        return False
    with open(path, "rb") as file:
        return file.read(size + 1) == content


def _make(path: str, folder: bool, unseen: bool = False) -> None:
    try:
        if folder:
            os.mkdir(path, 0o755)
        elif unseen and _made_socket(path):
            return
        elif content := CONTENTS.get(os.path.basename(path)):
            _make_whole(path, content)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444))
    except FileExistsError:
        return


def _made_socket(path: str) -> bool:
    """Whether this file system has sockets (those of Windows, say, have none)."""
    try:
        os.mknod(path, stat.S_IFSOCK | 0o444)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _make_whole(path: str, content: bytes) -> None:
    """With its content from the first moment: somebody may read it."""
    draft = f"{path}.{os.getpid()}.tmp"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    try:
        os.write(file, content)
    finally:
        os.close(file)
    try:
        os.link(draft, path)
    finally:
        os.unlink(draft)
