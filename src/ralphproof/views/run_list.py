"""The runs of a project as lines of a list."""

from __future__ import annotations

from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.plan import Job
from ralphproof.engine.records import CheckEnded, Picked, RunBegan, RunEnded
from ralphproof.engine.state import RunOver, State, build_state, count_begun_iterations
from ralphproof.store.run_state import CRASHED, ENDED, run_state
from ralphproof.views.run_status import (
    describe_activity,
    display_state,
    limits_in_force,
    run_spend,
    spend_json,
    spend_with_children,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.engine.check import Finding
    from ralphproof.engine.outcome import Outcome
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.views.run_records import RunHistory


# One line of the list.


LISTED_FACTS = ("agent", "model", "preset")


@value
class RunLineState:
    """What a line says besides the facts of a run's beginning. `spend` is without child runs."""

    state: str
    title: str
    updated_s: float
    iterations: int
    spend: Spend
    outcome: Outcome | None = None
    checks: tuple[int, int] | None = None
    doing: str = ""


def ended_run_line(ledger: SqliteLedger, row: RunRow, project: Project) -> dict[str, Json]:
    """The line of an ended run, from a few records."""
    end, began = ledger.run_end(row.id), ledger.queries.first_record(row.id, "RunBegan")
    assert isinstance(end, RunEnded), "it has ended"
    facts = began.facts if isinstance(began, RunBegan) else {}
    state = display_state(ENDED, _state_after_end(end))
    title = str(facts.get("title") or "") or _last_title(ledger, row.id)
    updated = ledger.last_written_at(row.id) or row.began_at
    line = RunLineState(
        state, title, updated, end.outcome.iterations, _own_spend(ledger, row.id, end.outcome), end.outcome,
        _recorded_check_counts(ledger, row.id),
    )  # fmt: skip
    return _run_line(ledger, row, _facts_with_sandbox(ledger, row.id, facts), line, project)


def open_run_line(
    ledger: SqliteLedger, row: RunRow, state: str, followed: RunHistory, project: Project
) -> dict[str, Json]:
    """The line of a run that has not ended. `state` was read before its records."""
    summary = followed.summary
    state, phase, spend = display_state(state, summary.state), summary.state.phase, run_spend(project, summary.state)
    outcome = phase.outcome if isinstance(phase, RunOver) else None
    line = RunLineState(
        state, followed.title, followed.at_s or row.began_at,
        outcome.iterations if outcome else count_begun_iterations(summary.state), spend, outcome,
        _last_check_counts(followed), describe_activity(summary, state),
    )  # fmt: skip
    return _run_line(ledger, row, summary.facts, line, project)


def _run_line(
    ledger: SqliteLedger, row: RunRow, facts: dict[str, Json], line: RunLineState, project: Project
) -> dict[str, Json]:  # fmt: skip
    outcome, mask, facts = line.outcome, project.mask, limits_in_force(facts, project, row)
    asked = ledger.requested_control(row.id) if outcome is None else ""
    listed: dict[str, Json] = {name: str(facts.get(name) or "") for name in LISTED_FACTS}
    total_spend = spend_with_children(ledger, project, row.id, line.spend, outcome)
    checks: Json = {"passed": line.checks[0], "failed": line.checks[1]} if line.checks else None
    return listed | {
        "run": row.id, "state": line.state, "status": outcome.status if outcome else None,
        "reason": outcome.reason if isinstance(outcome, Aborted) else "",
        "proof": outcome.proof if isinstance(outcome, Completed) else "",
        "concerns": len(outcome.concerns) if isinstance(outcome, Completed) else 0,
        "title": mask(line.title or _name_from_facts(facts)), "directory": row.directory, "parent": row.parent or None,
        "task": str(facts.get("work") or "") or None, "beganAt": row.began_at, "updatedAt": line.updated_s,
        "iterations": line.iterations, "iterationCount": line.iterations,
        "maximumIterations": facts.get("maximumIterations"), "checks": checks,
        "spend": spend_json(line.spend), "spendWithChildren": spend_json(total_spend) if total_spend else None,
        "maxCostUsd": facts.get("maxCostUsd"),
        "sandbox": _sandbox_json(facts.get("sandbox")), "doing": mask(line.doing), "asked": asked or None,
        "children": len(ledger.children(row.id)),
    }  # fmt: skip


def _own_spend(ledger: SqliteLedger, run: str, outcome: Outcome) -> Spend:
    """What an ended run spent without its child runs, which its outcome includes."""
    return build_state(ledger.records(run)).bill if ledger.children(run) else outcome.spend


def _state_after_end(end: RunEnded) -> State:
    return State().after(end)


def _name_from_facts(facts: dict[str, Json]) -> str:
    """The name of a run without a prompt text: its task, or its prompt file."""
    return str(facts.get("work") or "") or str(facts.get("promptFile") or "").rpartition("/")[2]


def _last_title(ledger: SqliteLedger, run: str) -> str:
    """The title of its last job."""
    last = ledger.queries.last_record(run, "Picked")
    every = (
        (last,) if isinstance(last, Picked) and isinstance(last.choice, Job) else ledger.records_of_kind(run, "Picked")
    )
    jobs = [record.choice for record in every if isinstance(record, Picked) and isinstance(record.choice, Job)]
    return jobs[-1].task.title if jobs else ""


def _facts_with_sandbox(ledger: SqliteLedger, run: str, facts: dict[str, Json]) -> dict[str, Json]:
    """The facts of a run with its latest sandbox."""
    sandbox = getattr(ledger.queries.last_record(run, "Resumed"), "sandbox", None)
    return facts | {"sandbox": sandbox} if sandbox else facts


def _sandbox_json(sandbox: Json) -> Json:
    if not isinstance(sandbox, dict):
        return None
    return {name: sandbox.get(name) for name in ("name", "strength")}


def _last_check_counts(followed: RunHistory) -> tuple[int, int] | None:
    """How many checks passed and failed in the last iteration that ran any."""
    for number in sorted(followed.timeline.spans, reverse=True):
        findings = [check.finding for check in followed.timeline.spans[number].checks if check.finding]
        if findings:
            return _count_findings(findings)
    return None


def _recorded_check_counts(ledger: SqliteLedger, run: str) -> tuple[int, int] | None:
    """The same from the checks' records alone. Results for an earlier tree do not count."""
    results = [record for record in ledger.queries.last_check_results(run) if isinstance(record, CheckEnded)]
    last = [
        result.finding for result in results if (result.turn, result.round) == (results[-1].turn, results[-1].round)
    ]
    return _count_findings(last) if last else None


def _count_findings(findings: list[Finding]) -> tuple[int, int]:
    passed = sum(finding.passed for finding in findings)
    return passed, len(findings) - passed


# The list.


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
        from ralphproof.store.spend import live_spend_by_run

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
                new_line = (
                    ended_run_line(ledger, row, self._project)
                    if status == ENDED
                    else open_run_line(ledger, row, status, self._following(ledger, run), self._project)
                )
            except RalphError:
                return None
            self._lines[run] = state, new_line
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
