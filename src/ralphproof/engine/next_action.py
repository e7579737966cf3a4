"""The actions of a run, and the choice of the next one from its state, rules and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ralphproof.base.text import truncate
from ralphproof.base.value import assert_never, replace, value
from ralphproof.engine.agent import MAX_WAIT_S, AgentRotation, ConfigFault, ServiceFault, classify_fault, next_retry_at
from ralphproof.engine.check import CheckReport
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import (
    BLOCKED,
    CHILDREN_TIMEOUT,
    EMPTY_REPLIES,
    MAX_ERROR_CHARS,
    SERVICE_UNAVAILABLE,
    STALL,
    STEP,
    TIME_LIMIT,
    TRIPWIRE_REASONS,
    WAITING,
    Breach,
    ChildRunsStatus,
    DaySpend,
    Limits,
    Spend,
    Warn,
    find_tripwire_breach,
)
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Stopped, Verdict, Waiting, judge_iteration
from ralphproof.engine.plan import AllDone, Blocked, Iteration, Job, Pipeline, Stage
from ralphproof.engine.sandbox import AFTER_ITERATION, BEFORE_ITERATION, BEFORE_RUN
from ralphproof.engine.state import (
    SCM_STEP,
    BetweenIterations,
    Checking,
    IterationJudged,
    JobPicked,
    RunOver,
    State,
    TurnFinished,
    TurnRunning,
    count_begun_iterations,
)
from ralphproof.engine.weakening import count_flaky_failures, find_weakened_checks


@value
class AgentRules:
    """How agents are called, in which order, and how long they may take."""

    timeout_s: float = 3600.0
    idle_s: float | None = 900.0
    pause_s: float = 0.5  # before each turn
    back_off: bool = False  # the pause grows while the agent dies at once
    max_empty_replies: int | None = 3  # in a row; None: no limit
    wait_code: int | None = None  # the exit code by which an agent reports that it waits for a person
    rotation: AgentRotation = AgentRotation()


@value
class CheckRules:
    """When checks run, and what must hold for them before the first turn."""

    when: str = "always"  # or "claim"
    baseline: bool = False  # run them once before the first turn
    must_fail_first: bool = False  # at least one must fail in the baseline
    allow_missing: bool = False  # a check that cannot run in the baseline may be added by the agent


@value
class PromptRules:
    """What prompts contain besides the task."""

    show_count: bool = False
    show_previous: bool = False  # a summary of the previous iteration
    debug_advice: str = ""  # added once, to the prompt after a stall; empty: the first stall ends the run


@value
class ChildRules:
    """How long the run waits for its child runs, and how often it polls them."""

    timeout_s: float = 300.0
    poll_s: float = 1.0


@value
class RunRules:
    """Rules that stay the same during a run."""

    pipeline: Pipeline
    limits: Limits = Limits()
    agent: AgentRules = AgentRules()
    checks: CheckRules = CheckRules()
    prompt: PromptRules = PromptRules()
    children: ChildRules = ChildRules()
    scm: bool = False
    custom_limits: tuple[Callable[[State], Breach | None], ...] = ()  # limits passed by the caller
    warn_unknown_cost: bool = False  # warn of an unknown cost: the user set a cost limit
    step_after: int | None = None  # with --step: turns taken before this process started or resumed the run
    hooks: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (hook, the user's commands for it)

    def next_hook(self, state: State, hook: str) -> RunHook | None:
        """The next command of a hook that has not run yet."""
        for index in range(len(self.hook_commands(hook))):
            if (hook, index) not in state.hooks.done:
                return RunHook(hook, index)
        return None

    def hook_commands(self, hook: str) -> tuple[str, ...]:
        """The user's commands for this hook."""
        return dict(self.hooks).get(hook, ())

    def agent_order(self, state: State, job: Job) -> tuple[int, ...]:
        """Indexes of the agents that may take this job's next turn, the preferred one first."""
        return self.agent.rotation.order(state.iteration, state.escalation.rung, job.stage.place)


