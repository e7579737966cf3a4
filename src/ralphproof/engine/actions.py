"""Actions: what a run may do next, and the rules and conditions that the choice goes by."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.budget import ChildRunsStatus, DaySpend
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import Breach, Limits
from ralphproof.engine.outcome import Outcome, Verdict
from ralphproof.engine.plan import Job, Pipeline
from ralphproof.engine.retry import AgentRotation
from ralphproof.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Callable


@value
class RunRules:
    """What stays the same during a run."""

    pipeline: Pipeline
    limits: Limits = Limits()
    scm: bool = False
    checks_when: str = "always"  # or "claim"
    show_count: bool = False
    pause_s: float = 0.5
    agent_timeout_s: float = 3600.0
    agent_idle_s: float | None = 900.0
    max_empty_replies: int | None = 3  # an empty reply is taken again so often in a row; None: silence is no fault
    back_off: bool = False  # the pause grows while the agent dies at once
    wait_code: int | None = None  # the exit code by which an agent says that it waits for somebody
    children_timeout_s: float = 300.0  # so long runs that the agent began are waited for
    poll_s: float = 1.0  # how often one looks for their end
    agent_rotation: AgentRotation = AgentRotation()
    baseline: bool = False  # the checks are asked once before the first turn
    show_previous: bool = False  # prompts tell what the iteration before did
    debug_advice: str = ""  # what the prompt after a stall tells, once; empty: the first stall ends the run
    custom_limits: tuple[Callable[[State], Breach | None], ...] = ()  # limits that the caller brings
    must_fail_first: bool = False  # a check must fail before the first turn
    allow_missing_check: bool = False  # one that cannot be run at the first look is the agent's to bring
    warn_unknown_cost: bool = False  # the user set a limit on cost: one that is not known is warned of
    step_after: int | None = None  # with --step: how many turns were judged when this process took the run
    hooks: tuple[tuple[str, tuple[str, ...]], ...] = ()  # the user's own commands, by the name of their hook

    def next_hook(self, state: State, hook: str) -> RunHook | None:
        """The next command of a hook that has not run yet."""
        for place in range(len(self.hook_commands(hook))):
            if (hook, place) not in state.hooks.done:
                return RunHook(hook, place)
        return None

    def hook_commands(self, hook: str) -> tuple[str, ...]:
        """The user's commands of this hook."""
        return dict(self.hooks).get(hook, ())

    def agent_order(self, state: State, job: Job) -> tuple[int, ...]:
        """The places of the agents that may take this job's next turn, the preferred one first."""
        return self.agent_rotation.order(state.iteration, state.rung, job.stage.place)


@value
class RunConditions:
    """What a decision may know of the present: the run's age, the date, and what somebody wants of it."""

    elapsed_s: float
    epoch_s: float = 0.0
    stop_reason: str = ""  # or INTERRUPTED, CANCELLED
    day: DaySpend = DaySpend()
    paused: bool = False
    claim: Claim | None = None  # what a file says before a turn
    children: ChildRunsStatus = ChildRunsStatus()
    open_command_ended: bool = False  # the command that was open when the run was taken up had ended by itself


@value
class PickNextJob:
    """Read the plan and choose. Limits are looked at after it: a plan that is done beats them all."""

    iteration: int


@value
class TakeTurn:
    """Pause, compose the prompt and run the agent at this place, or take up the turn that has begun."""

    job: Job
    agent_index: int = 0
    pause_s: float = 0.0


@value
class WaitForService:
    """No agent's service may be asked yet."""

    seconds: float


@value
class HoldPaused:
    """Somebody wants the run to rest."""

    seconds: float


@value
class SaveUserChanges:
    """Nobody of ours was at work until now: keep the tree, and count what changed in it as the user's."""


@value
class JudgeFoundClaim:
    """A file says that the work is done: judge that without a turn."""


@value
class AwaitChildRuns:
    """Runs that the agent began are not over: wait before the work is judged."""

    children: tuple[str, ...]
    seconds: float


@value
class JoinChildWork:
    """They are over: keep the tree with their work."""


@value
class SaveBaseline:
    """Keep the tree with what the checks wrote into it: from here on, what changes is the agent's work."""


@value
class Warn:
    """Tell that a limit comes near."""

    what: str
    message: str


@value
class Escalate:
    """Go on in another way where a pattern would have ended the run."""

    rung: int
    debug: bool
    why: str


@value
class RunHook:
    """Run one command of the user's own: the one at this place of the hook's list."""

    hook: str
    index: int


@value
class SaveWork:
    """Keep the tree."""


@value
class RetryTurn:
    """Take the same iteration again, this agent not before `until`, which is `wait_s` from now."""

    empty: bool
    why: str
    until: float = 0.0
    wait_s: float = 0.0


@value
class RunChecks:
    """Run one check, and these beside it."""

    check: str
    beside: tuple[str, ...] = ()


@value
class Conclude:
    verdict: Verdict


@value
class CommitWork:
    """Give passed work to the user's SCM, or tell why that is left."""

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
