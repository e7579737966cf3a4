"""A run told from its records: what each iteration was, and what goes on now."""

from __future__ import annotations

import time

from ralphproof import record as told
from ralphproof.display import words
from ralphproof.fault import ending
from ralphproof.limit import GOES_ON
from ralphproof.phase import Over, Picking
from ralphproof.service import Crew
from ralphproof.stage import Job
from ralphproof.state import State, state_of
from ralphproof.timeline import Pace
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Aborted, Passed, Retry, SentBack, Stopped, Verdict, Waiting, result, verdict_word
from ralphproof.views.standing import CRASHED, ENDED, PAUSED, RUNNING, STOPPED, when

if TYPE_CHECKING:
    from ralphproof.check import Report
    from ralphproof.iteration import Iteration
    from ralphproof.record import Record
    from ralphproof.value import Json


@value
class Pass:
    """One iteration, its verdict, and how long it took."""

    facts: Iteration
    verdict: Verdict
    seconds: float


@value
class Account:
    """What the records of a run tell. `refused` is why a service was last not there."""

    state: State
    facts: dict[str, Json]
    passes: tuple[Pass, ...]
    last: Record | None
    refused: str = ""
    hooks: tuple[told.HookEnded, ...] = ()


def account_of(records: tuple[Record, ...]) -> Account:
    """Read the records once."""
    state = state_of(records)
    verdicts = {record.iteration: record.verdict for record in records if isinstance(record, told.Judged)}
    pace = Pace()
    for record in records:
        pace.take(0.0, record)
    past = state.history.iterations
    passes = tuple(Pass(facts, verdicts[facts.number], pace.judged_s(facts.number)) for facts in past)
    began = next((record.facts for record in records if isinstance(record, told.RunBegan)), {})
    held = {name: state.labels[name] for name in ("sandbox",) if name in state.labels}  # who took it up may say anew
    again = (record.why for record in reversed(records) if isinstance(record, told.TurnAgain) and not record.empty)
    hooks = tuple(record for record in records if isinstance(record, told.HookEnded))
    return Account(state, {**began, **held}, passes, records[-1] if records else None, next(again, ""), hooks)


def shown_state(where: str, state: State) -> str:
    """How a run stands, told apart further than by its processes: one may rest, or wait for somebody."""
    match state.phase:
        case Over(Aborted(breach)) if breach.reason in GOES_ON:
            return STOPPED
        case Over():
            return ENDED
        case _:
            return PAUSED if where == RUNNING and state.paused else where


def doing(account: Account, where: str) -> str:
    """What a run that stands so is at; nothing where it has ended, or nobody is at it any more."""
    state = account.state
    if where in (CRASHED, ENDED, STOPPED):
        return ""
    if state.paused:
        return f"iteration {state.iteration}: rests before its turn"
    match account.last:
        case told.TurnBegan(iteration):
            return f"iteration {iteration}: the agent works"
        case told.CheckBegan(iteration, _, check):
            return f"{when(iteration)}: guardrail {check} runs"
        case told.CheckEnded(0):
            return f"{when(0)}: between two steps"
        case told.ScmBegan(iteration):
            return f"iteration {iteration}: the work is being committed"
        case told.HookBegan(iteration, hook, command=command):
            return f"{when(iteration)}: {hook} runs: {command}"
        case told.Awaited(iteration, children=children):
            return f"iteration {iteration}: {words.awaited(children)}"
        case None | told.RunBegan():
            return "about to begin"
        case _:
            return f"iteration {account.state.iteration}: {_waiting(account) or 'between two steps'}"


def _waiting(account: Account) -> str:
    now = time.time()
    until = waits_until(account, now)
    if until is None:
        return ""
    return f"waits for the agent's service until {words.moment(until, now)} ({account.refused})"


def waits_until(account: Account, now: float) -> float | None:
    """When (epoch seconds) the first service may be asked again; None where nobody waits for one."""
    match account.state.phase:
        case Picking(Job()):
            services, places = account.state.services, _order(account)
            return services.ready_at(places) if services.ready(places, now) is None else None
        case _:
            return None


def _order(account: Account) -> tuple[int, ...]:
    state = account.state
    return _crew(account).order(state.iteration, state.rung, state.job.stage.place)


