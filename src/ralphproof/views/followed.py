"""One run as its record grows: each record is read once, by however many look on."""

from __future__ import annotations

from ralphproof.record import Picked, RunBegan, TurnAgain
from ralphproof.stage import Job
from ralphproof.state import State
from ralphproof.timeline import Timeline
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.account import Account

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.value import Json


class Followed:
    """What the records of a run come to so far. `seq` is the number of the last one that was read."""

    def __init__(self, run: str) -> None:
        self.run, self.seq, self.at_s = run, 0, 0.0
        self.state, self.timeline = State(), Timeline()
        self.title = ""
        self._facts: dict[str, Json] = {}
        self._last: Record | None = None
        self._refused = ""

    def catch_up(self, ledger: Sqlite) -> None:
        """Read what has come since."""
        for seq, at_s, record in ledger.look.since(self.run, self.seq):
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
            case TurnAgain(empty=False, why=why):
                self._refused = why
            case _:
                pass

    @property
    def account(self) -> Account:
        """The same as `ralph status` tells it, but for its table."""
        held = {name: self.state.labels[name] for name in ("sandbox",) if name in self.state.labels}
        return Account(self.state, {**self._facts, **held}, (), self._last, self._refused)
