"""How the board looks: colours, and the signs that stand beside every word, so that colour is never all there is."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Styles of rich. Without colour Textual takes the colours out; bold, dim and reverse stay.
GOOD, BAD, WARN, LIVE = "#8fce7a", "bold #f2777a", "#f0c674", "bold #6cb6ff"
DIM, STRONG, PLAIN, TOOL, HEAD = "#8a93a3", "bold", "", "#c3a6ff", "bold #9fb3c8"
CHOSEN, CHOSEN_PLAIN = "on #2a3f5a", "reverse"  # the row of the cursor, with colours and without


@value
class Signs:
    """One cell each. `levels` are the heights of a line of bars, `full` and `empty` the halves of a gauge."""

    running: str = "●"
    paused: str = "‖"
    waits: str = "?"
    lost: str = "!"
    good: str = "✓"
    word: str = "≈"  # somebody's word for it: a judge's, or the agent's own
    bad: str = "✗"
    ended: str = "■"
    todo: str = "○"
    levels: str = "▁▂▃▄▅▆▇█"
    full: str = "█"
    empty: str = "░"
    cut: str = "…"
    dash: str = "–"
    dot: str = "·"
    at: str = "›"
    call: str = "▸"
    into: str = "→"
    least: str = "≥"
    rule: str = "─"


UNICODE = Signs()
ASCII = Signs(
    running="*", paused="=", waits="?", lost="!", good="+", word="~", bad="x", ended="#", todo=".", levels="_.-:=+*#",
    full="#", empty=".", cut="~", dash="-", dot="-", at=">", call=">", into="->", least=">=", rule="-",
)  # fmt: skip

Badge = tuple[str, str, str]  # sign, word, style


def mark_of(run: Mapping[str, Any], signs: Signs) -> Badge:
    """How a run stands: what was proved of it, or what it is at."""
    match run["state"], run.get("status"):
        case "running", _:
            return signs.running, "running", LIVE
        case "paused", _:
            return signs.paused, "rests", WARN
        case "stopped", _:
            return signs.waits, "waits", WARN
        case ("orphaned" | "crashed") as state, _:
            return signs.lost, state, BAD
        case _, "COMPLETED":
            return _proof_mark(str(run.get("proof") or "claimed"), bool(run.get("concerns")), signs)
        case _, "ABORTED":
            return signs.ended, str(run.get("reason") or "ABORTED"), WARN
        case _, "ERROR":
            return signs.bad, "ERROR", BAD
        case state, _:
            return signs.ended, str(state), DIM


def _proof_mark(proof: str, concerns: bool, signs: Signs) -> Badge:
    if concerns:
        return signs.lost, proof, WARN
    return (signs.good, proof, GOOD) if proof == "verified" else (signs.word, proof, WARN)


CHECKS = {"passed": GOOD, "failed": BAD, "errored": BAD, "advisory": WARN, "stopped": WARN, "running": LIVE}


def check_sign(state: str, signs: Signs) -> str:
    """The sign of a check's answer."""
    known = {"passed": signs.good, "failed": signs.bad, "errored": signs.bad, "running": signs.running}
    return known.get(state, signs.lost)


TASKS = {"todo": PLAIN, "working": LIVE, "waiting": WARN, "done": GOOD, "failed": BAD, "cancelled": DIM}
STORIES = {"open": PLAIN, "passes": PLAIN, "needs_review": LIVE, "changes_requested": WARN, "approved": GOOD}


def card_sign(status: str, signs: Signs) -> str:
    """The sign of a task's status, or of a story's."""
    known = {
        "working": signs.running, "waiting": signs.waits, "done": signs.good, "failed": signs.bad,
        "cancelled": signs.ended, "approved": signs.good, "changes_requested": signs.lost, "needs_review": signs.waits,
    }  # fmt: skip
    return known.get(status, signs.todo)
