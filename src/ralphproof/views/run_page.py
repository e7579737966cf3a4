"""All about one run, for programs that show it: how it stands, its limits, and its iterations."""

from __future__ import annotations

import time

from ralphproof.display import words
from ralphproof.ending import begun_iterations
from ralphproof.phase import Over
from ralphproof.timeline import BEFORE, cut_off
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import result
from ralphproof.views.account import waits_until
from ralphproof.views.found import last_s
from ralphproof.views.iteration_json import check_json, failing_in, iteration_json
from ralphproof.views.run_line import open_line
from ralphproof.views.standing import CRASHED

if TYPE_CHECKING:
    from ralphproof.budget import Spend
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.timeline import Span
    from ralphproof.value import Json
    from ralphproof.views.followed import Followed
    from ralphproof.views.project import Project
    from ralphproof.views.stance import Stance

UNITS = {"iterations": "count", "cost": "usd", "day's cost": "usd", "tokens": "tokens", "time": "seconds"}


def run_page(
    ledger: Sqlite, stance: Stance, followed: Followed, project: Project, after: int, today: Spend | None
) -> dict[str, Json]:
    """Everything that is known. Of the iterations, those that were touched after the record of this number."""
    account, timeline = stance.account, followed.timeline
    phase, now_s = account.state.phase, time.time()
    over = phase.outcome if isinstance(phase, Over) else None
    until = None if stance.where == CRASHED else waits_until(account, now_s)
    before = timeline.spans.get(BEFORE)
    until_s = last_s(project, stance.row.id, followed.at_s) if stance.where == CRASHED else None
    told: dict[str, Json] = {
        "v": 1, "seq": followed.seq, "complete": after == 0, "facts": account.facts,
        "outcome": result(over) if over else None, "words": [*(words.outcome(over) if over else ())],
        "headline": stance.first_line(), "since": stance.since, "unread": stance.unread,
        "found": stance.found or None, "limits": _limits(stance, followed, today, until_s or now_s),
        "waits": None if until is None else {"until": until, "why": account.refused},
        "failing": _failing(followed), "kin": [{"run": run, "state": where} for run, where in stance.kin],
        "stages": _stages(account.facts.get("stages")), "stories": "stories" in account.facts,
        "baseline": [check_json(one) for one in (before.checks if before else ())],
        "iterations": [iteration_json(span) for span in _touched(followed, after, until_s)],
    }  # fmt: skip
    return open_line(ledger, stance.row, stance.where, followed, project) | told


def _touched(followed: Followed, after: int, until_s: float | None) -> list[Span]:
    """The iterations that have changed since; one that nobody is at any more ended when the run was last at work."""
    spans, pace, changed = followed.timeline.spans, followed.timeline.pace, followed.timeline.touched
    last, told = max(spans, default=BEFORE), {number for number, seq in changed.items() if number and seq > after}
    if until_s is None or not last or spans[last].ended_s is not None:
        return [spans[number] for number in sorted(told)]
    left = cut_off(spans[last], until_s, pace.seconds(last, pace.age_s(until_s)))  # no record says so
    return [*(spans[number] for number in sorted(told - {last})), left]


def _limits(stance: Stance, followed: Followed, today: Spend | None, until_s: float) -> list[Json]:
    """What of each limit is used by then. One that is not known is null; what has no limit is told all the same."""
    state, facts = followed.state, stance.account.facts
    over = state.phase.outcome if isinstance(state.phase, Over) else None
    bill = stance.together or stance.bill
    used: dict[str, tuple[Json, str]] = {
        "iterations": (over.iterations if over else begun_iterations(state), "maximumIterations"),
        "cost": (bill.known_usd, "maxCostUsd"),
        "day's cost": (today.known_usd if today else None, "dailyCostUsd"),
        "tokens": (bill.tokens or None, "maxTokens"),  # who tells none may have used any number
        "time": (over.seconds if over else followed.timeline.pace.age_s(until_s), "maxSeconds"),
    }  # fmt: skip
    rough = {"cost": bill.unpriced, "day's cost": today.unpriced if today else 0}
    return [
        {"name": name, "used": amount, "most": facts.get(fact), "unit": UNITS[name], "atLeast": bool(rough.get(name))}
        for name, (amount, fact) in used.items()
    ]


def _failing(followed: Followed) -> list[Json]:
    spans = followed.timeline.spans
    return [{"iteration": number, "failing": failing_in(spans[number])} for number in sorted(spans)]


def _stages(stages: Json) -> list[Json]:
    return [one.get("name") for one in stages if isinstance(one, dict)] if isinstance(stages, list | tuple) else []
