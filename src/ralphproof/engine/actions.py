"""Actions of a run, and the rules and conditions from which the next one is chosen."""

from __future__ import annotations

from collections.abc import Callable

from ralphproof.base.value import value
from ralphproof.engine.budget import ChildRunsStatus, DaySpend
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import Breach, Limits
from ralphproof.engine.outcome import Outcome, Verdict
from ralphproof.engine.plan import Job, Pipeline
from ralphproof.engine.retry import AgentRotation
from ralphproof.engine.state import State


@value
class AgentRules:
    """How agents are called, in which order, and how long they may take."""

    timeout_s: float = 3600.0
    idle_s: float | None = 900.0
    pause_s: float = 0.5  # before each turn
    back_off: bool = False  # the pause grows while the agent dies at once
    max_empty_replies: int | None = 3  # in a row; None: no limit
    wait_code: int | None = None  # the exit code by which an agent reports that it waits for a person
    rotation: AgentRotation = AgentRotation()


@value
class CheckRules:
    """When checks run, and what must hold for them before the first turn."""

    when: str = "always"  # or "claim"
    baseline: bool = False  # run them once before the first turn
    must_fail_first: bool = False  # at least one must fail in the baseline
    allow_missing: bool = False  # a check that cannot run in the baseline may be added by the agent


@value
class PromptRules:
    """What prompts contain besides the task."""

    show_count: bool = False
    show_previous: bool = False  # a summary of the previous iteration
    debug_advice: str = ""  # added once, to the prompt after a stall; empty: the first stall ends the run


@value
class ChildRules:
    """How long the run waits for its child runs, and how often it polls them."""

    timeout_s: float = 300.0
    poll_s: float = 1.0


@value
class RunRules:
    """Rules that stay the same during a run."""

    pipeline: Pipeline
    limits: Limits = Limits()
    agent: AgentRules = AgentRules()
    checks: CheckRules = CheckRules()
    prompt: PromptRules = PromptRules()
    children: ChildRules = ChildRules()
    scm: bool = False
    custom_limits: tuple[Callable[[State], Breach | None], ...] = ()  # limits passed by the caller
    warn_unknown_cost: bool = False  # warn of an unknown cost: the user set a cost limit
    step_after: int | None = None  # with --step: turns taken before this process started or resumed the run
    hooks: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (hook, the user's commands for it)

    def next_hook(self, state: State, hook: str) -> RunHook | None:
        """The next command of a hook that has not run yet."""
        for index in range(len(self.hook_commands(hook))):
            if (hook, index) not in state.hooks.done:
                return RunHook(hook, index)
        return None

    def hook_commands(self, hook: str) -> tuple[str, ...]:
        """The user's commands for this hook."""
        return dict(self.hooks).get(hook, ())

    def agent_order(self, state: State, job: Job) -> tuple[int, ...]:
        """Indexes of the agents that may take this job's next turn, the preferred one first."""
        return self.agent.rotation.order(state.iteration, state.escalation.rung, job.stage.place)


@value
class RunConditions:
    """Present conditions that a decision may depend on: the run's age, the date, and requests to pause or stop."""

    elapsed_s: float
    epoch_s: float = 0.0
    stop_reason: str = ""  # or INTERRUPTED, CANCELLED
    day: DaySpend = DaySpend()
    paused: bool = False
    claim: Claim | None = None  # found in a file before the turn
    children: ChildRunsStatus = ChildRunsStatus()
    open_command_ended: bool = False  # the command that was open at the resume had ended by itself


@value
class PickNextJob:
    """Read the plan and choose a job. Limits are checked afterwards: a finished plan takes precedence over them."""

    iteration: int


@value
class TakeTurn:
    """Pause, compose the prompt and run the agent at this index, or resume the turn that has begun."""

    job: Job
    agent_index: int = 0
    pause_s: float = 0.0


@value
class WaitForService:
    """Wait: no agent's service may be called yet."""

    seconds: float


@value
class HoldPaused:
    """Stay paused, as the user requested."""

    seconds: float


@value
class SaveUserChanges:
    """Save the tree after a time without a running agent or check; what changed in it counts as the user's."""


@value
class JudgeFoundClaim:
    """Judge a completion claim found in a file, without a turn."""


@value
class AwaitChildRuns:
    """Wait for unfinished runs that the agent started, before the work is judged."""

    children: tuple[str, ...]
    seconds: float


@value
class JoinChildWork:
    """Save the tree with the work of child runs, which have ended."""


@value
class SaveBaseline:
    """Save the tree with what the checks wrote into it: later changes are the agent's work."""


@value
class Warn:
    """Report that a limit is near."""

    what: str
    message: str


@value
class Escalate:
    """Continue with another model or prompt where a repetition limit would have ended the run."""

    rung: int
    debug: bool
    why: str


@value
class RunHook:
    """Run one of the user's commands: the one at this index of the hook's list."""

    hook: str
    index: int


@value
class SaveWork:
    """Save the tree after a turn."""


@value
class RetryTurn:
    """Repeat the same iteration; this agent is not called before `until`, which is `wait_s` from now."""

    empty: bool
    why: str
    until: float = 0.0
    wait_s: float = 0.0


@value
class RunChecks:
    """Run one check, and these in parallel with it."""

    check: str
    beside: tuple[str, ...] = ()


@value
class Conclude:
    verdict: Verdict


@value
class CommitWork:
    """Commit passed work to the user's SCM, or report why it is not committed."""

    why_not: str = ""


@value
class EndRun:
    outcome: Outcome


@value
class Finish:
    """Nothing is left to do."""

    outcome: Outcome


Action = (
    PickNextJob | TakeTurn | WaitForService | HoldPaused | SaveUserChanges | JudgeFoundClaim | AwaitChildRuns
    | JoinChildWork | SaveBaseline | Warn | Escalate | RunHook | SaveWork
    | RetryTurn | RunChecks | Conclude | CommitWork | EndRun | Finish
)  # fmt: skip
