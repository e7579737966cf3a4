"""Executing a run from its spec to its outcome: begin or resume, loop, and the single pass where the loop breaks."""

from __future__ import annotations

import os
import sys
import time

from ralphproof import __version__
from ralphproof.agents.selection import installed_version
from ralphproof.base.errors import HarnessFailed, Refused, StaleRead, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.processes import current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.limits import SERVICE_UNAVAILABLE, Breach
from ralphproof.engine.loop import NEW_STATE, Loop
from ralphproof.engine.outcome import Failed
from ralphproof.process.signals import RunClock
from ralphproof.runs.children import apply_parent_constraints, cap_budget_by_ancestors, save_constraints
from ralphproof.runs.context import RunContext
from ralphproof.runs.environment import build_environment, open_run_scm, run_tripwires
from ralphproof.runs.recovery import close_dead_runs
from ralphproof.runs.request import FRESH_RUN, RUN_ID_VARIABLE, find_parent_run, save_request
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.ledger import MemoryLedger, SqliteLedger
from ralphproof.store.run_state import find_live_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.base.value import Json
    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.environment import LoopEnvironment
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.sandbox import Sandbox
    from ralphproof.engine.state import State
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.runs.context import CreateObservers, Listen
    from ralphproof.runs.request import RunRequest, RunTarget
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project
    from ralphproof.stories.workflow import StoryWorkflow

    OnEnd = Callable[[RunContext, Outcome], object]


MAX_TITLE_CHARS = 120


def build_run_facts(spec: RunSpec, sandbox: Sandbox, workspace: str, task_folder: str, parent: str) -> dict[str, Json]:
    """The facts of a run with this spec."""
    settings = spec.loaded.settings
    agent, fallback_index = spec.selected_agents[0], len(spec.selected_agents) - len(settings.agent.fallbacks)
    fallbacks = [_agent_facts(fallback) for fallback in spec.selected_agents[fallback_index:]]
    return {
        "title": _prompt_title(spec.request.prompt[0] or _shell_text(spec.request.program)),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": " ".join(os.uname()[::2]) if hasattr(os, "uname") else sys.platform,
        "preset": settings.preset,
        **_agent_facts(agent),
        "model": agent.model or "",
        "ladder": list(settings.agent.ladder),
        "rotate": list(settings.agent.rotate),
        "fallbacks": [*fallbacks],
        "checks": [
            *(spec.stage_plan.check_labels if spec.stage_plan else ()),
            *(check.name for check in spec.custom.checks),
        ],
        "skill": spec.skill.name if spec.skill else "",
        "taskType": spec.fitness.type if spec.fitness else "",
        "sandbox": _sandbox_facts(sandbox, spec),
        "workspace": workspace,
        "maximumIterations": settings.maximum_iterations,
        "maxCostUsd": settings.cost_limit_micro_usd / 1_000_000,
        "maxTokens": settings.limits.max_tokens,
        "maxSeconds": None if settings.limits.max_minutes is None else settings.limits.max_minutes * 60,
        "dailyCostUsd": settings.daily_limit_micro_usd / 1_000_000,
        "protectedPaths": list(settings.protected_paths),
        "promptFile": spec.prompt_file,
        "settingsDigest": spec.loaded.digest,
        "mustFailFirst": settings.must_fail_first,
        "protectTests": settings.protect_tests,
        "verifyIn": settings.verify_in,
        "setup": list(settings.setup),
        "mayChange": list(spec.request.may_change),
        "directory": spec.project.root,
        "taskFolder": task_folder,
        "project": spec.request.project,
        "task": spec.request.task,
        "parent": parent,
        "work": spec.request.task_id,
        "stages": _stage_facts(spec),
        **({"stories": _story_facts(spec.story_workflow)} if spec.story_workflow else {}),
    }


def _shell_text(words: tuple[str, ...]) -> str:
    """A supervised program as a shell command; empty where there is none."""
    if not words:
        return ""
    import shlex

    return shlex.join(words)


def _prompt_title(prompt: str) -> str:
    """The first line of a prompt, for lists; empty where the prompt is in a file or a task."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= MAX_TITLE_CHARS else first[: MAX_TITLE_CHARS - 1] + "…"


def _sandbox_facts(sandbox: Sandbox, spec: RunSpec) -> dict[str, Json]:
    """The sandbox: kind, strength, weaknesses, and what can be reached from it."""
    facts: dict[str, Json] = {"name": sandbox.name, "strength": sandbox.strength}
    if sandbox.strength == "none":
        return facts
    settings = spec.loaded.settings.sandbox
    weaknesses, limits = getattr(sandbox, "weaknesses", ()), getattr(sandbox, "limits", "")
    return facts | {
        "weak": list(weaknesses), "limits": limits, "allowHosts": list(settings.allow_hosts),
        "allowLocalPorts": list(settings.allow_local_ports), "readPaths": list(settings.read_paths),
    }  # fmt: skip


def _stage_facts(spec: RunSpec) -> list[Json]:
    """The stages, where there are several."""
    stages = spec.stage_plan.pipeline.stages if spec.stage_plan else ()
    return [
        {
            "name": stage.name,
            "agent": spec.agents[stage.place or 0].name,
            "maxIterations": stage.max_iterations,
            "promise": stage.claim.word,
            "verification": stage.method,
        }
        for stage in (stages if len(stages) > 1 else ())
    ]


def _story_facts(workflow: StoryWorkflow) -> dict[str, Json]:
    """The story workflow, which recovery needs after a crash."""
    return {
        "folder": workflow.folder,
        "cap": workflow.cap,
        "skipReview": workflow.skip_review,
        "capIsFailure": workflow.cap_is_failure,
    }


def _agent_facts(selected: SelectedAgent) -> dict[str, Json]:
    """An agent, its version and its permissions."""
    return {
        "agent": selected.agent.name,
        "agentVersion": installed_version(selected.program) if selected.program else None,
        "permissions": selected.permissions,
    }


# Executing a run from its spec to its outcome: begin or resume, loop, and the single pass where the loop breaks.


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
    from ralphproof.runs.environment import put_away_stale_markers

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
            rules = replace(
                rules,
                custom_limits=(*rules.custom_limits, _refuse_second_attempt),
                checks=replace(rules.checks, baseline=False),
            )
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
