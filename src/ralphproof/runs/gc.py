"""Garbage collection: which runs keep their files, and removing the files of the others."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Self

from ralphproof.base.errors import Busy, RalphError, Refused
from ralphproof.base.files import make_writable, open_subfolder, remove_tree
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import replace, value
from ralphproof.engine.records import BaselineSaved, Record, RunEnded, ScmEnded
from ralphproof.engine.state import State
from ralphproof.engine.workspace import Snapshot
from ralphproof.runs.saved_work import REWIND_BACKUP_PREFIX, is_backup_of, is_backup_unused, list_stored_backups
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import (
    ENDED,
    STOPPED,
    GcNote,
    find_live_turn,
    list_gc_notes,
    read_gc_note,
    run_state,
    write_gc_note,
)
from ralphproof.views.run_status import display_state
from ralphproof.views.snapshots import SavedWorkspace, snapshots_by_iteration, workspace_folder_of, workspace_kind
from ralphproof.workspace.commits import CommitBuilder
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import run_ref_name
from ralphproof.workspace.plain_workspace import delete_run_copies, list_run_copies, prune_copies
from ralphproof.workspace.repository_backup import LAST_SUFFIX, START_SUFFIX, RepositoryRestore

# Retention.


DAY_S = 86_400.0
REMOVAL_UNFINISHED = "unfinished"  # an earlier gc was interrupted: removed whatever the policy says now
REMOVED, KEPT_UNLANDED, KEPT_NEWEST, KEPT_RECENT, KEPT_OPEN = "goes", "unlanded", "new", "young", "open"


@value
class RetentionPolicy:
    """Keeps the `keep` newest runs, and those that ended less than `days` ago.

    With `unlanded`, runs that hold the only copy of some work are removed too.
    """

    days: float
    keep: int
    unlanded: bool


@value
class RetentionDecision:
    """Whether the files of a run are removed or kept, and the `reason`.

    `unique_saves` names the snapshots that hold the only copy of something: iterations, and those saved before a
    rewind.
    """

    row: RunRow
    kind: str
    reason: str
    outcome: str = ""
    last_iteration: int = 0
    unique_saves: tuple[str, ...] = ()

    @property
    def is_removed(self) -> bool:
        return self.reason in (REMOVED, REMOVAL_UNFINISHED)


class RetentionReview:
    """Decides for each run of a repository. A context manager: it searches the history with git."""

    def __init__(self, project: Project, ledger: SqliteLedger, policy: RetentionPolicy, now: float) -> None:
        self._project, self._ledger, self._policy, self._now = project, ledger, policy, now
        self._builder: CommitBuilder | None = None
        self._digests: set[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._builder is not None:
            self._builder.__exit__()

    def decide_all(self) -> list[RetentionDecision]:
        """A decision for every run that still has files, the newest first."""
        decisions = (self._decide(position, row) for position, row in enumerate(self._ledger.runs()))
        return [decision for decision in decisions if decision is not None]

    def _decide(self, position: int, row: RunRow) -> RetentionDecision | None:
        note = read_gc_note(self._project, row.id)
        if note and note.done:
            return None
        reason = REMOVAL_UNFINISHED if note else self._keep_reason(position, row)
        if reason and not note:
            return RetentionDecision(row, "", reason)
        records, end = self._ledger.records(row.id), self._ledger.run_end(row.id)
        snapshots = {number: one for number, one in snapshots_by_iteration(records).items() if one.tree is not None}
        unique_saves: tuple[str, ...] = ()
        if not reason:
            unique_saves = () if self._policy.unlanded else self._unique_saves(row, records, snapshots)
            reason = KEPT_UNLANDED if unique_saves else REMOVED
        outcome = end.outcome.status if isinstance(end, RunEnded) else ""
        return RetentionDecision(row, workspace_kind(records), reason, outcome, max(snapshots, default=0), unique_saves)

    def _keep_reason(self, position: int, row: RunRow) -> str:
        """Why a run is kept, whatever its work is; empty where nothing keeps it. First match wins."""
        if self._is_open(row):
            return KEPT_OPEN
        if position < self._policy.keep:
            return KEPT_NEWEST
        ended_s = self._ledger.last_written_at(row.id) or row.began_at
        return KEPT_RECENT if self._now - ended_s < self._policy.days * DAY_S else ""

    def _is_open(self, row: RunRow) -> bool:
        """Whether a run is active or may be resumed: it lost its harness, or waits for an answer."""
        end = self._ledger.run_end(row.id)
        if end is None or run_state(self._ledger, row, self._project) != ENDED:
            return True
        return display_state(ENDED, State().after(end)) == STOPPED or find_live_turn(self._project, row.id) is not None

    def _unique_saves(
        self, row: RunRow, records: tuple[Record, ...], snapshots: dict[int, Snapshot]
    ) -> tuple[str, ...]:
        """The snapshots of a run that hold the only copy of something: the last one, the start, and those before a
        rewind.
        """
        start_trees = {record.snapshot.tree for record in records if isinstance(record, BaselineSaved)}
        start_trees |= {snapshots[0].tree} if 0 in snapshots else set()
        number = max(snapshots, default=0)
        last = snapshots.get(number)
        unchanged = last is None or last.tree in start_trees
        if workspace_kind(records) != "git":
            known_trees = start_trees | ({last.tree} if last else set())
            saves = [name for name, tree in self._rewind_copies(row) if tree not in known_trees]
            return (*(() if unchanged else (str(number),)), *saves)
        if git_folders(self._project.root) is None:
            return () if unchanged else (str(number),)
        landed = self._landed_trees(records, None if unchanged else last)
        unique = [] if landed or unchanged else [str(number)]
        others = {"0": snapshots[0]} if 0 in snapshots and "0" not in unique else {}
        others |= self._rewind_snapshots(row)
        return (
            *unique,
            *(name for name, record in others.items() if not self._is_redundant(record, landed, row.directory)),
        )

    def _landed_trees(self, records: tuple[Record, ...], last: Snapshot | None) -> list[str]:
        """The trees with the run's result that are in the history; empty where it did not land."""
        builder = self._commit_builder()
        commits = [
            record.committed.commit for record in records if isinstance(record, ScmEnded) and record.committed.commit
        ]
        commit = commits[-1] if commits and is_reachable(builder.user_git, commits[-1]) else ""
        trees = [builder.commits.header(commit, b"tree ")[0]] if commit else []
        return [*trees, *filter(None, [self._landed_tree(last) if last else ""])]

    def _rewind_snapshots(self, row: RunRow) -> dict[str, Snapshot]:
        names = list_run_refs(self._commit_builder().user_git, row.id)
        return {
            name: self._commit_builder().snapshot_of(names[name])
            for name in sorted(names)
            if name.startswith(REWIND_BACKUP_PREFIX)
        }

    def _rewind_copies(self, row: RunRow) -> Iterator[tuple[str, str | None]]:
        """The snapshots before rewinds of a run without git: names and trees."""
        names = [
            name
            for name in list_run_copies(workspace_folder_of(self._project, row), row.id)
            if name.startswith(REWIND_BACKUP_PREFIX)
        ]
        if not names:
            return
        with SavedWorkspace(self._project, row, "plain", own_folder=True) as stored:
            for name in names:
                saved = stored.workspace.find_snapshot(row.id, name)
                yield name, saved.tree if saved else None

    def _is_redundant(self, saved: Snapshot, landed: list[str], folder: str) -> bool:
        """Whether the history, or the folder as it is now, has all contents of a snapshot."""
        builder = self._commit_builder()
        if saved.id is None or not builder.commits.has(saved.id):
            return True
        try:
            landing = builder.plan(saved)
        except Refused:
            return False
        if not landing.excluded and builder.content_digest(landing.tree) in self._history_digests():
            return True
        if landing.parent and not is_reachable(builder.user_git, landing.parent):
            return False
        head = builder.user_git.run_line("rev-parse", "-q", "--verify", "HEAD^{tree}")
        return not builder.files_only_in(saved, landing, [*landed, *filter(None, [head])], folder)

    def _landed_tree(self, last: Snapshot) -> str:
        """The tree in the history that holds a snapshot's work; empty where there is none."""
        if last.id is None or not self._commit_builder().commits.has(last.id):
            return str(last.tree)  # the snapshot was pruned already: nothing is lost
        try:
            landing = self._commit_builder().plan(last)
        except Refused:
            return ""  # git cannot tell: assume that it is not there
        if landing.empty and landing.parent:
            return landing.tree if is_reachable(self._commit_builder().user_git, landing.parent) else ""
        return landing.tree if self._commit_builder().content_digest(landing.tree) in self._history_digests() else ""

    def _history_digests(self) -> set[str]:
        """Content digests of all commits since the first run began: no earlier commit can hold the work of a run."""
        if self._digests is None:
            first, builder = min(row.began_at for row in self._ledger.runs()), self._commit_builder()
            self._digests = {builder.content_digest(tree) for tree in list_trees_since(builder.user_git, first - DAY_S)}
        return self._digests

    def _commit_builder(self) -> CommitBuilder:
        if self._builder is None:
            self._builder = CommitBuilder(self._project.root, os.environ, store=False)
        return self._builder