def _crew(account: Account) -> Crew:
    listed = (account.facts.get(name) for name in ("ladder", "rotate", "fallbacks"))
    rungs, rotating, fallbacks = (len(one) if isinstance(one, list | tuple) else 0 for one in listed)
    return Crew(max(1, rungs), rotating, fallbacks)


def verdict_words(verdict: Verdict) -> str:
    """The same for people."""
    match verdict:
        case Passed():
            return "done"
        case Retry():
            return "not done"
        case SentBack(reopened):
            return f"back to {reopened[0]}"
        case Waiting():
            return "waits"
        case Stopped(breach):
            return f"stopped, {breach.reason}"


def table(account: Account) -> list[str]:
    """The iterations as aligned lines, under a heading."""
    rows = [("#", "agent", "files", "checks", "verdict", "time")]
    rows += [_row(item) for item in account.passes]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def troubles(account: Account) -> list[str]:
    """What agents changed and may not change, or tried to reach and may not, iteration by iteration; and hooks that
    failed.
    """
    failed = [f"{when(one.iteration)}: {words.hooked(one)}" for one in account.hooks if not one.result.passed]
    return failed + [
        f"{when(item.facts.number)}: {line}"
        for item in account.passes
        for line in (
            *words.touched(item.facts.sprung),
            *words.altered(item.facts.altered),
            *words.blocked(item.facts.turn.exit.blocked),
        )
    ]


def _row(item: Pass) -> tuple[str, str, str, str, str, str]:
    facts, report = item.facts, item.facts.report
    failed = len(report.findings) - sum(finding.passed for finding in report.findings)
    counted = f"{len(report.findings) - failed} passed" + (f", {failed} failed" if failed else "")
    end = "ended" if not facts.turn.errored else "reported an error" if facts.turn.error else ending(facts.turn)
    end = end if facts.turn.taken else "not asked"
    files = str(len(facts.change.own)) if facts.change.known else "?"
    checks = counted if report.findings else "none"
    return str(facts.number), end, files, checks, verdict_words(item.verdict), words.duration(item.seconds)


def as_json(account: Account) -> dict[str, Json]:
    """Everything that is known, for programs."""
    state = account.state
    over = state.phase.outcome if isinstance(state.phase, Over) else None
    return {
        "facts": account.facts,
        "outcome": result(over) if over else None,
        "until": waits_until(account, time.time()),
        "baseline": _checks(state.baseline),
        "sessions": state.session,
        "iterations": [_iteration(item) for item in account.passes],
        "hooks": [_hook(record) for record in account.hooks],
    }


def _hook(record: told.HookEnded) -> Json:
    result = record.result
    return {
        "hook": record.hook, "iteration": record.iteration, "command": result.command, "passed": result.passed,
        "exitCode": result.code, "why": result.why, "seconds": result.seconds, "log": result.log,
        "output": result.output, "files": list(record.paths),
    }  # fmt: skip


def _iteration(item: Pass) -> dict[str, Json]:
    from ralphproof.display.ndjson import published

    facts, turn = item.facts, item.facts.turn
    agent: dict[str, Json] = {
        "why": turn.exit.why, "exitCode": turn.exit.code, "signal": turn.exit.signal, "error": turn.error,
        "seconds": turn.exit.seconds, "blocked": list(turn.exit.blocked),
    }  # fmt: skip
    return {
        "number": facts.number,
        "agent": agent,
        "filesKnown": facts.change.known,
        "files": list(facts.change.own),
        "claim": facts.claim.word if facts.claim else None,
        "checks": _checks(facts.report),
        "verdict": verdict_word(item.verdict),
        "seconds": round(item.seconds, 3),
        "saved": facts.snapshot.ref,
        "sprung": published(facts.sprung),
        "altered": published(facts.altered),
    }


def _checks(report: Report) -> list[Json]:
    return [
        {
            "name": finding.check, "command": finding.command, "passed": finding.passed, "exitCode": finding.code,
            "why": finding.why, "seconds": finding.seconds, "log": finding.log, "hidden": finding.hidden,
            "flaky": finding.flaky,
        }
        for finding in report.findings
    ]  # fmt: skip
