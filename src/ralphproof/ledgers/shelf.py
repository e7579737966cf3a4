"""Where stories lie: their file, what is kept of it out of the agent's reach, and the marker that hooks look for."""

from __future__ import annotations

import errno
import os
import time

from ralphproof.errors import from_system
from ralphproof.ledgers.files import enter, read_start, remove, write_whole
from ralphproof.ledgers.process import LoopProcess, this_process
from ralphproof.story import MOST_BYTES
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.value import Json

MARKER, FILE = ".ralph-active", "tasks.json"
FIXED = ("prd.md",)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@value
class Facts:
    """What the marker says of the run, whichever iteration it is in. One that never `commits` is not held to it."""

    run: str
    max_iterations: int
    skip_review: bool
    review_cap: int
    folder: str
    commits: bool = True
    mode: str = "direct"


class Shelf:
    """The stories of one run."""

    def __init__(
        self, root: str, facts: Facts, notes: RunFolder, dirty: Callable[[], tuple[str, ...]] = lambda: ()
    ) -> None:
        """`dirty` tells what was uncommitted before the run, and is nobody's to commit now."""
        self._root, self._facts, self._notes, self._dirty = root, facts, notes, dirty

    def look(self) -> bytes | None:
        return _read(self._root, self._facts.folder, FILE)

    def write(self, data: bytes) -> None:
        _put(self._root, self._facts.folder, FILE, data, private=False)

    def others(self) -> dict[str, bytes | None]:
        folder = self._facts.folder
        return {f"{folder}/{name}": _read(self._root, folder, name) for name in FIXED}

    def restore(self, name: str, data: bytes | None) -> None:
        folder, _, file = name.rpartition("/")
        if data is None:
            _remove(os.path.join(self._root, name))
        else:
            _put(self._root, folder, file, data, private=False)

    def note(self, name: str, data: Json) -> None:
        self._notes.note(name, data)

    def noted(self, name: str) -> Json | None:
        return self._notes.noted(name)

    def light(self, marker: dict[str, Json]) -> None:
        """Write the marker, whole: hooks read it while we are at work."""
        import json

        facts, us = self._facts, this_process()
        said: dict[str, Json] = {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "pid": us.pid,
            "pidStart": us.start,
            "boot": us.boot,
            "max_iterations": facts.max_iterations,
            "mode": facts.mode,
            "skipReview": facts.skip_review,
            "reviewCap": facts.review_cap,
            "run": facts.run,
            "ralphDir": facts.folder,
            "commits": facts.commits,
            "dirtyBefore": [
                path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for path in self._dirty()
            ],
        }
        _put(self._root, "", MARKER, (json.dumps(said | marker, indent=2) + "\n").encode(), private=True)

    def quench(self) -> None:
        """Take the marker away, if it is ours."""
        if (found := marker_in(self._root)) and found.get("run") == self._facts.run:
            _remove(os.path.join(self._root, MARKER))


def marker_in(root: str) -> dict[str, Json] | None:
    """What a marker in this project says; None where there is none that can be read."""
    import json

    data = _read(root, "", MARKER)
    try:
        found = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else None if data is None else {}


def clear_stale(root: str, run: str) -> str:
    """Take a marker away that a dead run left here; what there is to say of it."""
    found = marker_in(root)
    if found is None or found.get("run") == run:
        return ""
    if lives(found):
        return ""
    _remove(os.path.join(root, MARKER))
    return f"{MARKER} was left behind by a run that is over (pid {found.get('pid')}); it was removed"


def lives(marker: dict[str, Json]) -> bool:
    """Whether the loop that wrote a marker is still there. Another program's has a bare number at best."""
    pid, start, boot = marker.get("pid"), marker.get("pidStart", ""), marker.get("boot", "")
    if not isinstance(pid, int) or not isinstance(start, str) or not isinstance(boot, str):
        return False
    return LoopProcess(pid, start, boot).alive


def _read(root: str, folder: str, name: str) -> bytes | None:
    """The bytes of a file, a few more than may be in it at most; None where no file is, or a link is in the way."""
    try:
        opened = _opened(root, folder)
    except OSError:
        return None
    try:
        return read_start(opened, name, MOST_BYTES + 1)
    finally:
        os.close(opened)


def _put(root: str, folder: str, name: str, data: bytes, private: bool) -> None:
    """Write a file whole. Until it is complete it lies where nobody commits it, also if we die meanwhile."""
    try:
        opened, by = _opened(root, folder, make=True), _ours(root)
        try:
            write_whole(opened, name, data, private=private, by=by)
        except OSError as error:
            if error.errno != errno.EXDEV:  # our folder may be on a disk of its own
                raise
            write_whole(opened, name, data, private=private)
        finally:
            os.close(opened)
            if by is not None:
                os.close(by)
    except OSError as error:
        raise from_system(error) from error


def _ours(root: str) -> int | None:
    """A descriptor of our folder, which git ignores; None where something else stands in its place."""
    top = _opened(root, "")
    try:
        return enter(top, ".ralph")[0]
    except OSError:
        return None
    finally:
        os.close(top)


def _opened(root: str, folder: str, make: bool = False) -> int:
    """A descriptor of a folder of the project. Nothing is reached by a link that an agent may have made.

    With `make`, what stands in its way is replaced: the agent's work is saved already.
    """
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, folder.split(os.sep)):
        try:
            inner = _entered(here, name, make)
        finally:
            os.close(here)
        here = inner
    return here


def _entered(folder: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        if not make:
            raise
    remove(folder, name)
    os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_system(error) from error
