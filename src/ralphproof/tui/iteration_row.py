"""One iteration as a row of a table."""

from __future__ import annotations

from rich.text import Text

from ralphproof.tui.gauge import checks_of
from ralphproof.tui.ink import BAD, DIM, GOOD, LIVE, PLAIN, WARN
from ralphproof.tui.listing import Column
from ralphproof.tui.texts import joined, lasted, one, thousands
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.tui.ink import Signs

COLUMNS = (
    Column("#", 3, right=True),
    Column("stage", 9, need=5),
    Column("agent", 10),
    Column("tools", 5, need=2, right=True),
    Column("files", 5, need=4, right=True),
    Column("checks", 7),
    Column("verdict", 0),
    Column("tokens", 7, need=1, right=True),
    Column("cost", 7, need=3, right=True),
    Column("time", 9, need=6, right=True),
)
VERDICTS = {"passed": GOOD, "retry": PLAIN, "sentBack": WARN, "waiting": WARN, "stopped": BAD}


def row_of(told: Mapping[str, Any], signs: Signs, now_s: float) -> list[Text]:
    """The cells of one iteration."""
    turns = told["turns"]
    seconds = told["seconds"] if told["seconds"] is not None else _so_far(told, now_s)
    files = str(told["fileCount"]) if told["filesKnown"] else signs.dash
    return [
        Text(str(told["number"]), end=""), one(told["stage"] or signs.dash, DIM), _agent(told, signs),
        Text(str(sum(turn["tools"] for turn in turns)), DIM, end=""), Text(files, end=""),
        checks_of(_counted(told), signs), _verdict(told, signs), Text(_tokens(turns, signs), DIM, end=""),
        Text(_cost(turns, signs), end=""), Text(lasted(seconds, signs), DIM, end=""),
    ]  # fmt: skip


def _so_far(told: Mapping[str, Any], now_s: float) -> float | None:
    """How long one that goes on has taken; of one that was cut off nobody may know."""
    return max(0.0, now_s - told["countsFrom"]) if told["endedAt"] is None else None


def _agent(told: Mapping[str, Any], signs: Signs) -> Text:
    """How its last turn ended."""
    turns = told["turns"]
    if not turns:
        return Text("not asked" if told["verdict"] else signs.dash, DIM, end="")
    last = turns[-1]
    match last:
        case {"endedAt": None}:
            return joined((f"{signs.running} works", LIVE))
        case {"error": str()}:
            return joined(("error", BAD))
        case {"why": "exit", "exitCode": 0}:
            return joined(("ended", PLAIN))
        case {"why": "exit", "exitCode": int(code)}:
            return joined((f"exit {code}", WARN))
        case {"signal": int(number)}:
            return joined((f"signal {number}", WARN))
        case _:
            return joined((last["why"] or "ended", WARN))


def _counted(told: Mapping[str, Any]) -> Mapping[str, int] | None:
    states = [check["state"] for check in told["checks"] if check["state"] not in ("running", "stopped")]
    return {"passed": states.count("passed"), "failed": len(states) - states.count("passed")} if states else None


def _verdict(told: Mapping[str, Any], signs: Signs) -> Text:
    running = next((check["name"] for check in told["checks"] if check["state"] == "running"), None)
    if running is not None:
        return joined((f"{running} runs", LIVE))
    found = told["verdict"]
    return joined((found["words"], VERDICTS.get(found["kind"], PLAIN))) if found else Text(signs.dash, DIM, end="")


def _tokens(turns: list[Mapping[str, Any]], signs: Signs) -> str:
    known = [turn["tokens"] for turn in turns if turn["tokens"] is not None]
    return thousands(sum(known)) if known else signs.dash


def _cost(turns: list[Mapping[str, Any]], signs: Signs) -> str:
    known = [turn["usd"] for turn in turns if turn["usd"] is not None]
    least = signs.least if len(known) < len(turns) else ""
    return f"{least}${sum(known):.2f}" if known else "unknown" if turns else signs.dash
