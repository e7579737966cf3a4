"""Plans, stages and jobs, the choice of the next job, and the history of iterations."""

from __future__ import annotations

import re

from ralphproof.base.text import strip_escapes
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, CheckReport, failure_fingerprint
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.workspace import Change, Snapshot, TripwireReport

if TYPE_CHECKING:
    from ralphproof.base.value import Json


# A plan is read again before every iteration.


STRING_MATCH, EXTERNAL, SEMANTIC, MULTI_STAGE = "string_match", "external", "semantic", "multi_stage"
CHANGES_REQUESTED = "CHANGES_REQUESTED"  # the word by which a stage sends a task back
DEFAULT_JUDGE_MICRO_USD = 500_000  # default limit on the cost of one judgement
DEFAULT_JUDGE_TIMEOUT_S, DEFAULT_COMMAND_TIMEOUT_S = 300.0, 300.0


@value
class StringMatchVerification:
    """The agent's completion promise alone, unverified."""


@value
class ExternalVerification:
    """A command. It passes with this exit code, where its output also contains the one text and not the other.
    `folder` is where it runs, relative to and never outside the project's root. An empty text is not searched for.
    """

    command: str
    success_exit_code: int = 0
    output_contains: str = ""
    output_not_contains: str = ""
    timeout_s: float = DEFAULT_COMMAND_TIMEOUT_S
    folder: str = "."


@value
class SemanticVerification:
    """A model's judgement of the work, criterion by criterion. A match of one of the patterns rejects it without a
    model. `agent` is the command to call, `model` the model; empty: the stage's own agent, and a small model.
    """

    check_for: tuple[str, ...] = ()
    negative_patterns: tuple[str, ...] = ()
    model: str = ""
    agent: str = ""
    most_micro_usd: int = DEFAULT_JUDGE_MICRO_USD
    timeout_s: float = DEFAULT_JUDGE_TIMEOUT_S


@value
class VerificationPart:
    """One of several methods. If not `required` it only warns; it runs after those in `after`."""

    name: str
    how: Verification
    required: bool = True
    after: tuple[str, ...] = ()


@value
class MultiStageVerification:
    """Several methods together. With `require_all` the first required failure ends it, otherwise all are run."""

    parts: tuple[VerificationPart, ...]
    require_all: bool = True
    parallel: bool = True


@value
class CustomVerification:
    """A method from an installed package, by the name of its entry point, and its configuration."""

    method: str
    config: dict[str, Json] = {}  # noqa: RUF012 (never changed)


Verification = (
    StringMatchVerification | ExternalVerification | SemanticVerification | MultiStageVerification | CustomVerification
)


@value
class CompletionCriteria:
    """What "done" means for one stage of a task: the claim word and the verification method. Where `how` is None, the
    settings and the repository's guardrails determine the method.
    """

    promise: str
    description: str = ""
    how: Verification | None = None
    max_iterations: int | None = None


@value
class Task:
    """One task of a plan.

    `done` and `stage` are what the plan's source states; a source that does not track stages leaves `stage` None, and
    the history of passed stages decides.
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
        """The task's own criteria for a stage, if it has any."""
        return dict(self.criteria).get(stage)


@value
class Plan:
    """All tasks, in the order of their source.

    `stuck` are tasks that cannot be continued, and `why`; `concerns` what a person should look at when all is done.
    `digest` is that of the prompt file as read; empty where there is none.
    """

    tasks: tuple[Task, ...]
    stuck: tuple[str, ...] = ()
    why: str = ""
    concerns: tuple[str, ...] = ()
    digest: str = ""


class PlanSource(Protocol):
    """Reads the plan."""

    def read(self) -> Plan:
        """The present plan; raises Refused where there is none to continue with."""


PROMPT_PLACEHOLDER = "{prompt}"  # stands for the task's text in a template
MAX_TITLE_CHARS = 200  # in a commit message


