"""Clean checkouts of a run's work, and the setup of its worktree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace, unpack
from ralphproof.checks.clean_checkout import PreparedCheckout, run_setup, unused_checkout_number
from ralphproof.checks.command import STOPPED, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.environment import LoopEnvironment, TurnMonitor
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import Sandbox
from ralphproof.engine.state import build_state
from ralphproof.engine.workspace import Change, Snapshot, Workspace
from ralphproof.runs.assembly import SCM_START_NOTE, build_sandbox_config
from ralphproof.runs.spec import RunSpec
from ralphproof.sandbox.plan import Backend
from ralphproof.sandbox.runner import DirectRunner, ProcessOwner, SandboxedRunner, wrap_in_sandbox
from ralphproof.sandbox.selection import choose_backend
from ralphproof.store.run_folder import RunFolder
from ralphproof.workspace.checkouts import CheckoutFolder, PendingWork, SourceRepository, object_folders
from ralphproof.workspace.scm import ScmBaseline

# Clean checkouts are in the state folder, outside of the project, always at the same path.


CHECKOUTS_FOLDER, OBJECT_FOLDERS_NOTE = (
    "clean",
    "clean-objects",
)  # a folder in the store; a note with the object folders of the start


class CleanCheckouts:
    """Creates checkouts of what would be committed, with a sandbox like the run's own around each."""

    def __init__(
        self, spec: RunSpec, folder: RunFolder, workspace: Workspace, sandbox: DirectRunner | SandboxedRunner,
        owner: ProcessOwner,
        records: Callable[[str], tuple[Record, ...]], parent: str,
    ) -> None:  # fmt: skip
        """Raises Refused where there is no git, or where the run's kind of sandbox cannot be used for a checkout."""
        self.setup = spec.loaded.settings.setup
        self._spec, self._folder, self._workspace, self._records = spec, folder, workspace, records
        self._sandbox, self._owner, self._parent = sandbox, owner, parent
        self._root, self._environ = spec.project.root, dict(os.environ)
        place = checkout_folder(spec.project.store, self._root, folder.run if parent else "")
        self._checkout = CheckoutFolder(place, self._root, self._environ, self.setup)
        self._backend = None if isinstance(sandbox, DirectRunner) else _checkout_backend(spec, sandbox)
        self._object_folders = self._initial_object_folders()

    def _initial_object_folders(self) -> tuple[str, ...]:
        """The object folders when the run began. Later ones are not used: an agent could add any folder as one, and
        have it readable in the sandbox.
        """
        source = SourceRepository(self._root, self._environ)
        noted = self._folder.noted(OBJECT_FOLDERS_NOTE)
        if isinstance(noted, list):
            return tuple(str(path) for path in noted)
        folders = object_folders(source.folders)
        self._folder.note(OBJECT_FOLDERS_NOTE, list(folders))
        return folders

    def check_out(self, inspection: Inspection, check: str) -> PreparedCheckout:
        """The checkout that was made for this check, or a new one."""
        owner = f"{self._folder.run} {inspection.iteration}.{inspection.turn}.{inspection.round} {check}"
        state = self._checkout.state
        if state is None or state.owner != owner:
            number = unused_checkout_number(self.setup, self._folder, inspection)
            state = self._checkout.create(self._work(inspection.snapshot), owner, number)
        return PreparedCheckout(self._checkout.tree, self._checkout_sandbox(), state.number, state.prepared)

    def _work(self, snapshot: Snapshot) -> str | PendingWork:
        """What is checked out: what a commit would contain, or else the whole snapshot."""
        if snapshot.id is None:
            raise Refused(f"the work was not saved: {snapshot.problem or 'its tree is unknown'}")
        start = self._start_snapshot() if self._commits_work() else None
        if start is None:
            return snapshot.id
        user_paths = frozenset((*self._staged_at_start(), *build_state(self._records(self._folder.run)).user.paths))
        return PendingWork(start, snapshot, user_paths)

    def _commits_work(self) -> bool:
        scm = self._spec.loaded.settings.scm
        return scm is not None and os.path.basename(scm.command) == "git" and "commit" in scm.tasks

    def _start_snapshot(self) -> Snapshot | None:
        find, run = self._workspace.find_snapshot, self._folder.run
        return find(run, "0-checked") or find(run, "0")

    def _staged_at_start(self) -> tuple[str, ...]:
        noted = self._folder.noted(SCM_START_NOTE)
        start = unpack(noted) if noted is not None else None
        return start.staged if isinstance(start, ScmBaseline) else ()

    def _checkout_sandbox(self) -> Sandbox:
        """The run's own sandbox, around the checkout."""
        if self._backend is None:
            return self._sandbox
        config = build_sandbox_config(self._spec, self._folder, {}, self._parent)
        read_paths = (*config.read_paths, *(path for path in self._object_folders if os.path.isdir(path)))
        checkout_config = replace(
            config, root=self._checkout.tree, task="", protected=(), run_files=(), agents=(), read_paths=read_paths
        )
        return wrap_in_sandbox(self._owner, self._backend, checkout_config)

    def setup_done(self) -> None:
        """Cache what the `setup` commands made."""
        self._checkout.setup_done()

    def close(self) -> None:
        """Remove the checkout when the run is over; only the cache of `setup` stays."""
        self._checkout.remove()


