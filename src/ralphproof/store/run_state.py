"""The state of a run (running, ended, orphaned, crashed), its turn files and command logs; notes of `ralph gc`."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.files import make_private_folder, read_file, replace_file
from ralphproof.base.value import TYPE_CHECKING, pack, unpack, value
from ralphproof.store.ledger import LATEST
from ralphproof.store.run_folder import is_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.process.turn_journal import TurnHistory
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


NOTES_FOLDER, NOTE_SUFFIX = "swept", ".json"


@value
class GcNote:
    """A note about a run whose files `ralph gc` removes, or has removed if `done`; an interrupted removal continues
    from it.

    `trees` is the name of the folder with the run's snapshots.
    """

    run: str
    directory: str
    trees: str
    kind: str
    at: float
    done: bool = False


def write_gc_note(project: Project, note: GcNote) -> None:
    """Write the note durably."""
    import json

    place = os.path.join(project.store, NOTES_FOLDER)
    make_private_folder(place)
    replace_file(os.path.join(place, note.run + NOTE_SUFFIX), json.dumps(pack(note)).encode() + b"\n")


def read_gc_note(project: Project, run: str) -> GcNote | None:
    """The note of a run; None if there is none, or it cannot be read."""
    import json

    if not is_run_id(run):
        return None
    data = read_file(os.path.join(project.store, NOTES_FOLDER, run + NOTE_SUFFIX)) or b""
    try:
        note = unpack(json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    return note if isinstance(note, GcNote) and note.run == run else None


def list_gc_notes(project: Project) -> list[GcNote]:
    """All notes."""
    place = os.path.join(project.store, NOTES_FOLDER)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    found = (read_gc_note(project, name.removesuffix(NOTE_SUFFIX)) for name in names if name.endswith(NOTE_SUFFIX))
    return [note for note in found if note is not None]


def describe_gc(project: Project, run: str) -> str:
    """A message that all or some files of a run were removed, and when; empty if they were not."""
    import time

    found = read_gc_note(project, run)
    if found is None:
        return ""
    day = time.strftime("%Y-%m-%d", time.gmtime(found.at))
    if not found.done:
        return f"ralph gc began to remove the files of run {run} on {day}, and has not finished; again: ralph gc"
    return f"the files of run {run} were removed by ralph gc on {day}; its records are kept"


def refuse_collected_run(project: Project, run: str) -> None:
    """Raise Refused for a run whose files were removed."""
    if message := describe_gc(project, run):
        raise Refused(message)


RUNNING = "running"  # its harness is alive
ENDED = "ended"  # its end is recorded
ORPHANED = "orphaned"  # its harness died, and its agent or check still runs under the keeper
CRASHED = "crashed"  # its harness died, and its end is not recorded
PAUSED = "paused"  # its harness is alive, and paused by the user
STOPPED = "stopped"  # it has ended, and waits for a person


def find_run(ledger: SqliteLedger, name: str | None) -> RunRow:
    """The run that a user names; the latest of the project if they name none."""
    row = ledger.row(ledger.find(name or LATEST))
    assert row is not None, "no run is ever deleted"
    return row


def run_state(ledger: SqliteLedger, row: RunRow, project: Project) -> str:
    """Whether a run is running, ended, orphaned or crashed."""
    if row.ended or ledger.run_end(row.id):  # a harness that has written its end still needs a moment to exit
        return ENDED
    if row.process.alive:
        return RUNNING
    if ledger.run_end(row.id):  # it ended meanwhile
        return ENDED
    return ORPHANED if find_live_turn(project, row.id) else CRASHED


def find_live_turn(project: Project, run: str) -> TurnHistory | None:
    """The turn of a run that a keeper still runs: the keeper holds the lock of its turn file."""
    from ralphproof.process import turn_journal

    locked = (path for path in list_turn_files(project, run) if turn_journal.is_turn_locked(path))
    return next(map(turn_journal.read_turn_file, locked), None)


FUNCTION_LOG_SUFFIXES = (".ndjson", ".stderr.log")


def list_turn_files(project: Project, run: str) -> Iterator[str]:
    """The turn files of a run: one for each command that was started."""
    folder = os.path.join(project.store, "runs", run)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return (os.path.join(folder, name) for name in sorted(names) if name.endswith(".turn"))


def turn_file_path(project: Project, run: str, name: str) -> str:
    """The turn file of the command of this name."""
    return os.path.join(project.store, "runs", run, f"{name}.turn")


@value
class CommandLog:
    """One command of a run and its turn file. `name` is that of its files without suffixes."""

    kind: str  # agent, guardrail, setup, judge, hook, scm (the call for a message) or task (what the SCM then ran)
    iteration: int  # 0: before the first
    name: str
    turn_file: str


def list_command_logs(project: Project, run: str) -> list[CommandLog]:
    """Every command that was started, in the order in which they ran.

    The order is that of the turn files' modification times. A function as agent has no turn file, only logs.
    """
    started = [*list_turn_files(project, run), *_function_turns(project, run)]
    found = [(log, _last_modified_ns(path)) for path in started if (log := _parse_log_name(path))]
    return [log for log, _ in sorted(found, key=lambda item: (item[0].iteration, item[1]))]


def _function_turns(project: Project, run: str) -> list[str]:
    """Where the turn files of functions would be, by the logs that they left."""
    folder = os.path.join(project.store, "runs", run)
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    logged = {name.removesuffix(end) for name in names for end in FUNCTION_LOG_SUFFIXES if name.endswith(end)}
    functions = (name for name in sorted(logged) if name.startswith(("agent_", "scm_")) and f"{name}.turn" not in names)
    return [os.path.join(folder, f"{name}.turn") for name in functions]


def _last_modified_ns(path: str) -> int:
    for file in (path, *(path.removesuffix(".turn") + end for end in FUNCTION_LOG_SUFFIXES)):
        try:
            return os.stat(file).st_mtime_ns
        except FileNotFoundError:  # a function has no turn file; or ralph gc is removing it
            pass
    return 0


def _parse_log_name(path: str) -> CommandLog | None:
    name = os.path.basename(path).removesuffix(".turn")
    kind, _, rest = name.partition("_")
    number, _, task = rest.partition("_")
    if kind == "scm" and task:
        kind = "task"
    return CommandLog(kind, int(number), name, path) if number.isdigit() else None


def public_run_folder(project: Project, row: RunRow) -> str:
    """The public folder of a run: in this worktree, or in the one where it ran."""
    places = (os.path.join(root, ".ralph", "runs", row.id) for root in (project.root, row.directory))
    return next((place for place in places if os.path.isdir(place)), os.path.join(project.root, ".ralph/runs", row.id))
