"""Restoring a destroyed repository from the copy that a run kept."""

from __future__ import annotations

import os
import tempfile

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.git_layout import read_regular_file
from ralphproof.base.value import Json, replace, value
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, find_live_turn, run_state
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.repository_backup import START_SUFFIX, BackupState, NewerRef, RepositoryRestore, list_backups

BACKUP_FOLDER = "backup"


@value
class StoredBackup:
    """A backup of a repository from the start of a run.

    `store` is the folder of its records: a repository that was created again in the same place has another one.
    """

    store: str
    start: BackupState

    @property
    def folder(self) -> str:
        return os.path.join(self.store, BACKUP_FOLDER)


def list_stored_backups(project: Project) -> list[StoredBackup]:
    """All backups of all repositories, the newest first."""
    stores = os.path.join(project.state_dir, "repos")
    names = sorted(os.listdir(stores)) if os.path.isdir(stores) else []
    backups = [
        StoredBackup(store, kept)
        for store in (os.path.join(stores, name) for name in names)
        for kept in list_backups(os.path.join(store, BACKUP_FOLDER))
        if kept.path.endswith(START_SUFFIX)
    ]
    return sorted(backups, key=lambda one: one.start.created_at, reverse=True)


def is_backup_of(copy: StoredBackup, root: str) -> bool:
    """Whether a backup is of the project in this folder."""
    return os.path.realpath(copy.start.root) == os.path.realpath(root)


def is_backup_unused(project: Project, copy: StoredBackup) -> bool:
    """Whether the run of a backup is over: an active one still needs it."""
    there = replace(project, store=copy.store)
    try:
        ledger = there.ledger()
    except RalphError:
        return True  # nothing is known of it any more
    try:
        row = ledger.row(copy.start.run)
        return row is None or run_state(ledger, row, there) == ENDED
    finally:
        ledger.close()


SHORT_HASH_CHARS = 12
LATEST_COPY = "latest"


@value
class RestoreResult:
    """The result of a restore. `lost` says what the repository lacked; empty where it lacked nothing and nothing was
    done.
    """

    run: str
    lost: str
    restored: bool
    dry_run: bool
    moved_aside: str = ""
    before: tuple[str, ...] = ()  # what was moved aside in earlier attempts
    refs: int = 0
    head: str = ""
    latest: bool = False  # as of the latest turn, not of the run's start
    newer: tuple[NewerRef, ...] = ()
    named: tuple[str, ...] = ()  # refs for what is newer than the restored state
    differing: tuple[str, ...] | None = None  # None: unknown

    def to_json(self) -> dict[str, Json]:
        return {
            "run": self.run, "restored": self.restored, "dryRun": self.dry_run, "lost": self.lost,
            "aside": self.moved_aside or None, "earlierAsides": [*self.before], "refs": self.refs,
            "newer": [{"ref": one.ref, "commit": one.commit} for one in self.newer], "head": self.head or None,
            "asOfLatestTurn": self.latest, "differing": None if self.differing is None else [*self.differing],
            "laterRefs": [*self.named],
        }  # fmt: skip


def find_repository_copy(project: Project, name: str | None) -> StoredBackup:
    """The copy that the user named; raises Refused where there is none, or where it belongs elsewhere."""
    copies = list_stored_backups(project)
    local = [copy for copy in copies if is_backup_of(copy, project.root)]
    if name in (None, LATEST_COPY):
        if local:
            return local[0]
        _refuse_linked_worktree(project.root)
        raise Refused(
            f"no copy of a repository in {project.root} is kept: a run keeps its own until it ends, and longer only "
            "where the repository lost something. Was it elsewhere? Name it with -d"
        )
    matches = [copy for copy in copies if copy.start.run.startswith(str(name))]
    if not matches:
        raise Refused(
            f"no copy of run {name} is kept: it had none, or the repository had all of it when the run ended; "
            f"kept are: {', '.join(copy.start.run for copy in local[:5]) or 'none'}"
        )
    if len(matches) > 1:
        raise Refused(f"{name} is the beginning of several runs: {', '.join(copy.start.run for copy in matches[:5])}")
    if not is_backup_of(matches[0], project.root):
        _refuse_linked_worktree(project.root)
        root = matches[0].start.root
        raise Refused(f"the repository of run {matches[0].start.run} was in {root}; restore it there: -d {root}")
    return matches[0]


