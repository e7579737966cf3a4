"""Readers that follow the records of a run as they are written."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Picked, RunBegan, TurnRetried
from ralphproof.engine.state import State
from ralphproof.store.run_state import run_state
from ralphproof.views.run_status import RunSummary
from ralphproof.views.timeline import Timeline

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.records import Record
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


# Records one by one.


class RecordTail:
    """Reads each record of a run once, as it is written; `state` is the state after them."""

    def __init__(self, ledger: SqliteLedger, row: RunRow) -> None:
        self._ledger, self.row, self._number = ledger, row, 0
        self.state = State()
        self.last: Record | None = None
        self.earlier = self.more()

    def more(self) -> tuple[Record, ...]:
        """The records since the last call."""
        entries = self._ledger.queries.records_since(self.row.id, self._number)
        for number, _, record in entries:
            self._number, self.last, self.state = number, record, self.state.after(record)
        return tuple(record for _, _, record in entries)

    @property
    def grown(self) -> bool:
        """Whether there are new records."""
        return self._ledger.queries.last_seq_of(self.row.id) > self._number

    def standing(self, project: Project) -> str:
        """The run's state: running, ended, or without a harness. Another process may own it by now."""
        self.row = self._ledger.row(self.row.id) or self.row
        return run_state(self._ledger, self.row, project)


# The whole history.


class RunHistory:
    """The state, timeline and title of a run from its records so far. `seq` is the number of the last one."""

    def __init__(self, run: str) -> None:
        self.run, self.seq, self.at_s = run, 0, 0.0
        self.state, self.timeline = State(), Timeline()
        self.title = ""
        self._facts: dict[str, Json] = {}
        self._last: Record | None = None
        self._refused = ""

    def catch_up(self, ledger: SqliteLedger) -> None:
        """Read new records."""
        for seq, at_s, record in ledger.queries.records_since(self.run, self.seq):
            self.state = self.state.after(record)
            self.timeline.take(seq, at_s, record)
            self.seq, self.at_s, self._last = seq, at_s, record
            self._note(record)

    def _note(self, record: Record) -> None:
        match record:
            case RunBegan(facts=facts):
                self._facts, self.title = facts, str(facts.get("title") or "")
            case Picked(choice=Job() as job) if not self._facts.get("title"):
                self.title = job.task.title
            case TurnRetried(empty=False, why=why):
                self._refused = why
            case _:
                pass

    @property
    def summary(self) -> RunSummary:
        """The summary as `ralph status` shows it, without its table of iterations."""
        relabelled = {name: self.state.run.facts[name] for name in ("sandbox",) if name in self.state.run.facts}
        return RunSummary(self.state, {**self._facts, **relabelled}, (), self._last, self._refused)
