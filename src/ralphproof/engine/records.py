"""The records of a run: each kind, and the key that makes it unique."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import AlteredCheckInput, Finding
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.events import Spent
from ralphproof.engine.metrics import Metrics
from ralphproof.engine.outcome import Outcome, Verdict
from ralphproof.engine.plan import PlanChoice
from ralphproof.engine.run_hooks import HookResult
from ralphproof.engine.workspace import Change, CommitResult, Snapshot, TripwireReport

if TYPE_CHECKING:
    from ralphproof.base.value import Json


# What is written down of a run: each kind of record.


@value
class RunBegan:
    """A run came to be. `facts` are for readers: preset, agent, sandbox, version, limits, settings' digest."""

    run: str
    snapshot: Snapshot
    facts: dict[str, Json]
    at: float = 0.0  # epoch seconds


@value
class Resumed:
    """A process took the run up again: it had lost its harness, or had ended in a way that allows it.

    `session` counts such processes; the one that began the run was the first. `elapsed_s` is the run's age: time in
    which nobody was there, and nothing of it ran, is no part of it. `sandbox` is what holds it from now on, as in the
    facts of its beginning; None where nobody said.
    """

    session: int
    at: float
    elapsed_s: float
    sandbox: dict[str, Json] | None = None


@value
class UserChangesSaved:
    """Nobody of ours was at work for a while, by a pause or an end: what changed in the tree until now is the user's.

    `paths` names it; `number` counts such times. Where the plan is another one by now, it is asked anew.
    """

    iteration: int
    number: int
    snapshot: Snapshot
    paths: tuple[str, ...] = ()
    replanned: bool = False


@value
class Paused:
    """Somebody wants the run to rest. `number` counts such times."""

    iteration: int
    number: int


@value
class UserMessageAdded:
    """Words of the user's, for the prompt of this iteration. `number` is theirs in the ledger."""

    iteration: int
    number: int
    text: str


@value
class ClaimFound:
    """A file says that the work is done before the agent was started: the iteration is judged without a turn."""

    iteration: int
    turn: int


@value
class ChildRunsAwaited:
    """The work is said to be done, and runs that the agent began are not over: they are waited for."""

    iteration: int
    turn: int
    children: tuple[str, ...]
    elapsed_s: float


@value
class ChildWorkJoined:
    """Those runs are over; this is the tree with their work."""

    iteration: int
    turn: int
    snapshot: Snapshot
    change: Change
    sprung: TripwireReport = TripwireReport()
    illegal: tuple[str, ...] = ()
    altered: tuple[AlteredCheckInput, ...] = ()


@value
class BaselineSaved:
    """The checks were asked once before the first turn; this tree, with what they wrote in it, is the agent's start."""

    snapshot: Snapshot
    written: tuple[str, ...] = ()


@value
class Escalated:
    """A pattern would have ended the run; from this iteration on it goes on in another way, and counts anew.

    `rung` is the model of the ladder that it goes on with; `deep` says that the next prompt tells how to debug.
    """

    iteration: int
    rung: int
    deep: bool
    why: str


@value
class Warned:
    """A limit comes near. `what` is cost, daily or iterations; each is told once in a run."""

    iteration: int
    what: str
    message: str


@value
class Picked:
    """What the plan offered next. `tries` counts how often this stage of the task was begun, this time included.

    `round` is more than 1 where it was asked again, because somebody changed it meanwhile.
    """

    iteration: int
    choice: PlanChoice
    tries: int = 0
    round: int = 1


@value
class TurnBegan:
    """An agent is about to be started. Alone, it is a crash, and still counts.

    `place` is that of the agent in the order of preference: 0 is the usual one.
    """

    iteration: int
    turn: int
    prompt_digest: str
    argv: tuple[str, ...] = ()
    agent: str = ""
    place: int = 0


@value
class TurnEnded:
    """The agent and all its processes are gone."""

    iteration: int
    turn: int
    reply: Turn


@value
class Saved:
    """The tree is kept, and what changed in it is known."""

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
    """The same iteration is taken once more: the reply was empty, or the service was not there.

    `until` (epoch seconds) is when that service may be asked again; told before anybody waits. However the clock is set
    meanwhile, nobody waits longer than `wait_s`.
    """

    iteration: int
    turn: int
    empty: bool
    why: str
    until: float = 0.0
    wait_s: float = 0.0


@value
class CheckBegan:
    """A check is about to be asked. `round` counts how often this turn's work was looked at anew."""

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
    """A judge was ended before it answered, and is asked again when the run goes on: what it cost until then."""

    iteration: int
    turn: int
    check: str
    spent: Spent
    session: int


@value
class Judged:
    """The iteration is over. One that a limit had stopped is judged again by a later `session`."""

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
    """Passed work was kept in the user's SCM, or not; `reply` is the call that gave the message."""

    iteration: int
    committed: CommitResult
    reply: Turn | None = None
    message: str = ""


@value
class Noticed:
    """Something worth knowing that changes nothing: a warning, what was put back, who meddled."""

    iteration: int
    number: int
    message: str


@value
class HookBegan:
    """A command of the user's own is about to be run; `number` counts them all.

    Alone, it is a crash: the command is taken up, and run again where it was cut off.
    """

    iteration: int
    hook: str
    place: int
    number: int
    command: str


@value
class HookEnded:
    """It ended, and this is the tree that it left, with the `paths` that it changed; after a run nobody looks.

    Where it changed the plan, that is asked anew.
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
    """How the run ended, or its `session` did: some ends allow to go on."""

    outcome: Outcome
    metrics: Metrics | None = None
    session: int = 1


# What somebody else did, or did not do: a user, another process, another run.
ExternalRecord = (
    Resumed | UserChangesSaved | Paused | UserMessageAdded | ClaimFound | ChildRunsAwaited | ChildWorkJoined
)

Record = (
    RunBegan
    | ExternalRecord
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
    """(iteration, turn, step): what may happen once in a run. A second record of one key is a fault of ours."""
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
