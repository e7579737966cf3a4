"""A worker's folder: its lock, its name, and one folder for each loop."""

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


# Layout below a worker's folder, which no other worker uses.


LOCK_TIMEOUT_S, LOCK_POLL_S = 20.0, 0.05  # wait for a step of the same loop that is about to end
# Prefixes of variables that configure ralph or identify the current run, and of those with the worker's credentials for
# the server, which give access to all workers.
OWN_VARIABLES = ("RALPH_", "TASK_FOLDER", "TEMPORAL_")


class LoopFolder:
    """The folder of one loop: clone, state and the submitter's settings; the repository's mirror is beside it."""

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
        """Lock the loop on this machine until this process ends. Raises Busy if another process keeps the lock."""
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise Busy(f"another step of loop {self.loop} is at work in {self._work}; end it first") from None
                time.sleep(LOCK_POLL_S)
            else:
                return

    @property
    def work_folder_id(self) -> str:
        """Unique id of the work folder; created with its first step."""
        path = os.path.join(self._work, "place")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            os.write(descriptor, os.urandom(16).hex().encode())
            os.fsync(descriptor)
            os.close(descriptor)
        with open(path, encoding="ascii") as file:
            folder_id = file.read()
        if len(folder_id) != 32:
            raise Refused(f"{path} does not hold the worker's name; remove it where no step is at work")
        return folder_id

    @property
    def exists(self) -> bool:
        """Whether this machine has a clone for the loop."""
        return os.path.isdir(self.tree)

    def owns_process(self, pid: int) -> bool:
        """Whether a process works in this folder, judged by its environment and current directory."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            text += b"\0" + os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/"
        except OSError:
            return False
        return os.fsencode(f"{self.path}/") in text

    def step_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment of a step, without the ralph settings of the worker's own user."""
        inherited = {name: text for name, text in environ.items() if not name.upper().startswith(OWN_VARIABLES)}
        return inherited | {"RALPH_STATE_DIR": self.state, "RALPH_CONFIG_DIR": self._config}

    def prepare(self) -> str:
        """Create an empty staging folder in which the loop's folder is built; returns the path for the clone."""
        shutil.rmtree(self._next, ignore_errors=True)
        make_private_folder(self._next)
        return os.path.join(self._next, "tree")

    def activate(self) -> None:
        """Make the staging folder the loop's folder."""
        self.remove()
        os.rename(self._next, self.path)

    @property
    def _next(self) -> str:
        return f"{self.path}.next"

    def write_settings(self) -> None:
        """Write the submitter's settings to where steps of this loop read user settings."""
        make_private_folder(self._config)
        path = os.path.join(self._config, "settings.json")
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(self._spec.user, file)
        os.rename(f"{path}.tmp", path)

    def remove(self) -> None:
        """Delete everything of the loop on this machine."""
        gone = f"{self.path}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        if os.path.isdir(self.path):
            os.rename(self.path, gone)
        shutil.rmtree(gone, ignore_errors=True)


# The worker's folder: locked by one worker at a time, with a stable name.


LOCK_FILE, NAME_FILE = "worker.lock", "worker.name"
_HELD_LOCKS: list[TextIOWrapper] = []  # kept open until this process ends


def lock_worker_folder(folder: str) -> None:
    """Create the folder with access for its owner only, and lock it. Raises Busy if another worker has it."""
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


def worker_name(folder: str, name: str | None) -> str:
    """The worker's name. A generated one is stored in the folder, because turns wait for a worker of the same name."""
    if name is not None:
        if not is_plain_name(name):
            raise Refused(f"--name {name!r} is no name; letters, digits, '-', '_' and '.' make one")
        return name
    path = os.path.join(folder, NAME_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            stored = file.read().strip()
    except OSError:
        stored = ""
    if is_plain_name(stored):
        return stored
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
