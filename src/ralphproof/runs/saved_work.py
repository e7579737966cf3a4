"""Saved work of a run: its files, branches from it, and the copy of a repository that was destroyed."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable

from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.git_layout import git_folders, read_regular_file
from ralphproof.base.value import Json, replace, value
from ralphproof.display.phrases import format_count
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Picked, Record
from ralphproof.engine.workspace import Snapshot
from ralphproof.runs.assembly import BACKUP_FOLDER
from ralphproof.runs.request import load_request
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import ENDED, find_live_turn, refuse_collected_run, run_state
from ralphproof.views.snapshots import SavedWorkspace, require_snapshot, snapshots_by_iteration, workspace_kind
from ralphproof.workspace.commits import CommitBuilder, CommitPlan, create_branch
from ralphproof.workspace.git_command import UserGit, refuse_unsafe_repository
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace
from ralphproof.workspace.repository_backup import START_SUFFIX, BackupState, NewerRef, RepositoryRestore, list_backups

REWIND_BACKUP_PREFIX = "before-rewind-"


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


MAX_TITLE_CHARS = 72
MAX_EXCLUDED_LISTED = 20


@value
class SavedWork:
    """The work that an iteration of a run saved."""

    row: RunRow
    number: int
    snapshot: Snapshot
    title: str

    @property
    def place(self) -> str:
        """Which iteration of which run, in words."""
        return f"iteration {self.number} of run {self.row.id}" if self.number else f"the start of run {self.row.id}"

    @property
    def message(self) -> str:
        """The commit message: the title, and trailers with the run and the iteration."""
        where = f"{self.place[0].upper()}{self.place[1:]}."
        return f"{self.title}\n\n{where}\n\nRalph-Run: {self.row.id}\nRalph-Iteration: {self.number}\n"


def load_saved_work(project: Project, row: RunRow, records: tuple[Record, ...], number: int) -> SavedWork:
    """The work of an iteration; raises Refused where there is none that could become a branch."""
    refuse_collected_run(project, row.id)
    if workspace_kind(records) != "git":
        raise Refused(f"run {row.id} worked without git, so there is nothing to branch from; see: ralph diff {row.id}")
    return SavedWork(
        row, number, require_snapshot(snapshots_by_iteration(records), number, row.id), run_title(project, row, records)
    )


def run_title(project: Project, row: RunRow, records: tuple[Record, ...]) -> str:
    """A title for the work of a run, masked: that of its task, else the beginning of its prompt."""
    jobs = (one.choice for one in reversed(records) if isinstance(one, Picked) and isinstance(one.choice, Job))
    title = next((job.task.title for job in jobs if job.task.title.strip()), "")
    if not title and (loaded := load_request(RunFolder(row.directory, row.id, project.store))):
        text, file = loaded[0].prompt
        title = text or (f"the task of {os.path.basename(file)}" if file else "")
    return first_line(project.mask(title[:10_000])) or f"work of run {row.id}"


def first_line(text: str, limit: int = MAX_TITLE_CHARS) -> str:
    """The first line that is not blank, sanitized, of at most so many characters."""
    lines = (" ".join(line.split()) for line in sanitize(text).splitlines())
    line = next(filter(None, lines), "")
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def excluded_file_lines(landing: CommitPlan) -> list[str]:
    """The files that a commit leaves out, in lines for people."""
    lines = [f"  {one.path}: {one.reason}" for one in landing.excluded[:MAX_EXCLUDED_LISTED]]
    more = len(landing.excluded) - len(lines)
    head = [f"Left out: {format_count(len(landing.excluded), 'file')}"] if lines else []
    return [*head, *lines, *([f"  ... and {more} more"] if more else [])]


def branch_saved_work(
    project: Project, work: SavedWork, name: str | None, *, force: bool
) -> tuple[str, str, CommitPlan]:
    """Create a branch with one commit of this work; its name, the commit, and what is in it and left out."""
    branch = f"ralph/{work.row.id}-{work.number}" if name is None else name
    with CommitBuilder(project.root, os.environ) as builder:
        _refuse_used_branch(builder.user_git, branch, force)
        plan = builder.plan(work.snapshot)
        return branch, create_branch(builder.user_git, plan, work.message, branch, force), plan


def _refuse_used_branch(git: UserGit, name: str, force: bool) -> None:
    """Refuse an invalid, checked-out or existing branch name."""
    git.check_branch_name(name)
    if place := git.find_checkout(name):
        raise Refused(f"branch {name} is checked out in {place}, and is not moved; name another one with --name")
    if git.branch_commit(name) and not force:
        raise Refused(f"there is a branch {name}; name another one with --name, or move it with --force")


# Rewinding the files of a project to what an iteration of a run left.


@value
class RewindTarget:
    """The run, and an iteration number or the name of an earlier save."""

    row: RunRow
    records: tuple[Record, ...]
    where: str

    @property
    def place(self) -> str:
        """The target in words."""
        number = f"iteration {int(self.where)}" if self.where.isdigit() and int(self.where) else "the start"
        return f"{number if self.where.isdigit() else self.where} of run {self.row.id}"


@value
class RewindResult:
    """The files that changed, and the name under which the earlier ones were saved."""

    saved: str
    paths: tuple[str, ...]


def parse_rewind_target(where: str) -> str:
    """An iteration or the name of an earlier save, as the user gave it; raises Refused for anything else."""
    if not re.fullmatch(rf"\d{{1,9}}|{REWIND_BACKUP_PREFIX}[0-9-]+", where, re.ASCII):
        raise Refused(f"{where!r} is neither an iteration nor a name that rewind printed ({REWIND_BACKUP_PREFIX}...)")
    return where


def rewind_files(
    project: Project, ledger: SqliteLedger, target: RewindTarget, accept: Callable[[tuple[str, ...]], bool]
) -> RewindResult | None:
    """Save the present files, and restore those of the target where `accept` agrees to the paths; None where not.

    Raises Refused where the run worked elsewhere, or something is running in the project.
    """
    row = target.row
    if row.directory != project.root and os.path.isdir(row.directory):
        raise Refused(f"run {row.id} worked in {row.directory}; rewind it there: -d {row.directory}")
    lock = DirectoryLock(project.state_dir, project.root, row.id)
    lock.take()
    try:
        _refuse_live_turns(ledger, project)
        if folders := git_folders(project.root):
            refuse_unsafe_repository(project.root, folders)
        return _rewind(project, target, accept)
    finally:
        lock.release()


def _refuse_live_turns(ledger: SqliteLedger, project: Project) -> None:
    """Refuse while an agent works: one whose harness died holds no lock, and still writes files."""
    for row in ledger.runs():
        if not row.ended and row.directory == project.root and find_live_turn(project, row.id):
            raise Refused(f"what run {row.id} started is still running here; end it: ralph cancel {row.id}")


def _rewind(project: Project, target: RewindTarget, accept: Callable[[tuple[str, ...]], bool]) -> RewindResult | None:
    with SavedWorkspace(project, target.row, workspace_kind(target.records), own_folder=False) as saved:
        workspace = saved.workspace
        snapshot = _find_snapshot(workspace, target)
        name = _unused_save_name(workspace, target.row.id)
        current = workspace.save(target.row.id, name)
        if current.tree is None or current.problem:
            raise HarnessFailed(f"the present files could not be saved, so nothing was changed: {current.problem}")
        paths = _changed_paths(workspace, current, snapshot)
        if paths and not accept(paths):
            return None
        return RewindResult(name, workspace.restore(snapshot, current))


def _find_snapshot(workspace: GitWorkspace | PlainWorkspace, target: RewindTarget) -> Snapshot:
    if target.where.isdigit():
        return require_snapshot(snapshots_by_iteration(target.records), int(target.where), target.row.id)
    found = workspace.find_snapshot(target.row.id, target.where)
    if found is None:
        raise Refused(f"run {target.row.id} has no save of the name {target.where}")
    return found


def _unused_save_name(workspace: GitWorkspace | PlainWorkspace, run: str) -> str:
    """A name that no earlier save has: earlier rewinds stay undoable."""
    name = first = REWIND_BACKUP_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while workspace.find_snapshot(run, name) is not None:
        number += 1
        name = f"{first}-{number}"
    return name


def _changed_paths(workspace: GitWorkspace | PlainWorkspace, now: Snapshot, target: Snapshot) -> tuple[str, ...]:
    change = workspace.change(now, target)
    if not change.known:
        raise Refused("the saved files no longer exist; were they pruned?")
    return tuple(path for path in change.paths if path not in {*now.left_out, *target.left_out})
