"""Races: several agents at one task in worktrees of their own, and the choice of a winner."""

from __future__ import annotations

import json
import os
import time

from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.files import make_private_folder, read_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.limits import CANCELLED
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.records import RunEnded
from ralphproof.engine.state import build_state
from ralphproof.landing.worktree_run import (
    RUN_ID_VARIABLE,
    landing_item_of_run,
    move_to_worktree,
    open_worktrees,
    reason_to_keep_worktree,
    remove_worktree,
    update_worktree_branch,
)
from ralphproof.runs.pool import PooledRunEnded, RunPool
from ralphproof.runs.request import load_request, save_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.runs.target import RunTarget
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.workspace.checkouts import SourceRepository

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.budget import Spend
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.state import State
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.workspace.worktrees import RunWorktree


# Several runs at the same task: who enters, and who has won.


CHECKS, JUDGE, DIFF, COST, TIME = "checks", "judge", "diff", "cost", "time"
CRITERIA = (CHECKS, JUDGE, DIFF, COST, TIME)
DEFAULT_CRITERIA = (CHECKS, JUDGE, DIFF, COST)
UNKNOWN_RANK = 1 << 62  # what is not known is not good


@value
class RaceEntry:
    """One of those who race: its number, and the agent and model that it has; empty: the settings' own."""

    number: int
    agent: str = ""
    model: str = ""

    @property
    def label(self) -> str:
        """How people tell it from the others."""
        said = " ".join(filter(None, (self.agent, self.model)))
        return f"#{self.number} {said}" if said else f"#{self.number}"


@value
class RaceResult:
    """How one of them ended. `judged` counts the criteria that a model found met, `lines` those that were changed.

    `place` counts those that ended before it; `why` says how it ended in words.
    """

    entrant: RaceEntry
    run: str
    verified: bool = False
    place: int = 0
    judged: int = 0
    lines: int | None = None
    micro_usd: int | None = None
    seconds: float = 0.0
    why: str = ""

    def score(self, criteria: tuple[str, ...]) -> tuple[float, ...]:
        """Smaller is better, from the first criterion to the last, then who was first."""
        worth = {
            CHECKS: 0 if self.verified else 1,
            JUDGE: -self.judged,
            DIFF: UNKNOWN_RANK if self.lines is None else self.lines,
            COST: UNKNOWN_RANK if self.micro_usd is None else self.micro_usd,
            TIME: self.seconds,
        }
        return (*(float(worth[name]) for name in criteria), float(self.place))


def make_entries(count: int, agents: tuple[str, ...], models: tuple[str, ...]) -> tuple[RaceEntry, ...]:
    """Those who race: agents and models in turn. Raises Refused where it is not clear which belong together."""
    if len(agents) > 1 and len(models) > 1 and len(agents) != len(models):
        raise Refused(
            f"{len(agents)} agents and {len(models)} models: give one --model for each --agent, one for all, or none"
        )
    most = max(len(agents), len(models))
    if most > count:
        raise Refused(f"{most} agents or models, and only {count} may race; ralph race {most} lets all of them")
    turns = [(agents or ("",), models or ("",))] * count
    return tuple(
        RaceEntry(number + 1, some[number % len(some)], others[number % len(others)])
        for number, (some, others) in enumerate(turns)
    )


def first_verified(arrivals: tuple[RaceResult, ...]) -> RaceResult | None:
    """Who was verified first; None where nobody was."""
    return min((one for one in arrivals if one.verified), key=lambda one: one.place, default=None)


def best_result(arrivals: tuple[RaceResult, ...], criteria: tuple[str, ...]) -> RaceResult | None:
    """Who is best of those that were verified: nobody wins whose work the checks refuse, whatever it costs."""
    return min((one for one in arrivals if one.verified), key=lambda one: one.score(criteria), default=None)


def parse_race_criteria(text: str) -> tuple[str, ...]:
    """The criteria in a list with commas, from the weightiest on; raises Refused for one that there is not."""
    found = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    for word in found:
        if word not in CRITERIA:
            raise Refused(f"{word!r} is no criterion of a race; there are {', '.join(CRITERIA)}")
    if not found or len(set(found)) != len(found):
        raise Refused(
            f"--by wants criteria in the order of their weight, each once, such as {','.join(DEFAULT_CRITERIA)}"
        )
    return found


# What is written down of a race, before anybody begins: who takes it up again reads it there.


RACE_FOLDER, RACE_FILE_SUFFIX, LATEST_RACE = "races", ".json", "latest"


@value
class RaceRecord:
    """A race: its name, who takes part as which run, what decides, and what all may spend together.

    `criteria` is empty where the first one wins.
    """

    id: str
    entrants: tuple[RaceEntry, ...]
    runs: tuple[str, ...]
    criteria: tuple[str, ...] = ()
    total_micro_usd: int | None = None
    parallel: int = 0

    def place(self, entrant: RaceEntry) -> str:
        """The name of its work tree."""
        return f"{self.id}-{entrant.number}"


