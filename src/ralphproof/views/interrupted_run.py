"""What an interrupted run left behind: its phase, live processes, and when it was last active."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.outcome import Aborted, Failed
from ralphproof.engine.records import Judged, Paused, Record, Resumed, RunBegan, RunEnded, UserChangesSaved
from ralphproof.engine.state import SCM_STEP, Checking, IterationJudged, RunOver, State, TurnFinished, TurnRunning
from ralphproof.process import turn_journal
from ralphproof.process.tree import find_marked_processes, is_alive
from ralphproof.store.run_state import turn_file_path

if TYPE_CHECKING:
    from ralphproof.store.project import Project

ACTIVITY_SUFFIXES = (".turn", ".log", ".ndjson")  # what a command leaves while it is at work


def describe_takeover(project: Project, run: str, state: State) -> str:
    """The phase in which a dead harness left a run, and what resuming does about it: one sentence."""
    what, now, _ = _describe_phase(project, run, state)
    return f"{what}; {now}" if now else what


def describe_interruption(project: Project, run: str, state: State) -> str:
    """The phase in which a dead harness left a run, and what is there until it is resumed."""
    what, _, still = _describe_phase(project, run, state)
    return f"{what}; {still}" if still else what


def find_orphaned_processes(run: str) -> tuple[int, ...]:
    """Live processes of a run whose harness and keeper are dead, found by the mark in their environment."""
    return tuple(sorted(find_marked_processes(f"{run}/")))


def _describe_phase(project: Project, run: str, state: State) -> tuple[str, str, str]:
    """The phase, what resuming does now, and the state until then."""
    died, number, later = "its harness died", state.iteration, "that is finished when it is taken up"
    match state.phase:
        case RunOver(Aborted() as outcome):
            return f"it had ended with {outcome.reason}: {outcome.breach.message}", "", ""
        case RunOver(Failed(error)):
            return f"it had ended with an error: {error}", "", ""
        case RunOver():
            return "it had ended", "", ""
        case TurnRunning():
            name = turn_file_name(f"agent_{number:03d}", state.turn)
            return f"{died} while the agent was at iteration {number}", *_describe_turn(project, run, name)
        case TurnFinished():
            return f"{died} before the work of iteration {number} was saved", "it is saved now", "it lies in the tree"
        case Checking() | IterationJudged() if SCM_STEP in state.open_steps:
            return f"{died} while the work of iteration {number} was committed", "that is finished", later
        case _ if state.hooks.open:
            return f"{died} while {state.hooks.open[0]} ran", "that is finished", later
        case Checking() if state.open_steps:
            return f"{died} while {state.open_steps[0]} looked at iteration {number}", "that is finished", later
        case _ if state.user.paused:
            return f"{died} while it rested before iteration {number}", "", ""
        case _:
            return f"{died} in iteration {number}" if number else f"{died} at its start", "", ""


def _describe_turn(project: Project, run: str, name: str) -> tuple[str, str]:
    past = turn_journal.read_turn_file(turn_file_path(project, run, name))
    if past.result is not None:
        return "the turn ended while nobody looked, and its result is used", "the turn has ended since"
    if past.began and is_alive(*past.keeper):
        return "the turn is still at work, and is followed to its end", "the turn is still at work"
    if past.began:
        return "the turn was cut off, and what it left is judged", "the turn was cut off"
    return "the turn had not been started, and is started now", "the turn had not been started"


def active_seconds(project: Project, run: str, stamped: tuple[tuple[float, Record], ...], now_s: float) -> float:
    """How long a run has been active; without a harness, only while something of it ran."""
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
            case UserChangesSaved() if rests_s:
                since_s, rests_s = since_s + at - rests_s, 0.0
            case RunEnded(outcome):
                known_s, since_s = max(known_s, outcome.seconds), at
            case _:
                pass
    if not ended:
        last_s = max(last_s, _ran_until(project, run, now_s))
    return known_s + max(0.0, last_s - since_s)


def last_active_s(project: Project, run: str, told_s: float) -> float:
    """When a run without a harness was last active: a command may outlive its harness and the last record."""
    return max(told_s, _ran_until(project, run, told_s))


def _ran_until(project: Project, run: str, now_s: float) -> float:
    """When the last command of a run ended or last wrote something; now, where it runs; 0 where there was none."""
    from ralphproof.store.run_state import find_live_turn, list_turn_files

    if find_live_turn(project, run):
        return now_s
    bases = [path.removesuffix(".turn") for path in list_turn_files(project, run)]
    files = [base + ending for base in bases for ending in ACTIVITY_SUFFIXES]
    return max((os.stat(file).st_mtime for file in files if os.path.exists(file)), default=0.0)
