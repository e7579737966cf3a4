"""Runs in separate worktrees: created before the run, removed when all of its work is on its branch."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from contextlib import closing, suppress

from ralphproof.base.errors import Busy, RalphError, Refused, wrap_os_error
from ralphproof.base.files import make_private_folder
from ralphproof.base.git_layout import WORKTREES_FOLDER, is_run_worktree
from ralphproof.base.text import slugify
from ralphproof.base.value import replace
from ralphproof.landing.landing_items import landing_item_of_run
from ralphproof.runs.request import RunRequest, RunTarget
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.store.landings import LandingItem
from ralphproof.store.ledger import LATEST
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.views.snapshots import is_fully_saved
from ralphproof.workspace.checkouts import (
    RunWorktree,
    RunWorktrees,
    differing_settings,
    find_unshared_repositories,
    has_unshared_commits,
)
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import run_ref_name

RUN_ID_VARIABLE = "RALPH_RUN_ID"
ASIDE_REF = "aside"  # last part of the ref for commits that an agent left on its branch besides its work


def open_worktrees(project: Project) -> RunWorktrees:
    """The worktrees of this repository's runs; raises Refused where there is no git repository."""
    if not os.path.lexists(os.path.join(project.root, ".git")):
        raise Refused(f"{project.root} has no git repository at its top, and a worktree needs one; run git init")
    return RunWorktrees(project.root, os.path.join(project.store, WORKTREES_FOLDER), os.environ)


def move_to_worktree(
    request: RunRequest, project: Project, name: str, base: str = "HEAD"
) -> tuple[RunRequest, RunWorktree, list[str]]:
    """Create a worktree; the request for a run in it, the worktree, and remarks on what it lacks."""
    if os.environ.get(RUN_ID_VARIABLE):
        raise Refused("--worktree is not for runs inside another one; leave it away")
    worktree = open_worktrees(project).create(name, base)
    git = UserGit(project.root, os.environ)
    remarks = [f"{path} is not committed as it is here; the worktree has what is committed" for path in
            differing_settings(project.root, worktree.path)]  # fmt: skip
    if base == "HEAD" and git.run_line("status", "--porcelain", "--untracked-files=no"):
        remarks.append("what is not committed here is not in the worktree")
    return replace(request, project_dir=worktree.path, in_worktree=True), worktree, remarks


def begin_in_worktree(spec: RunSpec) -> tuple[RunSpec, RunTarget]:
    """The spec of a new run, prepared again in a worktree that is named like the run, and the run to begin."""
    run = new_run_id(time.time(), os.urandom(3))
    request, worktree, remarks = move_to_worktree(spec.request, spec.project, run)
    try:
        worktree_spec = prepare_spec(request)
    except BaseException:
        remove_worktree(spec.project, worktree, (), branch=True)  # no run has begun in it
        raise
    where = f"works in {worktree.path}, on branch {worktree.branch}"
    return replace(worktree_spec, remarks=(where, *remarks, *worktree_spec.remarks)), RunTarget(run)


def discard_unused_worktree(project: Project) -> None:
    """Remove the worktree at the project's root, unless a run has begun in it."""
    worktree = find_worktree_at(project, project.root)
    with closing(project.ledger()) as ledger:
        newest = ledger.queries.newest_run_in(project.root)
    if worktree is not None and newest is None:
        remove_worktree(replace(project, root=worktree.source), worktree, (), branch=True)


def find_worktree_at(project: Project, folder: str) -> RunWorktree | None:
    """The run worktree in this folder; None if the folder is not one."""
    name = os.path.basename(folder)
    worktree = open_worktrees(project).find(name)
    return worktree if worktree and os.path.realpath(worktree.path) == os.path.realpath(folder) else None


def update_worktree_branch(worktree: RunWorktree, item: LandingItem) -> None:
    """Move the branch of a worktree to the commit of its run's work. The files are not touched.

    The agent may have switched to another branch: commits that it left on this one are kept by a ref of the run.
    """
    git = UserGit(worktree.path, os.environ)
    old = git.branch_commit(worktree.branch)
    if old == item.commit:
        return
    if old and not git.contains(item.commit, old):
        git.run("update-ref", run_ref_name(item.run, ASIDE_REF), old)
    git.run("update-ref", "-m", f"ralph: the work of run {item.run}", f"refs/heads/{worktree.branch}",
              item.commit, *([old] if old else []))  # fmt: skip
    git.run("read-tree", "--reset", "-i", item.commit)  # keeps the skip-worktree bits of a sparse checkout


def remove_worktree(project: Project, worktree: RunWorktree, runs: tuple[str, ...], branch: bool = False) -> None:
    """Remove a worktree whose work is saved elsewhere. The run folders in it are copied to the user's checkout."""
    for run in runs:
        _copy_run_folder_home(worktree, run, project)
    RunWorktrees(worktree.source, os.path.join(project.store, WORKTREES_FOLDER), os.environ).remove(worktree, branch)


def reason_to_keep_worktree(project: Project, worktree: RunWorktree, run: str, branch: bool = False) -> str:
    """Why the worktree of a run that has ended cannot be removed without losing something; empty if it can.

    With `branch` its branch would be deleted too.
    """
    if not is_fully_saved(project, run):
        return "not all of it could be saved"
    if has_unshared_commits(worktree, os.environ, branch):
        return "it has commits that nothing else names"
    if inner := find_unshared_repositories(worktree.path, worktree.base, os.environ):
        return f"repositories in it have commits that are nowhere else ({', '.join(inner)})"
    return ""


