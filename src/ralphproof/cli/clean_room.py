"""Where a run's clean checkouts are laid: in the state folder, out of the project, at the same path every time."""

from __future__ import annotations

import hashlib
import os

from ralphproof.check import slugs
from ralphproof.checks.clean import Entered, setup_log
from ralphproof.config.build import SCM_START
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.sandboxes.direct import Direct
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING, replace, unpack
from ralphproof.workspaces.checkout import Fresh, Source, check_out, object_folders, tree_of
from ralphproof.workspaces.clean_kept import Kept
from ralphproof.workspaces.clean_place import CleanPlace, Laid
from ralphproof.workspaces.clean_work import Pending, check_out_work
from ralphproof.workspaces.scm import ScmStart

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.check import Inspection
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.record import Record
    from ralphproof.sandbox import Sandbox
    from ralphproof.sandboxes.box import Backend
    from ralphproof.sandboxes.boxed import Boxed, Owner
    from ralphproof.workspace import Snapshot, Workspace

CLEAN, OBJECTS = "clean", "clean-objects"  # the folder in the store; the note of where the objects lay at the start


class CleanRoom:
    """Lays checkouts of what would be committed, and runs what is asked there as the run's own sandbox would."""

    def __init__(
        self, order: Order, folder: RunFolder, workspace: Workspace, sandbox: Direct | Boxed, owner: Owner,
        records: Callable[[str], tuple[Record, ...]], parent: str,
    ) -> None:  # fmt: skip
        """Raises Refused where there is no git, or where the run's kind of sandbox cannot be had around a checkout."""
        self.setup = order.loaded.settings.setup
        self._order, self._folder, self._workspace, self._records = order, folder, workspace, records
        self._sandbox, self._owner, self._parent = sandbox, owner, parent
        self._root, self._environ = order.project.root, dict(os.environ)
        self._source = Source(self._root, self._environ)
        self._place = CleanPlace(place_of(order.project.store, self._root, folder.run if parent else ""))
        self._kept = Kept(self._place.folder, self.setup, self._environ)
        self._laid: Laid | None = None  # what lies there
        self._backend = None if isinstance(sandbox, Direct) else _backend(order, sandbox)
        self._objects = self._objects_then()

    def _objects_then(self) -> tuple[str, ...]:
        """Where objects lay when the run began: an agent could name any folder as one, and have it shown."""
        noted = self._folder.noted(OBJECTS)
        if isinstance(noted, list):
            return tuple(str(path) for path in noted)
        found = object_folders(self._source.folders)
        self._folder.note(OBJECTS, list(found))
        return found

    def enter(self, inspection: Inspection, asking: str) -> Entered:
        """The checkout that was laid for this asking, else a new one."""
        place, whom = self._place, f"{self._folder.run} {inspection.iteration}.{inspection.turn}.{inspection.round} "
        laid = place.laid
        if laid is None or laid.whom != whom + asking:
            laid = self._lay(inspection, whom + asking)
        self._laid = laid
        return Entered(place.tree, self._sandbox_there(), laid.number, laid.ready)

    def _lay(self, inspection: Inspection, whom: str) -> Laid:
        place = self._place
        place.clear()
        self._fill(inspection.snapshot)
        names = self._kept.names(self._fresh(), tree_of(place.tree, "HEAD", self._environ) or "") if self.setup else ()
        ready = not self.setup or self._kept.put_back(self._fresh(), names)
        laid = Laid(whom, self._free_number(inspection), ready, names)
        place.note(laid)
        return laid

    def _fill(self, now: Snapshot) -> None:
        if now.id is None:
            raise Refused(f"the work was not saved: {now.problem or 'its tree is unknown'}")
        began = self._began() if self._commits() else None
        if began is None:
            check_out(self._root, now.id, self._place.tree, self._environ)
            return
        theirs = frozenset((*self._staged(), *state_of(self._records(self._folder.run)).theirs))
        check_out_work(self._root, Pending(began, now, theirs), self._place.tree, self._environ)

    def _commits(self) -> bool:
        scm = self._order.loaded.settings.scm
        return scm is not None and os.path.basename(scm.command) == "git" and "commit" in scm.tasks

    def _began(self) -> Snapshot | None:
        saved, run = self._workspace.saved, self._folder.run
        return saved(run, "0-checked") or saved(run, "0")

    def _staged(self) -> tuple[str, ...]:
        noted = self._folder.noted(SCM_START)
        start = unpack(noted) if noted is not None else None
        return start.staged if isinstance(start, ScmStart) else ()

    def _free_number(self, inspection: Inspection) -> int:
        """A number by which no checkout was prepared before: what a log of that name tells is of another one."""
        number, names = 1, slugs(self.setup)
        while any(self._has_content(setup_log(inspection, slug, number)) for slug in names):
            number += 1
        return number

    def _has_content(self, name: str) -> bool:
        file = self._folder.turn_file(name)
        return os.path.exists(file) and os.path.getsize(file) > 0

    def _sandbox_there(self) -> Sandbox:
        """As the run's own, around the checkout; never less."""
        if self._backend is None:
            return self._sandbox
        from ralphproof.cli.boxing import boxed, terrain_of

        run = terrain_of(self._order, self._folder, {}, self._parent)
        read = (*run.read_paths, *(path for path in self._objects if os.path.isdir(path)))
        there = replace(run, root=self._place.tree, task="", protected=(), own=(), lodgings=(), read_paths=read)
        return boxed(self._owner, self._backend, there)

    def prepared(self) -> None:
        """Keep what `setup` made."""
        if self._laid is None:
            return
        try:
            self._kept.keep(self._fresh(), self._laid.names)
        except HarnessFailed:
            pass  # it saves time, and is no part of what is asked
        self._place.note(replace(self._laid, ready=True))

    def _fresh(self) -> Fresh:
        return Fresh(self._source, self._place.tree, self._environ)

    def close(self) -> None:
        """Nothing of the run is at work any more: only what `setup` made stays."""
        self._place.leave()


def _backend(order: Order, sandbox: Boxed) -> Backend:
    """The kind of sandbox that the run has, once more."""
    from ralphproof.config.backends import chosen

    backend = chosen(sandbox.name, os.environ, order.project.root)
    if getattr(backend, "elsewhere", False) or backend.name != sandbox.name:
        raise Refused(f"verifyIn clean is not possible in this kind of sandbox ({sandbox.name}); name another one")
    return backend


def place_of(store: str, root: str, run: str = "") -> str:
    """The folder for clean checkouts of a project; a `run` that shares the project with others has its own."""
    told = os.fsencode(os.path.realpath(root)) + b"\0" + run.encode()
    return os.path.join(store, CLEAN, hashlib.sha256(told).hexdigest()[:12])


def clear_stale(store: str, root: str, run: str) -> None:
    """Remove a checkout that a dead run left in this project; the caller holds the project's lock."""
    place = CleanPlace(place_of(store, root))
    if os.path.lexists(place.tree) and not (place.laid and place.laid.whom.startswith(f"{run} ")):
        place.leave()