def save_race(project: Project, note: RaceRecord) -> None:
    """Write it down, durably."""
    folder = os.path.join(project.store, RACE_FOLDER)
    try:
        make_private_folder(folder)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_atomically(opened, note.id + RACE_FILE_SUFFIX, json.dumps(pack(note)).encode() + b"\n")
        finally:
            os.close(opened)
    except OSError as error:
        raise HarnessFailed(f"{folder} cannot be written: {error.strerror}") from error


def load_race(project: Project, name: str) -> RaceRecord:
    """The race of this name, or whose name begins so; raises Refused where there is none."""
    folder = os.path.join(project.store, RACE_FOLDER)
    known = sorted(
        file.removesuffix(RACE_FILE_SUFFIX) for file in (os.listdir(folder) if os.path.isdir(folder) else ())
    )
    found = known[-1:] if name == LATEST_RACE else [one for one in known if one.startswith(name)]
    if len(found) != 1:
        raise Refused(f"{'several races begin with' if found else 'there is no race'} {name}; see ralph runs")
    try:
        note = unpack(json.loads(read_file(os.path.join(folder, found[0] + RACE_FILE_SUFFIX)) or b""))
    except (ValueError, TypeError):
        note = None
    if not isinstance(note, RaceRecord):
        raise Refused(f"what race {found[0]} was about cannot be read; begin a new one")
    return note


# How a race ended: what each of them came to, and what is said of it.


def race_result_of_run(project: Project, entrant: RaceEntry, run: str, place: int, ended: PooledRunEnded) -> RaceResult:
    """What one of them came to, by its record; without one, by why it could not begin."""
    ledger = project.ledger()
    try:
        end, records = ledger.run_end(run), ledger.records(run)
    finally:
        ledger.close()
    if not isinstance(end, RunEnded):
        return RaceResult(entrant, run, place=place, why=f"ERROR: {ended.error}" if ended.error else "cut off")
    outcome, state = end.outcome, build_state(records)
    verified = isinstance(outcome, Completed) and outcome.verified
    return RaceResult(
        entrant, run, verified, place, _criteria_met(state), _changed_lines(project, state),
        _known_cost(outcome.spend), outcome.seconds,
        _outcome_text(outcome),
    )  # fmt: skip


def _outcome_text(outcome: Outcome) -> str:
    match outcome:
        case Completed():
            return f"done, {outcome.proof}"
        case Aborted(breach) if breach.reason == CANCELLED:
            return "ended, because another one had won"
        case Aborted(breach):
            return f"{breach.reason}: {breach.message}"
        case _:
            return f"ERROR: {outcome.error}"


def _known_cost(spend: Spend) -> int | None:
    return None if spend.unpriced else spend.micro_usd


def _criteria_met(state: State) -> int:
    """How many criteria a model found met at last."""
    if not state.history.iterations:
        return 0
    return sum(finding.judged and finding.passed for finding in state.history.latest.report.findings)


def _changed_lines(project: Project, state: State) -> int | None:
    """The lines that a run changed in all, added and removed; None where nobody can tell."""
    began, last = state.run_start.tree, state.current_tree.tree
    if began is None or last is None:
        return None
    reply = SourceRepository(project.root, os.environ).run(
        "diff-tree", "-r", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", began, last
    )
    if reply.code:
        return None
    numbers = [field.split(b"\t")[:2] for field in reply.out.split(b"\0") if field.count(b"\t") >= 2]
    return sum(int(number) for pair in numbers for number in pair if number.isdigit())


# One race from its beginning to its end: runs side by side, and one of them wins.


NO_CHECK_MESSAGE = "a race is decided by checks, and none is configured; add one with --check"


@value
class RaceOutcome:
    """How a race ended. `branch` has the winner's work."""

    results: tuple[RaceResult, ...]
    winner: RaceResult | None = None
    branch: str = ""
    exit_code: int = 0


@value
class RaceOptions:
    """What is asked of a race. `criteria` is empty where the first verified one wins."""

    count: int
    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    total_micro_usd: int | None = None
    parallel: int = 0


def prepare_race(
    options: RaceOptions, build_request: Callable[[str, str], RunRequest]
) -> tuple[RaceRecord, list[RunSpec]]:
    """A new race and the specs of its runs; raises Refused for whatever would refuse one of them later."""
    if os.environ.get(RUN_ID_VARIABLE):
        raise Refused("ralph race is not for agents inside a run")
    entrants = make_entries(options.count, options.agents, options.models)
    specs = [prepare_spec(build_request(entrant.agent, entrant.model)) for entrant in entrants]
    if not all(spec.stage_plan and spec.stage_plan.has_machine_check for spec in specs):
        raise Refused(NO_CHECK_MESSAGE)
    now = time.time()
    runs = tuple(new_run_id(now, os.urandom(3)) for _ in entrants)
    name = f"race-{new_run_id(now, os.urandom(3))}"
    return RaceRecord(name, entrants, runs, options.criteria, options.total_micro_usd, options.parallel), specs


