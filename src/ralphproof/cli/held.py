"""How a run is held that is part of another one: no looser than that, and with no more than that has left."""

from __future__ import annotations

import time

from ralphproof.budget import Budget, Spend
from ralphproof.cli.notes import Bounds, kept_bounds, same_box
from ralphproof.cli.order import prepare
from ralphproof.cli.remarks import refuse_unknown_cost
from ralphproof.ledgers.folder import RunFolder
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.cli.order import Order, Wish
    from ralphproof.ledgers.spend import SpendBook
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project

UNKNOWN = Bounds(Budget())
LEAST_S = 0.1  # no time left at all would read as no limit


def held(order: Order, parent: str) -> Order:
    """The same order as a part of this run: guarded as that is, with its protected paths, without what it lacked.

    Raises Refused where nothing that may begin is left of it.
    """
    ledger = order.project.ledger()
    try:
        bounds = [one for _, one in _above(parent, order.project, ledger)]
    finally:
        ledger.close()
    tight = _tight(order.wish, bounds)
    if tight != order.wish:
        denied = _denied(order.wish, tight, parent)
        order = prepare(tight)
        order = replace(order, remarks=(*denied, *order.remarks))
    _refuse_cost(order, bounds)
    return order


def _tight(wish: Wish, bounds: list[Bounds]) -> Wish:
    box = next((one.sandbox for one in bounds if one.sandbox), None)
    return replace(
        wish if box is None else replace(wish, hosts=(), flags={**wish.flags, "sandbox": same_box(box)}),
        protect=tuple(dict.fromkeys((*wish.protect, *(path for one in bounds for path in one.protected)))),
        guarded=wish.guarded or any(one.guarded for one in bounds),
        allow_unknown_cost=wish.allow_unknown_cost and all(one.allow_unknown_cost for one in bounds),
        force=wish.force and all(one.force for one in bounds),
        may_change=(),
    )


def _denied(wish: Wish, tight: Wish, parent: str) -> list[str]:
    """What is not granted, in sentences."""
    flags = {
        "--no-sandbox": tight.guarded != wish.guarded,
        "--allow-unknown-cost": tight.allow_unknown_cost != wish.allow_unknown_cost,
        "--force": tight.force != wish.force,
        "--may-change": tight.may_change != wish.may_change,
        "--allow-host of its own": tight.hosts != wish.hosts,
    }
    part = f"run {parent}, which this one is part of"
    return [f"{part}, has no {flag}, so this one has none" for flag, denied in flags.items() if denied]


def _refuse_cost(order: Order, bounds: list[Bounds]) -> None:
    """A limit on cost that the user set for a run holds for its parts: they must be able to tell theirs."""
    most = next((one.budget.micro_usd for one in bounds if one.cost_matters), None)
    settings = order.loaded.settings
    if most is not None and settings.limits.max_cost_micro_usd is None:
        settings = replace(settings, limits=replace(settings.limits, max_cost_micro_usd=most))
        refuse_unknown_cost(settings, order.crew, order.allow_unknown_cost)


def budget_under(budget: Budget, run: str, project: Project, ledger: Sqlite, purse: SpendBook, parent: str) -> Budget:
    """The budget of a run, with no more than each run above it has left. What the run has used itself is its own."""
    own = _spend(run, ledger, purse)
    for name, bounds in _above(parent, project, ledger):
        most, spend = bounds.budget, _spend(name, ledger, purse)
        seconds = None if most.seconds is None else most.seconds - _age_s(name, project, ledger)
        budget = replace(
            budget,
            micro_usd=_least(budget.micro_usd, most.micro_usd, own.micro_usd - spend.micro_usd),
            tokens=_least(budget.tokens, most.tokens, own.tokens - spend.tokens),
            daily_micro_usd=_least(budget.daily_micro_usd, most.daily_micro_usd, 0),
        )
        if seconds is not None:
            left_s = _age_s(run, project, ledger) + max(LEAST_S, seconds)
            budget = replace(budget, seconds=left_s if budget.seconds is None else min(budget.seconds, left_s))
    return budget


def _least(own: int | None, most: int | None, change: int) -> int | None:
    if most is None:
        return own
    left = max(1, most + change)
    return left if own is None else min(own, left)


def _spend(run: str, ledger: Sqlite, purse: SpendBook) -> Spend:
    return purse.spend_of((run, *(row.id for row in ledger.descendants(run))))


def _age_s(run: str, project: Project, ledger: Sqlite) -> float:
    from ralphproof.views.found import age_s

    return age_s(project, run, ledger.stamped(run), time.time())


def _above(run: str, project: Project, ledger: Sqlite) -> Iterator[tuple[str, Bounds]]:
    """A run and those that it is part of, each with what it is held to; where that is lost, it is held tightly."""
    passed = {""}
    while run not in passed:
        passed.add(run)
        yield run, kept_bounds(RunFolder(project.root, run, project.store)) or UNKNOWN
        row = ledger.row(run)
        run = row.parent if row else ""
