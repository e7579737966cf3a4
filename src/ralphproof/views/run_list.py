"""The runs of a project in lines: each is made anew only where something that it depends on has changed."""

from __future__ import annotations

from ralphproof.errors import RalphError
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.run_line import ended_line, open_line
from ralphproof.views.standing import CRASHED, ENDED, standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.views.followed import Followed
    from ralphproof.views.project import Project

KEPT_LINES = 2000


class RunList:
    """Who asks does so one at a time. `following` gives a run's records, read as far as they go."""

    def __init__(self, project: Project, following: Callable[[Sqlite, str], Followed]) -> None:
        self._project, self._following = project, following
        self._lines: dict[str, tuple[object, dict[str, Json]]] = {}  # each with what it depends on
        self._seq = -1
        self._open: set[str] = set()  # runs that may change without a record
        self._lost: set[str] = set()  # those that did: their harness died, and only a record can change that

    def standings(self, ledger: Sqlite) -> int:
        """A number that is another one whenever a run stands otherwise than before, without a record of its own."""
        self._catch_up(ledger)
        rows, spent = [ledger.row(run) for run in sorted(self._open)], self._spent()
        stands = tuple((row.id, standing(ledger, row, self._project)) for row in rows if row)
        self._lost |= {run for run, where in stands if where == CRASHED}
        self._open -= self._lost | {run for run, where in stands if where == ENDED}
        return hash((stands, spent, len(self._lost), ledger.look.wanted(), ledger.look.total()))

    def _spent(self) -> int:
        """A number that is another one whenever a call that is not over has cost more."""
        if not self._open:
            return 0
        from ralphproof.ledgers.spend import at_work

        return hash(frozenset(at_work(self._project.state_dir).items()))

    def lines(self, ledger: Sqlite, limit: int, before: str) -> list[Json]:
        """The newest runs, or those that began before this one, the newest first."""
        self._catch_up(ledger)
        changes = ledger.look.total(), self._spent()
        return [line for run in ledger.look.page(limit, before) if (line := self._line(ledger, run, changes))]

    def _line(self, ledger: Sqlite, run: str, changes: tuple[int, int]) -> dict[str, Json] | None:
        """That of one run; a record that cannot be read hides itself, not the others."""
        depends, line = self._lines.get(run, (None, {}))
        if depends == ENDED:
            return line
        row = ledger.row(run)
        if row is None:
            return None
        where = standing(ledger, row, self._project)
        state = ENDED if where == ENDED else (where, ledger.wish(run), changes)
        if depends != state:
            try:
                made = (
                    ended_line(ledger, row, self._project)
                    if where == ENDED
                    else open_line(ledger, row, where, self._following(ledger, run), self._project)
                )
            except RalphError:
                return None
            self._lines[run] = state, made
        return self._lines[run][1]

    def _catch_up(self, ledger: Sqlite) -> None:
        """Forget the lines of runs that have new records, and keep in mind which have not ended."""
        if self._seq < 0:
            self._open, self._seq = set(ledger.look.open()), ledger.look.last()
            return
        for run, seq in ledger.look.changed(self._seq).items():
            self._forget(ledger, run)
            self._lost.discard(run)
            self._seq = max(self._seq, seq)
            (self._open.add if ledger.end_of(run) is None else self._open.discard)(run)
        if len(self._lines) > KEPT_LINES:
            self._lines.clear()

    def _forget(self, ledger: Sqlite, run: str) -> None:
        """The line of a run, and of those above it: they tell what it spends."""
        seen = set[str]()
        while run and run not in seen:
            seen.add(run)
            self._lines.pop(run, None)
            row = ledger.row(run)
            run = row.parent if row else ""
