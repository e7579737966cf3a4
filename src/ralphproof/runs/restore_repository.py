"""Restoring a destroyed repository from the copy that a run kept."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, find_live_turn, run_state

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.views.snapshots import StoredBackup
    from ralphproof.workspace.repository_restore import NewerRef, RepositoryRestore


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
    moved_aside: str = ""
    before: tuple[str, ...] = ()  # what was moved aside in earlier attempts
    refs: int = 0
    head: str = ""
    latest: bool = False  # as of the latest turn, not of the run's start
    newer: tuple[NewerRef, ...] = ()
    named: tuple[str, ...] = ()  # refs for what is newer than the restored state
    differing: tuple[str, ...] | None = None  # None: unknown


def find_repository_copy(project: Project, name: str | None) -> StoredBackup:
    """The copy that the user named; raises Refused where there is none, or where it belongs elsewhere."""
    from ralphproof.views.snapshots import is_backup_of, list_stored_backups

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
    from ralphproof.base.git_layout import read_regular_file

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


def restore_repository(copy: StoredBackup, args: Namespace) -> RestoreResult:
    from ralphproof.workspace.repository_restore import RepositoryRestore

    restoring = RepositoryRestore(copy.folder, copy.start, os.environ)
    run, lost = copy.start.run, restoring.describe_loss()
    if not lost and not args.force:
        return RestoreResult(run, "", restored=False, before=tuple(restoring.list_moved_aside()))
    try:
        restoring.build()
        newer = tuple(restoring.newer_refs())
        if newer and not (args.force or args.dry_run):
            listed = ", ".join(
                f"{ref.ref.removeprefix('refs/heads/')} ({ref.commit[:SHORT_HASH_CHARS]})" for ref in newer[:5]
            )
            raise Refused(
                f"the present repository has commits that the copy does not have: {listed}; to put the copy back and "
                f"move them aside with it: ralph restore {run} --force"
            )
        facts = _restore_facts(restoring, run, lost, newer)
        if args.dry_run:
            return facts
        aside = restoring.install()
    finally:
        restoring.remove_build()
    earlier = tuple(ref for ref in restoring.list_moved_aside() if ref != aside)
    return replace(
        facts, restored=True, moved_aside=aside, before=earlier, differing=_files_differing_from_head(copy.start.root)
    )


def _restore_facts(restoring: RepositoryRestore, run: str, lost: str, newer: tuple[NewerRef, ...]) -> RestoreResult:
    refs = restoring.refs()
    head, latest = refs.get("HEAD", ""), restoring.restored_state is not restoring.start
    return RestoreResult(
        run,
        lost,
        restored=False,
        refs=len(refs) - bool(head),
        head=head,
        latest=latest,
        newer=newer,
        named=tuple(restoring.extra_refs),
    )


def _files_differing_from_head(root: str) -> tuple[str, ...] | None:
    """Files whose contents differ from the restored commit; no program that the repository configures is run."""
    import tempfile

    from ralphproof.workspace.git_workspace import GitWorkspace

    with tempfile.TemporaryDirectory(prefix="ralph-look-") as scratch:
        try:
            git = GitWorkspace(root, scratch)
            try:
                return git.paths_differing_from_head()
            finally:
                git.close()
        except (RalphError, OSError):
            return None
