"""One run at this moment: what it does, what is wanted of it, and what waits for it."""

from __future__ import annotations

import time

from ralphproof.budget import Spend
from ralphproof.display import words
from ralphproof.ending import begun_iterations
from ralphproof.ledgers.runs import CANCEL, PAUSE
from ralphproof.limit import STEP
from ralphproof.phase import Over
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.verdict import Aborted
from ralphproof.views.account import Account, account_of, doing, shown_state
from ralphproof.views.bills import bill_of, spend_json, with_children
from ralphproof.views.budgets import in_force
from ralphproof.views.onward import next_step, take_up
from ralphproof.views.standing import CRASHED, ENDED, ORPHANED, PAUSED, RUNNING, STOPPED, standing

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.limit import Breach
    from ralphproof.value import Json
    from ralphproof.views.project import Project

ASKED = {PAUSE: "it will rest before its next turn", CANCEL: "it is asked to end"}


@value
class Stance:
    """How a run stands. `since` is when its last record was written, `unread` how many words of the user's wait.

    `found` is what a dead harness left. `kin` are the runs that its agent began, theirs too, and how each stands;
    `bill` is what it has spent by now, `together` that with theirs, None where they spent nothing. `alive` are
    processes that outlived harness and keeper.
    """

    row: RunRow
    where: str
    account: Account
    since: float | None
    wish: str
    unread: int
    found: str
    kin: tuple[tuple[str, str], ...]
    together: Spend | None = None
    alive: tuple[int, ...] = ()
    bill: Spend = Spend()

    @staticmethod
    def of(ledger: Sqlite, row: RunRow, project: Project) -> Stance:
        """Look at everything that tells of it."""
        where = standing(ledger, row, project)
        return Stance.by(account_of(ledger.records(row.id)), where, ledger, row, project)

    @staticmethod
    def by(account: Account, where: str, ledger: Sqlite, row: RunRow, project: Project) -> Stance:
        """The same for whoever has read its records, after they saw where it stands: it may have ended meanwhile."""
        where = shown_state(where, account.state)
        account = replace(account, facts=in_force(account.facts, project, row))
        found, alive = "", tuple[int, ...]()
        if where in (CRASHED, ORPHANED):
            from ralphproof.views.found import left, left_alive

            alive = left_alive(row.id) if where == CRASHED else ()
            found = left(project, row.id, account.state)
        kin = tuple((one.id, standing(ledger, one, project)) for one in ledger.descendants(row.id))
        unread = len(ledger.words(row.id, account.state.last_word))
        phase, bill = account.state.phase, bill_of(project, account.state)
        over = phase.outcome if isinstance(phase, Over) else None
        together = with_children(ledger, project, row.id, bill, over) if kin else None
        since, wish = ledger.written_at(row.id), ledger.wish(row.id)
        return Stance(row, where, account, since, wish, unread, found, kin, together, alive, bill)

    @property
    def over(self) -> bool:
        """The record says how it ended."""
        return self.where in (ENDED, STOPPED)

    def first_line(self) -> str:
        """What matters most, with the way on."""
        run, now = self.row.id, time.time()
        ago = f", for {words.duration(max(0.0, now - self.since))}" if self.since else ""
        match self.where:
            case "running":
                asked = f"; {ASKED[self.wish]}" if self.wish in ASKED else ""
                return f"run {run} is running (pid {self.row.pid}); {self._doing}{ago}{asked}"
            case "paused":
                return f"run {run} rests since {words.moment(self.since or now, now)}; go on: ralph resume {run}"
            case "stopped" if self._breach.reason == STEP:
                return f"run {run} is stopped: {self._breach.message}; go on: {next_step(run)}"
            case "stopped":
                waits = f"it waits for somebody: {self._breach.message}"
                return f"run {run} is stopped: {waits}; go on: ralph run --resume {run}"
            case "orphaned":
                return f"run {run} lost its harness, and what it started is still at work; {self._doing}{ago}"
            case "crashed" if self.alive:
                pids = ", ".join(map(str, self.alive))
                who = "its agent" if self.account.state.turning else "what it started"
                return f"run {run} crashed: harness and keeper are gone, but {who} still lives (pid {pids})"
            case "crashed":
                return f"run {run} crashed: its harness is gone, and nothing of it is at work"
            case _:
                return f"run {run} has ended"

    @property
    def _doing(self) -> str:
        return doing(self.account, self.where)

    @property
    def _breach(self) -> Breach:
        phase = self.account.state.phase
        assert isinstance(phase, Over)
        assert isinstance(phase.outcome, Aborted)
        return phase.outcome.breach

    def rest(self) -> list[str]:
        """Whatever else there is to say of this moment."""
        state, lines = self.account.state, []
        if state.session > 1:
            lines.append(f"taken up {words.count(state.session - 1, 'time')}")
        if not self.over:
            tokens = f", {self.bill.tokens} tokens" if self.bill.tokens else ""
            count = words.count(begun_iterations(state), "iteration")
            lines.append(f"so far: {count}, {words.cost(self.bill)}{tokens}")
        if self.together:
            lines.append(f"its own {words.cost(self.bill)}; with runs of its own {words.cost(self.together)}")
        if self.unread:
            wait = "waits" if self.unread == 1 else "wait"
            lines.append(f"{words.count(self.unread, 'message')} of yours {wait} for its next prompt")
        if self.kin:
            lines.append(f"runs of its own: {len(self.kin)}, {_number(self._kin_at_work)} at work")
        if self.found:
            ends = "; both end what still lives" if self.alive else ""
            lines += [f"found: {self.found}", take_up(self.row.id) + ends]
        return lines

    @property
    def _kin_at_work(self) -> int:
        return sum(where in (RUNNING, ORPHANED) for _, where in self.kin)

    def facts(self) -> dict[str, Json]:
        """All this for programs."""
        now: Json = None if self.over else {"doing": self._doing, "since": self.since}
        kin: list[Json] = [{"run": run, "state": where} for run, where in self.kin]
        asked: Json = self.wish if self.wish and not self.over else None
        return facts_of(self.row, self.where) | {
            "now": now, "asked": asked, "unread": self.unread, "found": self.found or None, "children": kin,
            "alive": [*self.alive], "spend": spend_json(self.bill),
            "spendWithChildren": spend_json(self.together) if self.together else None,
        }  # fmt: skip


def _number(count: int) -> str:
    return {0: "none", 1: "one"}.get(count, str(count))


def facts_of(row: RunRow, where: str) -> dict[str, Json]:
    """What a list of runs tells of each."""
    pid = row.pid if where in (RUNNING, PAUSED) else None
    return {
        "run": row.id, "state": where, "pid": pid, "beganAt": row.began_at, "directory": row.directory,
        "parent": row.parent or None,
    }  # fmt: skip


def date(epoch_s: float) -> str:
    """A date and a time of day where we are."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
