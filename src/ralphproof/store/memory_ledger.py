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
    """Keeps records as long as it lives."""

    repaired = ""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._runs: dict[str, RunRow] = {}
        self._rows: dict[str, list[tuple[serialization.Row, str]]] = {}
        self._wishes: dict[str, list[str]] = {}
        self._words: list[tuple[str, str]] = []

    def close(self) -> None:
        """Nothing to let go of."""

    def begin_run(
        self, run: str, directory: str, began_at: float, process: ProcessIdentity, parent: str = "", task: str = ""
    ) -> None:
        """Make a new run known. There are no tasks in memory."""
        if run in self._runs:
            raise HarnessFailed(f"run {run} is known already")
        row = RunRow(run, began_at, directory, process.pid, process.start, process.boot, False, parent, process.host)
        self._runs[run] = row

    def assign_process(self, run: str, process: ProcessIdentity) -> None:
        """Say which process has an earlier run now."""
        old = self._runs[self._known(run)]
        facts = {"pid": process.pid, "pid_start": process.start, "boot": process.boot, "host": process.host}
        self._runs[run] = replace(old, **facts)

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add all records or none. A run that nobody began is then known by its name alone."""
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
        """The record that ended a run; None where it has not ended, or was taken up since."""
        return self.records(run)[-1] if self._ended(run) else None

    def runs(self, limit: int | None = None) -> tuple[RunRow, ...]:
        """Runs, the newest first."""
        rows = [replace(row, ended=self._ended(row.id)) for row in reversed(self._runs.values())]
        return tuple(rows[:limit])

    def row(self, run: str) -> RunRow | None:
        """This run as it is now; None where it is not known."""
        return next((row for row in self.runs() if row.id == run), None)

    def children(self, run: str) -> tuple[RunRow, ...]:
        """The runs whose parent this one is, oldest first."""
        return tuple(row for row in self.runs()[::-1] if run and row.parent == run != row.id)

    def descendants(self, run: str) -> tuple[RunRow, ...]:
        """These, their children and so on, oldest first."""
        names, found = [run], {run}
        for name in names:
            more = {row.id for row in self.children(name)} - found
            names += more
            found |= more
        return tuple(row for row in self.runs()[::-1] if row.id in found - {run})

    def find(self, name: str) -> str:
        """The run that a user means by its id, a beginning of it that no other run has, or `latest`.

        That is the newest one, in whichever worktree; a run that an agent of another one began is part of that one.
        """
        if name == LATEST:
            return resolve_run_name(name, [row.id for row in self.runs() if not row.parent][:1])
        return resolve_run_name(name, sorted(run for run in self._runs if run.startswith(name)))

    def requested_control(self, run: str) -> str:
        """What somebody wants of this run: "", "pause" or "cancel". Nothing takes a cancel back."""
        return effective_control_request(self._wishes.get(run, []))

    def request_control(self, run: str, kind: str) -> None:
        """Want something of a run: "pause", "cancel", or "resume", which "" means too."""
        self._wishes.setdefault(self._known(run), []).append(validate_control_request(kind))

    def add_user_message(self, run: str, words: str) -> int:
        """Keep what the user says to a run; its number, which is higher than that of all words before."""
        self._words.append((self._known(run), serialization.dump_masked_json(words, self._mask)))
        return len(self._words)

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """What the user said to this run after the words of this number, each with its own."""
        said = [(number, data) for number, (to, data) in enumerate(self._words, 1) if to == run and number > after]
        return tuple(
            (number, serialization.parse_user_message(data, f"word {number} to run {run}")) for number, data in said
        )

    def verify_chain(self, run: str) -> str | None:
        """The first place where a run's records are not as they were written; None where all are."""
        previous = ""
        for row, digest in self._rows.get(run, ()):
            if serialization.chain_digest(previous, row) != digest:
                return f"{row[3]} of iteration {row[1]} of run {run} was changed"
            previous = digest
        return None

    def statistics(self, first_day: int, last_day: int) -> PeriodTotals:
        """What the runs add up to that ended in these days, counted from 1970."""
        from ralphproof.store.statistics import sum_runs

        return sum_runs(self._finished(), first_day, last_day)

    def past_runs(self) -> tuple[PastRun, ...]:
        """Those of the last runs that were completed, the newest first."""
        from ralphproof.engine.metrics import COMPLETED
        from ralphproof.store.statistics import MAX_PAST_RUNS, PastRun

        last = self._finished()[::-1][:MAX_PAST_RUNS]
        return tuple(PastRun(run.skill, run.iterations, run.micro_usd) for run in last if run.status == COMPLETED)

    def _finished(self) -> list[Metrics]:
        """The figures of all runs that have ended, oldest first: those of its last end for each."""
        from ralphproof.engine.records import RunEnded

        ends = ([one for one in self.records(run) if isinstance(one, RunEnded)][-1:] for run in self._runs)
        return [end.metrics for found in ends for end in found if end.metrics is not None]

    def _known(self, run: str) -> str:
        if run not in self._runs:
            raise HarnessFailed(f"run {run} is not known")
        return run

    def _ended(self, run: str) -> bool:
        return any(row[4] == "RunEnded" for row, _ in self._rows.get(run, ())[-1:])
