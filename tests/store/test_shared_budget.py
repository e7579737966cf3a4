"""A budget that several runs share."""

from __future__ import annotations

from pathlib import Path

from ralphproof.engine.agent import Spent, Usage
from ralphproof.engine.limits import COST_LIMIT, Budget, DaySpend, Limits, SharedSpend, Spend
from ralphproof.store.spend import InProcessSharedBudget, SpendStore


def cost(micro_usd: int | None) -> Spent:
    return Spent(micro_usd, Usage())


def test_live_costs_of_running_turns_count() -> None:
    budget = InProcessSharedBudget(100)
    budget.update_live("a", cost(30))
    budget.update_live("b", cost(40))
    assert budget.total() == SharedSpend(70, 100)


def test_a_finished_call_replaces_its_live_cost() -> None:
    budget = InProcessSharedBudget(100)
    budget.update_live("a", cost(30))
    budget.record_call("a", cost(35))
    budget.update_live("a", cost(5))
    assert budget.total() == SharedSpend(40, 100)


def test_earlier_spending_of_a_resumed_run_counts(tmp_path: Path) -> None:
    store = SpendStore.open(str(tmp_path))
    store.book("a", "1", cost(60), 0.0)
    store.update_live("a", "2", cost(7), 0.0)
    store.close()
    budget = InProcessSharedBudget(100)
    budget.join("a", str(tmp_path))
    budget.record_call("a", cost(None))
    assert budget.total() == SharedSpend(60, 100)


def test_without_a_limit_there_is_no_shared_spend() -> None:
    assert InProcessSharedBudget().total() is None


def test_an_exhausted_shared_budget_forbids_another_turn() -> None:
    day = DaySpend(shared=SharedSpend(100, 100))
    breach = Limits(Budget()).find_spend_exhausted(Spend(), day)
    assert breach is not None
    assert breach.reason == COST_LIMIT
    assert "together" in breach.message
    assert Limits(Budget()).find_overspent(Spend(), day) is None, "it may be used to the last cent"


def test_a_turn_may_spend_no_more_than_the_shared_rest() -> None:
    left = Budget(micro_usd=1000).left(Spend(), DaySpend(shared=SharedSpend(70, 100)))
    assert left.micro_usd == 30