@value
class RunConditions:
    """Present conditions that a decision may depend on: the run's age, the date, and requests to pause or stop."""

    elapsed_s: float
    epoch_s: float = 0.0
    stop_reason: str = ""  # or INTERRUPTED, CANCELLED
    day: DaySpend = DaySpend()
    paused: bool = False
    claim: Claim | None = None  # found in a file before the turn
    children: ChildRunsStatus = ChildRunsStatus()
    open_command_ended: bool = False  # the command that was open at the resume had ended by itself


@value
class PickNextJob:
    """Read the plan and choose a job. Limits are checked afterwards: a finished plan takes precedence over them."""

    iteration: int


@value
class TakeTurn:
    """Pause, compose the prompt and run the agent at this index, or resume the turn that has begun."""

    job: Job
    agent_index: int = 0
    pause_s: float = 0.0


@value
class WaitForService:
    """Wait: no agent's service may be called yet."""

    seconds: float


@value
class HoldPaused:
    """Stay paused, as the user requested."""

    seconds: float


@value
class SaveUserChanges:
    """Save the tree after a time without a running agent or check; what changed in it counts as the user's."""


@value
class JudgeFoundClaim:
    """Judge a completion claim found in a file, without a turn."""


@value
class AwaitChildRuns:
    """Wait for unfinished runs that the agent started, before the work is judged."""

    children: tuple[str, ...]
    seconds: float


@value
class JoinChildWork:
    """Save the tree with the work of child runs, which have ended."""


@value
class SaveBaseline:
    """Save the tree with what the checks wrote into it: later changes are the agent's work."""


@value
class Escalate:
    """Continue with another model or prompt where a repetition limit would have ended the run."""

    rung: int
    debug: bool
    why: str


@value
class RunHook:
    """Run one of the user's commands: the one at this index of the hook's list."""

    hook: str
    index: int


@value
class SaveWork:
    """Save the tree after a turn."""


@value
class RetryTurn:
    """Repeat the same iteration; this agent is not called before `until`, which is `wait_s` from now."""

    empty: bool
    why: str
    until: float = 0.0
    wait_s: float = 0.0


@value
class RunChecks:
    """Run one check, and these in parallel with it."""

    check: str
    beside: tuple[str, ...] = ()


@value
class Conclude:
    verdict: Verdict


@value
class CommitWork:
    """Commit passed work to the user's SCM, or report why it is not committed."""

    why_not: str = ""


@value
class EndRun:
    outcome: Outcome


@value
class Finish:
    """Nothing is left to do."""

    outcome: Outcome


Action = (
    PickNextJob | TakeTurn | WaitForService | HoldPaused | SaveUserChanges | JudgeFoundClaim | AwaitChildRuns
    | JoinChildWork | SaveBaseline | Warn | Escalate | RunHook | SaveWork
    | RetryTurn | RunChecks | Conclude | CommitWork | EndRun | Finish
)  # fmt: skip


MAX_OUTPUT_CHARS = 10_000  # of the last message in the outcome


def completed_outcome(state: State, now: RunConditions, concerns: tuple[str, ...] = ()) -> Completed:
    """The outcome of a run whose plan is done."""
    output = state.history.latest.turn.text if state.history.iterations else ""
    added = _checks_added_by_agent(state)
    last_reports = {facts.job.task.id: facts.report for facts in state.history.iterations}.values()  # one per task
    reports = [
        CheckReport(tuple(finding for finding in report.findings if finding.check not in added))
        for report in last_reports
    ]
    verified = bool(reports) and all(report.verified for report in reports)
    judged = bool(reports) and all(report.judged for report in reports)
    return Completed(
        state.history.turn_count, total_spend(state, now), now.elapsed_s, truncate(output, MAX_OUTPUT_CHARS),
        verified, (*concerns, *_outcome_concerns(state)), judged,
    )  # fmt: skip


def _checks_added_by_agent(state: State) -> set[str]:
    """Checks that could not be run before the first turn: the agent added them, so their pass is only its claim."""
    return {finding.check for finding in state.baseline.report.findings if finding.unrunnable}


def _outcome_concerns(state: State) -> tuple[str, ...]:
    """Concerns about a completed run: an unverified stage, a warning, work that was not committed."""
    last = {facts.job.key: facts for facts in state.history.iterations}
    stages = {stage for _, stage in last}
    concerns = [why for facts in last.values() for why in _iteration_doubts(facts, several=len(stages) > 1)]
    concerns += _weak_evidence(state)
    return (*concerns, *(f"scm: {concern}" for concern in state.scm.committed.concerns))


