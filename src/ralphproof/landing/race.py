"""Races: several agents work on one task in separate worktrees, and one wins."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing

from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.files import make_private_folder, read_file, replace_file
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.engine.limits import CANCELLED
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.records import RunEnded
from ralphproof.landing.landing_items import landing_item_of_run
from ralphproof.landing.schedulers import outcome_text
from ralphproof.landing.worktree_run import (
    RUN_ID_VARIABLE,
    move_to_worktree,
    open_worktrees,
    reason_to_keep_worktree,
    remove_worktree,
    update_worktree_branch,
)
from ralphproof.runs.execute import PooledRunEnded, RunPool, load_resumed_request
from ralphproof.runs.request import EMPTY_REQUEST, RunRequest, RunTarget, load_request, save_request
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.workspace.checkouts import RunWorktree

# Entries and results


@value
class RaceEntry:
    """A participant of a race: its number, agent and model. Empty agent or model: as in the settings."""

    number: int
    agent: str = ""
    model: str = ""

    @property
    def label(self) -> str:
        """Name of the entry in messages."""
        details = " ".join(filter(None, (self.agent, self.model)))
        return f"#{self.number} {details}" if details else f"#{self.number}"


@value
class RaceResult:
    """How one entry ended; `why` says it in words. `finish_order` counts the entries that ended before it."""

    entry: RaceEntry
    run: str
    verified: bool = False
    finish_order: int = 0
    micro_usd: int | None = None
    seconds: float = 0.0
    why: str = ""


def make_entries(count: int, agents: tuple[str, ...], models: tuple[str, ...]) -> tuple[RaceEntry, ...]:
    """Assign agents and models to entries in turn. Raises Refused where agents and models cannot be paired."""
    if len(agents) > 1 and len(models) > 1 and len(agents) != len(models):
        raise Refused(
            f"{len(agents)} agents and {len(models)} models: give one --model for each --agent, one for all, or none"
        )
    most = max(len(agents), len(models))
    if most > count:
        raise Refused(f"{most} agents or models, and only {count} may race; ralph race {most} lets all of them")
    rows = [(agents or ("",), models or ("",))] * count
    return tuple(
        RaceEntry(number + 1, agent_turns[number % len(agent_turns)], model_turns[number % len(model_turns)])
        for number, (agent_turns, model_turns) in enumerate(rows)
    )


def first_verified(results: tuple[RaceResult, ...]) -> RaceResult | None:
    """The first result that is verified; None if none is."""
    return min((one for one in results if one.verified), key=lambda one: one.finish_order, default=None)


# Record of a race, saved before its runs begin, so that it can be resumed


RACE_FOLDER, RACE_FILE_SUFFIX, LATEST_RACE = "races", ".json", "latest"


@value
class RaceRecord:
    """The saved description of a race: its entries, the run of each, and the shared budget."""

    id: str
    entries: tuple[RaceEntry, ...]
    runs: tuple[str, ...]
    total_micro_usd: int | None = None

    def worktree_name(self, entry: RaceEntry) -> str:
        """The name of an entry's worktree."""
        return f"{self.id}-{entry.number}"


def save_race(project: Project, record: RaceRecord) -> None:
    """Store the record durably."""
    folder = os.path.join(project.store, RACE_FOLDER)
    try:
        make_private_folder(folder)
        file = os.path.join(folder, record.id + RACE_FILE_SUFFIX)
        replace_file(file, json.dumps(pack(record)).encode() + b"\n")
    except OSError as error:
        raise HarnessFailed(f"{folder} cannot be written: {error.strerror}") from error


