"""`ralph cancel`: end a run from another terminal, in good order; also one whose harness died."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.cli.in_turn import refuse_foreign_in_turn
from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.display import words
from ralphproof.errors import Busy, Refused
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.ledgers.runs import CANCEL
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import result
from ralphproof.views.project import Project
from ralphproof.views.standing import ENDED, standing

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome

ABOUT = """end a run from another terminal, in good order; also one whose harness died.

The wish is written down before anything else, so it holds even where nobody is there to hear it yet. A live run then
ends its agent or check, saves, and says how it ended; so do the runs that its agent began. A task is cancelled with
the run that works on it. Exit codes: 0 all of them are over, 1 not all have ended in time."""
EXAMPLES = ("ralph cancel", "ralph cancel 20261115-21", "ralph cancel TASK-001", "ralph cancel --no-wait --json")
WAIT_S = 20.0
LOOK_S = 0.05
URGENT_S = 10.0  # after so long a turn that was asked to end is killed


def parser() -> Parser:
    made = Parser("cancel", ABOUT, EXAMPLES)
    which = "an id or its beginning, or a task's id (default: the latest run)"
    made.add_argument("run", nargs="?", metavar="RUN", help=which)
    made.add_argument("--no-wait", action="store_true", help="ask, and do not wait until it is over")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        if args.run is not None and ledger.any_task():
            from ralphproof.cli.task_cancel import cancel_task, task_meant

            if task := task_meant(ledger, args.run):
                return cancel_task(ledger, project, task, args)
        row = named_run(ledger, args.run, args, shown=True)
        refuse_foreign_in_turn("cancel", ledger, row)
        return cancel_run(ledger, project, row, args)
    finally:
        ledger.close()


def cancel_run(ledger: Sqlite, project: Project, row: RunRow, args: Namespace, task: str = "") -> int:
    """End a run and those below it, and say how they ended; the exit code. `task` is whose run was asked for."""
    before = standing(ledger, row, project)
    family = Condemned(ledger, project, row)
    if before == ENDED:
        _end_turn(row.id, project)  # its harness may have had to give it up
    family.close_lost()
    if not args.no_wait:
        family.wait()
    meant: dict[str, Json] = {"task": task} if task else {}
    if not ledger.end_of(row.id):
        return _told_asked(row.id, args, meant)
    _tell(outcome_of(ledger, row.id), before == ENDED, family, args.json, meant)
    return 1 if family.left() and not args.no_wait else 0


class Condemned:
    """A run and those that its agent began, as far as they had not ended when they were first looked at."""

    def __init__(self, ledger: Sqlite, project: Project, row: RunRow) -> None:
        """Whoever is not over is asked to end: the run first, then those below it."""
        self._ledger, self._project, self.run = ledger, project, row.id
        self.asked: dict[str, RunRow] = {}
        self.ask()

    def ask(self) -> None:
        """Ask those too that began meanwhile."""
        for row in (self._ledger.row(self.run), *self._ledger.descendants(self.run)):
            if row is not None and row.id not in self.asked and self._ledger.end_of(row.id) is None:
                self._ledger.ask(row.id, CANCEL)
                self.asked[row.id] = row

    def left(self) -> list[RunRow]:
        """Those whose record does not say how they ended."""
        return [row for run, row in self.asked.items() if self._ledger.end_of(run) is None]

    def close_lost(self) -> None:
        """Close those whose harness died, the innermost first: a run is over when those below it are."""
        for asked in reversed(self.left()):
            row = self._ledger.row(asked.id) or asked  # somebody may have taken it up
            if not row.process.alive and self._ledger.end_of(row.id) is None:  # it may have ended just before it died
                _close(self._ledger, row, self._project)

    def wait(self) -> None:
        """Wait until all have ended, in good order or not; not for long."""
        deadline = time.monotonic() + WAIT_S
        while self.left() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self.ask()
            self.close_lost()


def _close(ledger: Sqlite, row: RunRow, project: Project) -> None:
    """End what a dead harness left, and write down that the run is over.

    The lock keeps a new run from doing the same at this moment. Whoever has it closes this run, or takes it up and then
    hears that it is to end.
    """
    lock = DirectoryLock(project.state_dir, row.directory, row.id, row.parent)
    try:
        lock.take()
    except Busy:
        return
    try:
        if ledger.end_of(row.id) is not None:
            return  # a new run was first
        _end_turn(row.id, project)
        from ralphproof.cli.leftover import close
        from ralphproof.display.clean import clean, flat

        there = replace(project, root=row.directory) if row.directory else project
        for remark in close(ledger, there, row, _cancelled):
            print(flat(clean(project.mask(f"note: {remark}"))), file=sys.stderr)
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


def _told_asked(run: str, args: Namespace, meant: dict[str, Json]) -> int:
    waited = not args.no_wait
    if args.json:
        put_json("cancel", {"run": run, **meant, "ended": False, "outcome": None})
    else:
        late = f"; it has not ended within {words.duration(WAIT_S)}, ralph status says more"
        put(f"run {run} is asked to end" + (late if waited else ""))
    return 1 if waited else 0


def _tell(outcome: Outcome, before: bool, family: Condemned, for_programs: bool, meant: dict[str, Json]) -> None:
    run, left = family.run, [row.id for row in family.left()]
    kin = [name for name in family.asked if name != run]
    if for_programs:
        children: list[Json] = [{"run": name, "ended": name not in left} for name in kin]
        told: dict[str, Json] = {"ended": True, "alreadyEnded": before, "outcome": result(outcome)}
        put_json("cancel", {"run": run, **meant, **told, "children": children})
        return
    put(f"run {run} had ended already" if before else f"run {run} is over", *words.outcome(outcome))
    if over := [name for name in kin if name not in left]:
        put(f"runs of its own that are over too: {', '.join(over)}")
    if left:
        put(f"runs of its own that are asked to end, and have not yet: {', '.join(left)}")
