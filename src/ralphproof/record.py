"""What is written down of a run: each kind of record."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.check import Finding
from ralphproof.claim import Heard
from ralphproof.event import Spent
from ralphproof.metric import Metrics
from ralphproof.pin import Altered
from ralphproof.run_hook import HookResult
from ralphproof.stage import Choice
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Outcome, Verdict
from ralphproof.workspace import Change, Committed, Snapshot, Sprung

if TYPE_CHECKING:
    from ralphproof.value import Json


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
class Regained:
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
class Told:
    """Words of the user's, for the prompt of this iteration. `number` is theirs in the ledger."""

    iteration: int
    number: int
    text: str


@value
class Claimed:
    """A file says that the work is done before the agent was started: the iteration is judged without a turn."""

    iteration: int
    turn: int


@value
class Awaited:
    """The work is said to be done, and runs that the agent began are not over: they are waited for."""

    iteration: int
    turn: int
    children: tuple[str, ...]
    elapsed_s: float


@value
class Joined:
    """Those runs are over; this is the tree with their work."""

    iteration: int
    turn: int
    snapshot: Snapshot
    change: Change
    sprung: Sprung = Sprung()
    illegal: tuple[str, ...] = ()
    altered: tuple[Altered, ...] = ()


@value
class Grounded:
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
    choice: Choice
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
    heard: Heard
    sprung: Sprung = Sprung()
    illegal: tuple[str, ...] = ()
    altered: tuple[Altered, ...] = ()


@value
class TurnAgain:
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
    committed: Committed
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
Others = Resumed | Regained | Paused | Told | Claimed | Awaited | Joined

Record = (
    RunBegan
    | Others
    | Grounded
    | Escalated
    | Warned
    | Picked
    | TurnBegan
    | TurnEnded
    | Saved
    | TurnAgain
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
