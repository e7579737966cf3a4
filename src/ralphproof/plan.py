"""What should become true, and how a machine can tell. A plan is read anew before every iteration."""

from __future__ import annotations

from ralphproof.value import Protocol, value


@value
class Criteria:
    """What "done" means for one stage of a task: the word that claims it and the way that it is verified."""

    promise: str
    description: str = ""
    checks: tuple[str, ...] = ()
    max_iterations: int | None = None


@value
class Task:
    """One thing to be made true.

    `done` and `stage` are what the plan's source says of it; a source that does not track stages leaves `stage` None,
    and the history of passed stages decides.
    """

    id: str
    prompt: str
    title: str = ""
    priority: int = 0
    depends_on: tuple[str, ...] = ()
    done: bool = False
    stage: str | None = None
    outcome: str = ""
    acceptance: tuple[str, ...] = ()
    criteria: tuple[tuple[str, Criteria], ...] = ()

    def criteria_of(self, stage: str) -> Criteria | None:
        """What this task asks of a stage, where it says so."""
        return dict(self.criteria).get(stage)


@value
class Plan:
    """All tasks, in the order in which their source lists them."""

    tasks: tuple[Task, ...]


class PlanSource(Protocol):
    """Where the plan comes from."""

    def read(self) -> Plan:
        """The plan as it now stands; raises Refused where there is none to go on with."""
