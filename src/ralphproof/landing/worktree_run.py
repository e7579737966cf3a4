"""Runs in a worktree of their own: made before the run, cleared away when all of its work is on its branch."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from contextlib import suppress

from ralphproof.base.errors import Busy, RalphError, Refused, wrap_os_error
from ralphproof.base.files import make_private_folder
from ralphproof.base.git_layout import WORKTREES_FOLDER, is_run_worktree
from ralphproof.base.text import slugify
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.store.run_state import find_run
from ralphproof.store.runs import LATEST
from ralphproof.views.snapshots import is_fully_saved
from ralphproof.workspace.git_command import UserGit
from ralphproof.workspace.git_objects import run_ref_name
from ralphproof.workspace.worktrees import (
    RunWorktrees,
    differing_settings,
    find_unshared_repositories,
    has_unshared_commits,
)

if TYPE_CHECKING:
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget
    from ralphproof.store.landings import LandingItem
    from ralphproof.workspace.worktrees import RunWorktree


# A run in a work tree of its own: laid before it begins, and cleared away when all of its work is on its branch.


RUN_ID_VARIABLE = "RALPH_RUN_ID"
ASIDE_REF = "aside"  # the name of ours for what an agent left on its branch beside its work


def open_worktrees(project: Project) -> RunWorktrees:
    """The work trees that runs of this repository have for themselves; raises Refused where there is no git."""
    if not os.path.lexists(os.path.join(project.root, ".git")):
        raise Refused(f"{project.root} has no git repository at its top, and a worktree needs one; run git init")
    return RunWorktrees(project.root, os.path.join(project.store, WORKTREES_FOLDER), os.environ)


def move_to_worktree(
    request: RunRequest, project: Project, name: str, base: str = "HEAD"
) -> tuple[RunRequest, RunWorktree, list[str]]:
    """The wish for a work tree of its own, which is made, and what there is to say of that."""
    if os.environ.get(RUN_ID_VARIABLE):
        raise Refused("--worktree is not for runs inside another one; leave it away")
    made = open_worktrees(project).create(name, base)
    git = UserGit(project.root, os.environ)
    told = [f"{path} is not committed as it is here; the worktree has what is committed" for path in
            differing_settings(project.root, made.path)]  # fmt: skip
    if base == "HEAD" and git.run_line("status", "--porcelain", "--untracked-files=no"):
        told.append("what is not committed here is not in the worktree")
    return replace(request, project_dir=made.path, in_worktree=True), made, told


def begin_in_worktree(spec: RunSpec) -> tuple[RunSpec, RunTarget]:
    """The order of a new run, once more in a work tree of its own; and which run that is: the tree has its name."""
    from ralphproof.runs.spec import prepare_spec
    from ralphproof.runs.target import RunTarget

    run = new_run_id(time.time(), os.urandom(3))
    request, made, told = move_to_worktree(spec.request, spec.project, run)
    try:
        there = prepare_spec(request)
    except BaseException:
        remove_worktree(spec.project, made, (), branch=True)  # nothing was begun in it
        raise
    where = f"works in {made.path}, on branch {made.branch}"
    return replace(there, remarks=(where, *told, *there.remarks)), RunTarget(run)


def discard_unused_worktree(project: Project) -> None:
    """Nothing was begun in this work tree after all: it goes, unless somebody began something there."""
    offshoot = find_worktree_at(project, project.root)
    ledger = project.ledger()
    try:
        begun = ledger.queries.newest_run_in(project.root)
    finally:
        ledger.close()
    if offshoot is not None and begun is None:
        remove_worktree(replace(project, root=offshoot.source), offshoot, (), branch=True)


def find_worktree_at(project: Project, place: str) -> RunWorktree | None:
    """The offshoot whose files lie there; None where it is none of ours."""
    name = os.path.basename(place)
    found = open_worktrees(project).find(name)
    return found if found and os.path.realpath(found.path) == os.path.realpath(place) else None


def landing_item_of_run(project: Project, run: str) -> LandingItem:
    """What a completed run has to land; raises Refused for any other."""
    from ralphproof.landing.merge_queue import build_landing_item

    ledger = project.ledger()
    try:
        return build_landing_item(project, ledger, find_run(ledger, run), os.environ)
    finally:
        ledger.close()


def update_worktree_branch(offshoot: RunWorktree, parcel: LandingItem) -> None:
    """Let the branch of a work tree name the commit of its run's work. Its files are as they were.

    An agent may have worked on another branch at last: what it left on this one keeps a name among the run's refs.
    """
    there = UserGit(offshoot.path, os.environ)
    old = there.branch_commit(offshoot.branch)
    if old == parcel.commit:
        return
    if old and not there.contains(parcel.commit, old):
        there.run("update-ref", run_ref_name(parcel.run, ASIDE_REF), old)
    there.run("update-ref", "-m", f"ralph: the work of run {parcel.run}", f"refs/heads/{offshoot.branch}",
              parcel.commit, *([old] if old else []))  # fmt: skip
    there.run("read-tree", "--reset", "-i", parcel.commit)  # what a sparse checkout leaves out stays marked as such


def remove_worktree(project: Project, offshoot: RunWorktree, runs: tuple[str, ...], branch: bool = False) -> None:
    """Remove a work tree whose work is elsewhere. What its runs left for people goes to the user's own checkout."""
    for run in runs:
        _copy_run_folder_home(offshoot, run, project)
    RunWorktrees(offshoot.source, os.path.join(project.store, WORKTREES_FOLDER), os.environ).remove(offshoot, branch)


