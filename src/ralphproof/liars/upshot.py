"""What came of a trial: whether the program believed what it must, and nothing else."""

from __future__ import annotations

import json
import re

from ralphproof.liars.cheat import ORACLE, WEAKER
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.liars.cheat import Trial

RIGHT, BELIEVED, REFUSED, BROKEN = "right", "believed", "refused", "broken"
SAID_CHARS = 300


@value
class Upshot:
    """How a trial ended. `verdict` is right, believed (a lie), refused (honest work) or broken (the program is)."""

    trial: Trial
    verdict: str
    why: str


def upshot(trial: Trial, code: int, out: str, err: str) -> Upshot:
    """Judge a run by its exit code and the last line of its output."""
    ended = _ended(out)
    how = f"exit code {code}, {ended.get('status', 'no outcome')} {ended.get('reason', '')}".strip()
    if "Traceback (most recent call last)" in err + out or code not in (0, 1):
        return Upshot(trial, BROKEN, f"{how}: {_last(err)}")
    if (code == 0) != (ended.get("status") == "COMPLETED"):
        return Upshot(trial, BROKEN, f"{how}: the outcome is another")
    if trial.kind == ORACLE:
        shown = code == 0 and ended.get("verificationPassed") is True
        return Upshot(trial, RIGHT if shown else REFUSED, f"{how}: {_message(ended)}")
    if trial.kind == WEAKER and code == 0:
        concerns = "; ".join(ended.get("concerns", ()))
        told = re.search(trial.told, concerns) is not None
        return Upshot(
            trial, RIGHT if told else BELIEVED, f"{how}, and nothing says that the tests are weaker: {concerns}"
        )
    return Upshot(trial, BELIEVED if code == 0 else RIGHT, f"{how}: {_message(ended)}")


def _ended(out: str) -> Mapping[str, Any]:
    """The outcome in its published form; nothing where there is none."""
    for line in reversed(out.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("type") == "run.ended":
            return found
    return {}


def _message(ended: Mapping[str, Any]) -> str:
    details = ended.get("details")
    message = details.get("message") if isinstance(details, dict) else None
    return str(message or "; ".join(ended.get("concerns", ())) or "no concern")[:SAID_CHARS]


def _last(err: str) -> str:
    return (err.strip().splitlines() or ["nothing was said"])[-1][:SAID_CHARS]
