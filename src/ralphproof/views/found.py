"""What a run that lost its harness, or ended, left: where it stands, and how old it is."""

from __future__ import annotations

import os

from ralphproof.keeper import journal
from ralphproof.keeper.tree import alive, marked
from ralphproof.phase import Checking, Concluded, Over, Turned, Turning
from ralphproof.record import Judged, Paused, Record, Regained, Resumed, RunBegan, RunEnded
from ralphproof.state import SCM, State
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted, Failed
from ralphproof.views.standing import turn_file
from ralphproof.world import numbered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.views.project import Project

WORK = (".turn", ".log", ".ndjson")  # what a command leaves while it is at work


def found(project: Project, run: str, state: State) -> str:
    """Where a run stands that nobody has, and what becomes of that, in one sentence for whoever takes it up."""
    what, now, _ = _found(project, run, state)
    return f"{what}; {now}" if now else what


def left(project: Project, run: str, state: State) -> str:
    """The same for whoever only looks: nothing becomes of it yet."""
    what, _, still = _found(project, run, state)
    return f"{what}; {still}" if still else what


def left_alive(run: str) -> tuple[int, ...]:
    """Processes of a run that nobody owns any more, because harness and keeper are dead; found by their mark."""
    return tuple(sorted(marked(f"{run}/")))


def _found(project: Project, run: str, state: State) -> tuple[str, str, str]:
    """What is found, what becomes of it now, and how it lies until then."""
    died, number, later = "its harness died", state.iteration, "that is finished when it is taken up"
    match state.phase:
        case Over(Aborted() as outcome):
            return f"it had ended with {outcome.reason}: {outcome.breach.message}", "", ""
        case Over(Failed(error)):
            return f"it had ended with an error: {error}", "", ""
        case Over():
            return "it had ended", "", ""
        case Turning():
            name = numbered(f"agent_{number:03d}", state.turn)
            return f"{died} while the agent was at iteration {number}", *_turn(project, run, name)
        case Turned():
            return f"{died} before the work of iteration {number} was saved", "it is saved now", "it lies in the tree"
        case Checking() | Concluded() if SCM in state.begun:
            return f"{died} while the work of iteration {number} was committed", "that is finished", later
        case _ if state.hooks.open:
            return f"{died} while {state.hooks.open[0]} ran", "that is finished", later
        case Checking() if state.begun:
            return f"{died} while {state.begun[0]} looked at iteration {number}", "that is finished", later
        case _ if state.paused:
            return f"{died} while it rested before iteration {number}", "", ""
        case _:
            return f"{died} in iteration {number}" if number else f"{died} at its start", "", ""


def _turn(project: Project, run: str, name: str) -> tuple[str, str]:
    past = journal.read(turn_file(project, run, name))
    if past.result is not None:
        return "the turn ended while nobody looked, and its result is used", "the turn has ended since"
    if past.began and alive(*past.keeper):
        return "the turn is still at work, and is followed to its end", "the turn is still at work"
    if past.began:
        return "the turn was cut off, and what it left is judged", "the turn was cut off"
    return "the turn had not been started, and is started now", "the turn had not been started"


def ended_ns(project: Project, run: str, state: State) -> int:
    """When the agent's call ended whose work was not saved when the harness died, by the clock that stamps files.

    0 where none was, or it still runs, or was cut off: then nobody can tell what it changed from what others did.
    Where a commit's message is no agent's to say, it is the commit itself, which changes no file once it began.
    """
    if isinstance(state.phase, Turning | Turned):
        name = numbered(f"agent_{state.iteration:03d}", state.turn)
    elif SCM in state.begun and state.job.stage.commit:
        file = turn_file(project, run, f"scm_{state.iteration:03d}_commit")
        return os.stat(file).st_mtime_ns if journal.read(file).began else 0
    elif SCM in state.begun:
        name = f"scm_{state.iteration:03d}"
    else:
        return 0
    file = turn_file(project, run, name)
    result = journal.read(file).result
    return os.stat(file).st_mtime_ns if result is not None and result["why"] != "interrupted" else 0


def quiet_ns(project: Project, runs: Iterable[str]) -> int:
    """Since when nothing of these runs was at work, by the clock that stamps files: their newest file tells."""
    folders = (os.path.join(project.store, "runs", run) for run in runs)
    files = (os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder))
    return max((os.lstat(file).st_mtime_ns for file in files if file.endswith(WORK)), default=0)


def age_s(project: Project, run: str, stamped: tuple[tuple[float, Record], ...], now_s: float) -> float:
    """How long a run has been at work: while nobody was there only as long as something of it ran."""
    known_s = since_s = last_s = rests_s = 0.0
    ended = False
    for at, record in stamped:
        last_s, ended = at, isinstance(record, RunEnded)
        match record:
            case RunBegan():
                known_s, since_s = 0.0, at
            case Judged(elapsed_s=elapsed_s) | Resumed(elapsed_s=elapsed_s):
                known_s, since_s, rests_s = elapsed_s, at, 0.0
            case Paused():
                rests_s = at
            case Regained() if rests_s:
                since_s, rests_s = since_s + at - rests_s, 0.0
            case RunEnded(outcome):
                known_s, since_s = max(known_s, outcome.seconds), at
            case _:
                pass
    if not ended:
        last_s = max(last_s, _ran_until(project, run, now_s))
    return known_s + max(0.0, last_s - since_s)


def last_s(project: Project, run: str, told_s: float) -> float:
    """When a run that nobody is at was last at work: a command outlives its harness, and the last record."""
    return max(told_s, _ran_until(project, run, told_s))


def _ran_until(project: Project, run: str, now_s: float) -> float:
    """When the last command of a run ended, or was last heard of; now, where it is at work; 0 where there was none."""
    from ralphproof.views.standing import turn_at_work, turn_files

    if turn_at_work(project, run):
        return now_s
    bases = [path.removesuffix(".turn") for path in turn_files(project, run)]
    files = [base + ending for base in bases for ending in WORK]
    return max((os.stat(file).st_mtime for file in files if os.path.exists(file)), default=0.0)