def load_race(project: Project, name: str) -> RaceRecord:
    """The race with this name or unique prefix, or the latest; raises Refused where there is none."""
    folder = os.path.join(project.store, RACE_FOLDER)
    known = sorted(
        file.removesuffix(RACE_FILE_SUFFIX) for file in (os.listdir(folder) if os.path.isdir(folder) else ())
    )
    matches = known[-1:] if name == LATEST_RACE else [one for one in known if one.startswith(name)]
    if len(matches) != 1:
        raise Refused(f"{'several races begin with' if matches else 'there is no race'} {name}; see ralph runs")
    try:
        record = unpack(json.loads(read_file(os.path.join(folder, matches[0] + RACE_FILE_SUFFIX)) or b""))
    except (ValueError, TypeError):
        record = None
    if not isinstance(record, RaceRecord):
        raise Refused(f"what race {matches[0]} was about cannot be read; begin a new one")
    return record


# Results of the entries


def race_result_of_run(
    project: Project, entry: RaceEntry, run: str, finish_order: int, ended: PooledRunEnded
) -> RaceResult:
    """The result of an entry from its run's record; without a record, from the error that kept it from beginning."""
    with closing(project.ledger()) as ledger:
        end = ledger.run_end(run)
    if not isinstance(end, RunEnded):
        return RaceResult(
            entry, run, finish_order=finish_order, why=f"ERROR: {ended.error}" if ended.error else "cut off"
        )
    outcome = end.outcome
    cancelled = isinstance(outcome, Aborted) and outcome.reason == CANCELLED
    verified = isinstance(outcome, Completed) and outcome.verified
    return RaceResult(
        entry, run, verified, finish_order,
        None if outcome.spend.unpriced else outcome.spend.micro_usd, outcome.seconds,
        "ended, because another one had won" if cancelled else outcome_text(outcome),
    )  # fmt: skip


# Execution


NO_CHECK_MESSAGE = "a race is decided by checks, and none is configured; add one with --check"


@value
class RaceOutcome:
    """How a race ended. `branch` has the winner's work."""

    results: tuple[RaceResult, ...]
    winner: RaceResult | None = None
    branch: str = ""
    exit_code: int = 0


def prepare_race(
    count: int, agents: tuple[str, ...], models: tuple[str, ...], total_micro_usd: int | None,
    build_request: Callable[[str, str], RunRequest],
) -> tuple[RaceRecord, list[RunSpec]]:  # fmt: skip
    """A new race and the specs of its runs; raises Refused for whatever would refuse one of them later."""
    if os.environ.get(RUN_ID_VARIABLE):
        raise Refused("ralph race is not for agents inside a run")
    entries = make_entries(count, agents, models)
    specs = [prepare_spec(build_request(entry.agent, entry.model)) for entry in entries]
    if not all(spec.stage_plan.has_machine_check for spec in specs):
        raise Refused(NO_CHECK_MESSAGE)
    now = time.time()
    runs = tuple(new_run_id(now, os.urandom(3)) for _ in entries)
    name = f"race-{new_run_id(now, os.urandom(3))}"
    return RaceRecord(name, entries, runs, total_micro_usd), specs


