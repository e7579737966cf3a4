"""The read model of a project's runs and tasks, for the terminal and web interfaces."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from ralphproof.base.errors import NotThere
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.budget import utc_day
from ralphproof.engine.records import RunEnded, TurnBegan
from ralphproof.store.run_state import find_run, run_state
from ralphproof.views.run_list import RunList
from ralphproof.views.run_records import RunHistory

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project

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
            return {"project": self.project.root, "total": ledger.queries.run_count(), "seq": seq, "runs": lines}

        return self._alone(look)

    def run(self, run: str, after: int = 0) -> dict[str, Json]:
        """The details of a run, with the iterations that changed after the record of this number."""
        from ralphproof.views.run_detail import run_detail_json
        from ralphproof.views.run_status import RunStatus

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row = self._row(ledger, run)
            state = run_state(ledger, row, self.project)
            followed = self._following(ledger, row.id)
            status = RunStatus.from_summary(followed.summary, state, ledger, row, self.project)
            return run_detail_json(ledger, status, followed, self.project, after, self.spent_today())

        return self._alone(look)

    def find(self, name: str) -> str:
        """The id of a run by its id, a unique beginning, or `latest`; raises Refused where there is none."""
        return self._read(lambda ledger: name if ledger.row(name) else find_run(ledger, name).id)

    def last_of(self, run: str) -> int:
        """The number of the newest record of a run; 0 where it has none."""
        return self._read(lambda ledger: ledger.queries.last_seq_of(run))

    def activity(self, run: str, turn: str, most: int = 500) -> dict[str, Json]:
        """The last events of one turn."""
        from ralphproof.views.live_events import turn_activity

        agent = self._read(lambda ledger: self._agent_of(ledger, self._row(ledger, run).id, turn))
        activity = turn_activity(self.project, run, turn, agent, most)
        return {"run": run, "turn": turn, "dropped": activity.dropped, "events": [*activity.events]}

    def logs(self, run: str) -> dict[str, Json]:
        """The logs of a run with their sizes."""
        from ralphproof.views.logs import logs_json

        row = self._read(lambda ledger: self._row(ledger, run))
        return {"run": run, "logs": logs_json(self.project, row)}

    def log(
        self, run: str, name: str, part: str = "out", offset: int | None = None, most: int = 65536
    ) -> dict[str, Json]:  # fmt: skip
        """A chunk of one log: its end, or from `offset` on."""
        from ralphproof.views.logs import log_json

        row = self._read(lambda ledger: self._row(ledger, run))
        return {"run": run, **log_json(self.project, row, name, part, offset, most)}

    def diff(self, run: str, iteration: int | None = None, most: int = MAX_DIFF_BYTES) -> dict[str, Json]:
        """The patch of a run or of one iteration, truncated where it is long."""
        from ralphproof.views.snapshots import diff_json

        row, records = self._read(lambda ledger: (self._row(ledger, run), ledger.records(run)))
        with self._diffing:  # one may need much memory
            return diff_json(self.project, row, records, iteration, most)

    def tasks(self) -> dict[str, Json]:
        """All tasks, by lane."""
        from ralphproof.views.lanes import task_lanes
        from ralphproof.views.tasks import list_task_views

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            return {"lanes": task_lanes(list_task_views(ledger, self.project) if ledger.has_tasks() else ())}

        return self._read(look)

    def task(self, id: str) -> dict[str, Json]:
        """The details of one task; raises NotThere where there is none."""
        from ralphproof.views.task_detail import load_task_detail

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row = ledger.tasks.row(id) if ledger.has_tasks() else None
            if row is None:
                raise NotThere("there is no such task")
            return load_task_detail(ledger, self.project, row).published()

        return self._read(look)

    def stories(self, run: str) -> dict[str, Json]:
        """The stories of a run, by lane; empty lanes for a run without stories."""
        from ralphproof.stories.workflow import story_reviews
        from ralphproof.views.lanes import story_lanes, work_by_story

        def look(ledger: SqliteLedger) -> dict[str, Json]:
            row, end = self._row(ledger, run), ledger.run_end(run)
            followed = self._following(ledger, row.id)
            if isinstance(end, RunEnded):
                stories = end.metrics.reviewed if end.metrics else ()
            else:
                stories = story_reviews(self.project, row, followed.summary.facts)
            works = work_by_story(ledger, self.project, row, followed) if stories else {}
            return {"run": run, "lanes": story_lanes(stories, works)}

        return self._alone(look)

    def spent_today(self) -> Spend | None:
        """The cost of all runs of this user in the current UTC day; None where it is unknown."""
        from ralphproof.store.spend import spend_on_day

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

    def _agent_of(self, ledger: SqliteLedger, run: str, turn: str) -> str:
        """The agent of a turn, by the name of its files; raises NotThere where there was no such turn."""
        from ralphproof.engine.iteration import turn_file_name

        for record in ledger.records_of_kind(run, "TurnBegan"):
            if isinstance(record, TurnBegan) and turn_file_name(f"agent_{record.iteration:03d}", record.turn) == turn:
                return record.agent
        raise NotThere("there is no such turn")
