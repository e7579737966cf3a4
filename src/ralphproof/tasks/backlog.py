"""The backlog: which task is worked on next, by priority and dependencies."""

from __future__ import annotations

from ralphproof.base.value import value
from ralphproof.engine.plan import AllDone, Blocked, Task
from ralphproof.store.tasks import DONE, TODO, WORKING


@value
class BacklogItem:
    """A task and its status. One that is `begun` has a run that can be resumed."""

    task: Task
    status: str = TODO
    begun: bool = False


def next_task(
    items: tuple[BacklogItem, ...], wanted: frozenset[str] = frozenset(), over: frozenset[str] = frozenset()
) -> Task | AllDone | Blocked:
    """The task to work on next. Without `wanted` names every open task counts; a named one also where it failed.

    Tasks in `over` had their turn. Begun tasks come first: another run would close theirs. Then a lower number is a
    higher priority; of equal ones the first listed comes first.
    """
    status = {item.task.id: item.status for item in items}
    left = [item for item in items if item.task.id not in over and _is_open(item, wanted)]
    if not left:
        return AllDone()
    ready = [item for item in left if not item.task.depends_on or _dependencies_done(item.task, status)]
    if ready:
        return min(ready, key=lambda item: (not item.begun, item.task.priority)).task
    return Blocked(tuple(item.task.id for item in left), "; ".join(_waiting_for(item.task, status) for item in left))


def _is_open(item: BacklogItem, wanted: frozenset[str]) -> bool:
    """Whether it may be worked on. Tasks in work belong to another run."""
    return item.task.id in wanted and item.status not in (DONE, WORKING) if wanted else item.status == TODO


def _dependencies_done(task: Task, status: dict[str, str]) -> bool:
    return all(status.get(name) == DONE for name in task.depends_on)


def _waiting_for(task: Task, status: dict[str, str]) -> str:
    for_what = [f"{name} ({status.get(name, 'which there is not')})" for name in task.depends_on]
    missing = [text for name, text in zip(task.depends_on, for_what, strict=True) if status.get(name) != DONE]
    return f"{task.id} waits for {', '.join(missing)}"
