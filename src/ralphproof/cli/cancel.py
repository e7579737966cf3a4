"""`ralph cancel`: end a run from another terminal, in good order; also one whose harness died."""

from __future__ import annotations

import os
import time

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.project import Project
from ralphproof.cli.standing import ENDED, RUNNING, row_of, standing
from ralphproof.display import words
from ralphproof.errors import Refused
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import result

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.state import State
    from ralphproof.verdict import Outcome

ABOUT = """end a run from another terminal, in good order; also one whose harness died.

The wish is written down before anything else, so it holds even where nobody is there to hear it yet. A live run then
ends its agent or check, saves, and says how it ended. Exit codes: 0 the run is over, 1 it has not ended in time."""
EXAMPLES = ("ralph cancel", "ralph cancel 20261115-21", "ralph cancel --no-wait --json")
WAIT_S = 20.0
LOOK_S = 0.05
URGENT_S = 10.0  # after so long a turn that was asked to end is killed


def parser() -> Parser:
    made = Parser("cancel", ABOUT, EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run here)")
    made.add_argument("--no-wait", action="store_true", help="ask, and do not wait until it is over")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = row_of(ledger, args.run, project.root)
        before = standing(ledger, row, project)
        if before != ENDED:
            ledger.ask(row.id, "cancel")
        if before == RUNNING and (args.no_wait or not _ended_by_itself(ledger, row)):
            return _told_asked(row.id, args)
        if standing(ledger, row, project) != ENDED:
            _close(ledger, row, project)
        _tell(row.id, outcome_of(ledger, row.id), before == ENDED, args.json)
        return 0
    finally:
        ledger.close()


def _ended_by_itself(ledger: Sqlite, row: RunRow) -> bool:
    """Wait until a live run has ended, or lost its harness on the way; False when it takes too long."""
    deadline = time.monotonic() + WAIT_S
    while ledger.end_of(row.id) is None and row.process.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _close(ledger: Sqlite, row: RunRow, project: Project) -> None:
    """End what a dead harness left, and write down that the run is over.

    The lock keeps a new run from doing the same at this moment.
    """
    lock = DirectoryLock(project.state_dir, row.directory, row.id)
    lock.take()
    try:
        if ledger.end_of(row.id) is not None:
            return  # a new run was first
        _end_turn(row.id, project)
        from ralphproof.cli.leftover import close

        close(ledger, project, row, _cancelled)
    finally:
        lock.release()


def _end_turn(run: str, project: Project) -> None:
    """Ask the keeper of a turn that still goes on to end it, and wait until it has."""
    from ralphproof.cli.leftover import live_turn
    from ralphproof.keeper.aftermath import urge
    from ralphproof.sandbox import GO_ON, KILL, STOP

    began, urged = time.monotonic(), GO_ON
    while past := live_turn(project, run):
        waited_s = time.monotonic() - began
        wanted = KILL if waited_s > URGENT_S else STOP
        if wanted > urged:
            urge(past, wanted)
            urged = wanted
        if waited_s > WAIT_S:
            raise Refused(f"what run {run} started does not end; its keeper has pid {past.keeper[0]}")
        time.sleep(LOOK_S)


def _cancelled(state: State) -> Outcome:
    from ralphproof.action import Moment
    from ralphproof.ending import aborted
    from ralphproof.limit import CANCELLED, Breach

    why = Breach(CANCELLED, "cancelled; its harness had died")
    return aborted(state, Moment(state.elapsed_s), why)


def outcome_of(ledger: Sqlite, run: str) -> Outcome:
    """How a run ended."""
    end = ledger.end_of(run)
    assert isinstance(end, RunEnded), "the run is over"
    return end.outcome


def _told_asked(run: str, args: Namespace) -> int:
    waited = not args.no_wait
    if args.json:
        put_json("cancel", {"run": run, "ended": False, "outcome": None})
    else:
        late = f"; it has not ended within {words.duration(WAIT_S)}, ralph status says more"
        put(f"run {run} is asked to end" + (late if waited else ""))
    return 1 if waited else 0


def _tell(run: str, outcome: Outcome, before: bool, for_programs: bool) -> None:
    if for_programs:
        put_json("cancel", {"run": run, "ended": True, "alreadyEnded": before, "outcome": result(outcome)})
        return
    put(f"run {run} had ended already" if before else f"run {run} is over", *words.outcome(outcome))
