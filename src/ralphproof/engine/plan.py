"""Plans: tasks, verification methods, pipeline stages, and the choice of the next job."""

from __future__ import annotations

import re

from ralphproof.base.text import strip_escapes
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.check import CheckReport
from ralphproof.engine.claim import ClaimRule

if TYPE_CHECKING:
    from ralphproof.base.value import Json


# What should become true, and how a machine can tell. A plan is read anew before every iteration.


STRING_MATCH, EXTERNAL, SEMANTIC, MULTI_STAGE = "string_match", "external", "semantic", "multi_stage"
CHANGES_REQUESTED = "CHANGES_REQUESTED"  # the word by which a stage sends a task back
DEFAULT_JUDGE_MICRO_USD = 500_000  # what one judgement may cost where nobody says otherwise
DEFAULT_JUDGE_TIMEOUT_S, DEFAULT_COMMAND_TIMEOUT_S = 300.0, 300.0


@value
class StringMatchVerification:
    """The promise alone: the agent's word, which nothing verifies."""


@value
class ExternalVerification:
    """A command. It passes with this exit code, where its output also holds the one text and lacks the other.

    `folder` is where it runs, from the project's root, and never outside of it. An empty text is not looked for.
    """

    command: str
    success_exit_code: int = 0
    output_contains: str = ""
    output_not_contains: str = ""
    timeout_s: float = DEFAULT_COMMAND_TIMEOUT_S
    folder: str = "."


@value
class SemanticVerification:
    """A model's judgement of the work, criterion by criterion. One of the patterns in it refuses it without a model.

    `agent` is the command that is asked, `model` the model; empty: the stage's own agent, and a small one.
    """

    check_for: tuple[str, ...] = ()
    negative_patterns: tuple[str, ...] = ()
    model: str = ""
    agent: str = ""
    most_micro_usd: int = DEFAULT_JUDGE_MICRO_USD
    timeout_s: float = DEFAULT_JUDGE_TIMEOUT_S


@value
class VerificationPart:
    """One of several ways. One that is not `required` only warns; it is asked when those of `after` have ended."""

    name: str
    how: Verification
    required: bool = True
    after: tuple[str, ...] = ()


@value
class MultiStageVerification:
    """Several ways together. With `require_all` the first required one that fails ends it, else all are asked."""

    parts: tuple[VerificationPart, ...]
    require_all: bool = True
    parallel: bool = True


@value
class CustomVerification:
    """A way that an installed package brings, by the name of its entry point, and what it is told."""

    method: str
    config: dict[str, Json] = {}  # noqa: RUF012 (never changed)


Verification = (
    StringMatchVerification | ExternalVerification | SemanticVerification | MultiStageVerification | CustomVerification
)


@value
class CompletionCriteria:
    """What "done" means for one stage of a task: the word that claims it and the way that it is verified.

    Where `how` is None, the settings and the repository's guardrails say how.
    """

    promise: str
    description: str = ""
    how: Verification | None = None
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
    criteria: tuple[tuple[str, CompletionCriteria], ...] = ()
    spec: str = ""

    def criteria_for(self, stage: str) -> CompletionCriteria | None:
        """What this task asks of a stage, where it says so."""
        return dict(self.criteria).get(stage)


@value
class Plan:
    """All tasks, in the order in which their source lists them.

    `stuck` are tasks that nobody may go on with, and `why`; `concerns` what somebody should look at when all is done.
    `digest` is that of the prompt file as it was read; empty where there is none.
    """

    tasks: tuple[Task, ...]
    stuck: tuple[str, ...] = ()
    why: str = ""
    concerns: tuple[str, ...] = ()
    digest: str = ""


class PlanSource(Protocol):
    """Where the plan comes from."""

    def read(self) -> Plan:
        """The plan as it now stands; raises Refused where there is none to go on with."""


# The hat worn for one iteration, and the choice of what to do next.


PROMPT_PLACEHOLDER = "{prompt}"  # where a template has the task's own text
MAX_TITLE_CHARS = 200  # of a title, in the message of a commit


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
    template: str = PROMPT_PLACEHOLDER
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

    def due(self, report: CheckReport, claimed: bool, last: bool = True) -> tuple[str, ...]:
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

    def find_stage(self, name: str) -> Stage | None:
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
        return re.sub(r"\{(id|title|claim)\}", lambda place: _title_line(places[place[1]]), self.stage.commit).strip()

    @property
    def compact(self) -> Job:
        """The job as records keep it: a prompt's text is in its own file, its digest in the record.

        What the task says at length is its source's to keep.
        """
        return replace(
            self,
            task=Task(self.task.id, "", self.task.title, self.task.priority),
            stage=replace(self.stage, template=PROMPT_PLACEHOLDER),
        )


def _title_line(text: str) -> str:
    """A text that anybody may have written, as it can stand in a line of a message."""
    words = "".join(sign if sign.isprintable() else " " for sign in strip_escapes(text[:MAX_TITLE_CHARS])).split()
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


PlanChoice = Job | AllDone | Blocked


def choose_next_job(plan: Plan, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> PlanChoice:
    """What to do next. `passed` holds (task, stage) pairs that the harness has seen pass in this run."""
    if plan.stuck:
        return Blocked(plan.stuck, plan.why)
    stages = {task.id: _current_stage(task, pipeline, passed) for task in plan.tasks}
    left = [task for task in plan.tasks if stages[task.id] is not None]
    if not left:
        return AllDone(plan.concerns)
    rank = {stage.name: place for place, stage in enumerate(pipeline.stages)}
    hats = [(task, stage) for task in left if (stage := stages[task.id]) and stage.name in rank]
    ready = [Job(task, stage, len(left) == 1) for task, stage in hats if _may_begin(task, stages)]
    if not ready:
        return Blocked(tuple(task.id for task in left), _blocked_reason(left, stages, pipeline))
    return min(ready, key=lambda job: (rank[job.stage.name] if pipeline.stage_first else 0, job.task.priority))


def _current_stage(task: Task, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> Stage | None:
    """The stage that this task is in, be it one that the pipeline does not have; None where it is done."""
    if task.done:
        return None
    if task.stage is not None:
        return pipeline.find_stage(task.stage) or Stage(task.stage)
    return next((stage for stage in pipeline.stages if (task.id, stage.name) not in passed), None)


def _may_begin(task: Task, stages: dict[str, Stage | None]) -> bool:
    return all(name in stages and stages[name] is None for name in task.depends_on)


def _blocked_reason(left: list[Task], stages: dict[str, Stage | None], pipeline: Pipeline) -> str:
    unknown = sorted({name for task in left for name in task.depends_on if name not in stages})
    if unknown:
        return f"depends on {', '.join(unknown)}, which the plan does not have"
    astray = sorted({task.stage for task in left if task.stage is not None and pipeline.find_stage(task.stage) is None})
    if astray:
        return f"in stage {', '.join(astray)}, which the pipeline does not have"
    return "each waits for another"


STORY_MEMORY_NOTE = "stories"  # the note of a run that holds what it knows of its stories