def _weak_evidence(state: State) -> Iterator[str]:
    """Why passing checks are weak evidence: changed tests or check settings, flaky passes, or no evidence at all."""
    if not state.history.iterations:
        return
    latest, report = state.history.latest, state.history.latest.report
    yield from (altered.message for altered in latest.altered_inputs)
    for check in sorted(_checks_added_by_agent(state) & {finding.check for finding in report.findings}):
        yield f"{check} could not be run before the run began: the agent brought it, so its pass is only claimed"
    yield from (weakened.message for weakened in find_weakened_checks(report, state.baseline.report))
    earlier = (
        (state.trees.run_start.tree, state.baseline.report),
        *((facts.snapshot.tree, facts.report) for facts in state.history.iterations[:-1]),
    )
    for finding in report.findings:
        if times := count_flaky_failures(finding, latest.snapshot.tree, earlier):
            often = "once" if times == 1 else f"{times} times"
            yield f"{finding.check} is flaky: on this very tree it failed {often} before it passed"
    if state.run.facts.get("mustFailFirst"):
        passed_before = [
            finding.check
            for finding in report.findings
            if (before := state.baseline.report.find(finding.check)) and before.passed
        ]
        if passed_before:
            yield f"passed before the run began as well, so no evidence of this work: {', '.join(passed_before)}"


def _iteration_doubts(facts: Iteration, several: bool) -> Iterator[str]:
    """Doubts about an iteration that passed; that a whole run was only claimed is reported elsewhere."""
    stage = f"stage {facts.job.stage.name}"
    for finding in facts.report.findings:
        if finding.judged and finding.errored:
            yield f"{stage}: {finding.check} could not answer, so the promise alone counted"
        elif not finding.passed and not finding.required:
            yield f"{stage}: {finding.check} failed, and only warns"
    if several and not facts.report.findings:
        yield f"{stage}: it was claimed; nothing verified it"


def failed_outcome(state: State, now: RunConditions, error: str, exit_code: int = 3) -> Failed:
    """The outcome of a run that cannot continue, with its cost so far."""
    spend = state.bill.plus(now.children.spend)
    return Failed(error, count_begun_iterations(state), exit_code, spend, now.elapsed_s)


def _tree_passed_checks(state: State, breach: Breach) -> bool:
    """Whether the present tree passed all checks of its stage; false where a tripwire ended the run."""
    past = state.history.iterations
    match state.phase:
        case Checking(facts) | IterationJudged(facts):
            pass
        case TurnRunning() | TurnFinished():
            return False
        case _ if past:
            facts = past[-1]
        case _:
            return False
    if state.trees.changed_since_checks or breach.reason in TRIPWIRE_REASONS:
        return False
    ran = {finding.check for finding in facts.report.findings}
    return facts.report.verified and ran.issuperset(facts.job.stage.checks)


def aborted_outcome(state: State, now: RunConditions, breach: Breach) -> Aborted:
    """The outcome of a run that a breach ends."""
    past = state.history.iterations
    last = state.facts.turn if isinstance(state.phase, Checking) else past[-1].turn if past else None
    output, error = (
        (truncate(last.text, MAX_OUTPUT_CHARS), truncate(last.error or "", MAX_ERROR_CHARS)) if last else ("", "")
    )
    spend = state.bill.plus(now.children.spend)
    return Aborted(
        breach, count_begun_iterations(state), spend, now.elapsed_s, output, _tree_passed_checks(state, breach), error
    )


MAX_SLEEP_S = 1.0  # the conditions are checked again at least this often
MAX_PAUSE_S = 60.0
STEP_MESSAGE = "one iteration was taken, as --step asks"
CHECK_CANNOT_RUN = (
    "the check {} cannot be run ({}), so no agent was started; install what it needs, or correct it{}, or leave it to "
    "the agent to bring (--allow-missing-check)"
)
OTHER_CHECK_HINT = ", or name another with --check CMD, or run without checks (--no-check)"
ALL_PASSED_BEFORE_RUN = (
    "mustFailFirst is set, and every check passed before any agent was started: they could not show that anything "
    "was mended; add a check that fails until the work is done"
)


