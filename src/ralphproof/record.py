"""What is written down of a run: each kind of record, and what may be written only once."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.check import Finding
from ralphproof.claim import Heard
from ralphproof.stage import Choice
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Outcome, Verdict
from ralphproof.workspace import Change, Committed, Snapshot

if TYPE_CHECKING:
    from ralphproof.value import Json


@value
class RunBegan:
    """A run came to be. `facts` are for readers: preset, agent, sandbox, version, limits, settings' digest."""

    run: str
    snapshot: Snapshot
    facts: dict[str, Json]


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


Record = (
    RunBegan
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
        case RunBegan() | RunEnded():
            return 0, 0, step
        case CheckBegan(iteration, turn, check):
            return iteration, turn, f"{step} {check}"
        case CheckEnded(iteration, turn, finding):
            return iteration, turn, f"{step} {finding.check}"
        case Noticed(iteration, number):
            return iteration, 0, f"{step} {number}"
        case Picked() | ScmBegan() | ScmEnded():
            return record.iteration, 0, step
        case _:
            return record.iteration, record.turn, step
