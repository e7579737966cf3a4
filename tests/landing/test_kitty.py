"""A budget that several runs share."""

from __future__ import annotations

from pathlib import Path

from ralphproof.engine.budget import Budget, DaySpend, RemainingBudget, SharedSpend, Spend
from ralphproof.engine.events import Spent, Usage
from ralphproof.engine.limits import COST_LIMIT, Limits
from ralphproof.store.spend import InProcessSharedBudget, SpendStore


def spent(micro_usd: int | None) -> Spent:
    return Spent(micro_usd, Usage())


def test_what_runs_at_work_have_spent_so_far_counts() -> None:
    kitty = InProcessSharedBudget(100)
    kitty.update_live("a", spent(30))
    kitty.update_live("b", spent(40))
    assert kitty.total() == SharedSpend(70, 100)


def test_a_call_counts_once_when_it_is_over() -> None:
    kitty = InProcessSharedBudget(100)
    kitty.update_live("a", spent(30))
    kitty.record_call("a", spent(35))
    kitty.update_live("a", spent(5))
    assert kitty.total() == SharedSpend(40, 100)


def test_what_a_run_had_spent_before_it_was_taken_up_counts(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path))
    book.book("a", "1", spent(60), 0.0)
    book.update_live("a", "2", spent(7), 0.0)
    book.close()
    kitty = InProcessSharedBudget(100)
    kitty.join("a", str(tmp_path))
    kitty.record_call("a", spent(None))
    assert kitty.total() == SharedSpend(60, 100)


def test_without_a_limit_there_is_none() -> None:
    assert InProcessSharedBudget().total() is None


def test_a_shared_budget_that_is_used_up_forbids_another_turn() -> None:
    day = DaySpend(shared=SharedSpend(100, 100))
    breach = Limits(Budget()).find_spend_exhausted(Spend(), day)
    assert breach is not None
    assert breach.reason == COST_LIMIT
    assert "together" in breach.message
    assert Limits(Budget()).find_overspent(Spend(), day) is None, "it may be used to the last cent"


def test_a_turn_may_spend_no_more_than_is_left_for_all() -> None:
    left = RemainingBudget.of(Budget(micro_usd=1000), Spend(), DaySpend(shared=SharedSpend(70, 100)))
    assert left.micro_usd == 30
