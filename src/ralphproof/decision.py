"""What to do next. Everything that a run decides is decided here and in `judge`; drivers only carry it out."""

from __future__ import annotations

from ralphproof.action import (
    Action,
    Ask,
    Await,
    Conclude,
    End,
    Finish,
    Join,
    Keep,
    Moment,
    PickNext,
    Regain,
    Rules,
    RunHook,
    Save,
    TakeAgain,
    TakeClaim,
    TakeTurn,
)
from ralphproof.ending import aborted, completed, failed
from ralphproof.fault import ConfigFault, ServiceFault, fault_of
from ralphproof.iteration import Iteration
from ralphproof.limit import (
    BLOCKED,
    CHILDREN_TIMEOUT,
    EMPTY_REPLIES,
    SERVICE_UNAVAILABLE,
    TIME_LIMIT,
    TRIPWIRES,
    WAITING,
    Breach,
    tripped,
)
from ralphproof.opening import before_turn, spend_of, warning
from ralphproof.phase import Checking, Concluded, Over, Picking, Ready, Turned, Turning
from ralphproof.run_hook import AFTER_ITERATION, BEFORE_ITERATION, BEFORE_RUN
from ralphproof.service import MOST_WAIT_S, again_at
from ralphproof.stage import AllDone, Blocked, Job, Stage
from ralphproof.state import SCM, State
from ralphproof.value import assert_never
from ralphproof.verdict import Stopped, Verdict, Waiting, judge

NO_MONEY = "no money is left to ask for a commit message; the work is saved, not committed"


def next_action(state: State, rules: Rules, now: Moment) -> Action:
    """The one next step, or the user's own command that comes before it."""
    return _hooked(state, rules, now, _next(state, rules, now))


def _hooked(state: State, rules: Rules, now: Moment, step: Action) -> Action:
    match step:
        case TakeTurn() if state.turning:
            return step
        case TakeTurn() | Ask() | TakeClaim() | Keep():
            if state.hooks.failed:
                hook, result = state.hooks.failed
                return End(aborted(state, now, Breach(BLOCKED, result.told(hook))))
            first = isinstance(step, TakeTurn) and state.turn == 1
            return rules.due(state, BEFORE_RUN) or (rules.due(state, BEFORE_ITERATION) if first else None) or step
        case PickNext() | End() if isinstance(state.phase, Concluded) and not now.wish:
            verdict = state.phase.verdict
            if isinstance(verdict, Stopped) and verdict.breach.reason in TRIPWIRES:
                return step  # nothing that the agent left behind is run any more
            return rules.due(state, AFTER_ITERATION) or step
        case _:
            return step


def _next(state: State, rules: Rules, now: Moment) -> Action:
    """Work that an agent did is saved before anything else is even considered."""
    match state.phase:
        case Over(outcome):
            return Finish(outcome)
        case Turning(job):
            return TakeTurn(job, state.place)
        case Turned():
            return Save()
        case _ if now.wish:
            return End(aborted(state, now, Breach(now.wish, "the run was asked to end")))
        case _ if (begun := state.hooks.open) and begun[1] < len(rules.commands(begun[0])):
            return RunHook(*begun)
        case _ if state.unsure and not (SCM in state.begun and now.ended):  # else our own commit would be the user's
            return Regain()
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
        case AllDone(concerns):
            return End(completed(state, now, concerns))
        case Blocked(tasks, why):
            message = f"nothing can be worked on ({why}): {', '.join(tasks)}"
            return End(aborted(state, now, Breach(BLOCKED, message, tasks)))
        case Job():
            return before_turn(state, rules, now, choice)
        case _:
            assert_never(choice)


def _checking(state: State, rules: Rules, now: Moment, facts: Iteration) -> Action:
    if trouble := _unsafe(facts):
        return End(failed(state, now, trouble))
    if tripped(facts):  # nothing that it left behind is run any more
        return _conclusion(state, rules, now, facts)
    if near := warning(state, rules, now):
        return near
    match fault_of(facts.turn):
        case ConfigFault(message):
            return End(failed(state, now, message, exit_code=2))
        case ServiceFault(message, resets_at):
            return _wait(state, rules, now, message, resets_at)
        case _:
            pass
    if rules.empty_tries is not None and _said_nothing(facts):
        if state.empties >= rules.empty_tries:
            return End(aborted(state, now, Breach(EMPTY_REPLIES, f"{state.empties + 1} empty replies in a row")))
        return TakeAgain(empty=True, why="the agent ended well and said nothing")
    claimed = facts.job.stage.claim.accepts(facts.claim)
    if claimed and (wait := _for_children(state, rules, now)):
        return wait
    due = (
        _stage(rules, facts).due(facts.report, claimed, facts.job.last)
        if claimed or rules.checks_when != "claim"
        else ()
    )
    return _asking(state, rules, now, facts, due) if due else _conclusion(state, rules, now, facts)


