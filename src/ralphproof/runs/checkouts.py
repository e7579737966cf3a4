"""Clean checkouts of a run's work, and the setup of its worktree."""

from __future__ import annotations

import hashlib
import os

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.text import unique_slugs
from ralphproof.base.value import TYPE_CHECKING, replace, unpack
from ralphproof.checks.clean_checkout import SETUP_TIMEOUT_S, PreparedCheckout, create_setup_check, setup_log_name
from ralphproof.checks.command import STOPPED, CommandCheckSpec
from ralphproof.engine.check import Inspection
from ralphproof.engine.environment import TurnMonitor
from ralphproof.engine.state import build_state
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.runs.assembly import SCM_START_NOTE
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.workspace.checkouts import (
    CheckoutFolder,
    CheckoutRepository,
    CheckoutState,
    DependencyCache,
    PendingWork,
    SourceRepository,
    check_out,
    check_out_pending_work,
    object_folders,
    resolve_tree,
)
from ralphproof.workspace.scm import ScmBaseline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.check import Finding
    from ralphproof.engine.environment import LoopEnvironment
    from ralphproof.engine.records import Record
    from ralphproof.engine.sandbox import Sandbox
    from ralphproof.engine.workspace import Workspace
    from ralphproof.runs.spec import RunSpec
    from ralphproof.sandbox.plan import Backend
    from ralphproof.sandbox.runner import ProcessOwner, SandboxedRunner
    from ralphproof.store.run_folder import RunFolder


# Where a run's clean checkouts are laid: in the state folder, out of the project, at the same path every time.


CHECKOUTS_FOLDER, OBJECT_FOLDERS_NOTE = (
    "clean",
    "clean-objects",
)  # the folder in the store; the note of where the objects lay at the start


class CleanCheckouts:
    """Lays checkouts of what would be committed, and runs what is asked there as the run's own sandbox would."""

    def __init__(
        self, spec: RunSpec, folder: RunFolder, workspace: Workspace, sandbox: DirectRunner | SandboxedRunner,
        owner: ProcessOwner,
        records: Callable[[str], tuple[Record, ...]], parent: str,
    ) -> None:  # fmt: skip
        """Raises Refused where there is no git, or where the run's kind of sandbox cannot be had around a checkout."""
        self.setup = spec.loaded.settings.setup
        self._spec, self._folder, self._workspace, self._records = spec, folder, workspace, records
        self._sandbox, self._owner, self._parent = sandbox, owner, parent
        self._root, self._environ = spec.project.root, dict(os.environ)
        self._source = SourceRepository(self._root, self._environ)
        self._place = CheckoutFolder(checkout_folder(spec.project.store, self._root, folder.run if parent else ""))
        self._kept = DependencyCache(self._place.folder, self.setup, self._environ)
        self._laid: CheckoutState | None = None  # what lies there
        self._backend = None if isinstance(sandbox, DirectRunner) else _checkout_backend(spec, sandbox)
        self._objects = self._objects_then()

    def _objects_then(self) -> tuple[str, ...]:
        """Where objects lay when the run began: an agent could name any folder as one, and have it shown."""
        noted = self._folder.noted(OBJECT_FOLDERS_NOTE)
        if isinstance(noted, list):
            return tuple(str(path) for path in noted)
        found = object_folders(self._source.folders)
        self._folder.note(OBJECT_FOLDERS_NOTE, list(found))
        return found

    def check_out(self, inspection: Inspection, asking: str) -> PreparedCheckout:
        """The checkout that was laid for this asking, else a new one."""
        place, whom = self._place, f"{self._folder.run} {inspection.iteration}.{inspection.turn}.{inspection.round} "
        laid = place.state
        if laid is None or laid.owner != whom + asking:
            laid = self._lay(inspection, whom + asking)
        self._laid = laid
        return PreparedCheckout(place.tree, self._sandbox_there(), laid.number, laid.prepared)

    def _lay(self, inspection: Inspection, whom: str) -> CheckoutState:
        place = self._place
        place.clear()
        self._fill(inspection.snapshot)
        names = (
            self._kept.entry_names(self._fresh(), resolve_tree(place.tree, "HEAD", self._environ) or "")
            if self.setup
            else ()
        )
        ready = not self.setup or self._kept.restore(self._fresh(), names)
        laid = CheckoutState(whom, self._free_number(inspection), ready, names)
        place.save_state(laid)
        return laid

    def _fill(self, now: Snapshot) -> None:
        if now.id is None:
            raise Refused(f"the work was not saved: {now.problem or 'its tree is unknown'}")
        began = self._began() if self._commits() else None
        if began is None:
            check_out(self._root, now.id, self._place.tree, self._environ)
            return
        theirs = frozenset((*self._staged(), *build_state(self._records(self._folder.run)).user_paths))
        check_out_pending_work(self._root, PendingWork(began, now, theirs), self._place.tree, self._environ)

    def _commits(self) -> bool:
        scm = self._spec.loaded.settings.scm
        return scm is not None and os.path.basename(scm.command) == "git" and "commit" in scm.tasks

    def _began(self) -> Snapshot | None:
        saved, run = self._workspace.find_snapshot, self._folder.run
        return saved(run, "0-checked") or saved(run, "0")

    def _staged(self) -> tuple[str, ...]:
        noted = self._folder.noted(SCM_START_NOTE)
        start = unpack(noted) if noted is not None else None
        return start.staged if isinstance(start, ScmBaseline) else ()

    def _free_number(self, inspection: Inspection) -> int:
        """A number by which no checkout was prepared before: what a log of that name tells is of another one."""
        number, names = 1, unique_slugs(self.setup)
        while any(self._has_content(setup_log_name(inspection, slug, number)) for slug in names):
            number += 1
        return number

    def _has_content(self, name: str) -> bool:
        file = self._folder.turn_file(name)
        return os.path.exists(file) and os.path.getsize(file) > 0

    def _sandbox_there(self) -> Sandbox:
        """As the run's own, around the checkout; never less."""
        if self._backend is None:
            return self._sandbox
        from ralphproof.runs.assembly import run_terrain
        from ralphproof.sandbox.selection import wrap_in_sandbox

        run = run_terrain(self._spec, self._folder, {}, self._parent)
        read = (*run.read_paths, *(path for path in self._objects if os.path.isdir(path)))
        there = replace(run, root=self._place.tree, task="", protected=(), run_files=(), agents=(), read_paths=read)
        return wrap_in_sandbox(self._owner, self._backend, there)

    def setup_done(self) -> None:
        """Keep what `setup` made."""
        if self._laid is None:
            return
        try:
            self._kept.save(self._fresh(), self._laid.cache_names)
        except HarnessFailed:
            pass  # it saves time, and is no part of what is asked
        self._place.save_state(replace(self._laid, prepared=True))

    def _fresh(self) -> CheckoutRepository:
        return CheckoutRepository(self._source, self._place.tree, self._environ)

    def close(self) -> None:
        """Nothing of the run is at work any more: only what `setup` made stays."""
        self._place.remove()


