"""What a run has cost: its own bill, and with it those of the runs that its agent began, as its limit counts them."""

from __future__ import annotations

from ralphproof.budget import Spend
from ralphproof.ending import begun_iterations
from ralphproof.phase import Over
from ralphproof.record import RunEnded
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome
    from ralphproof.views.project import Project


def bill_of(project: Project, state: State) -> Spend:
    """What a run has cost by now, also by calls that are not over: that is a lower bound."""
    if isinstance(state.phase, Over) or not state.run:
        return state.bill
    from ralphproof.ledgers.spend import spent_by

    bill, spent = state.bill, spent_by(project.state_dir, (state.run,))
    if spent is None or spent.micro_usd <= bill.micro_usd:
        return bill
    return Spend(
        spent.micro_usd, max(bill.tokens, spent.tokens), max(bill.unpriced, spent.unpriced),
        max(bill.notional, spent.notional),
    )  # fmt: skip


def with_children(ledger: Sqlite, project: Project, run: str, own: Spend, over: Outcome | None) -> Spend | None:
    """What a run and all below it have spent; None where those below it spent nothing."""
    children = tuple(row.id for row in ledger.descendants(run))
    if not children:
        return None
    if over is not None and over.spend != own:
        return over.spend  # the record outlives the book of what was spent
    from ralphproof.ledgers.spend import spent_by

    spent = spent_by(project.state_dir, children)
    together = own.beside(Spend(unpriced=1) if spent is None else spent)
    return together if together != own else None


def effort(ledger: Sqlite, project: Project, runs: tuple[str, ...]) -> tuple[int, Spend | None]:
    """How many iterations these runs took in all, and what they cost with those below them; None for no run."""
    each = [_effort(ledger, project, run) for run in runs]
    spend = Spend()
    for _, cost in each:
        spend = spend.beside(cost)
    return sum(count for count, _ in each), spend if each else None


def _effort(ledger: Sqlite, project: Project, run: str) -> tuple[int, Spend]:
    end = ledger.end_of(run)
    if isinstance(end, RunEnded):
        return end.outcome.iterations, end.outcome.spend
    state = state_of(ledger.records(run))
    bill = bill_of(project, state)
    return begun_iterations(state), with_children(ledger, project, run, bill, None) or bill


def spend_json(spend: Spend) -> dict[str, Json]:
    """What was spent. Unknown is null, never zero: who tells no tokens may have used any number."""
    return {
        "usd": spend.usd, "atLeastUsd": spend.micro_usd / 1_000_000, "tokens": spend.tokens or None,
        "notional": spend.notional > 0,
    }  # fmt: skip
