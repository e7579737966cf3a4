"""The folder of a worker: its lock and its name."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time

from ralphproof.base.errors import Busy, Refused
from ralphproof.base.files import explain_os_error, make_private_folder
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.fleet.submission import is_plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import TextIOWrapper

    from ralphproof.fleet.submission import LoopSpec


# Where a worker keeps what it has of loops: one folder, below which everything lies. It shares it with nobody.


LOCK_TIMEOUT_S, LOCK_POLL_S = 20.0, 0.05  # so long is waited for a step of the same loop that is about to end
# Beginnings of variables that say how ralph runs, or in which run we are; and what lets a worker speak to its server,
# which is a login on all workers.
OWN_VARIABLES = ("RALPH_", "TASK_FOLDER", "TEMPORAL_")


class LoopFolder:
    """The folder of one loop: its clone, its state and the submitter's settings, with the mirror beside it."""

    def __init__(self, work: str, spec: LoopSpec) -> None:
        self._work, self.loop = os.path.abspath(work), spec.loop
        name = hashlib.sha256(spec.repo.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        self.mirror = os.path.join(self._work, "mirrors", f"{name}.git")
        self.path = os.path.join(self._work, "loops", spec.loop)
        self.tree, self.state = os.path.join(self.path, "tree"), os.path.join(self.path, "state")
        self._config = os.path.join(self.path, "config")
        self._spec = spec
        try:
            make_private_folder(os.path.dirname(self.path))
        except OSError as error:
            raise explain_os_error(error, self._work, "give the worker a folder of its own") from error

    def lock(self) -> None:
        """Have the loop on this machine until this process ends; raises Busy where another one has it for long."""
        held = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(held)
                    raise Busy(f"another step of loop {self.loop} is at work in {self._work}; end it first") from None
                time.sleep(LOCK_POLL_S)
            else:
                return

    @property
    def work_folder_id(self) -> str:
        """The name of the work folder, which no other one has; made with its first step."""
        path = os.path.join(self._work, "place")
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            os.write(made, os.urandom(16).hex().encode())
            os.fsync(made)
            os.close(made)
        with open(path, encoding="ascii") as file:
            found = file.read()
        if len(found) != 32:
            raise Refused(f"{path} does not hold the worker's name; remove it where no step is at work")
        return found

    @property
    def exists(self) -> bool:
        """Whether this machine has the loop's clone."""
        return os.path.isdir(self.tree)

    def owns_process(self, pid: int) -> bool:
        """Whether a process works in this folder, by its variables or by where it stands."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                told = file.read()
            told += b"\0" + os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/"
        except OSError:
            return False
        return os.fsencode(f"{self.path}/") in told

    def step_environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables that a step runs with: nothing of what the worker's user has set for runs of their own."""
        kept = {name: text for name, text in given.items() if not name.upper().startswith(OWN_VARIABLES)}
        return kept | {"RALPH_STATE_DIR": self.state, "RALPH_CONFIG_DIR": self._config}

    def prepare(self) -> str:
        """An empty folder in which all is put together before it becomes the loop's; where the clone goes."""
        shutil.rmtree(self._next, ignore_errors=True)
        make_private_folder(self._next)
        return os.path.join(self._next, "tree")

    def activate(self) -> None:
        """What was put together is the loop's folder from now on."""
        self.remove()
        os.rename(self._next, self.path)

    @property
    def _next(self) -> str:
        return f"{self.path}.next"

    def write_settings(self) -> None:
        """Write the submitter's own settings to where this loop's steps look for the user's."""
        make_private_folder(self._config)
        path = os.path.join(self._config, "settings.json")
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(self._spec.user, file)
        os.rename(f"{path}.tmp", path)

    def remove(self) -> None:
        """Nothing of the loop is here any more."""
        gone = f"{self.path}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        if os.path.isdir(self.path):
            os.rename(self.path, gone)
        shutil.rmtree(gone, ignore_errors=True)


# A worker's folder: one worker at a time, and a name that no other folder has.


LOCK_FILE, NAME_FILE = "worker.lock", "worker.name"
_HELD_LOCKS: list[TextIOWrapper] = []  # for as long as this process lives


def lock_worker_folder(folder: str) -> None:
    """Make the folder, for its owner alone, and hold it; raises Busy where another worker does."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = open(os.path.join(folder, LOCK_FILE), "a", encoding="utf-8")  # noqa: SIM115 (it stays open)
    except OSError as error:
        raise Refused(f"{folder} cannot be a work folder ({error.strerror}); give --work-dir") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Busy(f"another worker is at work in {folder}; give this one another --work-dir") from None
    _HELD_LOCKS.append(lock)


def worker_name(folder: str, given: str | None) -> str:
    """The worker's name. One that was made up is kept in the folder: turns there wait for a worker of that name."""
    if given is not None:
        if not is_plain_name(given):
            raise Refused(f"--name {given!r} is no name; letters, digits, '-', '_' and '.' make one")
        return given
    path = os.path.join(folder, NAME_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            kept = file.read().strip()
    except OSError:
        kept = ""
    if is_plain_name(kept):
        return kept
    import socket

    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-")[:40]
    name = f"{host or 'worker'}-{os.urandom(3).hex()}"
    fresh = f"{path}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return name
