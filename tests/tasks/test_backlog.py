"""Which task comes next."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.plan import AllDone, Blocked, Task
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, TASK_STATUSES, TODO, WAITING, WORKING
from ralphproof.tasks.plans import BacklogItem, next_task


def item(id: str, status: str = TODO, priority: int = 0, *after: str) -> BacklogItem:
    return BacklogItem(Task(id, "", priority=priority, depends_on=after), status)


A, B = item("A", TODO, 2), item("B", TODO, 1)


@pytest.mark.parametrize(
    ("items", "wanted", "over", "id"),
    [
        pytest.param((A, B), "", "", "B", id="the lower number first"),
        pytest.param((A, item("C", TODO, 2)), "", "", "A", id="of equals the first listed"),
        pytest.param((item("A", TODO, 0, "B"), item("B", TODO, 9)), "", "", "B", id="dependencies before priority"),
        pytest.param((item("A", TODO, 0, "B"), item("B", DONE)), "", "", "A", id="done dependencies hold nothing up"),
        pytest.param((A, B), "A", "", "A", id="the one that is wanted"),
        pytest.param((B, replace(A, begun=True)), "", "", "A", id="the one that was begun before all others"),
        pytest.param((A, B), "", "B", "A", id="not the one that had its turn"),
        pytest.param((item("A", FAILED), B), "", "", "B", id="nothing that failed before"),
        pytest.param((item("A", FAILED), B), "A", "", "A", id="but by its name"),
        pytest.param((item("A", WAITING), item("B", CANCELLED)), "B", "", "B", id="cancelled by its name"),
    ],
)
def test_the_task_to_take_up_next(items: tuple[BacklogItem, ...], wanted: str, over: str, id: str) -> None:
    found = next_task(items, frozenset(wanted), frozenset(over))
    assert isinstance(found, Task)
    assert found.id == id


@pytest.mark.parametrize("status", [one for one in TASK_STATUSES if one != TODO])
def test_only_open_tasks_are_taken_up_unasked(status: str) -> None:
    assert next_task((item("A", status),)) == AllDone()


@pytest.mark.parametrize("status", [DONE, WORKING])
def test_a_task_that_is_done_or_somebody_elses_is_not_taken_up_by_its_name(status: str) -> None:
    assert next_task((item("A", status),), frozenset("A")) == AllDone()


def test_what_nothing_can_be_done_about_is_named_with_what_it_waits_for() -> None:
    items = (item("A", TODO, 0, "B", "D"), item("B", FAILED), item("C", TODO, 0, "X"), item("D", DONE))
    assert next_task(items) == Blocked(("A", "C"), "A waits for B (failed); C waits for X (which there is not)")