def pre_turn_action(state: State, rules: RunRules, now: RunConditions, job: Job) -> Action:
    """The action before this turn, if any: an end, a warning, an escalation, baseline checks, a pause."""
    limits, history, spend = rules.limits, state.history, total_spend(state, now)
    if now.paused:
        return HoldPaused(MAX_SLEEP_S)
    if state.user.paused:
        return SaveUserChanges()
    if state.turn == 1 and _has_new_claim(state, job, now.claim):
        return JudgeFoundClaim()
    if breach := (
        limits.find_exhausted(history, spend, now.day, now.elapsed_s)
        or limits.find_stage_exhausted(history, job)
        or _exhausted_later_stage(state, rules, job)
    ):
        return EndRun(aborted_outcome(state, now, breach))
    if breach := next(filter(None, (limit(state) for limit in rules.custom_limits)), None):
        return EndRun(aborted_outcome(state, now, breach))
    if breach := limits.find_lack_of_progress(history.since(state.escalation.since)):
        return _escalate_or_end(state, rules, now, breach)
    if rules.step_after is not None and history.turn_count > rules.step_after:
        return EndRun(aborted_outcome(state, now, Breach(STEP, STEP_MESSAGE)))
    if warning := limit_warning(state, rules, now):
        return warning
    if action := _run_baseline_checks(state, rules, now):
        return _require_failing_check(state, rules, now) if isinstance(action, SaveBaseline) else action
    agent_index = state.agent.services.first_ready(rules.agent_order(state, job), now.epoch_s)
    if agent_index is None:
        return _wait_until_ready(state, rules, now, job)
    return TakeTurn(job, agent_index, _pause_s(state, rules))


def _exhausted_later_stage(state: State, rules: RunRules, job: Job) -> Breach | None:
    """A later stage of the task that has no attempts left, which makes this turn pointless."""
    names = [stage.name for stage in rules.pipeline.stages]
    if job.task.stage is not None or job.stage.name not in names:
        return None
    for stage in rules.pipeline.stages[names.index(job.stage.name) + 1 :]:
        later = replace(job, stage=stage)
        if later.key not in state.passed and (breach := rules.limits.find_stage_exhausted(state.history, later)):
            return breach
    return None


def total_spend(state: State, now: RunConditions) -> Spend:
    """The spend that counts against the run's limits: its own turns and its child runs."""
    return state.spend.plus(now.children.spend)


def _has_new_claim(state: State, job: Job, claim: Claim | None) -> bool:
    """Whether a file holds a claim that has not been judged yet. Only one claim is judged between two turns: otherwise
    a claim file that is rewritten after each judgement would keep the run going past every limit.
    """
    if claim is None or not (claim.waiting or job.stage.claim.accepts(claim)):
        return False
    latest = state.history.latest if state.history.iterations else None
    if latest and not latest.turn.taken and not claim.waiting and latest.job.key == job.key:
        return False
    return latest is None or latest.claim is None or latest.claim.stamp != claim.stamp


def _pause_s(state: State, rules: RunRules) -> float:
    """The pause before an iteration; it grows while agents repeatedly fail at once."""
    if not state.history.iterations or state.turn > 1:
        return 0.0
    failures = state.history.quick_failures() if rules.agent.back_off else 0
    return min(rules.agent.pause_s * 2.0 ** min(max(0, failures - 1), 30), max(rules.agent.pause_s, MAX_PAUSE_S))


def _escalate_or_end(state: State, rules: RunRules, now: RunConditions, breach: Breach) -> Action:
    """A stronger model, then once a prompt with debugging instructions, then the end."""
    if state.escalation.rung + 1 < rules.agent.rotation.rungs:
        return Escalate(state.escalation.rung + 1, False, breach.message)
    if rules.prompt.debug_advice and breach.reason == STALL and not state.escalation.debug_iteration:
        return Escalate(state.escalation.rung, True, breach.message)
    return EndRun(aborted_outcome(state, now, breach))


