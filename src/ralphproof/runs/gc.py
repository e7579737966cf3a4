"""Garbage collection: which runs keep what they have, and removing what the others kept."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import Busy, RalphError, Refused
from ralphproof.base.files import open_subfolder
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.records import BaselineSaved, RunEnded, ScmEnded
from ralphproof.engine.state import State
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
from ralphproof.workspace.secret_files import secret_reason

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator
    from typing import Self

    from ralphproof.engine.records import Record
    from ralphproof.engine.workspace import Snapshot
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger
    from ralphproof.workspace.commit_builder import CommitBuilder


REWIND_BACKUP_PREFIX = "before-rewind-"


# Which runs keep what they have, and which may go.


DAY_S = 86_400.0
REMOVAL_UNFINISHED = "unfinished"  # an earlier gc was cut off: it goes whatever the policy says now
REMOVED, KEPT_UNLANDED, KEPT_NEWEST, KEPT_RECENT, KEPT_OPEN = "goes", "unlanded", "new", "young", "open"


@value
class RetentionPolicy:
    """Never the `keep` newest, never one that ended less than `days` ago. `unlanded` lets go of work that is nowhere
    else too."""

    days: float
    keep: int
    unlanded: bool


@value
class RetentionDecision:
    """What is to become of a run: it goes, or `what` keeps it. `number` is its last saved iteration.

    `only` names the saves that hold what is nowhere else: iterations, and what a rewind saved.
    """

    row: RunRow
    kind: str
    what: str
    ended: str = ""
    number: int = 0
    only: tuple[str, ...] = ()

    @property
    def goes(self) -> bool:
        return self.what in (REMOVED, REMOVAL_UNFINISHED)


class RetentionReview:
    """The runs of a repository, judged one by one. To be closed: history is looked through with git's help."""

    def __init__(self, project: Project, ledger: SqliteLedger, policy: RetentionPolicy, now: float) -> None:
        self._project, self._ledger, self._policy, self._now = project, ledger, policy, now
        self._landable: CommitBuilder | None = None
        self._works: set[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._landable is not None:
            self._landable.__exit__()

    def all(self) -> list[RetentionDecision]:
        """Every run that still has something, the newest first."""
        found = (self._fate(place, row) for place, row in enumerate(self._ledger.runs()))
        return [fate for fate in found if fate is not None]

    def _fate(self, place: int, row: RunRow) -> RetentionDecision | None:
        known = read_gc_note(self._project, row.id)
        if known and known.done:
            return None
        what = REMOVAL_UNFINISHED if known else self._kept_by(place, row)
        if what and not known:
            return RetentionDecision(row, "", what)
        records, end = self._ledger.records(row.id), self._ledger.run_end(row.id)
        snapshots = {number: one for number, one in snapshots_by_iteration(records).items() if one.tree is not None}
        only: tuple[str, ...] = ()
        if not what:
            only = () if self._policy.unlanded else self._only_here(row, records, snapshots)
            what = KEPT_UNLANDED if only else REMOVED
        told = end.outcome.status if isinstance(end, RunEnded) else ""
        return RetentionDecision(row, workspace_kind(records), what, told, max(snapshots, default=0), only)

    def _kept_by(self, place: int, row: RunRow) -> str:
        """What keeps a run, whatever it did; empty where nothing does. First match wins."""
        if self._open(row):
            return KEPT_OPEN
        if place < self._policy.keep:
            return KEPT_NEWEST
        ended_s = self._ledger.last_written_at(row.id) or row.began_at
        return KEPT_RECENT if self._now - ended_s < self._policy.days * DAY_S else ""

    def _open(self, row: RunRow) -> bool:
        """Whether anybody is at work on it, or may take it up: it lost its harness, or waits for an answer."""
        end = self._ledger.run_end(row.id)
        if end is None or run_state(self._ledger, row, self._project) != ENDED:
            return True
        return display_state(ENDED, State().after(end)) == STOPPED or find_live_turn(self._project, row.id) is not None

    def _only_here(self, row: RunRow, records: tuple[Record, ...], snapshots: dict[int, Snapshot]) -> tuple[str, ...]:
        """The saves of a run that hold what is nowhere else: its last, its start, and those before a rewind."""
        began = {one.snapshot.tree for one in records if isinstance(one, BaselineSaved)}
        began |= {snapshots[0].tree} if 0 in snapshots else set()
        number = max(snapshots, default=0)
        last = snapshots.get(number)
        unchanged = last is None or last.tree in began
        if workspace_kind(records) != "git":
            known = began | ({last.tree} if last else set())
            saves = [name for name, tree in self._copies(row) if tree not in known]
            return (*(() if unchanged else (str(number),)), *saves)
        if git_folders(self._project.root) is None:
            return () if unchanged else (str(number),)
        landed = self._landed_trees(records, None if unchanged else last)
        found = [] if landed or unchanged else [str(number)]
        others = {"0": snapshots[0]} if 0 in snapshots and "0" not in found else {}
        others |= self._before_rewinds(row)
        return (*found, *(name for name, one in others.items() if not self._elsewhere(one, landed, row.directory)))

    def _landed_trees(self, records: tuple[Record, ...], last: Snapshot | None) -> list[str]:
        """The trees by which history has what the run came to; empty where it has not."""
        from ralphproof.workspace.pruning import is_reachable

        landable = self._opened()
        commits = [one.committed.commit for one in records if isinstance(one, ScmEnded) and one.committed.commit]
        own = commits[-1] if commits and is_reachable(landable.user_git, commits[-1]) else ""
        trees = [landable.commits.header(own, b"tree ")[0]] if own else []
        return [*trees, *filter(None, [self._in_history(last) if last else ""])]

    def _before_rewinds(self, row: RunRow) -> dict[str, Snapshot]:
        from ralphproof.workspace.pruning import list_run_refs

        names = list_run_refs(self._opened().user_git, row.id)
        return {
            name: self._opened().snapshot_of(names[name])
            for name in sorted(names)
            if name.startswith(REWIND_BACKUP_PREFIX)
        }

    def _copies(self, row: RunRow) -> Iterator[tuple[str, str | None]]:
        """The same of a run without git: names and trees."""
        from ralphproof.workspace.pruning import list_run_copies

        names = [
            name
            for name in list_run_copies(workspace_folder_of(self._project, row), row.id)
            if name.startswith(REWIND_BACKUP_PREFIX)
        ]
        if not names:
            return
        with SavedWorkspace(self._project, row, "plain", own_folder=True) as kept:
            for name in names:
                saved = kept.workspace.find_snapshot(row.id, name)
                yield name, saved.tree if saved else None

    def _elsewhere(self, saved: Snapshot, landed: list[str], folder: str) -> bool:
        """Whether history, or the folder as it is now, has every content of a save."""
        from ralphproof.workspace.pruning import is_reachable

        landable = self._opened()
        if saved.id is None or not landable.commits.has(saved.id):
            return True
        try:
            landing = landable.plan(saved, secret_reason)
        except Refused:
            return False
        if not landing.excluded and landable.content_digest(landing.tree) in self._history():
            return True
        if landing.parent and not is_reachable(landable.user_git, landing.parent):
            return False
        head = landable.user_git.run_line("rev-parse", "-q", "--verify", "HEAD^{tree}")
        return not landable.files_only_in(saved, landing, [*landed, *filter(None, [head])], folder)

    def _in_history(self, last: Snapshot) -> str:
        """The tree by which history has a save; empty where it has not."""
        from ralphproof.workspace.pruning import is_reachable

        if last.id is None or not self._opened().commits.has(last.id):
            return str(last.tree)  # what it saved was pruned: there is nothing left to lose
        try:
            landing = self._opened().plan(last, secret_reason)
        except Refused:
            return ""  # git cannot tell, so nobody knows
        if landing.empty and landing.parent:
            return landing.tree if is_reachable(self._opened().user_git, landing.parent) else ""
        return landing.tree if self._opened().content_digest(landing.tree) in self._history() else ""

    def _history(self) -> set[str]:
        """The work in all commits since the first run began: no earlier one can have that of a run."""
        from ralphproof.workspace.pruning import list_trees_since

        if self._works is None:
            first, landable = min(row.began_at for row in self._ledger.runs()), self._opened()
            self._works = {landable.content_digest(tree) for tree in list_trees_since(landable.user_git, first - DAY_S)}
        return self._works

    def _opened(self) -> CommitBuilder:
        from ralphproof.workspace.commit_builder import CommitBuilder

        if self._landable is None:
            self._landable = CommitBuilder(self._project.root, os.environ, store=False)
        return self._landable


# Removing what a run kept. Whoever is killed over it leaves a whole run, or one that the next gc finishes.


GC_LOCK = "gc"
SCRATCH_PREFIXES = (
    "ralph-look-", "ralph-branch-", "ralph-trial-", "ralph-single-pass-", "ralph-doctor-", "ralph-verify-", "ralph-pr-",
)  # fmt: skip
SCRATCH_AGE_S = 86_400.0  # nobody of ours works so long in a temporary folder


class FolderLocks:
    """The directories of these runs, so that none begins or is taken up there. `busy` says where somebody works."""

    def __init__(self, project: Project, directories: Iterable[str]) -> None:
        self._project = project
        self._others = sorted({*directories} - {project.root, ""})
        self._locks: list[DirectoryLock] = []
        self.busy: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Raises Busy where a run is at work in the project itself."""
        self._take(self._project.root)
        for directory in self._others:
            try:
                self._take(directory)
            except Busy as busy:
                self.busy[directory] = str(busy)
        return self

    def _take(self, directory: str) -> None:
        lock = DirectoryLock(self._project.state_dir, directory, GC_LOCK)
        lock.take()
        self._locks.append(lock)

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


def record_removals(project: Project, fates: Iterable[RetentionDecision]) -> list[GcNote]:
    """Write down that these runs go, before anything of them does; with those that an earlier gc did not finish."""
    at = time.time()
    for fate in fates:
        row = fate.row
        trees = os.path.basename(workspace_folder_of(project, row))
        write_gc_note(project, GcNote(row.id, row.directory, trees, fate.kind, at))
    return [one for one in list_gc_notes(project) if not one.done]


def remove_runs(project: Project, going: Iterable[GcNote], stay: Iterable[RunRow]) -> list[tuple[str, str]]:
    """Remove everything of these runs; those of which something could not be removed, and why."""
    failed: list[tuple[str, str]] = []
    used = {os.path.basename(workspace_folder_of(project, row)) for row in stay}
    for one in going:
        try:
            _remove_run(project, one)
            _remove_trees(project, one, used)
            write_gc_note(project, replace(one, done=True))
        except (OSError, RalphError) as error:
            failed.append((one.run, str(error)))
    return failed


def _remove_run(project: Project, one: GcNote) -> None:
    from ralphproof.workspace.git_command import UserGit
    from ralphproof.workspace.pruning import delete_run_copies, delete_run_refs, remove_folder

    if one.kind != "git":
        delete_run_copies(os.path.join(project.store, "trees", one.trees), one.run)
    elif git_folders(project.root):
        delete_run_refs(UserGit(project.root, os.environ), one.run)
    for root in {one.directory, project.root}:
        _remove_published_files(root, one.run)
    remove_folder(os.path.join(project.store, "runs", one.run))


def _remove_trees(project: Project, one: GcNote, used: set[str]) -> None:
    """The folder of its trees, where no run that stays has it too; else what in it nobody names."""
    from ralphproof.workspace.pruning import prune_copies, remove_folder

    place = os.path.join(project.store, "trees", one.trees)
    if one.trees and one.trees not in used:
        remove_folder(place)
    elif one.kind != "git":
        prune_copies(place)


def _remove_published_files(root: str, run: str) -> None:
    """The copies for people, never through a link: an agent could have made one."""
    import shutil

    from ralphproof.workspace.pruning import make_writable

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
    """Folders that nobody uses any more: temporary ones of ours, and checkouts of runs that are long over."""
    import tempfile

    now, found = time.time(), []
    for path, state in _list_folders(tempfile.gettempdir()):
        ours = os.path.basename(path).startswith(SCRATCH_PREFIXES) and state.st_uid == os.geteuid()
        if ours and now - state.st_mtime > SCRATCH_AGE_S:
            found.append(path)
    if not open_runs:
        places = _list_folders(os.path.join(project.store, "clean"))
        found += [path for path, state in places if now - state.st_mtime > max(days * 86_400, SCRATCH_AGE_S)]
    return found


def find_repository_copies(project: Project) -> tuple[list[str], list[str]]:
    """The files of copies that the repository provably has all of, and the runs whose copy alone has something."""
    from ralphproof.views.snapshots import is_backup_of, is_backup_unused, list_stored_backups
    from ralphproof.workspace.backup import LAST_SUFFIX, START_SUFFIX
    from ralphproof.workspace.repository_restore import RepositoryRestore

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


def _list_folders(place: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(place) as listed:
            found = sorted((entry.path, entry) for entry in listed if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for path, entry in found:
        try:
            yield path, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def disk_usage(*places: str) -> int:
    """How many bytes the files below these folders have."""
    size = 0
    for place in places:
        if os.path.isfile(place):
            size += os.lstat(place).st_size
        for folder, _, names in os.walk(place):
            for name in names:
                try:
                    size += os.lstat(os.path.join(folder, name)).st_size
                except OSError:
                    continue
    return size


@value
class GcPlan:
    """What gc would do: the runs and what is to become of them, folders that nobody uses, and the bytes of each run."""

    fates: list[RetentionDecision]
    leftovers: list[str]
    sizes: dict[str, int]
    only_copies: list[str]  # runs whose copy of the repository alone has something

    @property
    def going(self) -> list[RetentionDecision]:
        return [fate for fate in self.fates if fate.goes]

    @property
    def unlanded(self) -> list[RetentionDecision]:
        return [fate for fate in self.fates if fate.what == KEPT_UNLANDED]

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def plan_gc(project: Project, args: Namespace) -> GcPlan:
    ledger = project.ledger()
    try:
        fates = _decide_retention(project, ledger, args)
    finally:
        ledger.close()
    live = any(fate.what == KEPT_OPEN for fate in fates)
    unneeded, needed = find_repository_copies(project)
    found = [*find_leftover_folders(project, args.days, live), *unneeded]
    sizes = {fate.row.id: disk_usage(*run_folders(project, fate)) for fate in fates if fate.goes}
    return GcPlan(fates, found, sizes | {path: disk_usage(path) for path in found}, needed)


def _decide_retention(project: Project, ledger: SqliteLedger, args: Namespace) -> list[RetentionDecision]:
    policy = RetentionPolicy(args.days, args.keep, args.unlanded)
    with RetentionReview(project, ledger, policy, time.time()) as fates:
        return fates.all()


def run_folders(project: Project, fate: RetentionDecision) -> list[str]:
    shown = {os.path.join(root, ".ralph", "runs", fate.row.id) for root in (project.root, fate.row.directory)}
    return [os.path.join(project.store, "runs", fate.row.id), *sorted(shown)]