def _checkout_backend(spec: RunSpec, sandbox: SandboxedRunner) -> Backend:
    """The kind of sandbox that the run has, once more."""
    from ralphproof.sandbox.selection import choose_backend

    backend = choose_backend(sandbox.name, os.environ, spec.project.root)
    if getattr(backend, "is_virtual_machine", False) or backend.name != sandbox.name:
        raise Refused(f"verifyIn clean is not possible in this kind of sandbox ({sandbox.name}); name another one")
    return backend


def checkout_folder(store: str, root: str, run: str = "") -> str:
    """The folder for clean checkouts of a project; a `run` that shares the project with others has its own."""
    told = os.fsencode(os.path.realpath(root)) + b"\0" + run.encode()
    return os.path.join(store, CHECKOUTS_FOLDER, hashlib.sha256(told).hexdigest()[:12])


def remove_stale_checkout(store: str, root: str, run: str) -> None:
    """Remove a checkout that a dead run left in this project; the caller holds the project's lock."""
    place = CheckoutFolder(checkout_folder(store, root))
    if os.path.lexists(place.tree) and not (place.state and place.state.owner.startswith(f"{run} ")):
        place.remove()


# A work tree that a run has for itself is prepared before any agent sees it, by the commands of `setup`.


WORKTREE_READY_NOTE = "tree-ready"  # the note that it was prepared
BEFORE_FIRST_TURN = Inspection(0, 1, "", Snapshot(None, None), Change())


def prepare_worktree(spec: RunSpec, folder: RunFolder, world: LoopEnvironment) -> None:
    """Run what prepares the tree, once for a run; raises Refused with what failed of it.

    Who is cut off in the midst of it begins it again: a command that did half of its work may do it twice.
    """
    setup, root = spec.loaded.settings.setup, spec.project.root
    if not spec.request.in_worktree or not setup or folder.noted(WORKTREE_READY_NOTE):
        return
    entered = PreparedCheckout(root, world.sandbox, _free_log_number(folder, setup))
    for command, slug in zip(setup, unique_slugs(setup), strict=True):
        step = create_setup_check(
            CommandCheckSpec(command, slug, timeout_s=SETUP_TIMEOUT_S), entered, folder, spec.check_env
        )
        found = step.run(BEFORE_FIRST_TURN, TurnMonitor(world))
        if not found.passed:
            raise Refused(_setup_refusal(found, folder))
    folder.note(WORKTREE_READY_NOTE, True)


def _setup_refusal(found: Finding, folder: RunFolder) -> str:
    if found.why == STOPPED:
        return "the run was asked to end while its work tree was prepared; nothing was begun"
    log = folder.log_base(os.path.basename(found.log)) if found.log else ""  # the other copy goes with the tree
    return f"the work tree could not be prepared: setup command {found.command!r} failed ({found.why}); log: {log}"


def _free_log_number(folder: RunFolder, setup: tuple[str, ...]) -> int:
    """A number by which nothing was prepared before: what a log of that name tells is of another try."""
    number, names = 1, unique_slugs(setup)
    while any(os.path.exists(folder.turn_file(setup_log_name(BEFORE_FIRST_TURN, slug, number))) for slug in names):
        number += 1
    return number
