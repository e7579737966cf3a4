"""How the loops of some days went, for programs."""

from __future__ import annotations

import os
import re

from ralphproof.errors import Refused
from ralphproof.figure import Figures, Runs, Slot, date_of
from ralphproof.limit import STALL
from ralphproof.metric import reviews_told
from ralphproof.report import alerts
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.value import Json

DATE = "YYYY-MM-DD, today or yesterday, by the UTC calendar"


def day_named(flag: str, text: str | None, today: int) -> int:
    """The day that a word means, counted from 1970; None is today. Raises Refused for one that there is not."""
    if text is None:
        return today
    if text in ("today", "yesterday"):
        return today - (text == "yesterday")
    from datetime import date

    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise Refused(f"{flag} {text!r} is no day; write {DATE}") from None


def cost_limit(root: str) -> int | None:
    """What a run may cost by the settings in force; a report needs no settings, so wrong ones are no hindrance."""
    from ralphproof.config.load import load

    try:
        return load(root, os.environ).settings.cost_limit_micro_usd
    except Refused:
        return None


def as_json(figures: Figures, limit_micro_usd: int | None) -> dict[str, Json]:
    """Everything that the page tells."""
    runs, reviews = figures.runs, figures.reviews
    return {
        "from": date_of(figures.first_day),
        "to": date_of(figures.last_day),
        "overall": {
            **_part(runs),
            "p95Iterations": figures.p95_iterations,
            "p95CostUSD": _usd(figures.p95_micro_usd),
            "stalled": runs.of(reason=STALL).count,
            "errors": runs.errors.count,
            "tokens": runs.sum("tokens"),
            "durationSeconds": runs.sum("milliseconds") / 1000,
            "savedUSD": runs.sum("saved_micro_usd") / 1_000_000,
        },
        "bySkill": {name: _part(part) for name, part in runs.by("skill")},
        "byAgent": {name: _part(part) for name, part in runs.by("agent")},
        "abortReasons": {name: part.count for name, part in runs.aborted.by("reason")},
        "reviews": {"loops": reviews.runs, **reviews_told(reviews)} if reviews.runs else None,
        "alerts": list(alerts(figures, limit_micro_usd)),
    }


def _part(runs: Runs) -> dict[str, Json]:
    completed = runs.completed
    return {
        "loops": runs.count,
        "completed": completed.count,
        "verified": completed.sum("verified"),
        "avgIterations": runs.mean_iterations,
        "avgIterationsToComplete": completed.mean_iterations,
        "avgCostUSD": _usd(runs.mean_micro_usd),
        "avgCostPerCompletionUSD": _usd(completed.mean_micro_usd),
        "atLeastUSD": runs.sum("at_least_micro_usd") / 1_000_000,
        "unknownCosts": runs.unpriced,
    }


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else micro_usd / 1_000_000


def slots_json(slots: tuple[Slot, ...], reasons: tuple[tuple[int, str, int], ...]) -> list[Json]:
    """The same along the time: what ended in each day, or in each hour of one, and why it was aborted."""
    why: dict[int, dict[str, Json]] = {}
    for at, reason, count in reasons:
        why.setdefault(at, {})[reason] = count
    return [
        {
            "at": slot.at, "completed": slot.completed, "aborted": slot.aborted, "errors": slot.errors,
            "iterations": slot.iterations, "knownUSD": slot.micro_usd / 1_000_000, "unknownCosts": slot.unpriced,
            "tokens": slot.tokens, "abortReasons": why.get(slot.at, {}),
        }
        for slot in slots
    ]  # fmt: skip