class Race:
    """Executes a race: runs of one task side by side, each with its own record."""

    def __init__(self, project: Project, record: RaceRecord, pool: RunPool, notify: Callable[[str], None]) -> None:
        self._project, self._record, self._pool, self._notify = project, record, pool, notify
        self._waiting = list(record.entries)
        self._results: list[RaceResult] = []
        self._by_name = {f"#{entry.number}": entry for entry in record.entries}

    def run(self) -> RaceOutcome:
        """Run until an entry has won or none can."""
        self._pool.signals.listen()
        self._notify(f"Race {self._record.id}: {', '.join(one.label for one in self._record.entries)}")
        try:
            while self._pool.open or self._waiting:
                self._begin_runs()
                if ended := self._pool.next():
                    self._run_ended(ended)
        except BaseException:
            self._pool.abandon()
            raise
        results = tuple(self._results)
        winner = first_verified(results)
        branch = self._settle(winner)
        code = 0 if winner is not None else 130 if self._pool.signals.signals else 1
        return RaceOutcome(results, winner, branch, code)

    def create_worktrees(self, specs: list[RunSpec]) -> None:
        """Create every worktree and save every request, so that an interrupted race can be resumed as a whole."""
        created: list[RunWorktree] = []
        try:
            for entry, run, spec in zip(self._record.entries, self._record.runs, specs, strict=True):
                request, worktree, remarks = move_to_worktree(
                    spec.request, self._project, self._record.worktree_name(entry)
                )
                created.append(worktree)
                for line in remarks if entry.number == 1 else ():
                    self._notify(line)
                save_request(RunFolder(worktree.path, run, self._project.store), request, self._project.mask)
            save_race(self._project, self._record)
        except BaseException:
            for worktree in created:
                remove_worktree(self._project, worktree, (), branch=True)  # no run has begun in it
            raise

    def _begin_runs(self) -> None:
        while self._waiting and not self._pool.signals.signals:
            entry = self._waiting.pop(0)
            self._pool.begin(f"#{entry.number}", lambda entry=entry: self._prepare(entry))  # type: ignore[misc]
        if self._pool.signals.signals:
            self._waiting = []

    def _prepare(self, entry: RaceEntry) -> tuple[RunSpec, RunTarget]:
        """The run of one entry, by its saved request; a run that is on record is resumed."""
        run = self._run_of(entry)
        worktree = self._worktree(entry)
        project = replace(self._project, root=worktree.path) if worktree else self._project
        with closing(self._project.ledger()) as ledger:
            existing = ledger.row(run)
        if existing is not None:
            row, request = load_resumed_request(project, run, EMPTY_REQUEST)
            return prepare_spec(request), RunTarget(row=row)
        saved = load_request(RunFolder(project.root, run, self._project.store))
        if saved is None or worktree is None:
            raise Refused(f"what {entry.label} was to do is not on record")
        return prepare_spec(saved[0]), RunTarget(run)

    def _run_ended(self, ended: PooledRunEnded) -> None:
        entry = self._by_name[ended.name]
        result = race_result_of_run(self._project, entry, self._run_of(entry), len(self._results), ended)
        self._results.append(result)
        self._notify(f"{entry.label}: {result.why}")
        if result.verified:
            self._waiting = []
            for name in self._pool.open:
                self._pool.cancel(name)

    def _settle(self, winner: RaceResult | None) -> str:
        """Put the winner's work on its branch, remove worktrees whose work is saved elsewhere, and return that branch.

        Without a winner all worktrees stay: runs that a limit stopped can be resumed there.
        """
        branch = ""
        for entry in self._record.entries:
            run, worktree = self._run_of(entry), self._worktree(entry)
            if worktree is None:
                continue
            if winner is not None and winner.entry == entry:
                branch = self._deliver(worktree, run)
            elif winner is not None:
                self._clear(worktree, run, branch=True)
        return branch

    def _deliver(self, worktree: RunWorktree, run: str) -> str:
        item = landing_item_of_run(replace(self._project, root=worktree.path), run)
        update_worktree_branch(worktree, item)
        for remark in item.remarks:
            self._notify(remark)
        self._clear(worktree, run)
        return worktree.branch

    def _clear(self, worktree: RunWorktree, run: str, branch: bool = False) -> None:
        """Remove a worktree whose work is saved elsewhere; say so where it has to stay."""
        why = reason_to_keep_worktree(self._project, worktree, run, branch)
        try:
            if not why:
                remove_worktree(self._project, worktree, (run,), branch)
        except RalphError as error:
            why = str(error)
        if why:
            self._notify(f"a work tree stays, {why}: {worktree.path}")

    def _worktree(self, entry: RaceEntry) -> RunWorktree | None:
        return open_worktrees(self._project).find(self._record.worktree_name(entry))

    def _run_of(self, entry: RaceEntry) -> str:
        return self._record.runs[entry.number - 1]
