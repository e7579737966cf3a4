"""Opening a project, its lock, and the commands that are refused inside a turn of an agent."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_folder import list_unpublished_runs
from ralphproof.store.run_state import find_live_turn
from ralphproof.stories.files import MARKER, is_marker_alive, read_marker, remove_stale_marker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ralphproof.store.ledger import RunRow, SqliteLedger


def open_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The project that a folder belongs to; None is the working folder."""
    return _finished(Project.at(folder, environ))


def view_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The same for readers: no state is created, and a project without runs has an empty ledger."""
    return _finished(Project.seen(folder, environ))


def _finished(project: Project) -> Project:
    """The project, once the files of ended runs are written and stale sandbox placeholders removed."""
    if unpublished := list_unpublished_runs(project.store):
        from ralphproof.proof.page import publish_unfinished

        publish_unfinished(project, unpublished)
    if os.path.isdir(os.path.join(project.store, "box")):
        from ralphproof.sandbox.project_mounts import remove_stale_placeholders

        remove_stale_placeholders(project.store)
    return project


# The lock on a project's files while no loop works in it.


class ProjectLock:
    """Holds the project's directory, so that no loop begins meanwhile. Entering raises Refused where one is at work.

    `remarks` tells of a marker that was left behind, and of runs that were cut off.
    """

    def __init__(self, project: Project, what: str) -> None:
        self._project = project
        self._lock = DirectoryLock(project.state_dir, project.root, what)
        self.remarks: list[str] = []

    def __enter__(self) -> Self:
        self._lock.take()
        try:
            refuse_active_marker(self._project.root)
            self._look_at_runs()
            self.remarks += filter(None, [remove_stale_marker(self._project.root, "")])
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _look_at_runs(self) -> None:
        """An agent whose harness died holds no lock, and still writes files."""
        ledger = self._project.ledger()
        try:
            cut_off = [row.id for row in ledger.runs() if not row.ended and row.directory == self._project.root]
        finally:
            ledger.close()
        for run in cut_off:
            if find_live_turn(self._project, run):
                raise Refused(f"what run {run} started is still at work here; end it: ralph cancel {run}")
        self.remarks += [f"run {run} was cut off and is not closed; end it: ralph cancel {run}" for run in cut_off]


def refuse_active_marker(root: str, remedy: str = "wait for it, or end it", ours: bool = True) -> None:
    """Raise Refused where a loop is at work here by its marker, be it `ours` or another program's.

    That takes no lock of ours; its marker is all that tells of it.
    """
    marker = read_marker(root)
    if marker is not None and (ours or "run" not in marker) and is_marker_alive(marker):
        raise Refused(f"{MARKER} says that a loop is at work here (pid {marker.get('pid')}); {remedy}")


# Commands that are refused inside a turn, except for runs that the turn's own run began.
CHILD_RUN_COMMANDS = frozenset(("cancel", "pause", "resume", "run --resume"))


# Turn files of the user's own commands around a run, which may call these commands.
HOOK_FILE_PREFIX = "hook_"


def refuse_in_turn(what: str) -> None:
    """Raise Refused inside a turn, for a command that only the user may call."""
    if run := _find_enclosing_run():
        raise Refused(f"ralph {what} is not for agents: {run} is at work, and this is part of its turn")


def refuse_unrelated_run_in_turn(what: str, ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused inside a turn for a command of `CHILD_RUN_COMMANDS`, unless the turn's own run began this one."""
    run = _find_enclosing_run()
    if not run or (
        what in CHILD_RUN_COMMANDS and any(run == _run_label(above) for above in _ancestor_runs(ledger, row))
    ):
        return
    only = ", except for runs that the agent began" if what in CHILD_RUN_COMMANDS else ""
    raise Refused(f"ralph {what} is not for agents{only}: {run} is at work, and this is part of its turn")


def _run_label(run: str) -> str:
    return f"run {run}"


def _ancestor_runs(ledger: SqliteLedger, row: RunRow) -> list[str]:
    """The ancestors of a run, the nearest first."""
    ancestors: list[str] = []
    while row.parent and row.parent not in ancestors:
        ancestors.append(row.parent)
        parent = ledger.row(row.parent)
        if parent is None:
            break
        row = parent
    return ancestors


def _find_enclosing_run() -> str:
    """The name of the run whose turn this process is part of; empty where there is none."""
    from ralphproof.process.tree import LINUX, TURN_VARIABLE, enclosing_turn_files

    if not LINUX:  # there are no ancestors to be seen, and no subreaper
        mark = os.environ.get(TURN_VARIABLE, "")
        return _run_label(mark.partition("/")[0]) if mark else ""
    state = _real_state_dir()
    for path in enclosing_turn_files():
        if not path:
            return "a run"
        if path.startswith(state) and not os.path.basename(path).startswith(HOOK_FILE_PREFIX):
            return _run_label(os.path.basename(os.path.dirname(path)))
    return ""


def _real_state_dir() -> str:
    """The state directory without links; a string that matches nothing where there is none."""
    from ralphproof.store.project import find_state_dir

    try:
        return os.path.join(os.path.realpath(find_state_dir(os.environ)), "")
    except RalphError:
        return "\0"
