"""Races: several agents at one task in worktrees of their own, and the choice of a winner."""

from __future__ import annotations

import json
import os
import sys
import time

from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.files import make_private_folder, read_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.display.phrases import format_cost, format_count, format_duration
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
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.target import RunTarget
from ralphproof.runs.open_project import open_project
from ralphproof.runs.pool import PooledRunEnded, RunPool
from ralphproof.runs.request import load_request, save_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.store.spend import InProcessSharedBudget
from ralphproof.workspace.checkouts import SourceRepository

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.base.value import Json
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
        end, records = ledger.end_of(run), ledger.records(run)
    finally:
        ledger.close()
    if not isinstance(end, RunEnded):
        return RaceResult(entrant, run, place=place, why=f"ERROR: {ended.error}" if ended.error else "cut off")
    outcome, state = end.outcome, build_state(records)
    verified = isinstance(outcome, Completed) and outcome.verified
    return RaceResult(
        entrant, run, verified, place, _criteria_met(state), _changed_lines(project, state), _known_cost(outcome.spend), outcome.seconds,
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
    began, last = state.began.tree, state.last.tree
    if began is None or last is None:
        return None
    reply = SourceRepository(project.root, os.environ).run(
        "diff-tree", "-r", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", began, last
    )
    if reply.code:
        return None
    numbers = [field.split(b"\t")[:2] for field in reply.out.split(b"\0") if field.count(b"\t") >= 2]
    return sum(int(number) for pair in numbers for number in pair if number.isdigit())


def print_race_result(
    args: Namespace, project: Project, note: RaceRecord, arrivals: tuple[RaceResult, ...], won: RaceResult | None,
    branch: str = "",
) -> int:  # fmt: skip
    """Say who won, what each did, and what it cost; the exit code."""
    code = 0 if won is not None or args.dry_run else 1
    if args.json:
        _print_race_json(note, arrivals, won, branch, code, args.dry_run)
        return code
    from ralphproof.base.escaping import collapse_lines, sanitize
    from ralphproof.display.output import print_lines

    lines = [_result_line(one, note) for one in arrivals] or [f"{one.label}  would race" for one in note.entrants]
    lines += [] if args.dry_run else [_verdict_line(note, arrivals, won, branch)]
    print_lines(*(collapse_lines(sanitize(project.mask(line))) for line in lines))
    return code


def _result_line(one: RaceResult, note: RaceRecord) -> str:
    told = [one.why, format_duration(one.seconds), _total_cost((one,))]
    told += [f"{format_count(one.lines, 'line')} changed"] if one.lines is not None else []
    told += [f"{one.judged} criteria met"] if JUDGE in note.criteria else []
    return f"{one.entrant.label}  {', '.join(told)}; run {one.run}"


def _verdict_line(note: RaceRecord, arrivals: tuple[RaceResult, ...], won: RaceResult | None, branch: str) -> str:
    spent = f"all together: {_total_cost(arrivals)}"
    if won is None:
        return f"Race {note.id}: nobody won; {spent}"
    how = f"best by {', '.join(note.criteria)}" if note.criteria else "the first that was verified"
    where = f"its work is on branch {branch}; take it: git merge {branch}" if branch else f"run {won.run}"
    return f"Race {note.id}: {won.entrant.label} won, {how}; {where}; {spent}"


def _total_cost(arrivals: tuple[RaceResult, ...]) -> str:
    from ralphproof.engine.budget import Spend

    known = [one.micro_usd for one in arrivals if one.micro_usd is not None]
    return format_cost(Spend(sum(known), unpriced=len(arrivals) - len(known)))


def _print_race_json(
    note: RaceRecord, arrivals: tuple[RaceResult, ...], won: RaceResult | None, branch: str, code: int, dry: bool
) -> None:
    from ralphproof.display.output import print_json

    told: list[Json] = [_result_json(one) for one in arrivals]
    entered: list[Json] = [
        {"number": one.number, "agent": one.agent or None, "model": one.model or None} for one in note.entrants
    ]
    unknown = any(one.micro_usd is None for one in arrivals)
    spent = sum(one.micro_usd or 0 for one in arrivals) / 1_000_000
    print_json("race", {
        "race": note.id, "dryRun": dry, "entrants": entered, "criteria": list(note.criteria), "arrivals": told,
        "winner": won.run if won else None, "branch": branch or None, "costUSD": None if unknown else spent,
        "atLeastUSD": spent, "exitCode": code,
    })  # fmt: skip


def _result_json(one: RaceResult) -> Json:
    return {
        "number": one.entrant.number, "run": one.run, "verified": one.verified, "end": one.why, JUDGE: one.judged,
        DIFF: one.lines, f"{COST}USD": None if one.micro_usd is None else one.micro_usd / 1_000_000,
        "seconds": round(one.seconds, 3),
    }  # fmt: skip


# One race from its beginning to its end: runs side by side, and one of them wins.


NO_CHECK_MESSAGE = "a race is decided by checks, and none is configured; add one with --check"


class Race:
    """Runs of one task side by side. Whatever becomes of each is on its own record."""

    def __init__(self, args: Namespace, project: Project, note: RaceRecord) -> None:
        self._args, self._project, self._note = args, project, note
        self._conductor = SignalRouter()
        self._shared_budget = InProcessSharedBudget(note.total_micro_usd)
        self._waiting = list(note.entrants)
        self._arrivals: list[RaceResult] = []
        self._by_name = {f"#{entrant.number}": entrant for entrant in note.entrants}

    @staticmethod
    def begun(args: Namespace, request_for: Callable[[str, str], RunRequest]) -> Race:
        """A new race: everything that could refuse one of them is found out before the first begins."""
        if os.environ.get(RUN_ID_VARIABLE):
            raise Refused("ralph race is not for agents inside a run")
        taking_part = make_entries(int(args.count), tuple(args.agent or ()), tuple(args.model or ()))
        criteria = parse_race_criteria(args.by) if args.by is not None else DEFAULT_CRITERIA if args.best else ()
        orders = [prepare_spec(request_for(one.agent, one.model)) for one in taking_part]
        for spec in orders:
            if spec.stage_plan is None or not spec.stage_plan.has_machine_check:
                raise Refused(NO_CHECK_MESSAGE)
        project, now = orders[0].project, time.time()
        runs = tuple(new_run_id(now, os.urandom(3)) for _ in taking_part)
        total = None if args.total_cost_usd is None else round(args.total_cost_usd * 1_000_000)
        name = f"race-{new_run_id(now, os.urandom(3))}"
        race = Race(args, project, RaceRecord(name, taking_part, runs, criteria, total, args.parallel or 0))
        if not args.dry_run:
            race._lay_out(orders)
        return race

    @staticmethod
    def resumed(args: Namespace) -> Race:
        """A race that lost its harness, as it was begun."""
        project = open_project(args.project_dir, os.environ)
        return Race(args, project, load_race(project, args.resume))

    def run(self) -> int:
        """Let them run until somebody has won, or nobody can; the exit code."""
        if self._args.dry_run:
            return print_race_result(self._args, self._project, self._note, (), None)
        self._conductor.listen()
        self._say(f"Race {self._note.id}: {', '.join(one.label for one in self._note.entrants)}")
        lanes = RunPool(self._args, self._conductor, self._shared_budget)
        try:
            self._through(lanes)
        except BaseException:
            lanes.abandon()
            raise
        arrivals = tuple(self._arrivals)
        won = best_result(arrivals, self._note.criteria) if self._note.criteria else first_verified(arrivals)
        branch = self._settle(won)
        code = print_race_result(self._args, self._project, self._note, arrivals, won, branch)
        return 130 if self._conductor.signals and won is None else code

    def _through(self, lanes: RunPool) -> None:
        while lanes.open or self._waiting:
            self._fill(lanes)
            if ended := lanes.next():
                self._arrived(ended, lanes)

    def _lay_out(self, orders: list[RunSpec]) -> None:
        """Make every work tree and write down what each is to do: a race that is cut off can be taken up whole."""
        laid: list[RunWorktree] = []
        try:
            for entrant, run, spec in zip(self._note.entrants, self._note.runs, orders, strict=True):
                request, made, told = move_to_worktree(spec.request, self._project, self._note.place(entrant))
                laid.append(made)
                for line in told if entrant.number == 1 else ():
                    self._say(line)
                save_request(RunFolder(made.path, run, self._project.store), request, self._project.mask)
            save_race(self._project, self._note)
        except BaseException:
            for made in laid:
                remove_worktree(self._project, made, (), branch=True)  # nothing was begun in it
            raise

    def _fill(self, lanes: RunPool) -> None:
        most = self._note.parallel or len(self._note.entrants)
        while self._waiting and len(lanes.open) < most and not self._conductor.signals:
            entrant = self._waiting.pop(0)
            lanes.begin(f"#{entrant.number}", lambda entrant=entrant: self._spec(entrant))  # type: ignore[misc]
        if self._conductor.signals:
            self._waiting = []

    def _spec(self, entrant: RaceEntry) -> tuple[RunSpec, RunTarget]:
        """What one of them is to do: as it was written down, from wherever its record says that it stands."""
        from ralphproof.runs.request import EMPTY_REQUEST
        from ralphproof.runs.resume import load_resumed_request

        run = self._run_of(entrant)
        offshoot = self._offshoot(entrant)
        there = replace(self._project, root=offshoot.path) if offshoot else self._project
        ledger = self._project.ledger()
        try:
            known = ledger.row(run)
        finally:
            ledger.close()
        if known is not None:
            row, request = load_resumed_request(there, run, EMPTY_REQUEST)
            return prepare_spec(request), RunTarget(row=row)
        kept = load_request(RunFolder(there.root, run, self._project.store))
        if kept is None or offshoot is None:
            raise Refused(f"what {entrant.label} was to do is not on record")
        return prepare_spec(kept[0]), RunTarget(run)

    def _arrived(self, ended: PooledRunEnded, lanes: RunPool) -> None:
        entrant = self._by_name[ended.name]
        arrival = race_result_of_run(self._project, entrant, self._run_of(entrant), len(self._arrivals), ended)
        self._arrivals.append(arrival)
        self._say(f"{entrant.label}: {arrival.why}")
        if arrival.verified and not self._note.criteria:
            self._waiting = []
            for name in lanes.open:
                lanes.cancel(name)

    def _settle(self, won: RaceResult | None) -> str:
        """Put the winner's work on its branch, and clear the work trees away whose work is kept; that branch.

        Where nobody won all stay: who was stopped by a limit can be taken up there.
        """
        branch = ""
        for entrant in self._note.entrants:
            run, offshoot = self._run_of(entrant), self._offshoot(entrant)
            if offshoot is None:
                continue
            if won is not None and won.entrant == entrant:
                branch = self._deliver(offshoot, run)
            elif won is not None:
                self._clear(offshoot, run, branch=True)
        return branch

    def _deliver(self, offshoot: RunWorktree, run: str) -> str:
        parcel = landing_item_of_run(replace(self._project, root=offshoot.path), run)
        update_worktree_branch(offshoot, parcel)
        for remark in parcel.remarks:
            self._say(remark)
        self._clear(offshoot, run)
        return offshoot.branch

    def _clear(self, offshoot: RunWorktree, run: str, branch: bool = False) -> None:
        """Remove a work tree whose work is elsewhere; say so where it has to stay."""
        why = reason_to_keep_worktree(self._project, offshoot, run, branch)
        try:
            if not why:
                remove_worktree(self._project, offshoot, (run,), branch)
        except RalphError as error:
            why = str(error)
        if why:
            self._say(f"a work tree stays, {why}: {offshoot.path}")

    def _offshoot(self, entrant: RaceEntry) -> RunWorktree | None:
        return open_worktrees(self._project).find(self._note.place(entrant))

    def _run_of(self, entrant: RaceEntry) -> str:
        return self._note.runs[entrant.number - 1]

    def _say(self, line: str) -> None:
        from ralphproof.base.escaping import collapse_lines, sanitize

        if not self._args.quiet:
            print(collapse_lines(sanitize(self._project.mask(line))), file=sys.stderr)
