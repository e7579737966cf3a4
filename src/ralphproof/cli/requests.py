"""Runs that an agent asks for from inside its turn: begun by the harness, so that they outlive the turn.

Whatever an agent starts itself ends with its turn. `ralph run --detach` inside one leaves its wish in the task folder
instead. That is the agent's own file: it says what should be run, and nothing of how it is held.
"""

from __future__ import annotations

import os
import stat
import time

from ralphproof.cli.detach import BEGIN_S, reap, said, spawn, unended
from ralphproof.cli.family import REQUESTS as FOLDER
from ralphproof.cli.notes import keep_wish, kept_bounds, wish_in
from ralphproof.cli.request_bounds import enclosed, unfit
from ralphproof.errors import RalphError, Refused
from ralphproof.ledgers.folder import RunFolder, is_run_id
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.root import root_of
from ralphproof.workspaces.identity import known_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ralphproof.cli.order import Wish
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project

MOST = 20  # that are looked at at a time
MOST_BYTES = 16 << 20
ENDING = ".json"


def leave(task_folder: str, run: str, wish: Wish, mask: Callable[[str], str]) -> None:
    """Ask the harness of the turn that we are in to begin a run of this id."""
    from ralphproof.cli.notes import wish_text
    from ralphproof.ledgers.files import write_whole

    folder = os.path.join(task_folder, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        write_whole(opened, run + ENDING, wish_text(wish, mask))
    finally:
        os.close(opened)


class Requests:
    """The requests of one run's agent, and those of them that are about to be runs.

    No request can hurt the run: what is wrong with one is said in `remarks`.
    """

    def __init__(self, folder: RunFolder, project: Project, ledger: Sqlite, env: Mapping[str, str]) -> None:
        """`env` is what the agent was started with: what it could not know, its request cannot hold."""
        self._files, self._project, self._ledger = folder, project, ledger
        self._place = os.path.join(folder.task_folder, FOLDER)
        self._env = {name: text for name, text in env.items() if os.environ.get(name) == text}
        noted = folder.noted(FOLDER)
        known = noted.items() if isinstance(noted, dict) else ()
        self._coming = {run: float(at) for run, at in known if isinstance(at, int | float)}
        self._pids: dict[str, int] = {}
        self._told: set[str] = set()
        self._untold: list[str] = []

    def remarks(self) -> tuple[str, ...]:
        """What there is to say since this was last asked."""
        untold, self._untold = self._untold, []
        return tuple(untold)

    def begin(self) -> None:
        """Begin what was asked for. Each request is removed before its run is begun: it is begun once."""
        for folder, name in self._all(MOST):
            run = name.removesuffix(ENDING)
            wish = self._understood(folder, name)
            if self._removed(folder, name) and wish is not None:
                self._spawn(run, wish.folder or self._project.root)
            elif wish is not None:
                del self._coming[run]

    def drop(self) -> None:
        """Remove what was asked for and is not begun."""
        for folder, name in self._all(None):
            if self._removed(folder, name):
                self._say(f"this run ends, so one that it asked for is not begun: {name.removesuffix(ENDING)}")

    def coming(self) -> tuple[str, ...]:
        """Those that were begun, have not said so yet, and still may."""
        reap()
        return tuple([run for run in list(self._coming) if self._may_come(run)])

    def _all(self, most: int | None) -> Iterator[tuple[int, str]]:
        """The folder and the name of each request."""
        try:
            opened = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in sorted(name for name in os.listdir(opened) if name.endswith(ENDING))[:most]:
                yield opened, name
        finally:
            os.close(opened)

    def _understood(self, folder: int, name: str) -> Wish | None:
        """What a request asks for, when that is durable and the run is noted; None, and a remark, where it is none."""
        run = name.removesuffix(ENDING)
        try:
            wish = self._sensible(run, _text(folder, name))
            files = RunFolder(wish.folder or "", run, self._project.store)
            keep_wish(files, wish, self._project.mask, self._files.run)
            self._note(run)
        except (OSError, ValueError, RecursionError, RalphError) as error:
            self._say(f"a run that the agent asked for is not begun: {name!r}: {error}")
            return None
        return wish

    def _sensible(self, run: str, text: bytes) -> Wish:
        """The wish of a request; raises Refused where nothing can come of it."""
        wish = wish_in(text, self._env) if is_run_id(run) else None
        if wish is None:
            raise Refused("the request cannot be understood")
        if wish.work:
            raise Refused("a task is taken up by ralph work alone")
        if self._boxed():
            if why := unfit(wish, self._project.root, self._files.task_folder):
                raise Refused(why)
            wish = enclosed(wish, self._project.root, self._files.task_folder)
        if run in self._pids or self._ledger.row(run) is not None:
            raise Refused("there is such a run already")
        root = root_of(os.path.join(self._project.root, wish.folder or ""))
        if known_id(root, self._project.state_dir) != os.path.basename(self._project.store):
            raise Refused(f"{root} is no folder of this repository")
        return replace(wish, folder=root)

    def _boxed(self) -> bool:
        """Whether our agent is in a sandbox: then what it asks for must not lead out of it."""
        bounds = kept_bounds(self._files)
        return bounds is None or bounds.sandbox is not None

    def _note(self, run: str) -> None:
        """Say durably, before its process is started, that a run may come: who takes ours up waits for it too."""
        now_s = time.time()
        self._coming[run] = now_s
        self._files.note(FOLDER, {one: at for one, at in self._coming.items() if now_s - at < BEGIN_S})

    def _removed(self, folder: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            self._say(f"a request of the agent's could not be removed, so it counts for nothing: {name!r}: {error}")
            return False
        return True

    def _spawn(self, run: str, root: str) -> None:
        try:
            environ = {**os.environ, "RALPH_RUN_ID": self._files.run}
            self._pids[run] = spawn(run, root, self._project.store, environ)
        except OSError as error:
            del self._coming[run]
            self._say(f"a run that the agent asked for could not be begun: {run}: {error}")

    def _may_come(self, run: str) -> bool:
        pid = self._pids.get(run)  # an earlier harness of this run left none: then time must tell
        waiting = unended(pid) if pid is not None else 0 <= time.time() - self._coming[run] < BEGIN_S
        if self._ledger.row(run) is None:  # looked up after that: it may have begun and ended since
            if waiting:
                return True
            last = said(self._project.store, run).strip().rpartition("\n")[2]
            self._say(f"run {run} was asked for, and has not begun" + (f": {last}" if last else ""))
        del self._coming[run]
        return False

    def _say(self, remark: str) -> None:
        """Say it once: a request that cannot be removed is seen again and again."""
        if remark not in self._told:
            self._told.add(remark)
            self._untold.append(remark)


def _text(folder: int, name: str) -> bytes:
    """What a request says; nothing where it is no plain file."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(file, MOST_BYTES) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)
