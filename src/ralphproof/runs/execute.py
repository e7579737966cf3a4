"""Executing a run from its spec to its outcome: begin or resume, loop, and the single pass where the loop breaks."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import HarnessFailed, Refused, StaleRead, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.process_identity import current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.limits import SERVICE_UNAVAILABLE, Breach
from ralphproof.engine.loop import NEW_STATE, Loop
from ralphproof.engine.outcome import Failed
from ralphproof.process.signals import RunClock
from ralphproof.runs.constraints import apply_parent_constraints, cap_budget_by_ancestors, save_constraints
from ralphproof.runs.context import RunContext
from ralphproof.runs.dead_runs import close_dead_runs, find_live_turn
from ralphproof.runs.environment import build_environment, open_run_scm, run_tripwires
from ralphproof.runs.facts import build_run_facts
from ralphproof.runs.request import save_request
from ralphproof.runs.target import FRESH_RUN, RUN_ID_VARIABLE, find_parent_run
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.memory_ledger import MemoryLedger
from ralphproof.store.sqlite_ledger import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.environment import LoopEnvironment
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.state import State
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.runs.context import CreateObservers, Listen
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget
    from ralphproof.store.project import Project

    OnEnd = Callable[[RunContext, Outcome], object]

SINGLE_PASS = "single-pass"  # noqa: S105 (a setting, no password)
FALLBACK_NOTICE = "[Ralph] Falling back to normal execution..."


def execute(
    spec: RunSpec,
    keeper: KeeperClient,
    create_observers: CreateObservers,
    on_end: OnEnd,
    listen: Listen = RunClock.listen,
    target: RunTarget = FRESH_RUN,
) -> Outcome:
    """Run the loop to its end. Where it fails before any agent was started, settings may ask for a single pass.

    `on_end` is called once with the outcome, while the run still holds its directory.
    """
    if kind := os.environ.get(SANDBOX_VARIABLE):
        raise Refused(f"this is inside sandbox {kind}; --detach asks the harness outside for a run of your own")
    try:
        return _execute_once(spec, keeper, create_observers, on_end, listen, target)
    except StaleRead as stale:
        from ralphproof.runs.spec import prepare_spec

        again = prepare_spec(spec.original_request)
        again = replace(again, remarks=(str(stale), *again.remarks))
        return _execute_once(again, keeper, create_observers, on_end, listen, target)


def _execute_once(
    spec: RunSpec,
    keeper: KeeperClient,
    create_observers: CreateObservers,
    on_end: OnEnd,
    listen: Listen,
    target: RunTarget,
) -> Outcome:
    # A resumed run and a child run are bound to what is on record, so they get no single pass without the ledger.
    independent = target.row is None and not os.environ.get(RUN_ID_VARIABLE)
    fall_back = independent and spec.loaded.settings.on_internal_error == SINGLE_PASS
    context = None
    try:
        parent = find_parent_run(spec.project, target)
        constrained = apply_parent_constraints(spec, parent) if parent else spec
        run = target.row.id if target.row else target.run
        with RunContext(constrained, keeper, create_observers, listen, run, parent) as context:
            outcome = begin_run(context).run() if target.row is None else _resume(context)
            broken = _error_before_first_turn(context, outcome)
            if not (broken and fall_back):
                on_end(context, outcome)
                return outcome
    except (HarnessFailed, OSError) as error:
        fault = wrap_os_error(error) if isinstance(error, OSError) else error
        started = context is not None and context.turns.begun
        if not fall_back or fault.exit_code != HarnessFailed.exit_code or started:
            raise
        broken = str(fault)
    return _execute_single_pass(spec, keeper, create_observers, on_end, listen, broken)


def _resume(context: RunContext) -> Outcome:
    from ralphproof.runs.resume import execute_resumed

    return execute_resumed(context)


def _error_before_first_turn(context: RunContext, outcome: Outcome) -> str:
    """Why the loop itself failed before any agent was started; empty where it did not."""
    failed = isinstance(outcome, Failed) and outcome.exit_code == HarnessFailed.exit_code
    return outcome.error if failed and not context.turns.begun and isinstance(outcome, Failed) else ""


def begin_run(context: RunContext) -> Loop:
    """Put a new run on record and return its loop, which has done nothing yet."""
    remarks = (
        close_dead_runs(context.ledger, context.project, context.run, context.parent)
        if isinstance(context.ledger, SqliteLedger)
        else []
    )
    return _begin(context, run_rules(context), remarks)


def _begin(context: RunContext, rules: RunRules, remarks: list[str]) -> Loop:
    scm = open_run_scm(context)
    context.folder.begin()
    remarks += _clear_stale_markers(context)
    environment = build_environment(context, scm, run_tripwires(context))
    request, root = context.spec.request, context.project.root
    if context.recorded:
        save_constraints(context.folder, rules, context.spec, context.sandbox.name)
        save_request(context.folder, replace(request_to_save(context), project_dir=root), context.project.mask)
    if request.in_worktree:
        from ralphproof.runs.checkouts import prepare_worktree

        prepare_worktree(context.spec, context.folder, environment)
    # From here on a refusal is on record.
    context.ledger.begin_run(context.run, root, time.time(), current_process(), context.parent, request.task_id)
    if request.message and isinstance(context.ledger, SqliteLedger):
        context.ledger.add_user_message(context.run, request.message)
    context.clock.follow(context.ledger, context.run)
    loop = build_loop(context, rules, environment)
    reclaimed = "" if remarks else context.lock.reclaimed  # else a remark says so already
    more = (reclaimed, *context.lock_remarks, context.ledger.repaired, _estimate(context))
    for remark in (*context.spec.remarks, *remarks, *filter(None, more)):
        loop.notice(remark)
    return loop


def build_loop(context: RunContext, rules: RunRules, environment: LoopEnvironment, state: State = NEW_STATE) -> Loop:
    """The loop of a run, in this state."""
    facts = build_run_facts(
        context.spec, context.sandbox, context.workspace.kind, context.folder.task_folder, context.parent
    )
    return Loop(context.run, rules, environment, facts, state)


def run_rules(context: RunContext) -> RunRules:
    """The rules of the spec; a child run may use no more than its ancestors have left, and has no hooks of its own."""
    rules = context.spec.rules
    if not context.parent or isinstance(context.ledger, MemoryLedger):
        return rules
    budget = cap_budget_by_ancestors(
        rules.limits.budget, context.run, context.project, context.ledger, context.spend, context.parent
    )
    return replace(rules, hooks=(), limits=replace(rules.limits, budget=budget))


def request_to_save(context: RunContext) -> RunRequest:
    """The request, with the verify commands of stories as they were when the run began."""
    request, workflow = context.spec.request, context.spec.story_workflow
    return replace(request, verify_commands=workflow.verify) if workflow else request


def _clear_stale_markers(context: RunContext) -> list[str]:
    """Put away marker files that an earlier run left or has seen; remarks about it."""
    if context.spec.story_workflow:
        from ralphproof.runs.stories import prepare_marker

        return prepare_marker(context.project.root, context.run)
    if not context.spec.request.task_folder or isinstance(context.ledger, MemoryLedger):
        return []
    from ralphproof.runs.agent_signals import put_away_stale_markers

    return put_away_stale_markers(context.ledger, context.folder.task_folder, context.run)


def _estimate(context: RunContext) -> str:
    """What such a run takes, by this repository's past runs; empty where there is nothing to compare with."""
    from ralphproof.store.statistics import describe_estimate, estimate_run

    skill = context.spec.skill.name if context.spec.skill else ""
    estimate = estimate_run(context.ledger.past_runs(), skill)
    return describe_estimate(estimate) if estimate else ""


