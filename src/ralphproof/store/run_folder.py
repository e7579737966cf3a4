"""The files of one run, `.ralph/runs/<run>/`, their private copies, and runs whose outcome is not published yet."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from ralphproof.base.errors import HarnessFailed, Refused, WorkspaceGone
from ralphproof.base.files import (
    copy_atomically,
    explain_os_error,
    make_private_folder,
    open_subfolder,
    read_file,
    read_file_start,
    symlink_atomically,
    sync_file,
    sync_folders,
    write_atomically,
)
from ralphproof.base.redaction import PRIVATE_LOG_SUFFIX
from ralphproof.base.text import MAX_QUOTE_CHARS
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.claim import Claim
from ralphproof.store.serialization import dump_masked_json, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ralphproof.base.value import Json

    T = TypeVar("T")


DONE_FILE, WAIT_FILE = "DONE", "WAIT_WITHOUT_RESTART"
_READ_BYTES = 4096
_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)  # macOS lacks the last
_TASK_FOLDER_REMEDY = "make it a directory that you may write to"


class SignalFiles:
    """Signal files in a folder that the agent can write to. Whatever they are, nothing hangs, and no link is followed.

    The folder is resolved once: a link that replaces it later leads nowhere.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._reported: set[str] = set()
        self._remarks: list[str] = []

    def look(self) -> Claim | None:
        """The claim: that the agent waits, else that it is done. Raises Refused if a signal file is a directory."""
        return self._in_folder(self._claim, None)

    def remarks(self) -> tuple[str, ...]:
        """Remarks since the last call, each only once."""
        remarks, self._remarks = tuple(self._remarks), []
        return remarks

    def put_away(self, known: frozenset[str], suffix: str, why: str = "stale") -> tuple[str, ...]:
        """Rename the signal files with these stamps, which are stale; returns their new names."""

        def work(folder: int) -> tuple[str, ...]:
            stale = [
                name for name in (DONE_FILE, WAIT_FILE) if (seen := _stat_entry(folder, name)) and _stamp(seen) in known
            ]
            return tuple(_rename_to_free_name(folder, name, f"{name}.{why}-{suffix}") for name in stale)

        return self._in_folder(work, ())

    def consume(self, suffix: str) -> tuple[str, ...]:
        """Rename the signal file of a wait that is over, if there is one; returns its new name."""

        def work(folder: int) -> tuple[str, ...]:
            return (
                (_rename_to_free_name(folder, WAIT_FILE, f"{WAIT_FILE}.answered-{suffix}"),)
                if self._find_stamp(folder, WAIT_FILE)
                else ()
            )

        return self._in_folder(work, ())

    def _claim(self, folder: int) -> Claim | None:
        waits, done = self._find_stamp(folder, WAIT_FILE), self._find_stamp(folder, DONE_FILE)
        if waits:
            return Claim(_first_line(folder), waiting=True, source="marker", stamp=waits)
        return Claim(DONE_FILE, source="marker", stamp=done) if done else None

    def _find_stamp(self, folder: int, name: str) -> str:
        """The stamp of a signal file; empty if there is none that counts."""
        seen = _stat_entry(folder, name)
        if seen is None:
            return ""
        if stat.S_ISDIR(seen.st_mode):
            raise Refused(f"{name} is a directory: {os.path.join(self._folder, name)}; remove it")
        if stat.S_ISLNK(seen.st_mode) and (target := _link_problem(folder, name)):
            self._remark(f"{name} is a link to {target}, and counts for nothing")
            return ""
        return _stamp(seen)

    def _remark(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._remarks.append(message)

    def _in_folder(self, work: Callable[[int], T], missing: T) -> T:
        """Do something in the folder; `missing` if it is gone, or not a folder."""
        try:
            folder = _open_folder(self._folder)
            try:
                return work(folder)
            finally:
                os.close(folder)
        except (FileNotFoundError, NotADirectoryError):
            return missing
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link, on macOS
                return missing
            raise explain_os_error(error, self._folder, _TASK_FOLDER_REMEDY) from error


def _open_folder(path: str) -> int:
    """A descriptor of a directory. Each path component is opened by itself, so that no link is followed."""
    folder = os.open("/", _FLAGS)
    for name in filter(None, path.split("/")):
        try:
            inner = os.open(name, _FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _stat_entry(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _stamp(seen: os.stat_result) -> str:
    """Identifies a signal file, and changes when it is touched again."""
    return f"{seen.st_dev}:{seen.st_ino}:{seen.st_ctime_ns}"


def _link_problem(folder: int, name: str) -> str:
    """Why a link is no signal file; empty if its target counts. The target is not opened."""
    try:
        return "a directory" if stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode) else ""
    except OSError:
        return "nothing"


def _first_line(folder: int) -> str:
    """What the agent waits for: the first line of the signal file."""
    text = (read_file_start(folder, WAIT_FILE, _READ_BYTES) or b"").decode("utf-8", "replace")
    return text.strip().replace("\r", "\n").partition("\n")[0].strip()[:MAX_QUOTE_CHARS] or WAIT_FILE


def _rename_to_free_name(folder: int, name: str, wanted: str) -> str:
    """The new name of a signal file: a number is added if it is taken."""
    new, number = wanted, 1
    while _stat_entry(folder, new):
        number += 1
        new = f"{wanted}-{number}"
    os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    return new


# The files of one run, `.ralph/runs/<run>/`, their private copies, and runs whose outcome is not published yet.


UNPUBLISHED_FOLDER = "unpublished"


def list_unpublished_runs(store: str) -> list[str]:
    """The runs whose outcome, proof or statistics may not be published yet."""
    try:
        return os.listdir(os.path.join(store, UNPUBLISHED_FOLDER))
    except OSError:
        return []


class PublicationLock:
    """The lock of the process that publishes the end of a run: a file per run, deleted when all is published.

    A file that is not locked was left by a process that died. Publishing only copies what the ledger has, so errors
    here stop nothing.
    """

    def __init__(self, store: str, run: str) -> None:
        self._folder = os.path.join(store, UNPUBLISHED_FOLDER)
        self._path = os.path.join(self._folder, run)
        self._file = -1

    def begin(self) -> None:
        """Create and lock the file, durably: the end of the run is about to be recorded."""
        try:
            make_private_folder(self._folder)
            if self._open_and_lock(os.O_CREAT):
                sync_file(self._file)
                sync_folders({os.fsencode(self._folder)})
        except OSError:
            self._close()

    def take_over(self) -> bool:
        """Lock the file of a process that died; returns False if there is none, or it is locked."""
        try:
            return self._open_and_lock(0)
        except OSError:
            return False

    def done(self) -> None:
        """Delete the file: everything is published."""
        if self._file >= 0:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # the next process publishes it again, with the same result
            self._close()

    def _open_and_lock(self, flags: int) -> bool:
        """Lock the file; False if another process has it, or has just finished."""
        self._close()
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._close()
            return False
        if not os.fstat(self._file).st_nlink:
            self._close()
            return False
        return True

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


GITIGNORE_TEXT = "*\n!/.gitignore\n!/settings.json\n!/skills/\n!/skills/**\n!/templates/\n!/templates/**\n"
TURN_SUFFIX, PROMPT_SUFFIX, NOTE_SUFFIX = ".turn", ".asked", ".json"
PROOF_FOLDER = "proof"
SANDBOX_SUFFIXES = (".load", ".stay")  # files of the sandbox about a command
PRIVATE_SUFFIXES = (
    TURN_SUFFIX,
    PROMPT_SUFFIX,
    NOTE_SUFFIX,
    *SANDBOX_SUFFIXES,
    ".tmp",
    f"{PRIVATE_LOG_SUFFIX}.log",
)  # never published
_REMEDY = "make it a directory that you may write to, or run in another project"
_STATE_REMEDY = "set RALPH_STATE_DIR to a directory of yours"
_RUN_ID_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"


def new_run_id(now: float, random: bytes) -> str:
    """A run id, e.g. `20261115-210507-k3f9`: the second in UTC, and four letters for three random bytes."""
    import time

    number = int.from_bytes(random[:3], "big")
    letters = "".join(_RUN_ID_LETTERS[number >> shift & 31] for shift in (15, 10, 5, 0))
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{letters}"


def is_run_id(text: str) -> bool:
    """Whether a text has the form of a run id."""
    date, second, letters = (*text.split("-"), "", "", "")[:3]
    numbers = date.isdigit() and len(date) == 8 and second.isdigit() and len(second) == 6
    return (
        text.isascii()
        and text.count("-") == 2
        and numbers
        and len(letters) == 4
        and set(letters) <= set(_RUN_ID_LETTERS)
    )


def _do_nothing(_folder: int) -> None:
    """Do nothing: the folder exists now."""


class RunFolder:
    """The folder `.ralph/runs/<run>/` for people, and private copies beside the ledger, out of the agent's reach.

    Deleted folders are created again at the next write. Nothing is written through a symbolic link inside the
    project: the agent could have made it. A task folder that the user chose is theirs, wherever it is.
    """

    def __init__(
        self, project_root: str, run: str, state_dir: str, mask: Callable[[str], str] = str,
        task_folder: str | None = None, latest: bool = True,
    ) -> None:  # fmt: skip
        """`latest`: whether `.ralph/latest` is to point to this run: not for a child run."""
        self._root, self.run, self._mask, self._latest = os.path.abspath(project_root), run, mask, latest
        self._user_task_folder = task_folder and os.path.normpath(os.path.join(self._root, task_folder))
        self._path = os.path.join(self._root, ".ralph", "runs", run)
        self._private_folder = os.path.join(state_dir, "runs", run)
        self._publishing = PublicationLock(state_dir, run)

    def begin(self) -> None:
        """Create the folder, and point `.ralph/latest` to it; refuses if `.ralph` cannot be used."""
        self._with_run_folder(_do_nothing, begin=True)

    @property
    def task_folder(self) -> str:
        """Where the agent may leave its own files, created if it was missing."""
        if self._user_task_folder:
            try:
                make_private_folder(self._user_task_folder)
            except OSError as error:
                raise explain_os_error(error, self._user_task_folder, "choose another task folder") from error
            return self._user_task_folder
        self._with_run_folder(lambda folder: os.close(open_subfolder(folder, "task")[0]))
        return os.path.join(self._path, "task")

    def write_prompt(self, name: str, text: str) -> str:
        """Write a prompt, and a private copy; returns its path."""
        masked = self._mask(text)
        self._write_private(name + PROMPT_SUFFIX, masked.encode("utf-8", "surrogatepass"), durable=False)
        data = encode_text(masked)
        self._with_run_folder(lambda folder: write_atomically(folder, f"{name}.txt", data, durable=False))
        return os.path.join(self._path, f"{name}.txt")

    def read_prompt(self, name: str) -> str | None:
        """The prompt that was written under this name, by its private copy; None if it is lost."""
        data = read_file(os.path.join(self._private_folder, name + PROMPT_SUFFIX))
        try:
            return None if data is None else data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None

    def note(self, name: str, data: Json) -> None:
        """Store a small JSON value privately; durable when this returns."""
        self._write_private(name + NOTE_SUFFIX, encode_text(dump_masked_json(data, str) + "\n"), durable=True)

    def noted(self, name: str) -> Json | None:
        """The value that was stored under this name; None if there is none, or it is damaged."""
        import json

        data = read_file(os.path.join(self._private_folder, name + NOTE_SUFFIX)) or b""
        try:
            found: Json = json.loads(data) if data.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return None
        return found

    def log_base(self, name: str) -> str:
        """The path of a private log without its suffix; its folder exists."""
        try:
            make_private_folder(self._private_folder)
        except OSError as error:
            raise explain_os_error(error, self._private_folder, _STATE_REMEDY) from error
        return os.path.join(self._private_folder, name)

    def publish(self, name: str) -> None:
        """Copy the private logs of this name, whatever their suffixes, to the public folder."""
        self._with_run_folder(lambda folder: self._copy(folder, f"{name}."))

    def published_path(self, name: str) -> str:
        """The public path of a log without its suffix."""
        return os.path.join(self._path, name)

    def write_patch(self, name: str, data: bytes) -> str:
        """Store a patch under this name; its public path, relative to the project's root."""
        self._write_private(f"{name}.patch", data, durable=True)
        self.publish(name)
        return os.path.relpath(self.published_path(name), self._root) + ".patch"

    def turn_file(self, name: str) -> str:
        """The path of a turn file, which has a turn's lock and result."""
        return self.log_base(name) + TURN_SUFFIX

    def begin_outcome(self) -> None:
        """The run's end is about to be recorded: if this process dies before `write_outcome`, another publishes it."""
        self._publishing.begin()

    def write_outcome(self, result: dict[str, Json]) -> None:
        """Write outcome.json, the last file of a run that is published."""
        data = encode_text(dump_masked_json(result, self._mask, indent=2) + "\n")
        self._with_run_folder(lambda folder: write_atomically(folder, "outcome.json", data))
        self._publishing.done()

    def prove(self, files: dict[str, str]) -> None:
        """Write the files of the proof to a folder of their own."""

        def write(folder: int) -> None:
            inner, _ = open_subfolder(folder, PROOF_FOLDER)
            try:
                for name, text in files.items():
                    write_atomically(inner, name, encode_text(text))
            finally:
                os.close(inner)

        self._with_run_folder(write)

    def _write_private(self, name: str, data: bytes, durable: bool) -> None:
        path = self.log_base(name)
        try:
            folder = os.open(self._private_folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                write_atomically(folder, name, data, durable)
            finally:
                os.close(folder)
        except OSError as error:
            raise explain_os_error(error, path, _STATE_REMEDY) from error

    def _with_run_folder(self, work: Callable[[int], None], begin: bool = False) -> None:
        """Do something in the public folder. It may be deleted at any moment, so this tries again."""
        for _ in range(5):
            try:
                folder = self._enter(begin)
                try:
                    return work(folder)
                finally:
                    os.close(folder)
            except FileNotFoundError as error:
                if not os.path.isdir(self._root):
                    raise WorkspaceGone(f"{self._root} is gone: it was deleted or moved") from error
            except OSError as error:
                raise explain_os_error(error, self._path_of_error(error), _REMEDY) from error
        raise HarnessFailed(f"{self._path} is deleted as often as it is made")

    def _path_of_error(self, error: OSError) -> str:
        """The path to name in an error: the one of the run's folders that is no folder, else the run's own."""
        ralph = os.path.join(self._root, ".ralph")
        folders = (ralph, os.path.join(ralph, "runs"), self._path)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return next((path for path in folders if os.path.islink(path) or not os.path.isdir(path)), self._path)
        return next((path for path in reversed(folders) if os.path.isdir(path)), self._root)

    def _enter(self, begin: bool) -> int:
        """A descriptor of the public folder. If it had to be created, so are the files around it."""
        opened = [os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)]
        try:
            for name in (".ralph", "runs", self.run):
                inner, made = open_subfolder(opened[-1], name)
                opened.append(inner)
            if made or begin:
                self._write_gitignore_and_latest(opened[1])
            if made:
                self._copy(opened[-1], "")
            return opened.pop()
        finally:
            for folder in opened:
                os.close(folder)

    def _copy(self, folder: int, start: str) -> None:
        """Copy all logs whose names start with this."""
        try:
            names = os.listdir(self._private_folder)
        except OSError:
            return  # no command was started yet
        for name in names:
            if name.startswith(start) and not name.endswith(PRIVATE_SUFFIXES):
                copy_atomically(folder, name, os.path.join(self._private_folder, name))

    def _write_gitignore_and_latest(self, ralph: int) -> None:
        try:
            os.stat(".gitignore", dir_fd=ralph, follow_symlinks=False)
        except FileNotFoundError:
            write_atomically(ralph, ".gitignore", GITIGNORE_TEXT.encode())
        if not self._latest:
            return
        try:
            symlink_atomically(ralph, "latest", f"runs/{self.run}")
        except OSError as error:
            # Only a convenience: a directory of that name, or a file system without links, must not stop a run.
            if error.errno not in (errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EPERM, errno.ENOTSUP):
                raise