# Refs of runs, and what of them other refs have.


# All refs but snapshots, stashes and notes.
HISTORY_OPTIONS = ("--exclude=refs/ralph/*", "--exclude=refs/stash", "--exclude=refs/notes/*", "--all")


def delete_run_refs(git: UserGit, run: str) -> None:
    """Delete every ref of a run in one transaction. Git prunes the unreferenced objects later."""
    place = os.path.dirname(run_ref_name(run, "0"))
    listed = git.run("for-each-ref", "--format=%(refname)", f"{place}/").out.splitlines()
    if listed:
        git.run("update-ref", "--no-deref", "-z", "--stdin", stdin=b"".join(b"delete %s\0\0" % ref for ref in listed))
    if git.folders.ref_files:  # git lists no ref that is broken, and leaves locks of the dead
        remove_tree(os.path.join(git.folders.common, place), strict=True)


def list_run_refs(git: UserGit, run: str) -> dict[str, str]:
    """The commits of a run's refs, by the last part of their names."""
    place = os.path.dirname(run_ref_name(run, "0"))
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname)", f"{place}/").out.decode("utf-8", "replace")
    rows = (line.rpartition(" ") for line in listed.splitlines())
    return {os.path.basename(ref): commit for ref, _, commit in rows}


def is_reachable(git: UserGit, commit: str) -> bool:
    """Whether a commit is reachable from refs other than snapshots."""
    if not git.resolve_commit(commit):
        return False
    return not git.run("rev-list", "--max-count=1", commit, "--not", *HISTORY_OPTIONS).out.strip()


