"""Removing what a run kept. Whoever is killed over it leaves a whole run, or one that the next gc finishes."""

from __future__ import annotations

import os
import time

from ralphproof.errors import Busy, RalphError
from ralphproof.ledgers.files import enter
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.gc_note import Sweeping, all_noted, note
from ralphproof.views.kept import private_of
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from ralphproof.cli.gc_policy import Fate
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.views.project import Project

LOCK = "gc"
SCRATCH = (
    "ralph-look-", "ralph-branch-", "ralph-trial-", "ralph-single-pass-", "ralph-doctor-", "ralph-verify-", "ralph-pr-",
)  # fmt: skip
SCRATCH_S = 86_400.0  # nobody of ours works so long in a temporary folder


class Held:
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
        lock = DirectoryLock(self._project.state_dir, directory, LOCK)
        lock.take()
        self._locks.append(lock)

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


def begun(project: Project, fates: Iterable[Fate]) -> list[Sweeping]:
    """Write down that these runs go, before anything of them does; with those that an earlier gc did not finish."""
    at = time.time()
    for fate in fates:
        row = fate.row
        trees = os.path.basename(private_of(project, row))
        note(project, Sweeping(row.id, row.directory, trees, fate.kind, at))
    return [one for one in all_noted(project) if not one.done]


def sweep(project: Project, going: Iterable[Sweeping], stay: Iterable[RunRow]) -> list[tuple[str, str]]:
    """Remove everything of these runs; those of which something could not be removed, and why."""
    failed: list[tuple[str, str]] = []
    used = {os.path.basename(private_of(project, row)) for row in stay}
    for one in going:
        try:
            _remove(project, one)
            _free(project, one, used)
            note(project, replace(one, done=True))
        except (OSError, RalphError) as error:
            failed.append((one.run, str(error)))
    return failed


def _remove(project: Project, one: Sweeping) -> None:
    from ralphproof.workspaces.sweep import forget_copies, forget_refs, remove_folder
    from ralphproof.workspaces.users_git import UsersGit

    if one.kind != "git":
        forget_copies(os.path.join(project.store, "trees", one.trees), one.run)
    elif git_folders(project.root):
        forget_refs(UsersGit(project.root, os.environ), one.run)
    for root in {one.directory, project.root}:
        _remove_shown(root, one.run)
    remove_folder(os.path.join(project.store, "runs", one.run))


def _free(project: Project, one: Sweeping, used: set[str]) -> None:
    """The folder of its trees, where no run that stays has it too; else what in it nobody names."""
    from ralphproof.workspaces.sweep import prune_copies, remove_folder

    place = os.path.join(project.store, "trees", one.trees)
    if one.trees and one.trees not in used:
        remove_folder(place)
    elif one.kind != "git":
        prune_copies(place)


def _remove_shown(root: str, run: str) -> None:
    """The copies for people, never through a link: an agent could have made one."""
    import shutil

    from ralphproof.workspaces.sweep import open_up

    if not os.path.isdir(os.path.join(root, ".ralph", "runs")):
        return
    opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for name in (".ralph", "runs"):
            opened.append(enter(opened[-1], name)[0])
        if run in os.listdir(opened[-1]):
            open_up(os.path.join(root, ".ralph", "runs", run))
            shutil.rmtree(run, dir_fd=opened[-1])
        if "latest" in os.listdir(opened[1]) and _leads_to("latest", opened[1]) == f"runs/{run}":
            os.unlink("latest", dir_fd=opened[1])
    finally:
        for folder in opened:
            os.close(folder)


def _leads_to(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def leftovers(project: Project, days: float, open_runs: bool) -> list[str]:
    """Folders that nobody uses any more: temporary ones of ours, and checkouts of runs that are long over."""
    import tempfile

    now, found = time.time(), []
    for path, state in _folders(tempfile.gettempdir()):
        ours = os.path.basename(path).startswith(SCRATCH) and state.st_uid == os.geteuid()
        if ours and now - state.st_mtime > SCRATCH_S:
            found.append(path)
    if not open_runs:
        places = _folders(os.path.join(project.store, "clean"))
        found += [path for path, state in places if now - state.st_mtime > max(days * 86_400, SCRATCH_S)]
    return found


def repository_copies(project: Project) -> tuple[list[str], list[str]]:
    """The files of copies that the repository provably has all of, and the runs whose copy alone has something."""
    from ralphproof.views.copies import copies_of, is_of, is_over
    from ralphproof.workspaces.backup import LAST, START
    from ralphproof.workspaces.restoring import Restoring

    unneeded: list[str] = []
    needed: list[str] = []
    for copy in copies_of(project):
        if not is_of(copy, project.root) or not is_over(project, copy):
            continue
        if Restoring(copy.folder, copy.start, os.environ).lost():
            needed.append(copy.start.run)
        else:
            last = copy.start.path.removesuffix(START) + LAST
            unneeded += [copy.start.path, *([last] if os.path.exists(last) else [])]
    return unneeded, needed


def _folders(place: str) -> Iterator[tuple[str, os.stat_result]]:
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


def size_of(*places: str) -> int:
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
