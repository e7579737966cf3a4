"""The ledger on disk: one SQLite file for a repository."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import HarnessFailed, LedgerBroken
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store import database, serialization
from ralphproof.store.database import BUSY_TIMEOUT_S, run_with_retries
from ralphproof.store.runs import LATEST, RunRow, effective_control_request, resolve_run_name, validate_control_request
from ralphproof.store.serialization import chain_digest, record_rows

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from ralphproof.base.process_identity import ProcessIdentity
    from ralphproof.engine.metrics import Metrics
    from ralphproof.engine.records import Record
    from ralphproof.store.landings import LandingTable
    from ralphproof.store.runs import LedgerQueries
    from ralphproof.store.statistics import PastRun, PeriodTotals, TimeSlotTotals
    from ralphproof.store.tasks import TaskTable

    T = TypeVar("T")
    ChainRow = tuple[str, int, int, str, str, float, str, str]  # a row, with its digest at its end


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


class SqliteLedger:
    """Keeps records in `<folder>/ledger.db`. What `append` was given is on disk when it returns, all of it or nothing.

    Many processes may use one file at a time; one object belongs to the thread that opened it. `repaired` describes a
    damaged file that was found and kept aside.
    """

    def __init__(self, connection: Connection, path: str, mask: Callable[[str], str], repaired: str = "") -> None:
        self._database, self._path, self._mask, self.repaired = connection, path, mask, repaired
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
        """Let go of the file."""
        self._database.close()

    def begin_run(
        self, run: str, directory: str, began_at: float, process: ProcessIdentity, parent: str = "", task: str = ""
    ) -> None:
        """Add a new run, and the task that it works on, if any."""
        facts = (
            run,
            began_at,
            serialization.path_for_sqlite(directory),
            process.host,
            process.pid,
            process.start,
            process.boot,
            parent,
        )
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
        self._try(lambda: self._append(run, at, rows, ends))
        if self.on_append is not None:
            self.on_append(records)

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""
        return tuple(record for _, record in self.timed_records(run))

    def timed_records(self, run: str) -> tuple[tuple[float, Record], ...]:
        """The same, each with the time at which it was written, in seconds since the epoch."""
        found = self._ask("SELECT at, seq, data FROM record WHERE run = ? ORDER BY seq", run)
        return tuple(
            (float(at), serialization.parse_record(data, f"record {seq} of run {run}")) for at, seq, data in found
        )

    def records_of_kind(self, run: str, kind: str) -> tuple[Record, ...]:
        """The records of a run that are of one kind, oldest first."""
        found = self._ask("SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq", run, kind)
        return tuple(serialization.parse_record(data, f"record {seq} of run {run}") for seq, data in found)

    def run_end(self, run: str) -> Record | None:
        """The record that ended a run; None if it has not ended, or was resumed since."""
        found = self._ask(SELECT_RUN_END, run)
        return serialization.parse_record(found[0][1], f"record {found[0][0]} of run {run}") if found else None

    def last_written_at(self, run: str) -> float | None:
        """When the last record of a run was written, in seconds since the epoch."""
        found = self._ask("SELECT at FROM record WHERE run = ? ORDER BY seq DESC LIMIT 1", run)
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
            found = self._ask("SELECT id FROM run WHERE parent = '' ORDER BY seq DESC LIMIT 1")
        else:
            start = serialization.to_valid_utf8(name)
            found = self._ask("SELECT id FROM run WHERE id >= ? AND id < ? ORDER BY id", start, start + "\U0010ffff")
        return resolve_run_name(name, [id for (id,) in found])

    def requested_control(self, run: str) -> str:
        """What is requested of this run: "", "pause" or "cancel". Nothing takes a cancel back."""
        return effective_control_request([kind for (kind,) in self._ask(SELECT_CONTROL_REQUEST, run)])

    def request_control(self, run: str, kind: str) -> None:
        """Request something of a run: "pause", "cancel", or "resume" ("" means the same)."""
        self._change(run, INSERT_CONTROL_REQUEST, (validate_control_request(kind), time.time(), run))

    def add_user_message(self, run: str, words: str) -> int:
        """Store a message of the user to a run; its number, which is higher than that of all earlier ones."""
        return self._change(
            run, INSERT_USER_MESSAGE, (serialization.dump_masked_json(words, self._mask), time.time(), run)
        )

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """The user's messages to this run after this number, each with its own."""
        found: list[tuple[int, str]] = self._look(lambda ask: ask(SELECT_USER_MESSAGES, run, after))
        return tuple((seq, serialization.parse_user_message(data, f"word {seq} to run {run}")) for seq, data in found)

    @property
    def queries(self) -> LedgerQueries:
        """Queries for displays."""
        from ralphproof.store.runs import LedgerQueries

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
        return bool(self._look(lambda ask: ask("SELECT 1 FROM task LIMIT 1")))

    def verify_chain(self, run: str) -> str | None:
        """Describes the first record of a run that is not as it was written; None if all are."""
        previous = ""
        for *row, seq, digest in self._ask(SELECT_CHAIN, run):
            if serialization.chain_digest(previous, tuple(row)) != digest:
                name = f"record {seq} of run {run} ({row[3]} of iteration {row[1]})"
                return f"{name} was changed, or one before it is missing"
            previous = digest
        return None

    def chain(self, run: str) -> tuple[tuple[str, int, int, str, str, float, str, str], ...]:
        """The rows of a run's records as they were written, oldest first, each with its digest at its end."""
        return tuple((*row, digest) for *row, _, digest in self._ask(SELECT_CHAIN, run))

    def import_chain(self, run: str, chain: Iterable[ChainRow]) -> None:
        """Add the records of a known run as another ledger stored them; the run has none here yet."""

        self._try(lambda: adopt_chain(self._database, run, chain))

    def statistics(self, first_day: int, last_day: int) -> PeriodTotals:
        """Totals of the runs that ended in these days (counted from 1970)."""
        from ralphproof.store import statistics

        return self._look(lambda ask: statistics.query_statistics(ask, first_day, last_day))

    def statistics_by_time(self, first_day: int, last_day: int) -> tuple[TimeSlotTotals, ...]:
        """The same by day, or by hour for a single day. Slots in which nothing ended are left out."""
        from ralphproof.store import statistics

        return self._look(lambda ask: statistics.query_time_slots(ask, first_day, last_day))

    def past_runs(self) -> tuple[PastRun, ...]:
        """The completed ones among the last runs, the newest first."""
        from ralphproof.store import statistics

        return self._look(statistics.query_past_runs)

    def _rows(self, question: str, *values: object) -> tuple[RunRow, ...]:
        return tuple(
            RunRow(id, began_at, os.fsdecode(directory), pid, start, boot, bool(ended), parent, host)
            for id, began_at, directory, pid, start, boot, ended, parent, host in self._ask(question, *values)
        )

    def _look(self, work: Callable[[Callable[..., list[Any]]], T]) -> T:
        """Run several queries in one read transaction."""

        def ask(question: str, *values: object) -> list[Any]:
            return self._database.execute(question, values).fetchall()

        def look() -> T:
            self._database.execute("BEGIN")
            found = work(ask)
            self._database.execute("COMMIT")
            return found

        return self._try(look)

    def _append(self, run: str, at: float, rows: list[serialization.Row], ends: list[Metrics | None]) -> None:
        do = self._database.execute
        do("BEGIN IMMEDIATE")
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
        do("COMMIT")

    def _save_metrics(self, run: str, metrics: Metrics | None) -> None:
        """The figures of a run are those of its last end."""
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
        self, run: str, statement: str, values: tuple[object, ...], also: tuple[str, tuple[object, ...]] | None = None
    ) -> int:
        """The number of the row that was added, if one was. The statement `also` belongs to the same transaction."""

        def work() -> int:
            self._database.execute("BEGIN IMMEDIATE")
            done = self._database.execute(statement, values)
            if not done.rowcount:
                raise HarnessFailed(f"run {run} is not known")
            if also is not None:
                self._database.execute(*also)
            self._database.execute("COMMIT")
            return int(done.lastrowid or 0)

        return self._try(work)

    def _ask(self, question: str, *values: object) -> list[Any]:
        return self._try(lambda: self._database.execute(question, values).fetchall())

    def _try(self, work: Callable[[], T]) -> T:
        return run_with_retries(self._database, self._path, work)


_INSERT_CHAIN_ROW = (
    """INSERT INTO record (run, iteration, turn, step, kind, at, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
)


def adopt_chain(database: Connection, run: str, chain: Iterable[ChainRow]) -> None:
    """Add all records, or none; raises LedgerBroken if they are no chain, and HarnessFailed if the run has records."""
    do = database.execute
    do("BEGIN IMMEDIATE")
    if do("SELECT 1 FROM record WHERE run = ? LIMIT 1", (run,)).fetchone():
        raise HarnessFailed(f"run {run} has records here already: nothing was taken over")
    previous = ""
    for number, row in enumerate(chain, 1):
        if row[0] != run or chain_digest(previous, row[:-1]) != row[-1]:
            raise LedgerBroken(f"record {number} of run {run} is not as it was written: nothing was taken over")
        do(_INSERT_CHAIN_ROW, row)
        previous = row[-1]
    do("COMMIT")


def extend_chain(
    chain: tuple[ChainRow, ...], run: str, record: Record, at: float, mask: Callable[[str], str]
) -> tuple[ChainRow, ...]:
    """The chain with one more record."""
    row = record_rows(run, (record,), at, mask)[0]
    return (*chain, (*row, chain_digest(chain[-1][-1] if chain else "", row)))
