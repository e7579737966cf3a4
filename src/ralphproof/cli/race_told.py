"""How a race ended: what each of them came to, and what is said of it."""

from __future__ import annotations

import os

from ralphproof.contest import COST, DIFF, JUDGE, Arrival
from ralphproof.display.words import cost, count, duration
from ralphproof.limit import CANCELLED
from ralphproof.record import RunEnded
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted, Completed
from ralphproof.workspaces.checkout import Source

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.budget import Spend
    from ralphproof.cli.lanes import LaneEnded
    from ralphproof.cli.race_note import RaceNote
    from ralphproof.contest import Entrant
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome
    from ralphproof.views.project import Project


def arrival_of(project: Project, entrant: Entrant, run: str, place: int, ended: LaneEnded) -> Arrival:
    """What one of them came to, by its record; without one, by why it could not begin."""
    ledger = project.ledger()
    try:
        end, records = ledger.end_of(run), ledger.records(run)
    finally:
        ledger.close()
    if not isinstance(end, RunEnded):
        return Arrival(entrant, run, place=place, why=f"ERROR: {ended.error}" if ended.error else "cut off")
    outcome, state = end.outcome, state_of(records)
    verified = isinstance(outcome, Completed) and outcome.verified
    return Arrival(
        entrant, run, verified, place, _judged(state), _lines(project, state), _price(outcome.spend), outcome.seconds,
        _words(outcome),
    )  # fmt: skip


def _words(outcome: Outcome) -> str:
    match outcome:
        case Completed():
            return f"done, {outcome.proof}"
        case Aborted(breach) if breach.reason == CANCELLED:
            return "ended, because another one had won"
        case Aborted(breach):
            return f"{breach.reason}: {breach.message}"
        case _:
            return f"ERROR: {outcome.error}"


def _price(spend: Spend) -> int | None:
    return None if spend.unpriced else spend.micro_usd


def _judged(state: State) -> int:
    """How many criteria a model found met at last."""
    if not state.history.iterations:
        return 0
    return sum(finding.judged and finding.passed for finding in state.history.latest.report.findings)


def _lines(project: Project, state: State) -> int | None:
    """The lines that a run changed in all, added and removed; None where nobody can tell."""
    began, last = state.began.tree, state.last.tree
    if began is None or last is None:
        return None
    reply = Source(project.root, os.environ).ask(
        "diff-tree", "-r", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", began, last
    )
    if reply.code:
        return None
    numbers = [field.split(b"\t")[:2] for field in reply.out.split(b"\0") if field.count(b"\t") >= 2]
    return sum(int(number) for pair in numbers for number in pair if number.isdigit())


def tell(
    args: Namespace, project: Project, note: RaceNote, arrivals: tuple[Arrival, ...], won: Arrival | None,
    branch: str = "",
) -> int:  # fmt: skip
    """Say who won, what each did, and what it cost; the exit code."""
    code = 0 if won is not None or args.dry_run else 1
    if args.json:
        _tell_program(note, arrivals, won, branch, code, args.dry_run)
        return code
    from ralphproof.cli.out import put
    from ralphproof.display.clean import clean, flat

    lines = [_line(one, note) for one in arrivals] or [f"{one.label}  would race" for one in note.entrants]
    lines += [] if args.dry_run else [_verdict(note, arrivals, won, branch)]
    put(*(flat(clean(project.mask(line))) for line in lines))
    return code


def _line(one: Arrival, note: RaceNote) -> str:
    told = [one.why, duration(one.seconds), _cost((one,))]
    told += [f"{count(one.lines, 'line')} changed"] if one.lines is not None else []
    told += [f"{one.judged} criteria met"] if JUDGE in note.criteria else []
    return f"{one.entrant.label}  {', '.join(told)}; run {one.run}"


def _verdict(note: RaceNote, arrivals: tuple[Arrival, ...], won: Arrival | None, branch: str) -> str:
    spent = f"all together: {_cost(arrivals)}"
    if won is None:
        return f"Race {note.id}: nobody won; {spent}"
    how = f"best by {', '.join(note.criteria)}" if note.criteria else "the first that was verified"
    where = f"its work is on branch {branch}; take it: git merge {branch}" if branch else f"run {won.run}"
    return f"Race {note.id}: {won.entrant.label} won, {how}; {where}; {spent}"


def _cost(arrivals: tuple[Arrival, ...]) -> str:
    from ralphproof.budget import Spend

    known = [one.micro_usd for one in arrivals if one.micro_usd is not None]
    return cost(Spend(sum(known), unpriced=len(arrivals) - len(known)))


def _tell_program(
    note: RaceNote, arrivals: tuple[Arrival, ...], won: Arrival | None, branch: str, code: int, dry: bool
) -> None:
    from ralphproof.cli.out import put_json

    told: list[Json] = [_published(one) for one in arrivals]
    entered: list[Json] = [
        {"number": one.number, "agent": one.agent or None, "model": one.model or None} for one in note.entrants
    ]
    unknown = any(one.micro_usd is None for one in arrivals)
    spent = sum(one.micro_usd or 0 for one in arrivals) / 1_000_000
    put_json("race", {
        "race": note.id, "dryRun": dry, "entrants": entered, "criteria": list(note.criteria), "arrivals": told,
        "winner": won.run if won else None, "branch": branch or None, "costUSD": None if unknown else spent,
        "atLeastUSD": spent, "exitCode": code,
    })  # fmt: skip


def _published(one: Arrival) -> Json:
    return {
        "number": one.entrant.number, "run": one.run, "verified": one.verified, "end": one.why, JUDGE: one.judged,
        DIFF: one.lines, f"{COST}USD": None if one.micro_usd is None else one.micro_usd / 1_000_000,
        "seconds": round(one.seconds, 3),
    }  # fmt: skip
