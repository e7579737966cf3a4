"""What loops, workers and submissions tell the governor, in the words that both engines send."""

from __future__ import annotations

from ralphproof.fleet.governor import Governor
from ralphproof.fleet.permit import Allowance, Want
from ralphproof.value import TYPE_CHECKING, unpack

if TYPE_CHECKING:
    from typing import Any


def folded(governor: Governor, event: dict[str, Any], now: float) -> Governor:
    """The governor after one event. One that it does not know changes nothing."""
    loop, number = str(event.get("loop", "")), int(event.get("number") or 0)
    match event["what"]:
        case "bounded":
            allowance: Allowance = unpack(event["allowance"])
            return governor.bounded(event["submission"], event["submitter"], allowance)
        case "want":
            who = event["submission"], event["submitter"], event["agent"]
            return governor.wanted(Want(loop, number, *who, event["wish"]))
        case "spending":
            return governor.spending(loop, number, int(event["microUsd"]))
        case "settled":
            return governor.settled(loop, number, event["microUsd"], event["tokens"], now)
        case "released":
            return governor.released(loop, number)
        case "left":
            return governor.left(loop, now)
        case "closed":
            return governor.closed(event["submission"])
        case _:
            return governor
