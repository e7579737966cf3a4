"""What comes before a turn: an end, a rest, a word to the user, another way to go on, or the turn itself."""

from __future__ import annotations

from ralphproof.action import (
    Action,
    Ask,
    End,
    Escalate,
    Ground,
    Hold,
    Moment,
    Regain,
    Rest,
    Rules,
    TakeClaim,
    TakeTurn,
    Warn,
)
from ralphproof.budget import Spend
from ralphproof.claim import Claim
from ralphproof.ending import aborted, failed
from ralphproof.limit import SERVICE_UNAVAILABLE, STALL, STEP, Breach
from ralphproof.stage import Job
from ralphproof.state import State
from ralphproof.value import replace

REST_S = 1.0  # the longest rest at once: the clock may be set, a limit may be reached, somebody may look
MOST_PAUSE_S = 60.0
STEPPED = "one iteration was taken, as --step asks"
CANNOT_RUN = (
    "the check {} cannot be run ({}), so no agent was started; install what it needs, or correct it{}, or leave it to "
    "the agent to bring (--allow-missing-check)"
)
ANOTHER = ", or name another with --check CMD, or run without checks (--no-check)"
ALL_GREEN = (
    "mustFailFirst is set, and every check passed before any agent was started: they could not show that anything "
    "was mended; add a check that fails until the work is done"
)


def before_turn(state: State, rules: Rules, now: Moment, job: Job) -> Action:
    """What comes before this turn: an end, a word to the user, another way to go on, the checks' first look, a rest."""
    limits, history, spend = rules.limits, state.history, spend_of(state, now)
    if now.paused:
        return Hold(REST_S)
    if state.paused:
        return Regain()
    if state.turn == 1 and _news(state, job, now.claim):
        return TakeClaim()
    used_up = limits.used_up(history, spend, now.day, now.elapsed_s) or limits.stage_used_up(history, job)
    if breach := used_up or _used_up_ahead(state, rules, job):
        return End(aborted(state, now, breach))
    if breach := next(filter(None, (own(state) for own in rules.own)), None):
        return End(aborted(state, now, breach))
    if breach := limits.repeated(history.since(state.since)):
        return _repeated(state, rules, now, breach)
    if rules.step_after is not None and history.turns > rules.step_after:
        return End(aborted(state, now, Breach(STEP, STEPPED)))
    if near := warning(state, rules, now):
        return near
    if look := _first_look(state, rules, now):
        return _needs_red(state, rules, now) if isinstance(look, Ground) else look
    place = state.services.ready(rules.order(state, job), now.epoch_s)
    if place is None:
        return _resting(state, rules, now, job)
    return TakeTurn(job, place, _pause_s(state, rules))


def _used_up_ahead(state: State, rules: Rules, job: Job) -> Breach | None:
    """A stage that the task has still to pass after this one, and that may be tried no more: then this is in vain."""
    names = [stage.name for stage in rules.pipeline.stages]
    if job.task.stage is not None or job.stage.name not in names:
        return None
    for stage in rules.pipeline.stages[names.index(job.stage.name) + 1 :]:
        later = replace(job, stage=stage)
        if later.key not in state.passed and (breach := rules.limits.stage_used_up(state.history, later)):
            return breach
    return None


def spend_of(state: State, now: Moment) -> Spend:
    """What counts against the run's limits: its own turns, and the runs that its agent began."""
    return state.spend.beside(now.children.spend)


def _news(state: State, job: Job, claim: Claim | None) -> bool:
    """Whether a file says something that has not been judged yet.

    Between two turns one claim is judged: no limit would end what leaves another one whenever it is looked at.
    """
    if claim is None or not (claim.waiting or job.stage.claim.accepts(claim)):
        return False
    latest = state.history.latest if state.history.iterations else None
    if latest and not latest.turn.taken and not claim.waiting and latest.job.key == job.key:
        return False
    return latest is None or latest.claim is None or latest.claim.stamp != claim.stamp


def _pause_s(state: State, rules: Rules) -> float:
    """The pause before an iteration; where agents that die at once are started again and again, it grows."""
    if not state.history.iterations or state.turn > 1:
        return 0.0
    deaths = state.history.sudden_deaths() if rules.back_off else 0
    return min(rules.pause_s * 2.0 ** min(max(0, deaths - 1), 30), max(rules.pause_s, MOST_PAUSE_S))


def _repeated(state: State, rules: Rules, now: Moment, breach: Breach) -> Action:
    """A better model, then a prompt that tells how to debug, once; then the end."""
    if state.rung + 1 < rules.crew.rungs:
        return Escalate(state.rung + 1, False, breach.message)
    if rules.deep_debug and breach.reason == STALL and not state.deep:
        return Escalate(state.rung, True, breach.message)
    return End(aborted(state, now, breach))


def warning(state: State, rules: Rules, now: Moment) -> Warn | None:
    """What is told once each; where the limit itself was passed, the end tells it."""
    spend = spend_of(state, now)
    if rules.limits.overspent(spend, now.day):
        return None
    near = rules.limits.near(state.attempt, spend, now.day)
    if rules.cost_matters and spend.unpriced:
        near += (rules.limits.unheld(state.iteration),)
    return next((Warn(one.what, one.message) for one in near if one.what not in state.warned), None)


def _first_look(state: State, rules: Rules, now: Moment) -> Ask | Ground | End | None:
    """The checks before any agent was started: what fails then is not the agent's doing.

    One that cannot be run would show nothing of any work, so none is begun.
    """
    checks = tuple(dict.fromkeys(check for stage in rules.pipeline.stages for check in stage.checks))
    if not rules.baseline or not checks or state.grounded or state.history.iterations or state.turn > 1:
        return None
    missing = next((one for one in state.baseline.findings if one.required and one.unrunnable), None)
    if missing and not rules.allow_missing_check:
        named = missing.check if missing.command in ("", missing.check) else f"{missing.check} ({missing.command})"
        own = rules.pipeline.named(missing.check.partition(".")[0]) is not None  # the task itself names it
        own = own or rules.pipeline.stage_first  # the stories' file does
        message = CANNOT_RUN.format(named, missing.unrunnable, "" if own else ANOTHER)
        refused = failed(state, now, message, exit_code=2)
        return End(replace(refused, check=missing.check))
    asked = {finding.check for finding in state.baseline.findings}
    return next((Ask(check) for check in checks if check not in asked), Ground())


def _needs_red(state: State, rules: Rules, now: Moment) -> Action:
    """The tree with what the checks wrote is where the agent begins; unless one of them had to fail, and none did."""
    required = [finding for finding in state.baseline.findings if finding.required]
    if not rules.red_first or any(not finding.passed for finding in required):
        return Ground()
    return End(failed(state, now, ALL_GREEN, exit_code=2))


def _resting(state: State, rules: Rules, now: Moment, job: Job) -> Action:
    """Wait for the first service that may be asked again; with fewer agents than before there may be none left."""
    until = state.services.ready_at(rules.order(state, job))
    if until is None:
        return End(aborted(state, now, Breach(SERVICE_UNAVAILABLE, "no agent's service answers")))
    return Rest(min(until - now.epoch_s, REST_S))
