"""The ledger: append-only records of all runs of a repository, in SQLite."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import HarnessFailed, LedgerBroken, NotThere, Refused
from ralphproof.base.processes import ProcessIdentity
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.outcome import ABORTED
from ralphproof.store import database, serialization
from ralphproof.store.database import BUSY_TIMEOUT_S, DatabaseTables
from ralphproof.store.serialization import chain_digest, record_rows

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self, TypeVar

    from ralphproof.base.processes import ProcessIdentity
    from ralphproof.engine.outcome import Metrics
    from ralphproof.engine.records import Record
    from ralphproof.store.landings import LandingTable
    from ralphproof.store.statistics import PastRun, PeriodTotals, TimeSlotTotals
    from ralphproof.store.tasks import TaskTable

    T = TypeVar("T")
    ChainRow = tuple[str, int, int, str, str, float, str, str]  # a row and its digest


LATEST = "latest"
PAUSE, RESUME, CANCEL = "pause", "resume", "cancel"
CONTROL_REQUESTS = (PAUSE, RESUME, CANCEL, "")  # the empty one means RESUME too
_MAX_SHOWN = 6


@value
class RunRow:
    """A row of the runs table. `parent` is the run that started this one; empty for most."""

    id: str
    began_at: float
    directory: str
    pid: int
    pid_start: str
    boot: str
    ended: bool
    parent: str = ""
    host: str = ""

    @property
    def process(self) -> ProcessIdentity:
        """The process that runs, or ran, this run."""
        return ProcessIdentity(self.pid, self.pid_start, self.boot, self.host)


def resolve_run_name(name: str, found: Sequence[str]) -> str:
    """The run that `name` means, of those found for it; raises Refused unless there is exactly one."""
    if len(found) == 1:
        return found[0]
    if name in found:
        return name
    if not found:
        wanted = "no run yet" if name == LATEST else f"no run is called {name!r}, and none begins so"
        raise NotThere(f"{wanted}; see: ralph status")
    shown = ", ".join(found[:_MAX_SHOWN]) + (", …" if len(found) > _MAX_SHOWN else "")
    raise Refused(f"several runs begin with {name!r}: {shown}")


def _parse_record(run: str, seq: int, data: str) -> Record:
    return serialization.parse_record(data, f"record {seq} of run {run}")


# Records are numbered in the order in which they became durable, over all runs: the last number tells whether there is
# anything new, and an index of one run's records finds its own. The plus keeps SQLite (3.40) from scanning that whole
# index, which is in the order of the groups.
_LAST_SEQ = "SELECT ifnull(max(seq), 0) FROM record"
_CHANGED_RUNS = "SELECT run, max(seq) FROM record WHERE seq > ? GROUP BY +run"
_RECORDS_SINCE = "SELECT seq, at, data FROM record WHERE run = ? AND seq > ? ORDER BY seq"
_LAST_SEQ_OF_RUN = "SELECT ifnull(max(seq), 0) FROM record WHERE run = ?"
_FIRST_OF_KIND = "SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq LIMIT 1"
_LAST_OF_KIND = "SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
_LAST_CHECK_RESULTS = """SELECT seq, data FROM record WHERE run = ?1 AND kind = 'CheckEnded' AND iteration = (
    SELECT iteration FROM record WHERE run = ?1 AND kind = 'CheckEnded' ORDER BY iteration DESC LIMIT 1) ORDER BY seq"""
_REQUEST_COUNTS = (
    "SELECT (SELECT ifnull(max(seq), 0) FROM control_request), (SELECT ifnull(max(seq), 0) FROM user_message)"
)
_TASK_VERSION = "SELECT count(*), ifnull(max(updated_at), 0), (SELECT ifnull(max(seq), 0) FROM attempt) FROM task"
_SEQ_OF_RUN = "SELECT seq FROM run WHERE id = ?"
_NEWEST_RUN_IN = "SELECT id FROM run WHERE directory = ? ORDER BY seq DESC LIMIT 1"
_RUN_PAGE = "SELECT id FROM run WHERE seq < ? ORDER BY seq DESC LIMIT ?"
# A run that was resumed still has the statistics of its earlier end, so of the newest ones the last record is checked.
_OPEN_RUNS = """SELECT id FROM run WHERE NOT EXISTS (SELECT 1 FROM run_stats WHERE run_stats.run = run.seq)
    UNION SELECT id FROM run WHERE seq > (SELECT max(seq) FROM run) - 2000 AND (
        SELECT kind FROM record WHERE record.run = run.id ORDER BY seq DESC LIMIT 1) IS NOT 'RunEnded'"""
_DAILY_REASONS = """SELECT day, reason, sum(runs) FROM stats_group CROSS JOIN stats_sum
    ON kind = id AND day BETWEEN ? AND ? WHERE status = ? GROUP BY day, reason"""
_HOURLY_REASONS = """SELECT CAST((ended - day * 86400) / 3600 AS INTEGER), reason, count(*) FROM run_stats
    WHERE day BETWEEN ? AND ? AND status = ? GROUP BY 1, 2"""
_MAX_SEQ = (1 << 63) - 1


class LedgerQueries(DatabaseTables):
    """Queries that displays repeat: their cost grows with the changes, not with the size of the ledger."""

    def last_seq(self) -> int:
        """The number of the newest record of all; 0 if there is none."""
        return int(self._query(_LAST_SEQ)[0][0])

    def last_seq_of(self, run: str) -> int:
        """The number of the newest record of a run."""
        return int(self._query(_LAST_SEQ_OF_RUN, run)[0][0])

    def request_counts(self) -> tuple[int, int]:
        """How many control requests and user messages there are, over all runs."""
        requests, messages = self._query(_REQUEST_COUNTS)[0]
        return int(requests), int(messages)

    def changed_runs(self, after: int) -> dict[str, int]:
        """The runs with records after this number, each with the number of its newest."""
        return {run: int(seq) for run, seq in self._query(_CHANGED_RUNS, after)}

    def records_since(self, run: str, after: int) -> tuple[tuple[int, float, Record], ...]:
        """The records of a run after this number, oldest first, each with its number and its time (epoch seconds)."""
        found = self._query(_RECORDS_SINCE, run, after)
        return tuple((seq, float(at), _parse_record(run, seq, data)) for seq, at, data in found)

    def first_record(self, run: str, kind: str) -> Record | None:
        """The first record of a run that is of this kind."""
        return self._record(_FIRST_OF_KIND, run, kind)

    def last_record(self, run: str, kind: str) -> Record | None:
        """The last record of a run that is of this kind."""
        return self._record(_LAST_OF_KIND, run, kind)

    def last_check_results(self, run: str) -> tuple[Record, ...]:
        """The results of checks in the last iteration that had any, oldest first."""
        found = self._query(_LAST_CHECK_RESULTS, run)
        return tuple(_parse_record(run, seq, data) for seq, data in found)

    def task_version(self) -> tuple[int, float, int]:
        """Changes whenever a task does: how many there are, when one was last changed, the last attempt."""
        count, changed, attempts = self._query(_TASK_VERSION)[0]
        return int(count), float(changed), int(attempts)

    def run_count(self) -> int:
        """How many runs there are: none is ever deleted, so the last number tells."""
        return int(self._query("SELECT ifnull(max(seq), 0) FROM run")[0][0])

    def run_page(self, limit: int, before: str = "") -> tuple[str, ...]:
        """The newest runs, or those before this one, the newest first."""
        seq = self._query(_SEQ_OF_RUN, before) if before else [(_MAX_SEQ,)]
        return tuple(run for (run,) in self._query(_RUN_PAGE, seq[0][0], limit)) if seq else ()

    def newest_run_in(self, directory: str) -> str | None:
        """The newest run that was started in this directory."""
        found = self._query(_NEWEST_RUN_IN, serialization.path_for_sqlite(directory))
        return found[0][0] if found else None

    def open_runs(self) -> tuple[str, ...]:
        """The runs that have not ended, as far as can be told without reading all records."""
        return tuple(run for (run,) in self._query(_OPEN_RUNS))

    def abort_reasons(self, first_day: int, last_day: int) -> tuple[tuple[int, str, int], ...]:
        """Why runs were aborted, and how many: by the day in which they ended, or by the hour of a single day."""
        query = _HOURLY_REASONS if first_day == last_day else _DAILY_REASONS
        found = self._query(query, first_day, last_day, ABORTED)
        return tuple((int(at), str(reason), int(count)) for at, reason, count in found)

    def _record(self, query: str, run: str, kind: str) -> Record | None:
        found = self._query(query, run, kind)
        return _parse_record(run, *found[0]) if found else None


# The ledger on disk: one SQLite file for a repository.


# A run has ended if its last record says so.
SELECT_RUN_END = (
    "SELECT seq, data FROM record WHERE seq = (SELECT max(seq) FROM record WHERE run = ?) AND kind = 'RunEnded'"
)
SELECT_RUN = """SELECT id, began_at, directory, pid, pid_start, boot, EXISTS (
        SELECT 1 FROM record WHERE seq = (SELECT max(seq) FROM record WHERE run = id) AND kind = 'RunEnded'),
        parent, host
    FROM run """
SELECT_RUNS = SELECT_RUN + "ORDER BY seq DESC LIMIT ?"
SELECT_CHILDREN = SELECT_RUN + "WHERE parent = ?1 AND parent != '' AND id != ?1 ORDER BY seq"
WITH_DESCENDANTS = """WITH RECURSIVE below(name) AS (
        VALUES (?1) UNION SELECT id FROM below CROSS JOIN run WHERE parent = name AND parent != '') """
SELECT_DESCENDANTS = WITH_DESCENDANTS + SELECT_RUN + "WHERE id IN below AND id != ?1 ORDER BY seq"
SELECT_CONTROL_REQUEST = (
    "SELECT kind FROM control_request WHERE run = ? ORDER BY kind = 'cancel' DESC, seq DESC LIMIT 1"
)
SELECT_USER_MESSAGES = "SELECT seq, data FROM user_message WHERE run = ? AND seq > ? ORDER BY seq"
SELECT_CHAIN = (
    """SELECT run, iteration, turn, step, kind, at, data, seq, digest FROM record WHERE run = ? ORDER BY seq"""
)
INSERT_RUN = """INSERT INTO run (id, began_at, directory, host, pid, pid_start, boot, parent)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_ATTEMPT = "INSERT INTO attempt (run, task) VALUES (?, (SELECT seq FROM task WHERE id = ?))"
RENEW_ATTEMPT = "UPDATE attempt SET seq = (SELECT max(seq) + 1 FROM attempt) WHERE run = ?"
INSERT_CONTROL_REQUEST = "INSERT INTO control_request (kind, at, run) SELECT ?, ?, id FROM run WHERE id = ?"
INSERT_USER_MESSAGE = "INSERT INTO user_message (data, at, run) SELECT ?, ?, id FROM run WHERE id = ?"
INSERT_RECORD = """INSERT INTO record (run, iteration, turn, step, kind, at, data, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""


class SqliteLedger(DatabaseTables):
    """Keeps records in `<folder>/ledger.db`. Records are on disk when `append` returns: all of them, or none.

    Many processes may use one file at a time; one object belongs to the thread that opened it. `repaired` describes a
    damaged file that was found and kept aside.
    """

    def __init__(self, connection: Connection, path: str, mask: Callable[[str], str], repaired: str = "") -> None:
        super().__init__(connection, path)
        self._mask, self.repaired = mask, repaired
        self.on_append: Callable[[tuple[Record, ...]], None] | None = None  # called with each stored transaction

    @classmethod
    def open(
        cls, path: str, mask: Callable[[str], str] = str, read_only: bool = False, busy_s: float = BUSY_TIMEOUT_S
    ) -> SqliteLedger:
        """The ledger in a folder, created if it is missing. For a reader a missing one is empty, and stays missing."""
        file = os.path.join(os.path.abspath(path), "ledger.db")
        if read_only:
            return cls(database.open_read_only(file, busy_s), file, mask)
        connection, repaired = database.open_writable(file, busy_s)
        return cls(connection, file, mask, repaired)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_run(
        self, run: str, directory: str, began_at: float, process: ProcessIdentity, parent: str = "", task: str = ""
    ) -> None:
        """Add a new run, and the task that it works on, if any."""
        where = serialization.path_for_sqlite(directory)
        facts = (run, began_at, where, process.host, process.pid, process.start, process.boot, parent)
        attempt = (INSERT_ATTEMPT, (run, serialization.to_valid_utf8(self._mask(task)))) if task else None
        self._change(run, INSERT_RUN, facts, attempt)

    def assign_process(self, run: str, process: ProcessIdentity) -> None:
        """Record the process that resumes a run. The run becomes the latest attempt at its task, if it has one."""
        facts = (process.host, process.pid, process.start, process.boot, run)
        statement = "UPDATE run SET host = ?, pid = ?, pid_start = ?, boot = ? WHERE id = ?"
        self._change(run, statement, facts, (RENEW_ATTEMPT, (run,)))

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add records in one transaction. A run that was not begun is added by its name alone."""
        from ralphproof.engine.records import RunEnded

        at = time.time()
        rows = serialization.record_rows(run, records, at, self._mask)
        ends = [record.metrics for record in records if isinstance(record, RunEnded)]
        self._transaction(lambda: self._append(run, at, rows, ends))
        if self.on_append is not None:
            self.on_append(records)

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""
        return tuple(record for _, record in self.timed_records(run))

    def timed_records(self, run: str) -> tuple[tuple[float, Record], ...]:
        """The same, each with the time at which it was written, in seconds since the epoch."""
        found = self._query("SELECT at, seq, data FROM record WHERE run = ? ORDER BY seq", run)
        return tuple((float(at), _parse_record(run, seq, data)) for at, seq, data in found)

    def records_of_kind(self, run: str, kind: str) -> tuple[Record, ...]:
        """The records of a run that are of one kind, oldest first."""
        found = self._query("SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq", run, kind)
        return tuple(_parse_record(run, seq, data) for seq, data in found)

    def run_end(self, run: str) -> Record | None:
        """The record that ended a run; None if it has not ended, or was resumed since."""
        found = self._query(SELECT_RUN_END, run)
        return _parse_record(run, *found[0]) if found else None

    def last_written_at(self, run: str) -> float | None:
        """When the last record of a run was written, in seconds since the epoch."""
        found = self._query("SELECT at FROM record WHERE run = ? ORDER BY seq DESC LIMIT 1", run)
        return float(found[0][0]) if found else None

    def runs(self, limit: int | None = None) -> tuple[RunRow, ...]:
        """Runs, the newest first."""
        return self._rows(SELECT_RUNS, -1 if limit is None else limit)

    def row(self, run: str) -> RunRow | None:
        """A run as it is now; None if it is unknown."""
        return next(iter(self._rows(SELECT_RUN + "WHERE id = ?", run)), None)

    def children(self, run: str) -> tuple[RunRow, ...]:
        """The child runs of a run, oldest first."""
        return self._rows(SELECT_CHILDREN, run)

    def descendants(self, run: str) -> tuple[RunRow, ...]:
        """Child runs, their children and so on, oldest first."""
        return self._rows(SELECT_DESCENDANTS, run)

    def find(self, name: str) -> str:
        """The id of the run that a user names by its id, a unique prefix of it, or `latest`.

        `latest` is the newest run, in whichever worktree; child runs do not count.
        """
        if name == LATEST:
            found = self._query("SELECT id FROM run WHERE parent = '' ORDER BY seq DESC LIMIT 1")
        else:
            start = serialization.to_valid_utf8(name)
            found = self._query("SELECT id FROM run WHERE id >= ? AND id < ? ORDER BY id", start, start + "\U0010ffff")
        return resolve_run_name(name, [id for (id,) in found])

    def requested_control(self, run: str) -> str:
        """The request in effect for this run: "", "pause" or "cancel". A cancel cannot be withdrawn."""
        return next((kind for (kind,) in self._query(SELECT_CONTROL_REQUEST, run) if kind in (CANCEL, PAUSE)), "")

    def request_control(self, run: str, kind: str) -> None:
        """Request something of a run: "pause", "cancel", or "resume" ("" means the same)."""
        if kind not in CONTROL_REQUESTS:
            raise HarnessFailed(f"no run understands the request {kind!r}")
        self._change(run, INSERT_CONTROL_REQUEST, (kind, time.time(), run))

    def add_user_message(self, run: str, text: str) -> int:
        """Store a message of the user to a run; returns its number, higher than that of all earlier ones."""
        return self._change(
            run, INSERT_USER_MESSAGE, (serialization.dump_masked_json(text, self._mask), time.time(), run)
        )

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """The user's messages to this run after this number, each with its number."""
        found: list[tuple[int, str]] = self._query(SELECT_USER_MESSAGES, run, after)
        return tuple((seq, serialization.parse_user_message(data, f"word {seq} to run {run}")) for seq, data in found)

    @property
    def queries(self) -> LedgerQueries:
        """Queries for displays."""
        return LedgerQueries(self._database, self._path)

    @property
    def tasks(self) -> TaskTable:
        """The tasks of this repository."""
        from ralphproof.store.tasks import TaskTable

        return TaskTable(self._database, self._path, self._mask)

    @property
    def landings(self) -> LandingTable:
        """Work that is, or was, to be merged into a branch."""
        from ralphproof.store.landings import LandingTable

        return LandingTable(self._database, self._path, self._mask)

    def has_tasks(self) -> bool:
        """Whether there is a task."""
        return bool(self._query("SELECT 1 FROM task LIMIT 1"))

    def verify_chain(self, run: str) -> str | None:
        """A description of the first record that was changed since it was written; None if there is none."""
        previous = ""
        for *row, seq, digest in self._query(SELECT_CHAIN, run):
            if serialization.chain_digest(previous, tuple(row)) != digest:
                name = f"record {seq} of run {run} ({row[3]} of iteration {row[1]})"
                return f"{name} was changed, or one before it is missing"
            previous = digest
        return None

    def chain(self, run: str) -> tuple[tuple[str, int, int, str, str, float, str, str], ...]:
        """The rows of a run's records as they were written, oldest first, each with its digest at its end."""
        return tuple((*row, digest) for *row, _, digest in self._query(SELECT_CHAIN, run))

    def import_chain(self, run: str, chain: Iterable[ChainRow]) -> None:
        """Add the records of a known run as another ledger stored them: all, or none. The run has none here yet.

        Raises LedgerBroken if they are no chain.
        """
        self._transaction(lambda: self._import_chain(run, chain))

    def _import_chain(self, run: str, chain: Iterable[ChainRow]) -> None:
        do = self._database.execute
        if do("SELECT 1 FROM record WHERE run = ? LIMIT 1", (run,)).fetchone():
            raise HarnessFailed(f"run {run} has records here already: nothing was taken over")
        previous = ""
        for number, row in enumerate(chain, 1):
            if row[0] != run or chain_digest(previous, row[:-1]) != row[-1]:
                raise LedgerBroken(f"record {number} of run {run} is not as it was written: nothing was taken over")
            if not do(INSERT_RECORD, row).rowcount:
                raise serialization.duplicate_record_error(row[:-1])
            previous = row[-1]

    def statistics(self, first_day: int, last_day: int) -> PeriodTotals:
        """Totals of the runs that ended in these days (counted from 1970)."""
        from ralphproof.store import statistics

        return self._transaction(lambda: statistics.query_statistics(self._query, first_day, last_day), "BEGIN")

    def statistics_by_time(self, first_day: int, last_day: int) -> tuple[TimeSlotTotals, ...]:
        """The same by day, or by hour for a single day. Slots in which nothing ended are left out."""
        from ralphproof.store import statistics

        return statistics.query_time_slots(self._query, first_day, last_day)

    def past_runs(self) -> tuple[PastRun, ...]:
        """The completed ones among the last runs, the newest first."""
        from ralphproof.store import statistics

        return statistics.query_past_runs(self._query)

    def _rows(self, query: str, *values: object) -> tuple[RunRow, ...]:
        return tuple(
            RunRow(id, began_at, os.fsdecode(directory), pid, start, boot, bool(ended), parent, host)
            for id, began_at, directory, pid, start, boot, ended, parent, host in self._query(query, *values)
        )

    def _append(self, run: str, at: float, rows: list[serialization.Row], ends: list[Metrics | None]) -> None:
        do = self._database.execute
        last = do("SELECT digest FROM record WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)).fetchone()
        if last is None:
            do("INSERT OR IGNORE INTO run VALUES (NULL, ?, ?, '', '', 0, '', '', '')", (run, at))
        digest = last[0] if last else ""
        for row in rows:
            digest = serialization.chain_digest(digest, row)
            if not do(INSERT_RECORD, (*row, digest)).rowcount:
                raise serialization.duplicate_record_error(row)
        for metrics in ends:
            self._save_metrics(run, metrics)

    def _save_metrics(self, run: str, metrics: Metrics | None) -> None:
        """Store the metrics of a run; those of an earlier end are replaced."""
        from ralphproof.store import statistics

        self._database.execute(statistics.DELETE_RUN_STATISTICS, (run,))
        if metrics is not None:
            self._database.execute(
                statistics.INSERT_RUN_STATISTICS, statistics.statistics_row(run, metrics, self._mask)
            )
        if metrics is not None and metrics.reviews is not None:
            self._database.execute(
                statistics.INSERT_REVIEW_STATISTICS, statistics.review_statistics_row(run, metrics.reviews)
            )

    def _change(
        self, run: str, statement: str, values: tuple[object, ...], second: tuple[str, tuple[object, ...]] | None = None
    ) -> int:
        """Execute a statement, and a `second` one in the same transaction; returns the number of an added row."""

        def work() -> int:
            done = self._database.execute(statement, values)
            if not done.rowcount:
                raise HarnessFailed(f"run {run} is not known")
            if second is not None:
                self._database.execute(*second)
            return int(done.lastrowid or 0)

        return self._transaction(work)


def extend_chain(
    chain: tuple[ChainRow, ...], run: str, record: Record, at: float, mask: Callable[[str], str]
) -> tuple[ChainRow, ...]:
    """The chain with one more record."""
    row = record_rows(run, (record,), at, mask)[0]
    return (*chain, (*row, chain_digest(chain[-1][-1] if chain else "", row)))


class MemoryLedger(SqliteLedger):
    """A ledger in memory, for runs that are not recorded. It has no tasks."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        super().__init__(database.open_in_memory(), ":memory:", mask)

    def begin_run(
        self, run: str, directory: str, began_at: float, process: ProcessIdentity, parent: str = "", task: str = ""
    ) -> None:
        """Add a new run."""
        super().begin_run(run, directory, began_at, process, parent)
