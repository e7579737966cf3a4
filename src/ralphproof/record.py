"""What is written down of a run: each kind of record, and what may be written only once."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.check import Finding
from ralphproof.claim import Heard
from ralphproof.metric import Metrics
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
    """What the plan offered next."""

    iteration: int
    choice: Choice


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


@value
class TurnAgain:
    """The same iteration is taken once more: the reply was empty, or the service was not there.

    `until` (epoch seconds) is when that service may be asked again; told before anybody waits.
    """

    iteration: int
    turn: int
    empty: bool
    why: str
    until: float = 0.0


@value
class CheckBegan:
    iteration: int
    turn: int
    check: str


@value
class CheckEnded:
    iteration: int
    turn: int
    finding: Finding


@value
class Judged:
    """The iteration is over."""

    iteration: int
    turn: int
    verdict: Verdict
    elapsed_s: float


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
class RunEnded:
    outcome: Outcome
    metrics: Metrics | None = None


Record = (
    RunBegan
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
    | Judged
    | ScmBegan
    | ScmEnded
    | Noticed
    | RunEnded
)


def key_of(record: Record) -> tuple[int, int, str]:
    """(iteration, turn, step): what may happen once in a run. A second record of one key is a fault of ours."""
    step = type(record).__name__
    match record:
        case RunBegan() | Grounded() | RunEnded():
            return 0, 0, step
        case Warned(_, what):
            return 0, 0, f"{step} {what}"
        case CheckBegan(iteration, turn, check):
            return iteration, turn, f"{step} {check}"
        case CheckEnded(iteration, turn, finding):
            return iteration, turn, f"{step} {finding.check}"
        case Noticed(iteration, number):
            return iteration, 0, f"{step} {number}"
        case Picked() | Escalated() | ScmBegan() | ScmEnded():
            return record.iteration, 0, step
        case _:
            return record.iteration, record.turn, step