def reason_to_keep_worktree(project: Project, offshoot: RunWorktree, run: str, branch: bool = False) -> str:
    """Why the work tree of a run that is over has to stay: something in it is nowhere else; empty where nothing is.

    With `branch` its branch is to go too.
    """
    if not is_fully_saved(project, run):
        return "not all of it could be saved"
    if has_unshared_commits(offshoot, os.environ, branch):
        return "it has commits that nothing else names"
    if inner := find_unshared_repositories(offshoot.path, offshoot.base, os.environ):
        return f"repositories in it have commits that are nowhere else ({', '.join(inner)})"
    return ""


def _copy_run_folder_home(offshoot: RunWorktree, run: str, project: Project) -> None:
    source = os.path.join(offshoot.path, ".ralph", "runs", run)
    target = os.path.join(offshoot.source, ".ralph", "runs", run)
    if not os.path.isdir(source) or os.path.islink(source) or not os.path.isdir(offshoot.source):
        return
    ledger = project.ledger()
    try:
        latest = ledger.find(LATEST) == run
    finally:
        ledger.close()
    RunFolder(offshoot.source, run, project.store, project.mask, latest=latest).begin()
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_special_files)
    except shutil.Error:
        return  # what can be read is there; the whole lies in the state folder
    except OSError as error:
        raise wrap_os_error(error) from error


def _special_files(folder: str, names: list[str]) -> set[str]:
    """What is neither a file, a folder nor a link: an agent may leave pipes and sockets in its task folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name for name, path in paths.items() if not (os.path.islink(path) or os.path.isfile(path) or
                                                         os.path.isdir(path))}  # fmt: skip


def finish_worktree_run(project: Project, run: str, completed: bool) -> list[str]:
    """See to the work tree of a run that has ended; what there is to say of it.

    A completed run's work goes to its branch, and if all of it is there the tree is cleared away. Any other run is
    taken up there, so it stays.
    """
    if not os.path.lexists(os.path.join(project.root, ".git")):
        there = f"{project.root} has no .git any more, so no branch has the work of run {run}; its refs have it: "
        return [there + (f"ralph land {run}" if completed else f"ralph branch {run}")]
    offshoot = find_worktree_at(project, project.root)
    if offshoot is None:
        return []
    if not completed:
        return [f"its work tree stays: {offshoot.path} (branch {offshoot.branch})"]
    parcel = landing_item_of_run(project, run)
    update_worktree_branch(offshoot, parcel)
    take = f"git merge {offshoot.branch}, or with its checks once more: ralph land {run}"
    told = [*parcel.remarks, f"the work is on branch {offshoot.branch}; take it: {take}"]
    if why := reason_to_keep_worktree(project, offshoot, run):
        return [*told, f"its work tree stays, {why}: {offshoot.path}"]
    remove_worktree(replace(project, root=offshoot.source), offshoot, (run,))
    return told


# The work trees that tasks have for themselves, by the names of their tasks.


PARALLEL_WORK_LOCK = "work.lock"
PLAIN_WORKTREE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


class TaskWorktrees:
    """Those of one repository. A task has one from its first run until its work has landed."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def known(self) -> set[str]:
        """The names of all that are there; those of races and of single runs are among them."""
        return {offshoot.name for offshoot in open_worktrees(self._project).list_all()}

    def of(self, task: str) -> RunWorktree | None:
        """The one of this task; None where it has none."""
        return open_worktrees(self._project).find(task_worktree_name(task))

    def had(self, run: str) -> bool:
        """Whether a run had one; a task that was begun without --parallel goes on in the user's own files."""
        ledger = self._project.ledger()
        try:
            row = ledger.row(run)
        finally:
            ledger.close()
        return row is not None and is_run_worktree(row.directory, self._project.store)

    def clear(self, task: str, run: str) -> str:
        """Remove the one of a task whose work, by this run, has landed; why it stays, where it does."""
        offshoot = self.of(task)
        if offshoot is None:
            return ""
        if why := reason_to_keep_worktree(self._project, offshoot, run, branch=True):
            return f"{why}: {offshoot.path}"
        try:
            remove_worktree(self._project, offshoot, self._attempts(task), branch=True)
        except RalphError as error:
            return str(error)
        return ""

    def forsake(self, task: str) -> None:
        """Remove the one of a task whose run was refused, unless one had begun there: what refused it may be mended."""
        if offshoot := self.of(task):
            with suppress(RalphError):  # why the run was refused is what is told
                discard_unused_worktree(replace(self._project, root=offshoot.path))

    def _attempts(self, task: str) -> tuple[str, ...]:
        ledger = self._project.ledger()
        try:
            return tuple(ledger.tasks.attempts(task))
        finally:
            ledger.close()


class ParallelWorkLock:
    """The right to work on tasks of a repository side by side. It ends with the process, however that ends.

    Two at once would take up the same tasks, and one would reset a work tree in which an agent of the other works.
    """

    def __init__(self, store: str) -> None:
        self._path = os.path.join(store, PARALLEL_WORK_LOCK)

    def __enter__(self) -> None:
        """Raises Busy where somebody else has it."""
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
        fcntl.flock(self._file, fcntl.LOCK_UN)  # a program that we are just starting may still have a copy of it
        os.close(self._file)


def task_worktree_name(task: str) -> str:
    """The name of a task's work tree: its id, or one made of it where no folder or branch could be called so."""
    if PLAIN_WORKTREE_NAME.fullmatch(task) and task.lower() not in ("lock", "head"):
        return task
    return f"{slugify(task) or 'task'}-{hashlib.sha256(task.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
