"""The records of a run: each kind, and the key that makes it unique."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.agent import Spent, Turn
from ralphproof.engine.check import AlteredCheckInput, Finding
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.outcome import Metrics, Outcome, Verdict
from ralphproof.engine.plan import PlanChoice
from ralphproof.engine.sandbox import HookResult
from ralphproof.engine.workspace import Change, CommitResult, Snapshot, TripwireReport

if TYPE_CHECKING:
    from ralphproof.base.value import Json


@value
class RunBegan:
    """The run was created. `facts` are for readers: preset, agent, sandbox, version, limits, settings' digest."""

    run: str
    snapshot: Snapshot
    facts: dict[str, Json]
    at: float = 0.0  # epoch seconds


@value
class Resumed:
    """A process resumed the run, whose harness had died or which had ended in a resumable way.

    `session` counts such processes; the one that began the run was the first. `elapsed_s` is the run's age without the
    time in which no harness ran. `sandbox` is the sandbox from now on, as in the facts of `RunBegan`; None where
    unknown.
    """

    session: int
    at: float
    elapsed_s: float
    sandbox: dict[str, Json] | None = None


@value
class UserChangesSaved:
    """The tree was saved after a pause or an end, in which no agent or check ran: what changed in it is the user's.

    `paths` names the changes; `number` counts such saves. Where the plan changed, the job is picked again.
    """

    iteration: int
    number: int
    snapshot: Snapshot
    paths: tuple[str, ...] = ()
    replanned: bool = False


@value
class Paused:
    """A pause was requested. `number` counts pauses."""

    iteration: int
    number: int


@value
class UserMessageAdded:
    """A message of the user for the prompt of this iteration. `number` is that of the message in the ledger."""

    iteration: int
    number: int
    text: str


@value
class ClaimFound:
    """A file claimed completion before the agent was started: the iteration is judged without a turn."""

    iteration: int
    turn: int


@value
class ChildRunsAwaited:
    """Completion is claimed while child runs are unfinished: they are waited for."""

    iteration: int
    turn: int
    children: tuple[str, ...]
    elapsed_s: float


@value
class ChildWorkJoined:
    """The child runs have ended; this is the tree with their work."""

    iteration: int
    turn: int
    snapshot: Snapshot
    change: Change
    sprung: TripwireReport = TripwireReport()
    illegal: tuple[str, ...] = ()
    altered: tuple[AlteredCheckInput, ...] = ()


@value
class BaselineSaved:
    """The checks were run once before the first turn; this tree, with what they wrote, is the agent's start."""

    snapshot: Snapshot
    written: tuple[str, ...] = ()


@value
class Escalated:
    """A repetition limit would have ended the run; from this iteration on it continues differently, and counts anew.

    `rung` is the index of the model in the ladder; `deep`: the next prompt has debugging instructions.
    """

    iteration: int
    rung: int
    deep: bool
    why: str


@value
class Warned:
    """A limit is near. `what` is cost, daily or iterations; each is reported once a run."""

    iteration: int
    what: str
    message: str


@value
class Picked:
    """The next job was picked. `tries` counts the attempts at this stage of the task, this one included. `round` is
    more than 1 where the job was picked again because the plan changed.
    """

    iteration: int
    choice: PlanChoice
    tries: int = 0
    round: int = 1


@value
class TurnBegan:
    """An agent is about to be started. Without a `TurnEnded` it was a crash, and still counts. `place` is the agent's
    index in the order of preference.
    """

    iteration: int
    turn: int
    prompt_digest: str
    argv: tuple[str, ...] = ()
    agent: str = ""
    place: int = 0


@value
class TurnEnded:
    """The agent and all its processes have ended."""

    iteration: int
    turn: int
    reply: Turn


@value
class Saved:
    """The tree is saved, and its change is known."""

    iteration: int
    turn: int
    snapshot: Snapshot
    change: Change
    heard: ParsedClaim
    sprung: TripwireReport = TripwireReport()
    illegal: tuple[str, ...] = ()
    altered: tuple[AlteredCheckInput, ...] = ()