def _asking(state: State, rules: Rules, now: Moment, facts: Iteration, due: tuple[str, ...]) -> Action:
    """Ask what is due; a judge costs money, and is not asked where none is left."""
    judging = due[0] in _stage(rules, facts).judges
    if judging and (breach := rules.limits.spent_all(spend_of(state, now), now.day)):
        return End(aborted(state, now, breach))
    return Ask(due[0], due[1:])


def _stage(rules: Rules, facts: Iteration) -> Stage:
    """This iteration's stage as it now is: a run may be resumed with other checks."""
    return rules.pipeline.named(facts.job.stage.name) or facts.job.stage


def _said_nothing(facts: Iteration) -> bool:
    return facts.turn.empty and facts.change.nothing and facts.claim is None and not facts.sprung.touched


def _for_children(state: State, rules: Rules, now: Moment) -> Action | None:
    """Work that others are still at is not judged."""
    active, limits = now.children.active, rules.limits
    if not active:
        return None if state.awaited_s is None else Join()
    if breach := limits.overspent(spend_of(state, now), now.day) or limits.late(now.elapsed_s):
        return End(aborted(state, now, breach))
    if state.awaited_s is not None and now.elapsed_s - state.awaited_s >= rules.children_s:
        late = f"not over after {rules.children_s:g} seconds: {', '.join(active)}"
        return End(
            aborted(
                state, now, Breach(CHILDREN_TIMEOUT, f"the work is claimed to be done, but runs of its own are {late}")
            )
        )
    return Await(active, rules.poll_s)


def _conclusion(state: State, rules: Rules, now: Moment, facts: Iteration) -> Conclude:
    return Conclude(judge(state.history.plus(facts), spend_of(state, now), rules.limits, now.day, state.baseline))


def _unsafe(facts: Iteration) -> str:
    """Why nothing may follow: something of the agent still lives, or its work could not be saved."""
    if left := facts.turn.exit.survivors:
        return f"processes of the agent could not be ended ({', '.join(map(str, left))}); no check counts beside them"
    if facts.snapshot.id is None and not facts.change.rewritten:
        kept = f"; {facts.change.kept}" if facts.change.kept else ""
        problem = facts.snapshot.problem
        return f"the agent's work could not be saved, it lies in the project as it was left: {problem}{kept}"
    return ""


def _wait(state: State, rules: Rules, now: Moment, message: str, resets_at: float | None) -> Action:
    """Leave this agent's service alone for a while, unless no agent is left, or the while is longer than the run."""
    failures = state.services.of(state.place).failures + 1
    until = again_at(failures, resets_at, now.epoch_s, state.run)
    ready_at = state.services.failed(state.place, until).ready_at(rules.order(state, state.job))
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
    return TakeAgain(empty=False, why=message, until=until, wait_s=until - now.epoch_s)


def _concluded(state: State, rules: Rules, now: Moment, facts: Iteration, verdict: Verdict, kept: bool) -> Action:
    match verdict:
        case Stopped(breach):
            return End(aborted(state, now, breach))
        case Waiting(reason):
            return End(aborted(state, now, Breach(WAITING, reason)))
        case _:
            pass
    if kept and (over := rules.limits.overspent(spend_of(state, now), now.day)):  # the message was what cost too much
        return End(aborted(state, now, over))
    if rules.scm and not kept and _green(rules, facts) and facts.change.known and state.unkept:
        return Keep(NO_MONEY if rules.limits.spent_all(spend_of(state, now), now.day) else "")
    return _onward(state)


def _green(rules: Rules, facts: Iteration) -> bool:
    """Every check of the stage was asked, and all that is required passed."""
    asked = {finding.check for finding in facts.report.findings}
    return facts.report.passed and asked.issuperset(_stage(rules, facts).checks)


def _onward(state: State) -> PickNext:
    return PickNext(len(state.history.iterations) + 1)
