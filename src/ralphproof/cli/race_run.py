"""One race from its beginning to its end: runs side by side, and one of them wins."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.cli.apart import INSIDE, clear_away, deliver, moved_apart, must_stay, offshoots_of, parcel_of_run
from ralphproof.cli.conductor import Conductor
from ralphproof.cli.kitty import Shared
from ralphproof.cli.lanes import LaneEnded, Lanes
from ralphproof.cli.notes import keep_wish, kept_wish
from ralphproof.cli.order import prepare
from ralphproof.cli.race import wish_of
from ralphproof.cli.race_note import RaceNote, keep_race, kept_race
from ralphproof.cli.race_told import arrival_of, tell
from ralphproof.cli.to_the_end import Which
from ralphproof.contest import USUAL, Entrant, best, criteria_in, entrants, first
from ralphproof.errors import RalphError, Refused
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.order import Order
    from ralphproof.contest import Arrival
    from ralphproof.workspaces.offshoot import Offshoot

NO_CHECK = "a race is decided by checks, and none is configured; add one with --check"


class Race:
    """Runs of one task side by side. Whatever becomes of each is on its own record."""

    def __init__(self, args: Namespace, project: Project, note: RaceNote) -> None:
        self._args, self._project, self._note = args, project, note
        self._conductor = Conductor()
        self._kitty = Shared(note.total_micro_usd)
        self._waiting = list(note.entrants)
        self._arrivals: list[Arrival] = []
        self._by_name = {f"#{entrant.number}": entrant for entrant in note.entrants}

    @staticmethod
    def begun(args: Namespace) -> Race:
        """A new race: everything that could refuse one of them is found out before the first begins."""
        if os.environ.get(INSIDE):
            raise Refused("ralph race is not for agents inside a run")
        taking_part = entrants(int(args.count), tuple(args.agent or ()), tuple(args.model or ()))
        criteria = criteria_in(args.by) if args.by is not None else USUAL if args.best else ()
        orders = [prepare(wish_of(args, one.agent, one.model)) for one in taking_part]
        for order in orders:
            if order.course is None or not order.course.machine:
                raise Refused(NO_CHECK)
        project, now = orders[0].project, time.time()
        runs = tuple(new_run_id(now, os.urandom(3)) for _ in taking_part)
        total = None if args.total_cost_usd is None else round(args.total_cost_usd * 1_000_000)
        name = f"race-{new_run_id(now, os.urandom(3))}"
        race = Race(args, project, RaceNote(name, taking_part, runs, criteria, total, args.parallel or 0))
        if not args.dry_run:
            race._lay_out(orders)
        return race

    @staticmethod
    def resumed(args: Namespace) -> Race:
        """A race that lost its harness, as it was begun."""
        project = Project.at(args.project_dir, os.environ)
        return Race(args, project, kept_race(project, args.resume))

    def run(self) -> int:
        """Let them run until somebody has won, or nobody can; the exit code."""
        if self._args.dry_run:
            return tell(self._args, self._project, self._note, (), None)
        self._conductor.listen()
        self._say(f"Race {self._note.id}: {', '.join(one.label for one in self._note.entrants)}")
        lanes = Lanes(self._args, self._conductor, self._kitty)
        try:
            self._through(lanes)
        except BaseException:
            lanes.abandon()
            raise
        arrivals = tuple(self._arrivals)
        won = best(arrivals, self._note.criteria) if self._note.criteria else first(arrivals)
        branch = self._settle(won)
        code = tell(self._args, self._project, self._note, arrivals, won, branch)
        return 130 if self._conductor.signals and won is None else code

    def _through(self, lanes: Lanes) -> None:
        while lanes.open or self._waiting:
            self._fill(lanes)
            if ended := lanes.next():
                self._arrived(ended, lanes)

    def _lay_out(self, orders: list[Order]) -> None:
        """Make every work tree and write down what each is to do: a race that is cut off can be taken up whole."""
        laid: list[Offshoot] = []
        try:
            for entrant, run, order in zip(self._note.entrants, self._note.runs, orders, strict=True):
                wish, made, told = moved_apart(order.wish, self._project, self._note.place(entrant))
                laid.append(made)
                for line in told if entrant.number == 1 else ():
                    self._say(line)
                keep_wish(RunFolder(made.place, run, self._project.store), wish, self._project.mask)
            keep_race(self._project, self._note)
        except BaseException:
            for made in laid:
                clear_away(self._project, made, (), branch=True)  # nothing was begun in it
            raise

    def _fill(self, lanes: Lanes) -> None:
        most = self._note.parallel or len(self._note.entrants)
        while self._waiting and len(lanes.open) < most and not self._conductor.signals:
            entrant = self._waiting.pop(0)
            lanes.begin(f"#{entrant.number}", lambda entrant=entrant: self._order(entrant))  # type: ignore[misc]
        if self._conductor.signals:
            self._waiting = []

    def _order(self, entrant: Entrant) -> tuple[Order, Which]:
        """What one of them is to do: as it was written down, from wherever its record says that it stands."""
        from ralphproof.cli.order import NO_WISH
        from ralphproof.cli.resume_run import wanted

        run = self._run_of(entrant)
        offshoot = self._offshoot(entrant)
        there = replace(self._project, root=offshoot.place) if offshoot else self._project
        ledger = self._project.ledger()
        try:
            known = ledger.row(run)
        finally:
            ledger.close()
        if known is not None:
            row, wish = wanted(there, run, NO_WISH)
            return prepare(wish), Which(row=row)
        kept = kept_wish(RunFolder(there.root, run, self._project.store))
        if kept is None or offshoot is None:
            raise Refused(f"what {entrant.label} was to do is not on record")
        return prepare(kept[0]), Which(run)

    def _arrived(self, ended: LaneEnded, lanes: Lanes) -> None:
        entrant = self._by_name[ended.name]
        arrival = arrival_of(self._project, entrant, self._run_of(entrant), len(self._arrivals), ended)
        self._arrivals.append(arrival)
        self._say(f"{entrant.label}: {arrival.why}")
        if arrival.verified and not self._note.criteria:
            self._waiting = []
            for name in lanes.open:
                lanes.cancel(name)

    def _settle(self, won: Arrival | None) -> str:
        """Put the winner's work on its branch, and clear the work trees away whose work is kept; that branch.

        Where nobody won all stay: who was stopped by a limit can be taken up there.
        """
        branch = ""
        for entrant in self._note.entrants:
            run, offshoot = self._run_of(entrant), self._offshoot(entrant)
            if offshoot is None:
                continue
            if won is not None and won.entrant == entrant:
                branch = self._deliver(offshoot, run)
            elif won is not None:
                self._clear(offshoot, run, branch=True)
        return branch

    def _deliver(self, offshoot: Offshoot, run: str) -> str:
        parcel = parcel_of_run(replace(self._project, root=offshoot.place), run)
        deliver(offshoot, parcel)
        for remark in parcel.remarks:
            self._say(remark)
        self._clear(offshoot, run)
        return offshoot.branch

    def _clear(self, offshoot: Offshoot, run: str, branch: bool = False) -> None:
        """Remove a work tree whose work is elsewhere; say so where it has to stay."""
        why = must_stay(self._project, offshoot, run, branch)
        try:
            if not why:
                clear_away(self._project, offshoot, (run,), branch)
        except RalphError as error:
            why = str(error)
        if why:
            self._say(f"a work tree stays, {why}: {offshoot.place}")

    def _offshoot(self, entrant: Entrant) -> Offshoot | None:
        return offshoots_of(self._project).named(self._note.place(entrant))

    def _run_of(self, entrant: Entrant) -> str:
        return self._note.runs[entrant.number - 1]

    def _say(self, line: str) -> None:
        from ralphproof.display.clean import clean, flat

        if not self._args.quiet:
            print(flat(clean(self._project.mask(line))), file=sys.stderr)
