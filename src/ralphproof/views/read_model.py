"""The read model of a project's runs and tasks, for the terminal and web interfaces."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from ralphproof.base.errors import NotThere, RalphError
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.engine.limits import Spend, utc_day
from ralphproof.engine.outcome import published
from ralphproof.engine.plan import turn_file_name
from ralphproof.engine.records import RunEnded, TurnBegan
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import CRASHED, ENDED, find_run, run_state
from ralphproof.store.spend import live_spend_by_run, spend_on_day
from ralphproof.stories.workflow import story_reviews
from ralphproof.views.events import turn_activity
from ralphproof.views.logs import log_json, logs_json
from ralphproof.views.published_json import to_json
from ralphproof.views.run_status import ended_run_view, open_run_view, with_detail
from ralphproof.views.snapshots import diff_json
from ralphproof.views.tasks import list_task_views, load_task_detail, story_board, task_board
from ralphproof.views.timeline import RunHistory

if TYPE_CHECKING:
    T = TypeVar("T")

MAX_LISTED_RUNS = 500  # in one list
MAX_CACHED_RUNS = 256  # whose records are held in memory
MAX_DIFF_BYTES = 1 << 20


@value
class ReadModelVersion:
    """The version of a read model: equal versions, equal content. `seq` is the number of the last record."""

    seq: int
    tasks: int
    standings: int


MAX_CACHED_LINES = 2000


class RunList:
    """The runs of a project as lines, which are cached. Not thread-safe. `following` gives the history of a run."""

    def __init__(self, project: Project, following: Callable[[SqliteLedger, str], RunHistory]) -> None:
        self._project, self._following = project, following
        self._lines: dict[str, tuple[object, dict[str, Json]]] = {}  # each with what it depends on
        self._seq = -1
        self._open: set[str] = set()  # runs that may change without a record
        self._lost: set[str] = set()  # those that did: their harness died, and only a record can change that

    def standings(self, ledger: SqliteLedger) -> int:
        """A number that changes whenever the state of a run changes without a record."""
        self._catch_up(ledger)
        rows, spent = [ledger.row(run) for run in sorted(self._open)], self._spent()
        stands = tuple((row.id, run_state(ledger, row, self._project)) for row in rows if row)
        self._lost |= {run for run, where in stands if where == CRASHED}
        self._open -= self._lost | {run for run, where in stands if where == ENDED}
        return hash((stands, spent, len(self._lost), ledger.queries.request_counts(), ledger.queries.run_count()))

    def _spent(self) -> int:
        """A number that changes whenever a running call has cost more."""
        if not self._open:
            return 0
        return hash(frozenset(live_spend_by_run(self._project.state_dir).items()))

    def lines(self, ledger: SqliteLedger, limit: int, before: str) -> list[Json]:
        """The newest runs, or those that began before this one, the newest first."""
        self._catch_up(ledger)
        changes = ledger.queries.run_count(), self._spent()
        return [line for run in ledger.queries.run_page(limit, before) if (line := self._line(ledger, run, changes))]

    def _line(self, ledger: SqliteLedger, run: str, changes: tuple[int, int]) -> dict[str, Json] | None:
        """The line of one run; None where its records cannot be read: the other lines are shown all the same."""
        depends, line = self._lines.get(run, (None, {}))
        if depends == ENDED:
            return line
        row = ledger.row(run)
        if row is None:
            return None
        status = run_state(ledger, row, self._project)
        state = ENDED if status == ENDED else (status, ledger.requested_control(run), changes)
        if depends != state:
            try:
                view = (
                    ended_run_view(ledger, row, self._project)
                    if status == ENDED
                    else open_run_view(ledger, row, status, self._following(ledger, run), self._project)
                )
            except RalphError:
                return None
            self._lines[run] = state, to_json("run", view)
        return self._lines[run][1]

    def _catch_up(self, ledger: SqliteLedger) -> None:
        """Drop cached lines of runs with new records, and note which runs are open."""
        if self._seq < 0:
            self._open, self._seq = set(ledger.queries.open_runs()), ledger.queries.last_seq()
            return
        for run, seq in ledger.queries.changed_runs(self._seq).items():
            self._forget(ledger, run)
            self._lost.discard(run)
            self._seq = max(self._seq, seq)
            (self._open.add if ledger.run_end(run) is None else self._open.discard)(run)
        if len(self._lines) > MAX_CACHED_LINES:
            self._lines.clear()

    def _forget(self, ledger: SqliteLedger, run: str) -> None:
        """Drop the line of a run and of its parents, which include its spend."""
        seen = set[str]()
        while run and run not in seen:
            seen.add(run)
            self._lines.pop(run, None)
            row = ledger.row(run)
            run = row.parent if row else ""


class ReadModel:
    """The read model of one project. Any thread may call it; each call has a connection of its own."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._guard, self._diffing = threading.RLock(), threading.Lock()
        self._followed: OrderedDict[str, RunHistory] = OrderedDict()
        self._list = RunList(project, self._following)

    def moment(self) -> ReadModelVersion:
        """The current version; cheap, whatever the size of the ledger."""

        def look(ledger: SqliteLedger) -> ReadModelVersion:
            standings = self._list.standings(ledger)
            return ReadModelVersion(ledger.queries.last_seq(), hash(ledger.queries.task_version()), standings)

        return self._alone(look)

    def runs(self, limit: int = 200, before: str = "") -> dict[str, Json]:
        """The newest runs, or those that began before this one, the newest first."""

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            seq = ledger.queries.last_seq()  # what comes while we look is told again
            lines = self._list.lines(ledger, max(1, min(limit, MAX_LISTED_RUNS)), before)
            fields: dict[str, Json] = {"project": self.project.root, "total": ledger.queries.run_count()}
            return published("runs", {**fields, "runs": lines, "seq": seq})

        return self._alone(look)

    def run(self, run: str, after: int = 0) -> dict[str, Json]:
        """The details of a run, with the iterations that changed after the record of this number."""

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row = self._row(ledger, run)
            state, history = run_state(ledger, row, self.project), self._following(ledger, row.id)
            view = open_run_view(ledger, row, state, history, self.project)
            return to_json("run", with_detail(view, ledger, history, self.project, after))

        return self._alone(look)

    def find(self, name: str) -> str:
        """The id of a run by its id, a unique beginning, or `latest`; raises Refused where there is none."""
        return self._read(lambda ledger: name if ledger.row(name) else find_run(ledger, name).id)

    def last_of(self, run: str) -> int:
        """The number of the newest record of a run; 0 where it has none."""
        return self._read(lambda ledger: ledger.queries.last_seq_of(run))

    def activity(self, run: str, log: str, most: int = 500) -> dict[str, Json]:
        """The last events of one turn, by the name of its log."""
        agent = self._read(lambda ledger: self._agent_of(ledger, self._row(ledger, run).id, log))
        return {**turn_activity(self.project, run, log, agent, most).to_json(), "run": run}

    def logs(self, run: str) -> dict[str, Json]:
        """The logs of a run with their sizes."""
        row = self._read(lambda ledger: self._row(ledger, run))
        return published("logs", {"run": run, "logs": logs_json(self.project, row)})

    def log(
        self, run: str, name: str, part: str = "out", offset: int | None = None, most: int = 65536
    ) -> dict[str, Json]:  # fmt: skip
        """A chunk of one log: its end, or from `offset` on."""
        row = self._read(lambda ledger: self._row(ledger, run))
        return log_json(self.project, row, name, part, offset, most)

    def diff(self, run: str, iteration: int | None = None, most: int = MAX_DIFF_BYTES) -> dict[str, Json]:
        """The patch of a run or of one iteration, truncated where it is long."""
        row, records = self._read(lambda ledger: (self._row(ledger, run), ledger.records(run)))
        with self._diffing:  # one may need much memory
            return diff_json(self.project, row, records, iteration, most)

    def tasks(self) -> dict[str, Json]:
        """All tasks, by lane."""
        return self._read(
            lambda ledger: task_board(list_task_views(ledger, self.project) if ledger.has_tasks() else ())
        )

    def task(self, id: str) -> dict[str, Json]:
        """The details of one task; raises NotThere where there is none."""

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row = ledger.tasks.row(id) if ledger.has_tasks() else None
            if row is None:
                raise NotThere("there is no such task")
            return load_task_detail(ledger, self.project, row).to_json()

        return self._read(look)

    def stories(self, run: str) -> dict[str, Json]:
        """The stories of a run, by lane; empty lanes for a run without stories."""

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row, end = self._row(ledger, run), ledger.run_end(run)
            history = self._following(ledger, row.id)
            if isinstance(end, RunEnded):
                stories = end.metrics.reviewed if end.metrics else ()
            else:
                stories = story_reviews(self.project, row, history.facts)
            return story_board(self.project, row, stories, history)

        return self._alone(look)

    def spent_today(self) -> Spend | None:
        """The cost of all runs of this user in the current UTC day; None where it is unknown."""
        return spend_on_day(self.project.state_dir, utc_day(time.time()))

    def _read(self, look: Callable[[SqliteLedger], T]) -> T:
        ledger = self.project.ledger()
        try:
            return look(ledger)
        finally:
            ledger.close()

    def _alone(self, look: Callable[[SqliteLedger], T]) -> T:
        """Read with the lock, for what caches. Nothing that may take long belongs here."""

        def guarded(ledger: SqliteLedger) -> T:
            with self._guard:
                return look(ledger)

        return self._read(guarded)

    def _row(self, ledger: SqliteLedger, run: str) -> RunRow:
        row = ledger.row(run)
        if row is None:
            raise NotThere("there is no such run")
        return row

    def _following(self, ledger: SqliteLedger, run: str) -> RunHistory:
        """The history of a run, up to date. Histories that were not used lately are dropped from the cache."""
        followed = self._followed.pop(run, None) or RunHistory(run)
        self._followed[run] = followed
        while len(self._followed) > MAX_CACHED_RUNS:
            self._followed.popitem(last=False)
        followed.catch_up(ledger)
        return followed

    def _agent_of(self, ledger: SqliteLedger, run: str, log: str) -> str:
        """The agent of a turn, by the name of its log; raises NotThere where there was no such turn."""
        for record in ledger.records_of_kind(run, "TurnBegan"):
            if isinstance(record, TurnBegan) and turn_file_name(f"agent_{record.iteration:03d}", record.turn) == log:
                return record.agent
        raise NotThere("there is no such turn")
