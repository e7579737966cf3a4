"""What a worker and the process that takes one step of a loop say to each other: one JSON object a line.

In: a `StepAsked`, then `stop`, `cancel` or `kill`. Out: `begun` and `spent` as it goes; at last one of `rest`,
`fenced` and `failed`.
"""

from __future__ import annotations

import json

from ralphproof.action import Action, Await, End, Finish, Hold, PickNext, Rest
from ralphproof.errors import Refused
from ralphproof.fleet.order import MOST_BYTES, NAME_CHARS, LoopOrder, order_of
from ralphproof.value import TYPE_CHECKING, pack, value

if TYPE_CHECKING:
    from ralphproof.budget import Spend
    from ralphproof.value import Json

HALT, CANCEL, KILL = "stop", "cancel", "kill"
WORDS = (HALT, CANCEL, KILL)
MOST = 2**53
NEXT = (PickNext, Rest, Hold, Await, End, Finish)


@value
class StepAsked:
    """One step of a loop. `epoch` says who has it: the higher one. `allot` is what the step's turn may spend at most.

    `spent` is what the loop had spent when that was set aside for it: a step that was asked for before, and of which
    nobody heard, has used some of it. `finish` lets it go on through the end of the run. `standing` is the worker's
    name. `known` is how many records whoever asks has already.
    """

    order: LoopOrder
    epoch: int
    allot: int | None = None
    finish: bool = False
    standing: str = ""
    known: int = 0
    spent: int | None = None


def asked_of(line: bytes) -> StepAsked:
    """What the first line asks for; raises Refused where it cannot be meant."""
    if len(line) > MOST_BYTES:
        raise Refused(f"an order has at most {MOST_BYTES >> 20} MiB")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the first line must be one JSON object: {str(error)[:200]}") from error
    if not isinstance(data, dict):
        raise Refused("the first line must be one JSON object")
    epoch, allot, known = _number(data, "epoch"), data.get("allot"), _number(data | {"known": data.get("known", 0)})
    finish, standing = data.get("finish", False), data.get("standing", "")
    if not isinstance(finish, bool):
        raise Refused("finish must be true or false")
    if not isinstance(standing, str) or not standing.isprintable() or len(standing) > NAME_CHARS:
        raise Refused(f"standing must be a worker's name of at most {NAME_CHARS} characters")
    allot = None if allot is None else _number(data, "allot")
    spent = None if data.get("spent") is None else _number(data, "spent")
    return StepAsked(order_of(data.get("order")), epoch, allot, finish, standing, known, spent)


def _number(data: dict[str, object], name: str = "known") -> int:
    found = data.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST:
        raise Refused(f"{name} must be a whole number from 0 on")
    return found


def begun(iteration: int, turn: int, agent: str) -> dict[str, Json]:
    """A turn has begun, and the remote knows it."""
    return {"type": "begun", "iteration": iteration, "turn": turn, "agent": agent}


def spent(micro_usd: int | None, tokens: int) -> dict[str, Json]:
    """What the turn at work has cost so far; None where nobody can tell."""
    return {"type": "spent", "microUsd": micro_usd, "tokens": tokens}


def rest(records: list[Json], step: Action, until: float | None, head: str, spend: Spend) -> dict[str, Json]:
    """The step is over, and the remote has all of it. Anything but a wait or an end means: another step, now.

    `spend` is what the whole loop has cost, for whoever cannot take all records.
    """
    name = type(step).__name__ if isinstance(step, NEXT) else PickNext.__name__
    return {"type": "rest", "records": records, "next": name, "until": until, "head": head, "spend": pack(spend)}


def fenced() -> dict[str, Json]:
    """Somebody else has the loop now; nothing of this step counts."""
    return {"type": "fenced"}


def failed(message: str, exit_code: int) -> dict[str, Json]:
    """The step could not be taken, or not to its end; what is on record stays."""
    return {"type": "failed", "message": message, "exitCode": exit_code}


def line_of(report: dict[str, Json]) -> bytes:
    """A report as it is written."""
    return json.dumps(report).encode() + b"\n"
