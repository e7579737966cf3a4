"""What to do next. Everything that a run decides is decided here and in `judge`; drivers only carry it out."""

from __future__ import annotations

from ralphproof.action import (
    Action,
    Ask,
    Conclude,
    End,
    Escalate,
    Finish,
    Ground,
    Keep,
    Moment,
    PickNext,
    Rest,
    Rules,
    Save,
    TakeAgain,
    TakeTurn,
    Warn,
)
from ralphproof.agent import bounded
from ralphproof.fault import ConfigFault, ServiceFault, fault_of
from ralphproof.iteration import Iteration
from ralphproof.ledger import State
from ralphproof.limit import (
    BLOCKED,
    EMPTY_REPLIES,
    SERVICE_UNAVAILABLE,
    STALL,
    TIME_LIMIT,
    WAITING,
    Breach,
    tripped,
)
from ralphproof.phase import Checking, Concluded, Over, Picking, Ready, Turned, Turning
from ralphproof.service import MOST_WAIT_S, again_at
from ralphproof.stage import AllDone, Blocked, Job
from ralphproof.value import assert_never
from ralphproof.verdict import Aborted, Completed, Failed, Stopped, Verdict, Waiting, judge

REST_S = 1.0  # the longest rest at once: the clock may be set, a limit may be reached, somebody may look
NO_MONEY = "no money is left to ask for a commit message; the work is saved, not committed"
OUTPUT_CHARS = 10_000  # of the last message, in the outcome


def next_action(state: State, rules: Rules, now: Moment) -> Action:
    """The one next step. Work that an agent did is saved before anything else is even considered."""
    match state.phase:
        case Over(outcome):
            return Finish(outcome)
        case Turning(job):
            return TakeTurn(job, state.place)
        case Turned():
            return Save()
        case _ if now.wish:
            return End(aborted(state, now, Breach(now.wish, "the run was asked to end")))
        case Picking(choice):
            return _picked(state, rules, now, choice)
        case Checking(facts):
            return _checking(state, rules, now, facts)
        case Concluded(facts, verdict, kept):
            return _concluded(state, rules, now, facts, verdict, kept)
        case Ready():
            return _onward(state)
        case _:
            assert_never(state.phase)


def _picked(state: State, rules: Rules, now: Moment, choice: Job | AllDone | Blocked) -> Action:
    match choice:
        case AllDone():
            return End(_completed(state, now))
        case Blocked(tasks, why):
            message = f"nothing can be worked on ({why}): {', '.join(tasks)}"
            return End(aborted(state, now, Breach(BLOCKED, message, tasks)))
        case Job():
            return _before_turn(state, rules, now, choice)
        case _:
            assert_never(choice)


def _before_turn(state: State, rules: Rules, now: Moment, job: Job) -> Action:
    """What comes before this turn: an end, a word to the user, another way to go on, the checks' first look, a rest."""
    limits, history = rules.limits, state.history
    if breach := limits.used_up(history, state.spend, now.day, now.elapsed_s) or limits.stage_used_up(history, job):
        return End(aborted(state, now, breach))
    if breach := next(filter(None, (own(state) for own in rules.own)), None):
        return End(aborted(state, now, breach))
    if breach := limits.repeated(history.since(state.since)):
        return _repeated(state, rules, now, breach)
    if warning := _warning(state, rules, now):
        return warning
    if look := _first_look(state, rules):
        return look
    place = state.services.ready(rules.crew.order(state.iteration, state.rung), now.epoch_s)
    if place is None:
        return _resting(state, rules, now)
    return TakeTurn(job, place, rules.pause_s if history.iterations and state.turn == 1 else 0.0)


def _repeated(state: State, rules: Rules, now: Moment, breach: Breach) -> Action:
    """A better model, then a prompt that tells how to debug, once; then the end."""
    if state.rung + 1 < rules.crew.rungs:
        return Escalate(state.rung + 1, False, breach.message)
    if rules.deep_debug and breach.reason == STALL and not state.deep:
        return Escalate(state.rung, True, breach.message)
    return End(aborted(state, now, breach))


def _warning(state: State, rules: Rules, now: Moment) -> Warn | None:
    """What is told once each; where the limit itself was passed, the end tells it."""
    if rules.limits.overspent(state.spend, now.day):
        return None
    near = rules.limits.near(state.iteration, state.spend, now.day)
    if rules.cost_matters and state.spend.unpriced:
        near += (rules.limits.unheld(state.iteration),)
    return next((Warn(one.what, one.message) for one in near if one.what not in state.warned), None)


def _first_look(state: State, rules: Rules) -> Ask | Ground | None:
    """The checks before any agent was started: what fails then is not the agent's doing."""
    checks = tuple(dict.fromkeys(check for stage in rules.pipeline.stages for check in stage.checks))
    if not rules.baseline or not checks or state.grounded or state.history.iterations or state.turn > 1:
        return None
    asked = {finding.check for finding in state.baseline.findings}
    return next((Ask(check) for check in checks if check not in asked), Ground())


def _resting(state: State, rules: Rules, now: Moment) -> Action:
    """Wait for the first service that may be asked again; with fewer agents than before there may be none left."""
    until = state.services.ready_at(rules.crew.order(state.iteration, state.rung))
    if until is None:
        return End(aborted(state, now, Breach(SERVICE_UNAVAILABLE, "no agent's service answers")))
    return Rest(min(until - now.epoch_s, REST_S))


