"""Rows of runs, control requests (pause, resume, cancel), and names that users give for a run."""

from __future__ import annotations

from ralphproof.base.errors import HarnessFailed, NotThere, Refused
from ralphproof.base.process_identity import ProcessIdentity
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.metrics import ABORTED
from ralphproof.store import serialization
from ralphproof.store.database import run_with_retries

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Sequence
    from typing import Any

    from ralphproof.engine.records import Record


LATEST = "latest"
PAUSE, RESUME, CANCEL = "pause", "resume", "cancel"
CONTROL_REQUESTS = (PAUSE, RESUME, CANCEL, "")  # the last one is another word for RESUME
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
        """The process that has, or had, this run."""
        return ProcessIdentity(self.pid, self.pid_start, self.boot, self.host)


def validate_control_request(request: str) -> str:
    """The same request; raises HarnessFailed for an unknown one."""
    if request not in CONTROL_REQUESTS:
        raise HarnessFailed(f"no run understands the request {request!r}")
    return request


def effective_control_request(requests: Sequence[str]) -> str:
    """The request that counts, of all in order. Nothing takes a cancel back."""
    if CANCEL in requests:
        return CANCEL
    return PAUSE if requests and requests[-1] == PAUSE else ""


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


# Records are numbered in the order in which they became durable, over all runs: the last number tells whether there is
# anything new, and an index of one run's records finds its own. The plus keeps SQLite (3.40) from scanning that whole
# index, which is in the order of the groups.
_LAST = "SELECT ifnull(max(seq), 0) FROM record"
_CHANGED = "SELECT run, max(seq) FROM record WHERE seq > ? GROUP BY +run"
_SINCE = "SELECT seq, at, data FROM record WHERE run = ? AND seq > ? ORDER BY seq"
_LAST_OF = "SELECT ifnull(max(seq), 0) FROM record WHERE run = ?"
_FIRST = "SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq LIMIT 1"
_FINAL = "SELECT seq, data FROM record WHERE run = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
_ANSWERS = """SELECT seq, data FROM record WHERE run = ?1 AND kind = 'CheckEnded' AND iteration = (
    SELECT iteration FROM record WHERE run = ?1 AND kind = 'CheckEnded' ORDER BY iteration DESC LIMIT 1) ORDER BY seq"""
_WANTED = "SELECT (SELECT ifnull(max(seq), 0) FROM control_request), (SELECT ifnull(max(seq), 0) FROM user_message)"
_TASKS = "SELECT count(*), ifnull(max(updated_at), 0), (SELECT ifnull(max(seq), 0) FROM attempt) FROM task"
_PLACE = "SELECT seq FROM run WHERE id = ?"
_NEWEST = "SELECT id FROM run WHERE directory = ? ORDER BY seq DESC LIMIT 1"
_PAGE = "SELECT id FROM run WHERE seq < ? ORDER BY seq DESC LIMIT ?"
# A run that was resumed still has the statistics of its earlier end, so of the newest ones the last record is checked.
_OPEN = """SELECT id FROM run WHERE NOT EXISTS (SELECT 1 FROM run_stats WHERE run_stats.run = run.seq)
    UNION SELECT id FROM run WHERE seq > (SELECT max(seq) FROM run) - 2000 AND (
        SELECT kind FROM record WHERE record.run = run.id ORDER BY seq DESC LIMIT 1) IS NOT 'RunEnded'"""
_REASONS = """SELECT day, reason, sum(runs) FROM stats_group CROSS JOIN stats_sum ON kind = id AND day BETWEEN ? AND ?
    WHERE status = ? GROUP BY day, reason"""
_HOURLY = """SELECT CAST((ended - day * 86400) / 3600 AS INTEGER), reason, count(*) FROM run_stats
    WHERE day BETWEEN ? AND ? AND status = ? GROUP BY 1, 2"""
_HIGHEST = (1 << 63) - 1


class LedgerQueries:
    """Queries that displays repeat: each costs what has changed, not what there is."""

    def __init__(self, database: Connection, path: str) -> None:
        self._database, self._path = database, path

    def last_seq(self) -> int:
        """The number of the newest record of all; 0 if there is none."""
        return int(self._ask(_LAST)[0][0])

    def last_seq_of(self, run: str) -> int:
        """The number of the newest record of a run."""
        return int(self._ask(_LAST_OF, run)[0][0])

    def request_counts(self) -> tuple[int, int]:
        """How many control requests and user messages there are, over all runs."""
        request, word = self._ask(_WANTED)[0]
        return int(request), int(word)

    def changed_runs(self, after: int) -> dict[str, int]:
        """The runs with records after this number, each with the number of its newest."""
        return {run: int(seq) for run, seq in self._ask(_CHANGED, after)}

    def records_since(self, run: str, after: int) -> tuple[tuple[int, float, Record], ...]:
        """The records of a run after this number, oldest first, each with its number and its time (epoch seconds)."""
        found = self._ask(_SINCE, run, after)
        return tuple(
            (seq, float(at), serialization.parse_record(data, f"record {seq} of run {run}")) for seq, at, data in found
        )

    def first_record(self, run: str, kind: str) -> Record | None:
        """The first record of a run that is of this kind."""
        return self._one(_FIRST, run, kind)

    def last_record(self, run: str, kind: str) -> Record | None:
        """The last record of a run that is of this kind."""
        return self._one(_FINAL, run, kind)

    def last_check_results(self, run: str) -> tuple[Record, ...]:
        """The results of checks in the last iteration that had any, oldest first."""
        found = self._ask(_ANSWERS, run)
        return tuple(serialization.parse_record(data, f"record {seq} of run {run}") for seq, data in found)

    def task_version(self) -> tuple[int, float, int]:
        """Changes whenever a task does: how many there are, when one was last changed, the last attempt."""
        count, changed, attempts = self._ask(_TASKS)[0]
        return int(count), float(changed), int(attempts)

    def run_count(self) -> int:
        """How many runs there are: none is ever deleted, so the last number tells."""
        return int(self._ask("SELECT ifnull(max(seq), 0) FROM run")[0][0])

    def run_page(self, limit: int, before: str = "") -> tuple[str, ...]:
        """The newest runs, or those before this one, the newest first."""
        place = self._ask(_PLACE, before) if before else [(_HIGHEST,)]
        return tuple(run for (run,) in self._ask(_PAGE, place[0][0], limit)) if place else ()

    def newest_run_in(self, directory: str) -> str | None:
        """The newest run that was started in this directory."""
        found = self._ask(_NEWEST, serialization.path_for_sqlite(directory))
        return found[0][0] if found else None

    def open_runs(self) -> tuple[str, ...]:
        """The runs that have not ended, as far as can be told without reading all records."""
        return tuple(run for (run,) in self._ask(_OPEN))

    def abort_reasons(self, first_day: int, last_day: int) -> tuple[tuple[int, str, int], ...]:
        """Why runs were aborted, and how many: by the day in which they ended, or by the hour of a single day."""
        question = _HOURLY if first_day == last_day else _REASONS
        found = self._ask(question, first_day, last_day, ABORTED)
        return tuple((int(at), str(reason), int(count)) for at, reason, count in found)

    def _one(self, question: str, run: str, kind: str) -> Record | None:
        found = self._ask(question, run, kind)
        return serialization.parse_record(found[0][1], f"record {found[0][0]} of run {run}") if found else None

    def _ask(self, question: str, *values: object) -> list[Any]:
        return run_with_retries(self._database, self._path, lambda: self._database.execute(question, values).fetchall())