def _refuse_linked_worktree(root: str) -> None:
    """Raise Refused in a linked worktree: its repository is elsewhere, as its `.git` file says."""
    entry = os.path.join(root, ".git")
    if not os.path.isfile(entry):
        return
    home, linked, _ = (
        os.fsdecode(read_regular_file(os.fsencode(entry), 1 << 16)).removeprefix("gitdir:").partition("/worktrees/")
    )
    if linked:
        repository = os.path.dirname(home.strip())
        raise Refused(f"{root} is a linked worktree; restore where its repository is: -d {repository}")


def refuse_live_runs(project: Project) -> None:
    """Raise Refused while a run is active in any worktree of the repository."""
    try:
        ledger = project.ledger()
    except RalphError:
        return  # an unreadable ledger must not prevent a restore
    try:
        for row in ledger.runs():
            if run_state(ledger, row, project) != ENDED and (row.process.alive or find_live_turn(project, row.id)):
                raise Refused(f"run {row.id} is at work in {row.directory}; end it first: ralph cancel {row.id}")
    finally:
        ledger.close()


def restore_repository(project: Project, name: str | None, *, force: bool, dry_run: bool) -> RestoreResult:
    """Restore the repository of a project from the copy of the run `name`, or from the newest one.

    Raises Refused while a run is active, and without `force` where the present repository has newer commits.
    """
    copy = find_repository_copy(project, name)
    lock = DirectoryLock(project.state_dir, project.root, "restore")
    lock.take()
    try:
        for store in dict.fromkeys((copy.store, project.store)):
            refuse_live_runs(replace(project, store=store))
        return _restore(copy, force, dry_run)
    finally:
        lock.release()


def _restore(copy: StoredBackup, force: bool, dry_run: bool) -> RestoreResult:
    restoring = RepositoryRestore(copy.folder, copy.start, os.environ)
    run, lost = copy.start.run, restoring.describe_loss()
    if not lost and not force:
        return RestoreResult(run, "", restored=False, dry_run=dry_run, before=tuple(restoring.list_moved_aside()))
    try:
        restoring.build()
        newer = tuple(restoring.newer_refs())
        if newer and not (force or dry_run):
            listed = ", ".join(
                f"{ref.ref.removeprefix('refs/heads/')} ({ref.commit[:SHORT_HASH_CHARS]})" for ref in newer[:5]
            )
            raise Refused(
                f"the present repository has commits that the copy does not have: {listed}; to put the copy back and "
                f"move them aside with it: ralph restore {run} --force"
            )
        head = restoring.refs.get("HEAD", "")
        result = RestoreResult(
            run, lost, restored=False, dry_run=dry_run, refs=len(restoring.refs) - bool(head), head=head,
            latest=restoring.as_of_last_turn, newer=newer, named=tuple(restoring.extra_refs),
        )  # fmt: skip
        if dry_run:
            return result
        aside = restoring.install()
    finally:
        restoring.remove_build()
    earlier = tuple(ref for ref in restoring.list_moved_aside() if ref != aside)
    differing = _files_differing_from_head(copy.start.root)
    return replace(result, restored=True, moved_aside=aside, before=earlier, differing=differing)


def _files_differing_from_head(root: str) -> tuple[str, ...] | None:
    """Files whose contents differ from the restored commit; no program that the repository configures is run."""
    with tempfile.TemporaryDirectory(prefix="ralph-look-") as scratch:
        try:
            git = GitWorkspace(root, scratch)
            try:
                return git.paths_differing_from_head()
            finally:
                git.close()
        except (RalphError, OSError):
            return None