def _copy_run_folder_home(worktree: RunWorktree, run: str, project: Project) -> None:
    source = os.path.join(worktree.path, ".ralph", "runs", run)
    target = os.path.join(worktree.source, ".ralph", "runs", run)
    if not os.path.isdir(source) or os.path.islink(source) or not os.path.isdir(worktree.source):
        return
    with closing(project.ledger()) as ledger:
        latest = ledger.find(LATEST) == run
    RunFolder(worktree.source, run, project.store, project.mask, latest=latest).begin()
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_special_files)
    except shutil.Error:
        return  # what could be read was copied; the state folder has all of it
    except OSError as error:
        raise wrap_os_error(error) from error


def _special_files(folder: str, names: list[str]) -> set[str]:
    """Names that are neither file, folder nor link: an agent may leave pipes and sockets in its task folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name for name, path in paths.items() if not (os.path.islink(path) or os.path.isfile(path) or
                                                         os.path.isdir(path))}  # fmt: skip


def finish_worktree_run(project: Project, run: str, completed: bool) -> list[str]:
    """Handle the worktree of a run that has ended; lines for the user.

    A completed run's work goes to its branch, and the worktree is removed if nothing would be lost. That of any other
    run stays, because the run is resumed in it.
    """
    if not os.path.lexists(os.path.join(project.root, ".git")):
        message = f"{project.root} has no .git any more, so no branch has the work of run {run}; its refs have it: "
        return [message + (f"ralph land {run}" if completed else f"ralph branch {run}")]
    worktree = find_worktree_at(project, project.root)
    if worktree is None:
        return []
    if not completed:
        return [f"its work tree stays: {worktree.path} (branch {worktree.branch})"]
    item = landing_item_of_run(project, run)
    update_worktree_branch(worktree, item)
    take = f"git merge {worktree.branch}, or with its checks once more: ralph land {run}"
    remarks = [*item.remarks, f"the work is on branch {worktree.branch}; take it: {take}"]
    if why := reason_to_keep_worktree(project, worktree, run):
        return [*remarks, f"its work tree stays, {why}: {worktree.path}"]
    remove_worktree(replace(project, root=worktree.source), worktree, (run,))
    return remarks


# Worktrees of tasks


PARALLEL_WORK_LOCK = "work.lock"
PLAIN_WORKTREE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


class TaskWorktrees:
    """The worktrees of tasks. A task has one from its first run until its work has landed."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def names(self) -> set[str]:
        """The names of all worktrees, including those of races and single runs."""
        return {worktree.name for worktree in open_worktrees(self._project).list_all()}

    def find(self, task: str) -> RunWorktree | None:
        """The worktree of this task; None if it has none."""
        return open_worktrees(self._project).find(task_worktree_name(task))

    def used_worktree(self, run: str) -> bool:
        """Whether a run worked in a worktree; a task that was begun without --parallel continues in the user's
        checkout.
        """
        with closing(self._project.ledger()) as ledger:
            row = ledger.row(run)
        return row is not None and is_run_worktree(row.directory, self._project.store)

    def remove_landed(self, task: str, run: str) -> str:
        """Remove the worktree of a task whose work landed by this run; the reason if it has to stay, else empty."""
        worktree = self.find(task)
        if worktree is None:
            return ""
        if why := reason_to_keep_worktree(self._project, worktree, run, branch=True):
            return f"{why}: {worktree.path}"
        try:
            remove_worktree(self._project, worktree, self._runs_of(task), branch=True)
        except RalphError as error:
            return str(error)
        return ""

    def discard_unused(self, task: str) -> None:
        """Remove the worktree of a task whose run was refused, unless a run has begun in it, so that a retry starts
        afresh.
        """
        if worktree := self.find(task):
            with suppress(RalphError):  # the refusal of the run is reported instead
                discard_unused_worktree(replace(self._project, root=worktree.path))

    def _runs_of(self, task: str) -> tuple[str, ...]:
        with closing(self._project.ledger()) as ledger:
            return tuple(ledger.tasks.attempts(task))


class ParallelWorkLock:
    """Lock for `ralph work --parallel` on a repository; the kernel releases it when the process ends.

    Two calls at once would work on the same tasks, and one would reset a worktree in which an agent of the other works.
    """

    def __init__(self, store: str) -> None:
        self._path = os.path.join(store, PARALLEL_WORK_LOCK)

    def __enter__(self) -> None:
        """Raises Busy where another process holds it."""
        try:
            make_private_folder(os.path.dirname(self._path))
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise wrap_os_error(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise wrap_os_error(error) from error
            raise Busy("another ralph work --parallel is at work on these tasks; wait until it has ended") from error

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)  # a child that is being started may still hold a copy of the descriptor
        os.close(self._file)


def task_worktree_name(task: str) -> str:
    """The name of a task's worktree: its id, or a slug with a hash where the id cannot name a folder or branch."""
    if PLAIN_WORKTREE_NAME.fullmatch(task) and task.lower() not in ("lock", "head"):
        return task
    return f"{slugify(task) or 'task'}-{hashlib.sha256(task.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