def _checkout_backend(spec: RunSpec, sandbox: SandboxedRunner) -> Backend:
    """Another backend of the run's own kind."""
    backend = choose_backend(sandbox.name, os.environ, spec.project.root)
    if getattr(backend, "is_virtual_machine", False) or backend.name != sandbox.name:
        raise Refused(f"verifyIn clean is not possible in this kind of sandbox ({sandbox.name}); name another one")
    return backend


def checkout_folder(store: str, root: str, run: str = "") -> str:
    """The folder for clean checkouts of a project; a `run` that shares the project with its parent has its own."""
    key = os.fsencode(os.path.realpath(root)) + b"\0" + run.encode()
    return os.path.join(store, CHECKOUTS_FOLDER, hashlib.sha256(key).hexdigest()[:12])


def remove_stale_checkout(store: str, root: str, run: str) -> None:
    """Remove a checkout that a dead run left in this project; the caller holds the project's lock."""
    checkout = CheckoutFolder(checkout_folder(store, root), root, os.environ)
    if os.path.lexists(checkout.tree) and not (checkout.state and checkout.state.owner.startswith(f"{run} ")):
        checkout.remove()


# A run's own worktree is prepared by the `setup` commands before any agent sees it.


WORKTREE_READY_NOTE = "tree-ready"  # a note: setup is done
BEFORE_FIRST_TURN = Inspection(0, 1, "", Snapshot(None, None), Change())


def prepare_worktree(spec: RunSpec, folder: RunFolder, world: LoopEnvironment) -> None:
    """Run the `setup` commands in a run's worktree, once for a run; raises Refused with the one that failed.

    After an interruption all commands run again, so a command may run twice.
    """
    setup, root = spec.loaded.settings.setup, spec.project.root
    if not spec.request.in_worktree or not setup or folder.noted(WORKTREE_READY_NOTE):
        return
    checkout = PreparedCheckout(root, world.agents.sandbox, unused_checkout_number(setup, folder, BEFORE_FIRST_TURN))
    plain = CommandCheckSpec("", "")
    failed = run_setup(setup, plain, checkout, folder, spec.check_env, BEFORE_FIRST_TURN, TurnMonitor(world))
    if failed:
        raise Refused(_setup_refusal(failed, folder))
    folder.note(WORKTREE_READY_NOTE, True)


def _setup_refusal(finding: Finding, folder: RunFolder) -> str:
    if finding.why == STOPPED:
        return "the run was asked to end while its work tree was prepared; nothing was begun"
    log = (
        folder.log_base(os.path.basename(finding.log)) if finding.log else ""
    )  # the published copy is removed with the worktree
    return f"the work tree could not be prepared: setup command {finding.command!r} failed ({finding.why}); log: {log}"
