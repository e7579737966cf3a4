"""Where stories lie: their file, what is kept of it out of the agent's reach, and the marker that hooks look for."""

from __future__ import annotations

import os
import time

from ralphproof.errors import from_system
from ralphproof.ledgers.files import read_whole, write_whole
from ralphproof.ledgers.process import LoopProcess, this_process
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.value import Json

MARKER, FILE = ".ralph-active", "tasks.json"


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
        self._path = os.path.join(root, facts.folder, FILE)

    def look(self) -> bytes | None:
        return read_whole(self._path)

    def write(self, data: bytes) -> None:
        _put(self._path, data, private=False)

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
        _put(os.path.join(self._root, MARKER), (json.dumps(said | marker, indent=2) + "\n").encode(), private=True)

    def quench(self) -> None:
        """Take the marker away, if it is ours."""
        if (found := marker_in(self._root)) and found.get("run") == self._facts.run:
            _remove(os.path.join(self._root, MARKER))


def marker_in(root: str) -> dict[str, Json] | None:
    """What a marker in this project says; None where there is none that can be read."""
    import json

    data = read_whole(os.path.join(root, MARKER))
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


def _put(path: str, data: bytes, private: bool) -> None:
    try:
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_whole(folder, os.path.basename(path), data, private=private)
        finally:
            os.close(folder)
    except OSError as error:
        raise from_system(error) from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_system(error) from error