@value
class Stage:
    """One stage of a pipeline: its prompt, checks, claim rule and number of attempts.

    `checks` are run in order, those of one group in `together` in parallel. `judges` cost money: they are run last, on
    work that is claimed to be done and has no failed check. Those in `stops_early` are skipped once something failed.
    `back` names the stages that are repeated where this one finds a fault that another stage has to fix, that one
    first; its own name is the last. Where a judge could not answer, the promise counts if the stage `trusts` it.
    `place` is the index of its own agent. `describes` and `method` tell the agent what is required and how that is
    verified. `commit` is the message template of its commits, with {id}, {title} and {claim}; without one, its agent is
    asked for a message. If it `fills`, the names of exported variables are substituted in its prompt. `final` checks
    are run last, on work that would complete the whole plan: held-out checks, and checks repeated in a clean checkout.
    """

    name: str
    claim: ClaimRule = ClaimRule()
    checks: tuple[str, ...] = ()
    template: str = PROMPT_PLACEHOLDER
    max_iterations: int | None = None
    edits: bool = True  # its turns are meant to change files, so idle ones count as a stall
    looks: bool = False  # read-only: its changes are reverted
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
        """The checks to run next, in parallel; empty where the report is complete. `last` is as in `Job`."""
        finished = {finding.check for finding in report.findings} | set(self.stops_early if report.failed else ())
        left = [check for check in self.checks if check not in finished]
        if left:
            group = next((group for group in self.together if left[0] in group), left[:1])
            return tuple(check for check in group if check in left)
        if not claimed or report.faults:
            return ()
        final = self.final if last else ()
        return next(((check,) for check in (*self.judges, *final) if check not in finished), ())


@value
class Pipeline:
    """The stages of a task, in order.

    `stage_first` takes the earliest stage in this list over all tasks before the next one (a review does not wait for
    new work); otherwise a task passes all its stages before the next task begins.
    """

    stages: tuple[Stage, ...]
    stage_first: bool = False

    def find_stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


@value
class Job:
    """A task and the stage to work on. `last`: its task is the only one that is not done."""

    task: Task
    stage: Stage
    last: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.task.id, self.stage.name

    def message(self, claim: str) -> str:
        """The commit message from the stage's template, always one line."""
        fields = {"id": self.task.id, "title": self.task.title, "claim": claim}
        return re.sub(r"\{(id|title|claim)\}", lambda found: _title_line(fields[found[1]]), self.stage.commit).strip()

    @property
    def compact(self) -> Job:
        """The job as stored in records: without the prompt's text, which has its own file and whose digest is recorded,
        and without the task's long texts, which its source keeps.
        """
        return replace(
            self,
            task=Task(self.task.id, "", self.task.title, self.task.priority),
            stage=replace(self.stage, template=PROMPT_PLACEHOLDER),
        )


def _title_line(text: str) -> str:
    """An untrusted text as a part of one line."""
    words = "".join(char if char.isprintable() else " " for char in strip_escapes(text[:MAX_TITLE_CHARS])).split()
    return " ".join(words)


@value
class AllDone:
    """Every task of the plan is done. `concerns` are for a person to look at."""

    concerns: tuple[str, ...] = ()


@value
class Blocked:
    """Tasks are left, and none of them can be worked on."""

    tasks: tuple[str, ...]
    why: str


PlanChoice = Job | AllDone | Blocked


