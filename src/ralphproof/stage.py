"""The hat worn for one iteration, and the choice of what to do next."""

from __future__ import annotations

import re

from ralphproof.check import Report
from ralphproof.claim import ClaimRule, plain
from ralphproof.plan import Plan, Task
from ralphproof.value import replace, value

PROMPT = "{prompt}"  # where a template has the task's own text
PLACE_CHARS = 200  # of a title, in the message of a commit


@value
class Stage:
    """One hat: how the prompt is made, which checks are asked, which claim is needed, how often it may be tried.

    `checks` are asked in their order, those of one group in `together` at once. `judges` cost money: they are asked
    last, about work that is claimed to be done and in which no check found a fault. Those of `stops_early` are not
    asked any more once something failed. `back` names the stages that are gone through again where this one finds a
    fault that is not its to mend, the one that mends it first; its own name is the last of them. Where a judge could
    not answer, the promise counts if the stage `trusts` it. `place` is that of its own agent. `describes` and `method`
    tell the agent what is asked of it and how that is verified. `commit` is the message of its commits, with places
    for {id}, {title} and {claim}; without one, its agent is asked for a message. One that `fills` has the names of
    what is exported to its agent replaced in its prompt. `final` are asked last of all, about work with which the whole
    plan would be done: held-out checks, and checks once more in a clean checkout.
    """

    name: str
    claim: ClaimRule = ClaimRule()
    checks: tuple[str, ...] = ()
    template: str = PROMPT
    max_iterations: int | None = None
    edits: bool = True  # its turns are meant to change files, so idle ones count as a stall
    looks: bool = False  # whatever it changes is put back
    judges: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    stops_early: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    trusts: bool = True
    place: int | None = None
    describes: str = ""
    method: str = ""
    commit: str = ""
    fills: bool = False
    final: tuple[str, ...] = ()

    def due(self, report: Report, claimed: bool, last: bool = True) -> tuple[str, ...]:
        """The checks to ask next, all at once; empty where the report is whole. `last` is as a job's."""
        over = {finding.check for finding in report.findings} | set(self.stops_early if report.failed else ())
        left = [check for check in self.checks if check not in over]
        if left:
            group = next((group for group in self.together if left[0] in group), left[:1])
            return tuple(check for check in group if check in left)
        if not claimed or report.faults:
            return ()
        final = self.final if last else ()
        return next(((check,) for check in (*self.judges, *final) if check not in over), ())


@value
class Pipeline:
    """The stages that a task goes through, in order.

    `stage_first` takes the earliest stage in this list over all tasks before the next one (a review waits for no new
    work); otherwise a task is taken through all its stages before the next task begins.
    """

    stages: tuple[Stage, ...]
    stage_first: bool = False

    def named(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


@value
class Job:
    """A task and the hat to wear for it. The `last` one is of the only task that is not done."""

    task: Task
    stage: Stage
    last: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.task.id, self.stage.name

    def message(self, claim: str) -> str:
        """What a commit of its work says, where that is no agent's to say: one line, whatever a title holds."""
        places = {"id": self.task.id, "title": self.task.title, "claim": claim}
        return re.sub(r"\{(id|title|claim)\}", lambda place: _line(places[place[1]]), self.stage.commit).strip()

    @property
    def light(self) -> Job:
        """The job as records keep it: a prompt's text is in its own file, its digest in the record.

        What the task says at length is its source's to keep.
        """
        return replace(
            self,
            task=Task(self.task.id, "", self.task.title, self.task.priority),
            stage=replace(self.stage, template=PROMPT),
        )


def _line(text: str) -> str:
    """A text that anybody may have written, as it can stand in a line of a message."""
    words = "".join(sign if sign.isprintable() else " " for sign in plain(text[:PLACE_CHARS])).split()
    return " ".join(words)


@value
class AllDone:
    """Every task of the plan is done. `concerns` are what somebody should look at all the same."""

    concerns: tuple[str, ...] = ()


@value
class Blocked:
    """Tasks are left, and none of them may be worked on."""

    tasks: tuple[str, ...]
    why: str


Choice = Job | AllDone | Blocked


def choose(plan: Plan, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> Choice:
    """What to do next. `passed` holds (task, stage) pairs that the harness has seen pass in this run."""
    if plan.stuck:
        return Blocked(plan.stuck, plan.why)
    stages = {task.id: _stage_of(task, pipeline, passed) for task in plan.tasks}
    left = [task for task in plan.tasks if stages[task.id] is not None]
    if not left:
        return AllDone(plan.concerns)
    rank = {stage.name: place for place, stage in enumerate(pipeline.stages)}
    hats = [(task, stage) for task in left if (stage := stages[task.id]) and stage.name in rank]
    ready = [Job(task, stage, len(left) == 1) for task, stage in hats if _may_begin(task, stages)]
    if not ready:
        return Blocked(tuple(task.id for task in left), _reason(left, stages, pipeline))
    return min(ready, key=lambda job: (rank[job.stage.name] if pipeline.stage_first else 0, job.task.priority))


def _stage_of(task: Task, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> Stage | None:
    """The stage that this task is in, be it one that the pipeline does not have; None where it is done."""
    if task.done:
        return None
    if task.stage is not None:
        return pipeline.named(task.stage) or Stage(task.stage)
    return next((stage for stage in pipeline.stages if (task.id, stage.name) not in passed), None)


def _may_begin(task: Task, stages: dict[str, Stage | None]) -> bool:
    return all(name in stages and stages[name] is None for name in task.depends_on)


def _reason(left: list[Task], stages: dict[str, Stage | None], pipeline: Pipeline) -> str:
    unknown = sorted({name for task in left for name in task.depends_on if name not in stages})
    if unknown:
        return f"depends on {', '.join(unknown)}, which the plan does not have"
    astray = sorted({task.stage for task in left if task.stage is not None and pipeline.named(task.stage) is None})
    if astray:
        return f"in stage {', '.join(astray)}, which the pipeline does not have"
    return "each waits for another"