def _checking(state: State, rules: Rules, now: Moment, facts: Iteration) -> Action:
    if trouble := _unsafe(facts):
        return End(failed(state, now, trouble))
    if tripped(facts):  # nothing that it left behind is run any more
        return _conclusion(state, rules, now, facts)
    if warning := _warning(state, rules, now):
        return warning
    match fault_of(facts.turn):
        case ConfigFault(message):
            return End(failed(state, now, message, exit_code=2))
        case ServiceFault(message, resets_at):
            return _wait(state, rules, now, message, resets_at)
        case _:
            pass
    if facts.turn.empty and facts.change.nothing and facts.claim is None and not facts.sprung.touched:
        if state.empties >= rules.empty_tries:
            return End(aborted(state, now, Breach(EMPTY_REPLIES, f"{state.empties + 1} empty replies in a row")))
        return TakeAgain(empty=True, why="the agent ended well and said nothing")
    asked = {finding.check for finding in facts.report.findings}
    claimed = rules.checks_when != "claim" or facts.job.stage.claim.accepts(facts.claim)
    for check in facts.job.stage.checks if claimed else ():
        if check not in asked:
            return Ask(check)
    return _conclusion(state, rules, now, facts)


def _conclusion(state: State, rules: Rules, now: Moment, facts: Iteration) -> Conclude:
    return Conclude(judge(state.history.plus(facts), state.spend, rules.limits, now.day, state.baseline))


def _unsafe(facts: Iteration) -> str:
    """Why nothing may follow: something of the agent still lives, or its work could not be saved."""
    if left := facts.turn.exit.survivors:
        return f"processes of the agent could not be ended ({', '.join(map(str, left))}); no check counts beside them"
    if facts.snapshot.id is None and not facts.change.rewritten:
        return f"the agent's work could not be saved, it lies in the project as it was left: {facts.snapshot.problem}"
    return ""


def _wait(state: State, rules: Rules, now: Moment, message: str, resets_at: float | None) -> Action:
    """Leave this agent's service alone for a while, unless no agent is left, or the while is longer than the run."""
    failures = state.services.of(state.place).failures + 1
    until = again_at(failures, resets_at, now.epoch_s, state.run)
    ready_at = state.services.failed(state.place, until).ready_at(rules.crew.order(state.iteration, state.rung))
    if ready_at is None:
        return End(aborted(state, now, Breach(SERVICE_UNAVAILABLE, f"{message} ({failures} times in a row)")))
    wait_s = ready_at - now.epoch_s
    if wait_s > MOST_WAIT_S:
        return End(
            aborted(state, now, Breach(SERVICE_UNAVAILABLE, f"{message}, for another {wait_s / 3600:.0f} hours"))
        )
    seconds = rules.limits.budget.seconds
    if seconds is not None and now.elapsed_s + wait_s > seconds:
        over = f"{message}, for another {wait_s / 60:.0f} minutes, and the run's time ends before"
        return End(aborted(state, now, Breach(TIME_LIMIT, over)))
    return TakeAgain(empty=False, why=message, until=until)


def _concluded(state: State, rules: Rules, now: Moment, facts: Iteration, verdict: Verdict, kept: bool) -> Action:
    match verdict:
        case Stopped(breach, green):
            return End(aborted(state, now, breach, green))
        case Waiting(reason):
            return End(aborted(state, now, Breach(WAITING, reason)))
        case _:
            pass
    if kept and (over := rules.limits.overspent(state.spend, now.day)):  # the message was what cost too much
        return End(aborted(state, now, over, facts.report.verified))
    if rules.scm and not kept and _green(facts) and facts.change.known and state.unkept:
        return Keep(NO_MONEY if rules.limits.spent_all(state.spend, now.day) else "")
    return _onward(state)


def _green(facts: Iteration) -> bool:
    """Every check of the stage was asked, and all that is required passed."""
    asked = {finding.check for finding in facts.report.findings}
    return facts.report.passed and asked.issuperset(facts.job.stage.checks)


def _onward(state: State) -> PickNext:
    return PickNext(len(state.history.iterations) + 1)


def _completed(state: State, now: Moment) -> Completed:
    output = state.history.latest.turn.text if state.history.iterations else ""
    verified = state.proved and bool(state.history.iterations) and state.history.latest.report.verified
    concerns = tuple(f"scm: {concern}" for concern in state.committed.concerns)
    past = len(state.history.iterations)
    return Completed(past, state.spend, now.elapsed_s, bounded(output, OUTPUT_CHARS), verified, concerns)


def begun_iterations(state: State) -> int:
    """How many iterations there were. One that was begun and not judged counts, unless its agent could not start."""
    match state.phase:
        case Checking(facts):
            begun = facts.turn.exit.why != "unstartable"
        case Picking():
            begun = state.turn > 1
        case phase:
            begun = isinstance(phase, Turning | Turned)
    return len(state.history.iterations) + begun


def failed(state: State, now: Moment, error: str, exit_code: int = 3) -> Failed:
    """The outcome of a run that cannot go on. What it cost until then it did cost."""
    return Failed(error, begun_iterations(state), exit_code, state.bill, now.elapsed_s)


def aborted(state: State, now: Moment, breach: Breach, checks_passed: bool = False) -> Aborted:
    """The outcome of a run that a breach ends."""
    past = state.history.iterations
    said = state.facts.turn.text if isinstance(state.phase, Checking) else past[-1].turn.text if past else ""
    output = bounded(said, OUTPUT_CHARS)
    return Aborted(breach, begun_iterations(state), state.bill, now.elapsed_s, output, checks_passed)