def choose_next_job(plan: Plan, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> PlanChoice:
    """The next job. `passed` holds (task, stage) pairs that passed in this run."""
    if plan.stuck:
        return Blocked(plan.stuck, plan.why)
    stages = {task.id: _current_stage(task, pipeline, passed) for task in plan.tasks}
    left = [task for task in plan.tasks if stages[task.id] is not None]
    if not left:
        return AllDone(plan.concerns)
    rank = {stage.name: index for index, stage in enumerate(pipeline.stages)}
    ready = [
        Job(task, stage, len(left) == 1)
        for task in left
        if (stage := stages[task.id]) and stage.name in rank and _may_begin(task, stages)
    ]
    if not ready:
        return Blocked(tuple(task.id for task in left), _blocked_reason(left, stages, pipeline))
    return min(ready, key=lambda job: (rank[job.stage.name] if pipeline.stage_first else 0, job.task.priority))


def _current_stage(task: Task, pipeline: Pipeline, passed: frozenset[tuple[str, str]]) -> Stage | None:
    """The stage that this task is in, even if the pipeline lacks it; None where the task is done."""
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
    names = {task.stage for task in left if task.stage is not None}
    unknown = sorted(name for name in names if pipeline.find_stage(name) is None)
    if unknown:
        return f"in stage {', '.join(unknown)}, which the pipeline does not have"
    return "each waits for another"


STORY_MEMORY_NOTE = "stories"  # the name of the run note with the state of its stories


QUICK_FAILURE_S = 5.0


@value
class Iteration:
    """Input, output, changes and check results of one iteration."""

    number: int
    job: Job
    turn: Turn
    snapshot: Snapshot
    change: Change
    report: CheckReport
    claim: Claim | None = None
    rejected_tags: tuple[str, ...] = ()
    tripwires: TripwireReport = TripwireReport()
    plan_violations: tuple[str, ...] = ()  # rules of the plan that the turn broke
    altered_inputs: tuple[AlteredCheckInput, ...] = ()  # changed files that determine check results


@value
class History:
    """All iterations of a run, oldest first."""

    iterations: tuple[Iteration, ...] = ()

    @property
    def latest(self) -> Iteration:
        return self.iterations[-1]

    @property
    def turn_count(self) -> int:
        """The number of iterations that called an agent."""
        return sum(iteration.turn.taken for iteration in self.iterations)

    @property
    def context_window(self) -> int | None:
        """The size of the agent's context in tokens, as last reported."""
        windows = (iteration.turn.window for iteration in reversed(self.iterations) if iteration.turn.window)
        return next(windows, None)

    def with_iteration(self, iteration: Iteration) -> History:
        return History((*self.iterations, iteration))

    def since(self, number: int) -> History:
        """The iterations from this number on."""
        return History(tuple(iteration for iteration in self.iterations if iteration.number >= number))

    def attempts(self, job: Job) -> int:
        """The number of iterations on this task in this stage."""
        return sum(iteration.job.key == job.key for iteration in self.iterations)

    def unchanged_turns(self) -> int:
        """The number of consecutive last turns that should have changed files and did not. An unknown change is not
        counted as none. Another task or stage than before is progress, since the previous one passed.
        """
        editing = [iteration for iteration in self.iterations if iteration.job.stage.edits and iteration.turn.taken]
        count = 0
        for iteration in reversed(editing):
            if not iteration.change.same_tree or iteration.job.key != editing[-1].job.key:
                return count
            count += 1
        return count

    def quick_failures(self) -> int:
        """The number of consecutive last turns that failed within a few seconds."""
        count = 0
        for iteration in reversed(self.iterations):
            if not iteration.turn.errored or iteration.turn.exit.seconds > QUICK_FAILURE_S:
                return count
            count += 1
        return count

    def same_error_count(self) -> int:
        """The number of consecutive last iterations that failed in the same way."""
        failures = self.failure_fingerprints()
        if not failures or not failures[-1]:
            return 0
        return next((count for count, other in enumerate(reversed(failures)) if other != failures[-1]), len(failures))

    def failure_fingerprints(self) -> tuple[str, ...]:
        """A fingerprint of each iteration's failure: of checks, agent or rules; empty without a failure."""
        return tuple(_failure_fingerprint(iteration) for iteration in self.iterations)

    def trees(self) -> tuple[str, ...]:
        """The tree that each iteration left; an unreadable tree equals no other."""
        return tuple(
            iteration.snapshot.tree or f"unknown {iteration.number}"
            for iteration in self.iterations
            if iteration.job.stage.edits
        )


def _failure_fingerprint(iteration: Iteration) -> str:
    if iteration.report.fingerprint:
        return iteration.report.fingerprint
    if not iteration.turn.errored:
        violations = "\n".join(iteration.plan_violations)
        return failure_fingerprint("rules of the plan", 0, violations) if violations else ""
    end = iteration.turn.exit
    return failure_fingerprint(f"agent {end.why} {end.signal}", end.code, iteration.turn.error or "")


def count_alternating(values: tuple[str, ...]) -> int:
    """The number of last values that alternate between exactly two."""
    if len(values) < 2 or values[-1] == values[-2] or "" in values[-2:]:
        return 0
    count = 2
    while count < len(values) and values[-count - 1] == values[-count + 1]:
        count += 1
    return count


def turn_file_name(name: str, turn: int, separator: str = "_") -> str:
    """The name of a turn's files; the first turn of an iteration has no turn number in it."""
    return name if turn == 1 else f"{name}{separator}{turn}"