def limit_warning(state: State, rules: RunRules, now: RunConditions) -> Warn | None:
    """A warning not given yet; a limit that is already exceeded is reported by the outcome instead."""
    spend = total_spend(state, now)
    if rules.limits.find_overspent(spend, now.day):
        return None
    warnings = rules.limits.warnings(state.attempt, spend, now.day)
    if rules.warn_unknown_cost and spend.unpriced:
        warnings += (rules.limits.unknown_cost_warning(state.iteration),)
    return next((warning for warning in warnings if warning.what not in state.warned), None)


def _run_baseline_checks(state: State, rules: RunRules, now: RunConditions) -> RunChecks | SaveBaseline | EndRun | None:
    """Run the checks before any agent has started: failures then are not the agent's. If one cannot be run, it could
    verify no work, and the run ends.
    """
    checks = tuple(dict.fromkeys(check for stage in rules.pipeline.stages for check in stage.checks))
    if not rules.checks.baseline or not checks or state.baseline.saved or state.history.iterations or state.turn > 1:
        return None
    findings = state.baseline.report.findings
    missing = next((finding for finding in findings if finding.required and finding.unrunnable), None)
    if missing and not rules.checks.allow_missing:
        named = missing.check if missing.command in ("", missing.check) else f"{missing.check} ({missing.command})"
        from_task = rules.pipeline.find_stage(missing.check.partition(".")[0]) is not None
        hint = "" if from_task or rules.pipeline.stage_first else OTHER_CHECK_HINT
        outcome = failed_outcome(state, now, CHECK_CANNOT_RUN.format(named, missing.unrunnable, hint), exit_code=2)
        return EndRun(replace(outcome, check=missing.check))
    ran = {finding.check for finding in findings}
    return next((RunChecks(check) for check in checks if check not in ran), SaveBaseline())


def _require_failing_check(state: State, rules: RunRules, now: RunConditions) -> Action:
    """Save the tree with what the checks wrote as the agent's starting point; end the run if one check had to fail and
    none did.
    """
    required = [finding for finding in state.baseline.report.findings if finding.required]
    if not rules.checks.must_fail_first or any(not finding.passed for finding in required):
        return SaveBaseline()
    return EndRun(failed_outcome(state, now, ALL_PASSED_BEFORE_RUN, exit_code=2))


def _wait_until_ready(state: State, rules: RunRules, now: RunConditions, job: Job) -> Action:
    """Wait for the first service that may be called again; after a resume with fewer agents there may be none."""
    until = state.agent.services.ready_at(rules.agent_order(state, job))
    if until is None:
        return EndRun(aborted_outcome(state, now, Breach(SERVICE_UNAVAILABLE, "no agent's service answers")))
    return WaitForService(min(until - now.epoch_s, MAX_SLEEP_S))


# All decisions of a run are made here and in `judge_iteration`; drivers only carry them out.


NO_BUDGET_FOR_MESSAGE = "no money is left to ask for a commit message; the work is saved, not committed"


def next_action(state: State, rules: RunRules, now: RunConditions) -> Action:
    """The next action, or the user's hook command that comes before it."""
    return _hook_or_action(state, rules, now, _action_of_phase(state, rules, now))


def _hook_or_action(state: State, rules: RunRules, now: RunConditions, step: Action) -> Action:
    match step:
        case TakeTurn() if state.turn_running:
            return step
        case TakeTurn() | RunChecks() | JudgeFoundClaim() | CommitWork():
            if state.hooks.failed:
                hook, result = state.hooks.failed
                return EndRun(aborted_outcome(state, now, Breach(BLOCKED, result.failure_message(hook))))
            first = isinstance(step, TakeTurn) and state.turn == 1
            return (
                rules.next_hook(state, BEFORE_RUN)
                or (rules.next_hook(state, BEFORE_ITERATION) if first else None)
                or step
            )
        case PickNextJob() | EndRun() if isinstance(state.phase, IterationJudged) and not now.stop_reason:
            verdict = state.phase.verdict
            if isinstance(verdict, Stopped) and verdict.breach.reason in TRIPWIRE_REASONS:
                return step  # files that the agent left are not run any more
            return rules.next_hook(state, AFTER_ITERATION) or step
        case _:
            return step