def list_trees_since(git: UserGit, since: float) -> set[str]:
    """The trees of all commits since this time (epoch seconds), snapshots aside."""
    command = ("log", "--format=%T", f"--since=@{int(since)}", *HISTORY_OPTIONS)
    return set(git.run(*command).out.decode("ascii", "replace").split())


# Removal. If it is killed, a run is either complete, or noted as being removed, and the next gc finishes that.


GC_LOCK = "gc"
SCRATCH_PREFIXES = (
    "ralph-look-", "ralph-branch-", "ralph-trial-", "ralph-single-pass-", "ralph-doctor-", "ralph-verify-", "ralph-pr-",
)  # fmt: skip
SCRATCH_AGE_S = 86_400.0  # no command of ours uses a temporary folder for longer


class FolderLocks:
    """Locks on the directories of these runs, so that no run begins or resumes there. `busy` has those in use."""

    def __init__(self, project: Project, directories: Iterable[str]) -> None:
        self._project = project
        self._others = sorted({*directories} - {project.root, ""})
        self._locks: list[DirectoryLock] = []
        self.busy: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Raises Busy where a run is active in the project itself."""
        self._take(self._project.root)
        for directory in self._others:
            try:
                self._take(directory)
            except Busy as error:
                self.busy[directory] = str(error)
        return self

    def _take(self, directory: str) -> None:
        lock = DirectoryLock(self._project.state_dir, directory, GC_LOCK)
        lock.take()
        self._locks.append(lock)

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


def record_removals(project: Project, decisions: Iterable[RetentionDecision]) -> list[GcNote]:
    """Record the removal of these runs before anything is removed; all open removals, also those that an earlier gc did
    not finish.
    """
    at = time.time()
    for decision in decisions:
        row = decision.row
        trees = os.path.basename(workspace_folder_of(project, row))
        write_gc_note(project, GcNote(row.id, row.directory, trees, decision.kind, at))
    return [note for note in list_gc_notes(project) if not note.done]


def remove_runs(project: Project, notes: Iterable[GcNote], remaining: Iterable[RunRow]) -> list[tuple[str, str]]:
    """Remove all files of these runs; the runs for which that failed, and why."""
    failed: list[tuple[str, str]] = []
    used = {os.path.basename(workspace_folder_of(project, row)) for row in remaining}
    for note in notes:
        try:
            _remove_run(project, note)
            _remove_trees(project, note, used)
            write_gc_note(project, replace(note, done=True))
        except (OSError, RalphError) as error:
            failed.append((note.run, str(error)))
    return failed


def _remove_run(project: Project, note: GcNote) -> None:
    if note.kind != "git":
        delete_run_copies(os.path.join(project.store, "trees", note.trees), note.run)
    elif git_folders(project.root):
        delete_run_refs(UserGit(project.root, os.environ), note.run)
    for root in {note.directory, project.root}:
        _remove_published_files(root, note.run)
    remove_tree(os.path.join(project.store, "runs", note.run), strict=True)


def _remove_trees(project: Project, note: GcNote, used: set[str]) -> None:
    """Remove the folder of its trees, unless a remaining run uses it too; then only what no run refers to."""
    folder = os.path.join(project.store, "trees", note.trees)
    if note.trees and note.trees not in used:
        remove_tree(folder, strict=True)
    elif note.kind != "git":
        prune_copies(folder)


def _remove_published_files(root: str, run: str) -> None:
    """Remove the published copies, never through a link: an agent could have made one."""
    if not os.path.isdir(os.path.join(root, ".ralph", "runs")):
        return
    opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for name in (".ralph", "runs"):
            opened.append(open_subfolder(opened[-1], name)[0])
        if run in os.listdir(opened[-1]):
            make_writable(os.path.join(root, ".ralph", "runs", run))
            shutil.rmtree(run, dir_fd=opened[-1])
        if "latest" in os.listdir(opened[1]) and _link_target("latest", opened[1]) == f"runs/{run}":
            os.unlink("latest", dir_fd=opened[1])
    finally:
        for folder in opened:
            os.close(folder)


def _link_target(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def find_leftover_folders(project: Project, days: float, open_runs: bool) -> list[str]:
    """Unused folders: our temporary folders, and checkouts of runs that ended long ago."""
    now, leftovers = time.time(), []
    for path, state in _list_folders(tempfile.gettempdir()):
        ours = os.path.basename(path).startswith(SCRATCH_PREFIXES) and state.st_uid == os.geteuid()
        if ours and now - state.st_mtime > SCRATCH_AGE_S:
            leftovers.append(path)
    if not open_runs:
        checkouts = _list_folders(os.path.join(project.store, "clean"))
        leftovers += [path for path, state in checkouts if now - state.st_mtime > max(days * 86_400, SCRATCH_AGE_S)]
    return leftovers


def find_repository_copies(project: Project) -> tuple[list[str], list[str]]:
    """Files of repository copies whose whole content the repository has, and the runs whose copy has something more."""
    unneeded: list[str] = []
    needed: list[str] = []
    for copy in list_stored_backups(project):
        if not is_backup_of(copy, project.root) or not is_backup_unused(project, copy):
            continue
        if RepositoryRestore(copy.folder, copy.start, os.environ).describe_loss():
            needed.append(copy.start.run)
        else:
            last = copy.start.path.removesuffix(START_SUFFIX) + LAST_SUFFIX
            unneeded += [copy.start.path, *([last] if os.path.exists(last) else [])]
    return unneeded, needed


def _list_folders(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as listed:
            folders = sorted((entry.path, entry) for entry in listed if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for path, entry in folders:
        try:
            yield path, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def disk_usage(*paths: str) -> int:
    """The size of all files below these paths, in bytes."""
    size = 0
    for path in paths:
        if os.path.isfile(path):
            size += os.lstat(path).st_size
        for folder, _, names in os.walk(path):
            for name in names:
                try:
                    size += os.lstat(os.path.join(folder, name)).st_size
                except OSError:
                    continue
    return size


@value
class GcPlan:
    """What gc would do: a decision for each run, unused folders, and the bytes of each."""

    decisions: list[RetentionDecision]
    leftovers: list[str]
    sizes: dict[str, int]
    only_copies: list[str]  # runs whose repository copy holds what is nowhere else

    @property
    def removed(self) -> list[RetentionDecision]:
        return [decision for decision in self.decisions if decision.is_removed]

    @property
    def unlanded(self) -> list[RetentionDecision]:
        return [decision for decision in self.decisions if decision.reason == KEPT_UNLANDED]

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def plan_gc(project: Project, policy: RetentionPolicy) -> GcPlan:
    """What gc would remove under this policy."""
    ledger = project.ledger()
    try:
        with RetentionReview(project, ledger, policy, time.time()) as review:
            decisions = review.decide_all()
    finally:
        ledger.close()
    has_open_runs = any(decision.reason == KEPT_OPEN for decision in decisions)
    unneeded, needed = find_repository_copies(project)
    leftovers = [*find_leftover_folders(project, policy.days, has_open_runs), *unneeded]
    sizes = {
        decision.row.id: disk_usage(*run_folders(project, decision)) for decision in decisions if decision.is_removed
    }
    return GcPlan(decisions, leftovers, sizes | {path: disk_usage(path) for path in leftovers}, needed)


def run_folders(project: Project, decision: RetentionDecision) -> list[str]:
    published = {
        os.path.join(root, ".ralph", "runs", decision.row.id) for root in (project.root, decision.row.directory)
    }
    return [os.path.join(project.store, "runs", decision.row.id), *sorted(published)]


@value
class GcResult:
    """What was removed, and what was not and why: what failed, and directories in use."""

    done: GcPlan
    failed: list[tuple[str, str]]
    busy: list[tuple[str, str]]


def execute_gc(project: Project, policy: RetentionPolicy, shown: GcPlan) -> GcResult:
    """Remove what was shown and still qualifies: the plan is made again while no run can start."""
    wanted = {decision.row.id for decision in shown.removed}
    with FolderLocks(project, {decision.row.directory for decision in shown.removed}) as locks:
        plan = plan_gc(project, policy)
        removable = [
            decision
            for decision in plan.removed
            if decision.row.id in wanted and decision.row.directory not in locks.busy
        ]
        removed_ids = {decision.row.id for decision in removable}
        remaining = [decision.row for decision in plan.decisions if decision.row.id not in removed_ids]
        new = [decision for decision in removable if decision.reason == REMOVED]  # others have a note already
        notes = [note for note in record_removals(project, new) if note.run in removed_ids]
        failed = remove_runs(project, notes, remaining)
        leftovers = sorted({*plan.leftovers} & {*shown.leftovers})
        for path in leftovers:
            try:
                remove_tree(path, strict=True)
            except OSError as error:
                failed.append((path, str(error)))
        freed_bytes = {
            decision.row.id: plan.sizes[decision.row.id] - disk_usage(*run_folders(project, decision))
            for decision in removable
        }
        freed_bytes |= {path: plan.sizes[path] - disk_usage(path) for path in leftovers}
    failed_names = {name for name, _ in failed}
    done = [decision for decision in removable if decision.row.id not in failed_names]
    gone = [path for path in leftovers if path not in failed_names]
    return GcResult(
        GcPlan([*done, *plan.unlanded], gone, freed_bytes, plan.only_copies), failed, sorted(locks.busy.items())
    )