def _execute_single_pass(
    spec: RunSpec, keeper: KeeperClient, create_observers: CreateObservers, on_end: OnEnd, listen: Listen, error: str
) -> Outcome:
    """One turn with all limits and checks, in the same sandbox. It leaves files for people, and no record.

    What is usually stored beside the ledger may be what broke, so none of it is used.
    """
    import tempfile

    failed = f"[Ralph] Wrapper failed: {collapse_lines(sanitize(spec.project.mask(error)))}"
    _print_error(failed)
    _print_error(FALLBACK_NOTICE)
    once = single_pass_spec(spec)
    once = replace(once, remarks=(failed, FALLBACK_NOTICE, *once.remarks))  # programs read no standard error
    with tempfile.TemporaryDirectory(prefix="ralph-single-pass-") as store:
        once = replace(once, project=replace(spec.project, store=store))
        with RunContext(
            once, keeper, create_observers, listen, open_ledger=lambda project: MemoryLedger(project.mask)
        ) as context:
            _refuse_beside_orphaned_agent(spec.project)
            rules = run_rules(context)
            rules = replace(rules, baseline=False, custom_limits=(*rules.custom_limits, _refuse_second_attempt))
            outcome = _begin(context, rules, []).run()
            on_end(context, outcome)
            return outcome


def single_pass_spec(spec: RunSpec) -> RunSpec:
    """The same spec for one iteration without retries, commits and metrics."""
    settings = spec.loaded.settings
    agent = replace(settings.agent, retries=0)
    once = replace(settings, maximum_iterations=1, scm=None, metrics=False, agent=agent)
    return replace(spec, loaded=replace(spec.loaded, settings=once))


def _refuse_beside_orphaned_agent(project: Project) -> None:
    """Raise Refused where an agent is still at work whose harness died. Without the ledger, only folders show runs."""
    folder = os.path.join(project.root, ".ralph", "runs")
    for run in os.listdir(folder) if os.path.isdir(folder) else ():
        if find_live_turn(project, run):
            raise Refused(f"run {run} lost its harness, and its agent is still at work here; wait for it to end")


def _refuse_second_attempt(state: State) -> Breach | None:
    """A limit: an iteration may wait for a service and try again, a single pass may not."""
    if state.turn == 1:
        return None
    return Breach(SERVICE_UNAVAILABLE, "the agent's service did not answer, and a single pass asks it only once")


def _print_error(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # standard error is closed; the run goes on