def _action_of_phase(state: State, rules: RunRules, now: RunConditions) -> Action:
    """An agent's work is saved before anything else is considered."""
    match state.phase:
        case RunOver(outcome):
            return Finish(outcome)
        case TurnRunning(job):
            return TakeTurn(job, state.agent.index)
        case TurnFinished():
            return SaveWork()
        case _ if now.stop_reason:
            return EndRun(aborted_outcome(state, now, Breach(now.stop_reason, "the run was asked to end")))
        case _ if (begun := state.hooks.open) and begun[1] < len(rules.hook_commands(begun[0])):
            return RunHook(*begun)
        case _ if state.user.unattended and not _commit_ended_unattended(state, now):
            return SaveUserChanges()
        case JobPicked(choice):
            return _after_pick(state, rules, now, choice)
        case Checking(facts):
            return _while_checking(state, rules, now, facts)
        case IterationJudged(facts, verdict, scm_done):
            return _after_verdict(state, rules, now, facts, verdict, scm_done)
        case BetweenIterations():
            return _pick_next(state)
        case _:
            assert_never(state.phase)


def _commit_ended_unattended(state: State, now: RunConditions) -> bool:
    """Whether the harness's own commit ended while no harness was running; its changes are not the user's."""
    return SCM_STEP in state.open_steps and now.open_command_ended


def _after_pick(state: State, rules: RunRules, now: RunConditions, choice: Job | AllDone | Blocked) -> Action:
    match choice:
        case AllDone(concerns):
            return EndRun(completed_outcome(state, now, concerns))
        case Blocked(tasks, why):
            message = f"nothing can be worked on ({why}): {', '.join(tasks)}"
            return EndRun(aborted_outcome(state, now, Breach(BLOCKED, message, tasks)))
        case Job():
            return pre_turn_action(state, rules, now, choice)
        case _:
            assert_never(choice)


def _while_checking(state: State, rules: RunRules, now: RunConditions, facts: Iteration) -> Action:
    if reason := _unsafe_reason(facts):
        return EndRun(failed_outcome(state, now, reason))
    if find_tripwire_breach(facts):  # files that the agent left are not run any more
        return _conclude(state, rules, now, facts)
    if warning := limit_warning(state, rules, now):
        return warning
    match classify_fault(facts.turn):
        case ConfigFault(message):
            return EndRun(failed_outcome(state, now, message, exit_code=2))
        case ServiceFault(message, resets_at):
            return _wait_for_service(state, rules, now, message, resets_at)
        case _:
            pass
    if rules.agent.max_empty_replies is not None and _is_empty_reply(facts):
        if state.agent.empty_replies >= rules.agent.max_empty_replies:
            breach = Breach(EMPTY_REPLIES, f"{state.agent.empty_replies + 1} empty replies in a row")
            return EndRun(aborted_outcome(state, now, breach))
        return RetryTurn(empty=True, why="the agent ended well and said nothing")
    claimed = facts.job.stage.claim.accepts(facts.claim)
    if claimed and (wait := _await_children(state, rules, now)):
        return wait
    due = (
        _current_stage(rules, facts).due(facts.report, claimed, facts.job.last)
        if claimed or rules.checks.when != "claim"
        else ()
    )
    return _run_due_checks(state, rules, now, facts, due) if due else _conclude(state, rules, now, facts)


def _run_due_checks(
    state: State, rules: RunRules, now: RunConditions, facts: Iteration, due: tuple[str, ...]
) -> Action:
    """Run the checks that are due; a judge costs money, and is not run where none is left."""
    judging = due[0] in _current_stage(rules, facts).judges
    if judging and (breach := rules.limits.find_spend_exhausted(total_spend(state, now), now.day)):
        return EndRun(aborted_outcome(state, now, breach))
    return RunChecks(due[0], due[1:])


def _current_stage(rules: RunRules, facts: Iteration) -> Stage:
    """This iteration's stage as now configured: a run may be resumed with other checks."""
    return rules.pipeline.find_stage(facts.job.stage.name) or facts.job.stage


def _is_empty_reply(facts: Iteration) -> bool:
    return facts.turn.empty and facts.change.is_empty and facts.claim is None and not facts.tripwires.touched


