"""The ledger in memory, for runs that are not recorded and for tests."""

from __future__ import annotations

import time

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.process_identity import ProcessIdentity
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.store import serialization
from ralphproof.store.runs import LATEST, RunRow, effective_control_request, resolve_run_name, validate_control_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.metrics import Metrics
    from ralphproof.engine.records import Record
    from ralphproof.store.statistics import PastRun, PeriodTotals


class MemoryLedger:
    """Keeps records in memory only."""

    repaired = ""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._runs: dict[str, RunRow] = {}
        self._rows: dict[str, list[tuple[serialization.Row, str]]] = {}
        self._control_requests: dict[str, list[str]] = {}
        self._user_messages: list[tuple[str, str]] = []

    def close(self) -> None:
        """Nothing to close."""

    def begin_run(
        self, run: str, directory: str, began_at: float, process: ProcessIdentity, parent: str = "", task: str = ""
    ) -> None:
        """Add a new run. There are no tasks in memory."""
        if run in self._runs:
            raise HarnessFailed(f"run {run} is known already")
        row = RunRow(run, began_at, directory, process.pid, process.start, process.boot, False, parent, process.host)
        self._runs[run] = row

    def assign_process(self, run: str, process: ProcessIdentity) -> None:
        """Record the process that resumes a run."""
        old = self._runs[self._known(run)]
        facts = {"pid": process.pid, "pid_start": process.start, "boot": process.boot, "host": process.host}
        self._runs[run] = replace(old, **facts)

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add all records or none. A run that was not begun is added by its name alone."""
        at = time.time()
        rows = list(self._rows.get(run, ()))
        taken = {row[1:4] for row, _ in rows}
        for row in serialization.record_rows(run, records, at, self._mask):
            if row[1:4] in taken:
                raise serialization.duplicate_record_error(row)
            taken.add(row[1:4])
            rows.append((row, serialization.chain_digest(rows[-1][1] if rows else "", row)))
        if run not in self._runs:
            self.begin_run(run, "", at, ProcessIdentity(0))
        self._rows[run] = rows

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""
        return tuple(record for _, record in self.timed_records(run))

    def timed_records(self, run: str) -> tuple[tuple[float, Record], ...]:
        """The same, each with the time at which it was written, in seconds since the epoch."""
        rows = [row for row, _ in self._rows.get(run, ())]
        return tuple((row[5], serialization.parse_record(row[6], f"a record of run {run}")) for row in rows)

    def run_end(self, run: str) -> Record | None:
        """The record that ended a run; None if it has not ended, or was resumed since."""
        return self.records(run)[-1] if self._ended(run) else None

    def runs(self, limit: int | None = None) -> tuple[RunRow, ...]:
        """Runs, the newest first."""
        rows = [replace(row, ended=self._ended(row.id)) for row in reversed(self._runs.values())]
        return tuple(rows[:limit])

    def row(self, run: str) -> RunRow | None:
        """A run as it is now; None if it is unknown."""
        return next((row for row in self.runs() if row.id == run), None)

    def children(self, run: str) -> tuple[RunRow, ...]:
        """The child runs of a run, oldest first."""
        return tuple(row for row in self.runs()[::-1] if run and row.parent == run != row.id)

    def descendants(self, run: str) -> tuple[RunRow, ...]:
        """Child runs, their children and so on, oldest first."""
        names, found = [run], {run}
        for name in names:
            more = {row.id for row in self.children(name)} - found
            names += more
            found |= more
        return tuple(row for row in self.runs()[::-1] if row.id in found - {run})

    def find(self, name: str) -> str:
        """The id of the run that a user names by its id, a unique prefix of it, or `latest`.

        `latest` is the newest run, in whichever worktree; child runs do not count.
        """
        if name == LATEST:
            return resolve_run_name(name, [row.id for row in self.runs() if not row.parent][:1])
        return resolve_run_name(name, sorted(run for run in self._runs if run.startswith(name)))

    def requested_control(self, run: str) -> str:
        """What is requested of this run: "", "pause" or "cancel". Nothing takes a cancel back."""
        return effective_control_request(self._control_requests.get(run, []))

    def request_control(self, run: str, kind: str) -> None:
        """Request something of a run: "pause", "cancel", or "resume" ("" means the same)."""
        self._control_requests.setdefault(self._known(run), []).append(validate_control_request(kind))

    def add_user_message(self, run: str, words: str) -> int:
        """Store a message of the user to a run; its number, which is higher than that of all earlier ones."""
        self._user_messages.append((self._known(run), serialization.dump_masked_json(words, self._mask)))
        return len(self._user_messages)

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """The user's messages to this run after this number, each with its own."""
        said = [
            (number, data) for number, (to, data) in enumerate(self._user_messages, 1) if to == run and number > after
        ]
        return tuple(
            (number, serialization.parse_user_message(data, f"word {number} to run {run}")) for number, data in said
        )

    def verify_chain(self, run: str) -> str | None:
        """Describes the first record of a run that is not as it was written; None if all are."""
        previous = ""
        for row, digest in self._rows.get(run, ()):
            if serialization.chain_digest(previous, row) != digest:
                return f"{row[3]} of iteration {row[1]} of run {run} was changed"
            previous = digest
        return None

    def statistics(self, first_day: int, last_day: int) -> PeriodTotals:
        """Totals of the runs that ended in these days (counted from 1970)."""
        from ralphproof.store.statistics import sum_runs

        return sum_runs(self._finished(), first_day, last_day)

    def past_runs(self) -> tuple[PastRun, ...]:
        """The completed ones among the last runs, the newest first."""
        from ralphproof.engine.metrics import COMPLETED
        from ralphproof.store.statistics import MAX_PAST_RUNS, PastRun

        last = self._finished()[::-1][:MAX_PAST_RUNS]
        return tuple(PastRun(run.skill, run.iterations, run.micro_usd) for run in last if run.status == COMPLETED)

    def _finished(self) -> list[Metrics]:
        """The metrics of all runs that have ended, oldest first: those of the last end for each."""
        from ralphproof.engine.records import RunEnded

        ends = ([one for one in self.records(run) if isinstance(one, RunEnded)][-1:] for run in self._runs)
        return [end.metrics for found in ends for end in found if end.metrics is not None]

    def _known(self, run: str) -> str:
        if run not in self._runs:
            raise HarnessFailed(f"run {run} is not known")
        return run

    def _ended(self, run: str) -> bool:
        return any(row[4] == "RunEnded" for row, _ in self._rows.get(run, ())[-1:])
