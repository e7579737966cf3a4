"""The story files of a run, and the marker file .ralph-active that hooks read."""

from __future__ import annotations

import errno
import os
import time

from ralphproof.base.errors import wrap_os_error
from ralphproof.base.files import open_subfolder, read_file_start, remove_file, write_atomically
from ralphproof.base.processes import ProcessIdentity, current_process
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.stories.schema import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.store.run_folder import RunFolder

MARKER, STORIES_FILE = ".ralph-active", "tasks.json"
READ_ONLY_FILES = ("prd.md",)
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@value
class MarkerFacts:
    """The facts in the marker that hold for the whole run. Without `commits` the agent need not commit its work."""

    run: str
    max_iterations: int
    skip_review: bool
    review_cap: int
    folder: str
    commits: bool = True
    mode: str = "direct"


class StoryFiles:
    """The story files of one run. It is the storage of a `StoryPlan`."""

    def __init__(
        self, root: str, facts: MarkerFacts, notes: RunFolder, dirty: Callable[[], tuple[str, ...]] = lambda: ()
    ) -> None:
        """`dirty` lists the paths that were uncommitted before the run: the agent need not commit those."""
        self._root, self._facts, self._notes, self._dirty_paths = root, facts, notes, dirty

    def read(self) -> bytes | None:
        return _read_file(self._root, self._facts.folder, STORIES_FILE)

    def write(self, data: bytes) -> None:
        _write_file(self._root, self._facts.folder, STORIES_FILE, data, private=False)

    def read_only_files(self) -> dict[str, bytes | None]:
        folder = self._facts.folder
        return {f"{folder}/{name}": _read_file(self._root, folder, name) for name in READ_ONLY_FILES}

    def restore(self, name: str, data: bytes | None) -> None:
        folder, _, file = name.rpartition("/")
        if data is None:
            _remove_file(os.path.join(self._root, name))
        else:
            _write_file(self._root, folder, file, data, private=False)

    def note(self, name: str, data: Json) -> None:
        self._notes.note(name, data)

    def noted(self, name: str) -> Json | None:
        return self._notes.noted(name)

    def write_marker(self, marker: dict[str, Json]) -> None:
        """Write the marker atomically: hooks read it at any time."""
        import json

        facts, us = self._facts, current_process()
        content: dict[str, Json] = {
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
                path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                for path in self._dirty_paths()
            ],
        }
        _write_file(self._root, "", MARKER, (json.dumps(content | marker, indent=2) + "\n").encode(), private=True)

    def remove_marker(self) -> None:
        """Remove the marker, if this run wrote it."""
        if (found := read_marker(self._root)) and found.get("run") == self._facts.run:
            _remove_file(os.path.join(self._root, MARKER))


def read_marker(root: str) -> dict[str, Json] | None:
    """The content of the marker file: None where there is none, empty where it cannot be parsed."""
    import json

    data = _read_file(root, "", MARKER)
    try:
        found = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else None if data is None else {}


def remove_stale_marker(root: str, run: str) -> str:
    """Remove the marker of a dead run; the notice about it, empty where nothing was removed."""
    found = read_marker(root)
    if found is None or found.get("run") == run:
        return ""
    if is_marker_alive(found):
        return ""
    _remove_file(os.path.join(root, MARKER))
    return f"{MARKER} was left behind by a run that is over (pid {found.get('pid')}); it was removed"


def is_marker_alive(marker: dict[str, Json]) -> bool:
    """Whether the loop that wrote a marker still runs. A marker of another program has a bare process id at best."""
    pid, start, boot = marker.get("pid"), marker.get("pidStart", ""), marker.get("boot", "")
    if not isinstance(pid, int) or not isinstance(start, str) or not isinstance(boot, str):
        return False
    return ProcessIdentity(pid, start, boot).alive


def _read_file(root: str, folder: str, name: str) -> bytes | None:
    """The bytes of a file, at most one more than allowed; None where there is no file, or a link is in the way."""
    try:
        opened = _open_folder(root, folder)
    except OSError:
        return None
    try:
        return read_file_start(opened, name, MAX_BYTES + 1)
    finally:
        os.close(opened)


def _write_file(root: str, folder: str, name: str, data: bytes, private: bool) -> None:
    """Write a file atomically. The temporary file lies in our folder, which is never committed, also after a crash."""
    try:
        opened, by = _open_folder(root, folder, make=True), _open_ralph_folder(root)
        try:
            write_atomically(opened, name, data, private=private, by=by)
        except OSError as error:
            if error.errno != errno.EXDEV:  # our folder may be on a disk of its own
                raise
            write_atomically(opened, name, data, private=private)
        finally:
            os.close(opened)
            if by is not None:
                os.close(by)
    except OSError as error:
        raise wrap_os_error(error) from error


def _open_ralph_folder(root: str) -> int | None:
    """A descriptor of the folder .ralph, which git ignores; None where something else has its name."""
    top = _open_folder(root, "")
    try:
        return open_subfolder(top, ".ralph")[0]
    except OSError:
        return None
    finally:
        os.close(top)


def _open_folder(root: str, folder: str, make: bool = False) -> int:
    """A descriptor of a folder of the project. Links are not followed: an agent may have made them.

    With `make`, whatever else has its name is replaced: the agent's work is saved already.
    """
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, folder.split(os.sep)):
        try:
            inner = _enter_folder(here, name, make)
        finally:
            os.close(here)
        here = inner
    return here


def _enter_folder(folder: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=folder)
    except OSError:
        if not make:
            raise
    remove_file(folder, name)
    os.mkdir(name, dir_fd=folder)
    return os.open(name, _OPEN_FOLDER, dir_fd=folder)


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise wrap_os_error(error) from error
