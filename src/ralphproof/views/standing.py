"""Which run is meant, and whether anything of it still lives. Looks only."""

from __future__ import annotations

import os

from ralphproof.ledgers.runs import LATEST
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.keeper.journal import Past
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project

RUNNING = "running"  # its harness lives
ENDED = "ended"  # the record says how
ORPHANED = "orphaned"  # its harness died, and its agent or check still works under the keeper
CRASHED = "crashed"  # its harness died, and nobody has closed its record yet
PAUSED = "paused"  # its harness lives, and rests because somebody wants it to
STOPPED = "stopped"  # it has ended, and waits for somebody


def row_of(ledger: Sqlite, name: str | None) -> RunRow:
    """The run that a user means; where they name none, the latest of the project."""
    row = ledger.row(ledger.find(name or LATEST))
    assert row is not None, "no run is ever deleted"
    return row


def standing(ledger: Sqlite, row: RunRow, project: Project) -> str:
    """Whether a run goes on, has ended, or lost its harness."""
    if row.ended or ledger.end_of(row.id):  # a harness that has written its end still needs a moment to exit
        return ENDED
    if row.process.alive:
        return RUNNING
    if ledger.end_of(row.id):  # it ended while we looked
        return ENDED
    return ORPHANED if turn_at_work(project, row.id) else CRASHED


def turn_at_work(project: Project, run: str) -> Past | None:
    """The turn that a living keeper still owns, by what it wrote itself."""
    from ralphproof.keeper import journal
    from ralphproof.keeper.tree import alive

    pasts = (journal.read(path) for path in turn_files(project, run))
    return next((past for past in pasts if past.result is None and alive(*past.keeper)), None)


FUNCTION_LOGS = (".ndjson", ".stderr.log")


def turn_files(project: Project, run: str) -> Iterator[str]:
    """The turn files of a run: one for each command that was started for it."""
    folder = os.path.join(project.store, "runs", run)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return (os.path.join(folder, name) for name in sorted(names) if name.endswith(".turn"))


def turn_file(project: Project, run: str, name: str) -> str:
    """The turn file of the command of this name."""
    return os.path.join(project.store, "runs", run, f"{name}.turn")


@value
class Log:
    """One command of a run and where its output is. `name` is that of its files without their endings."""

    kind: str  # agent, guardrail, setup, judge, hook, scm (the call for a message) or task (what the SCM then ran)
    iteration: int  # 0: before the first
    name: str
    turn_file: str


def logs_of(project: Project, run: str) -> list[Log]:
    """Every command that was started, in the order in which they ran.

    Each is the last to touch its turn file, where no agent can reach it. A function as agent has none, only its logs.
    """
    started = [*turn_files(project, run), *_function_turns(project, run)]
    found = [(log, _touched_ns(path)) for path in started if (log := _log(path))]
    return [log for log, _ in sorted(found, key=lambda item: (item[0].iteration, item[1]))]


def _function_turns(project: Project, run: str) -> list[str]:
    """Where the turn files of functions would be, by the logs that they left."""
    folder = os.path.join(project.store, "runs", run)
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    said = {name.removesuffix(end) for name in names for end in FUNCTION_LOGS if name.endswith(end)}
    functions = (name for name in sorted(said) if name.startswith(("agent_", "scm_")) and f"{name}.turn" not in names)
    return [os.path.join(folder, f"{name}.turn") for name in functions]


def _touched_ns(path: str) -> int:
    for file in (path, *(path.removesuffix(".turn") + end for end in FUNCTION_LOGS)):
        try:
            return os.stat(file).st_mtime_ns
        except FileNotFoundError:  # a function's; or ralph gc removes it at this moment
            pass
    return 0


def _log(path: str) -> Log | None:
    name = os.path.basename(path).removesuffix(".turn")
    kind, _, rest = name.partition("_")
    number, _, task = rest.partition("_")
    if kind == "scm" and task:
        kind = "task"
    return Log(kind, int(number), name, path) if number.isdigit() else None


def when(iteration: int) -> str:
    """Which part of a run a number means; the checks that were asked before any agent was started have 0."""
    return f"iteration {iteration}" if iteration else "before the first iteration"


def files_of(project: Project, row: RunRow) -> str:
    """The folder of a run's files for people: here, or where the run was."""
    places = (os.path.join(root, ".ralph", "runs", row.id) for root in (project.root, row.directory))
    return next((place for place in places if os.path.isdir(place)), os.path.join(project.root, ".ralph/runs", row.id))