@value
class TurnRetried:
    """The same iteration is repeated: the reply was empty, or the service unavailable. `until` (epoch seconds) is when
    that service may be called again, recorded before the wait. Even if the clock is changed, no wait exceeds `wait_s`.
    """

    iteration: int
    turn: int
    empty: bool
    why: str
    until: float = 0.0
    wait_s: float = 0.0


@value
class CheckBegan:
    """A check is about to be run. `round` counts how often this turn's work was checked again from the start."""

    iteration: int
    turn: int
    check: str
    round: int = 1


@value
class CheckEnded:
    iteration: int
    turn: int
    finding: Finding
    round: int = 1


@value
class CheckStopped:
    """A judge was ended before it answered, and is run again when the run continues; holds its cost so far."""

    iteration: int
    turn: int
    check: str
    spent: Spent
    session: int


@value
class Judged:
    """The iteration is over. One stopped by a limit is judged again by a later `session`."""

    iteration: int
    turn: int
    verdict: Verdict
    elapsed_s: float
    session: int = 1


@value
class ScmBegan:
    iteration: int


@value
class ScmEnded:
    """Passed work was committed, or not; `reply` is the agent call that gave the message."""

    iteration: int
    committed: CommitResult
    reply: Turn | None = None
    message: str = ""


@value
class Noticed:
    """A notice that changes no state: a warning, a reverted change, interference."""

    iteration: int
    number: int
    message: str


@value
class HookBegan:
    """A hook command is about to be run; `number` counts all of them. Without a `HookEnded` it was a crash: the
    command is adopted, and run again where it was interrupted.
    """

    iteration: int
    hook: str
    place: int
    number: int
    command: str


@value
class HookEnded:
    """A hook command ended, with the tree that it left and the `paths` that it changed; after a run these are not
    determined. Where it changed the plan, the job is picked again.
    """

    iteration: int
    hook: str
    place: int
    number: int
    result: HookResult
    snapshot: Snapshot | None = None
    paths: tuple[str, ...] = ()
    replanned: bool = False


@value
class RunEnded:
    """How the run, or its `session`, ended: some ends are resumable."""

    outcome: Outcome
    metrics: Metrics | None = None
    session: int = 1


Record = (
    RunBegan
    | Resumed
    | UserChangesSaved
    | Paused
    | UserMessageAdded
    | ClaimFound
    | ChildRunsAwaited
    | ChildWorkJoined
    | BaselineSaved
    | Escalated
    | Warned
    | Picked
    | TurnBegan
    | TurnEnded
    | Saved
    | TurnRetried
    | CheckBegan
    | CheckEnded
    | CheckStopped
    | Judged
    | ScmBegan
    | ScmEnded
    | Noticed
    | HookBegan
    | HookEnded
    | RunEnded
)


def record_key(record: Record) -> tuple[int, int, str]:
    """(iteration, turn, step), unique in a run. A second record with the same key is a bug."""
    step = type(record).__name__
    match record:
        case RunBegan() | BaselineSaved():
            return 0, 0, step
        case Resumed(session) | RunEnded(session=session):
            return 0, 0, _step_of_session(step, session)
        case UserChangesSaved(_, number) | Paused(_, number) | UserMessageAdded(_, number):
            return 0, 0, f"{step} {number}"
        case Warned(_, what):
            return 0, 0, f"{step} {what}"
        case CheckBegan(iteration, turn, check, round):
            return iteration, turn, f"{_step_of_round(step, round)} {check}"
        case CheckEnded(iteration, turn, finding, round):
            return iteration, turn, f"{_step_of_round(step, round)} {finding.check}"
        case CheckStopped(iteration, turn, check, session=session):
            return iteration, turn, f"{step} {check} {session}"
        case Noticed(iteration, number) | HookBegan(iteration, number=number) | HookEnded(iteration, number=number):
            return iteration, 0, f"{step} {number}"
        case Judged(iteration, turn, session=session):
            return iteration, turn, _step_of_session(step, session)
        case Picked(iteration, round=round):
            return iteration, 0, _step_of_round(step, round)
        case Escalated() | ScmBegan() | ScmEnded():
            return record.iteration, 0, step
        case _:
            return record.iteration, record.turn, step


def _step_of_round(step: str, round: int) -> str:
    return step if round == 1 else f"{step}#{round}"


def _step_of_session(step: str, session: int) -> str:
    return step if session == 1 else f"{step} {session}"