def _await_children(state: State, rules: RunRules, now: RunConditions) -> Action | None:
    """Wait for child runs: unfinished work is not judged."""
    active, limits = now.children.active, rules.limits
    if not active:
        return None if state.children_awaited_s is None else JoinChildWork()
    if breach := limits.find_overspent(total_spend(state, now), now.day) or limits.find_time_exhausted(now.elapsed_s):
        return EndRun(aborted_outcome(state, now, breach))
    if state.children_awaited_s is not None and now.elapsed_s - state.children_awaited_s >= rules.children.timeout_s:
        late = f"not over after {rules.children.timeout_s:g} seconds: {', '.join(active)}"
        message = f"the work is claimed to be done, but runs of its own are {late}"
        return EndRun(aborted_outcome(state, now, Breach(CHILDREN_TIMEOUT, message)))
    return AwaitChildRuns(active, rules.children.poll_s)


def _conclude(state: State, rules: RunRules, now: RunConditions, facts: Iteration) -> Conclude:
    return Conclude(
        judge_iteration(
            state.history.with_iteration(facts), total_spend(state, now), rules.limits, now.day, state.baseline.report
        )
    )


def _unsafe_reason(facts: Iteration) -> str:
    """Why the run may not continue: a process of the agent is still alive, or the work could not be saved."""
    if survivors := facts.turn.exit.survivors:
        return (
            f"processes of the agent could not be ended ({', '.join(map(str, survivors))}); no check counts beside them"
        )
    if facts.snapshot.id is None and not facts.change.rewritten:
        backup = f"; {facts.change.kept}" if facts.change.kept else ""
        problem = facts.snapshot.problem
        return f"the agent's work could not be saved, it lies in the project as it was left: {problem}{backup}"
    return ""


def _wait_for_service(
    state: State, rules: RunRules, now: RunConditions, message: str, resets_at: float | None
) -> Action:
    """Pause this agent's service; end the run if no agent is left or the wait exceeds the run's time."""
    failures = state.agent.services.outage_at(state.agent.index).failures + 1
    until = next_retry_at(failures, resets_at, now.epoch_s, state.run.id)
    ready_at = state.agent.services.with_failure(state.agent.index, until).ready_at(rules.agent_order(state, state.job))
    if ready_at is None:
        breach = Breach(SERVICE_UNAVAILABLE, f"{message} ({failures} times in a row)")
        return EndRun(aborted_outcome(state, now, breach))
    wait_s = ready_at - now.epoch_s
    if wait_s > MAX_WAIT_S:
        breach = Breach(SERVICE_UNAVAILABLE, f"{message}, for another {wait_s / 3600:.0f} hours")
        return EndRun(aborted_outcome(state, now, breach))
    limit_s = rules.limits.budget.seconds
    if limit_s is not None and now.elapsed_s + wait_s > limit_s:
        too_long = f"{message}, for another {wait_s / 60:.0f} minutes, and the run's time ends before"
        return EndRun(aborted_outcome(state, now, Breach(TIME_LIMIT, too_long)))
    return RetryTurn(empty=False, why=message, until=until, wait_s=until - now.epoch_s)


def _after_verdict(
    state: State, rules: RunRules, now: RunConditions, facts: Iteration, verdict: Verdict, scm_done: bool
) -> Action:
    match verdict:
        case Stopped(breach):
            return EndRun(aborted_outcome(state, now, breach))
        case Waiting(reason):
            return EndRun(aborted_outcome(state, now, Breach(WAITING, reason)))
        case _:
            pass
    spend = total_spend(state, now)
    if scm_done and (overspent := rules.limits.find_overspent(spend, now.day)):  # by the call for the commit message
        return EndRun(aborted_outcome(state, now, overspent))
    if rules.scm and not scm_done and _all_checks_passed(rules, facts) and facts.change.known and state.scm.uncommitted:
        return CommitWork(NO_BUDGET_FOR_MESSAGE if rules.limits.find_spend_exhausted(spend, now.day) else "")
    return _pick_next(state)


def _all_checks_passed(rules: RunRules, facts: Iteration) -> bool:
    """Every check of the stage was run, and all required ones passed."""
    ran = {finding.check for finding in facts.report.findings}
    return facts.report.passed and ran.issuperset(_current_stage(rules, facts).checks)


def _pick_next(state: State) -> PickNextJob:
    return PickNextJob(len(state.history.iterations) + 1)