class Race:
    """Runs of one task side by side, each with a record of its own."""

    def __init__(self, project: Project, record: RaceRecord, pool: RunPool, notify: Callable[[str], None]) -> None:
        self._project, self._record, self._pool, self._notify = project, record, pool, notify
        self._waiting = list(record.entrants)
        self._results: list[RaceResult] = []
        self._by_name = {f"#{entrant.number}": entrant for entrant in record.entrants}

    def run(self) -> RaceOutcome:
        """Run until one has won, or none can."""
        self._pool.signals.listen()
        self._notify(f"Race {self._record.id}: {', '.join(one.label for one in self._record.entrants)}")
        try:
            while self._pool.open or self._waiting:
                self._begin_runs()
                if ended := self._pool.next():
                    self._run_ended(ended)
        except BaseException:
            self._pool.abandon()
            raise
        results, criteria = tuple(self._results), self._record.criteria
        winner = best_result(results, criteria) if criteria else first_verified(results)
        branch = self._settle(winner)
        code = 0 if winner is not None else 130 if self._pool.signals.signals else 1
        return RaceOutcome(results, winner, branch, code)

    def create_worktrees(self, specs: list[RunSpec]) -> None:
        """Create every worktree and save every request, so that an interrupted race can be resumed as a whole."""
        laid: list[RunWorktree] = []
        try:
            for entrant, run, spec in zip(self._record.entrants, self._record.runs, specs, strict=True):
                request, made, remarks = move_to_worktree(spec.request, self._project, self._record.place(entrant))
                laid.append(made)
                for line in remarks if entrant.number == 1 else ():
                    self._notify(line)
                save_request(RunFolder(made.path, run, self._project.store), request, self._project.mask)
            save_race(self._project, self._record)
        except BaseException:
            for made in laid:
                remove_worktree(self._project, made, (), branch=True)  # nothing was begun in it
            raise

    def _begin_runs(self) -> None:
        most = self._record.parallel or len(self._record.entrants)
        while self._waiting and len(self._pool.open) < most and not self._pool.signals.signals:
            entrant = self._waiting.pop(0)
            self._pool.begin(f"#{entrant.number}", lambda entrant=entrant: self._prepare(entrant))  # type: ignore[misc]
        if self._pool.signals.signals:
            self._waiting = []

    def _prepare(self, entrant: RaceEntry) -> tuple[RunSpec, RunTarget]:
        """The run of one entrant, by its saved request; a run that is on record is resumed."""
        from ralphproof.runs.request import EMPTY_REQUEST
        from ralphproof.runs.resume import load_resumed_request

        run = self._run_of(entrant)
        worktree = self._worktree(entrant)
        there = replace(self._project, root=worktree.path) if worktree else self._project
        ledger = self._project.ledger()
        try:
            known = ledger.row(run)
        finally:
            ledger.close()
        if known is not None:
            row, request = load_resumed_request(there, run, EMPTY_REQUEST)
            return prepare_spec(request), RunTarget(row=row)
        saved = load_request(RunFolder(there.root, run, self._project.store))
        if saved is None or worktree is None:
            raise Refused(f"what {entrant.label} was to do is not on record")
        return prepare_spec(saved[0]), RunTarget(run)

    def _run_ended(self, ended: PooledRunEnded) -> None:
        entrant = self._by_name[ended.name]
        result = race_result_of_run(self._project, entrant, self._run_of(entrant), len(self._results), ended)
        self._results.append(result)
        self._notify(f"{entrant.label}: {result.why}")
        if result.verified and not self._record.criteria:
            self._waiting = []
            for name in self._pool.open:
                self._pool.cancel(name)

    def _settle(self, winner: RaceResult | None) -> str:
        """Put the winner's work on its branch, and remove worktrees whose work is saved elsewhere; that branch.

        Without a winner all worktrees stay: runs that a limit stopped can be resumed there.
        """
        branch = ""
        for entrant in self._record.entrants:
            run, worktree = self._run_of(entrant), self._worktree(entrant)
            if worktree is None:
                continue
            if winner is not None and winner.entrant == entrant:
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

    def _worktree(self, entrant: RaceEntry) -> RunWorktree | None:
        return open_worktrees(self._project).find(self._record.place(entrant))

    def _run_of(self, entrant: RaceEntry) -> str:
        return self._record.runs[entrant.number - 1]
