"""Executing runs from spec to outcome: begin or resume, loop, the single pass where the loop breaks, pools of runs."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ralphproof import __version__
from ralphproof.agents.selection import SelectedAgent, installed_version
from ralphproof.base.errors import HarnessFailed, RalphError, Refused, StaleRead, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.git_layout import is_run_worktree
from ralphproof.base.processes import current_process
from ralphproof.base.value import TYPE_CHECKING, Json, replace, value
from ralphproof.engine.environment import LoopEnvironment, Observer
from ralphproof.engine.limits import SERVICE_UNAVAILABLE, WAITING, Breach, abort_reason
from ralphproof.engine.loop import NEW_STATE, Loop
from ralphproof.engine.next_action import Conclude, EndRun, RunRules, next_action
from ralphproof.engine.outcome import Aborted, Failed, Outcome, Stopped
from ralphproof.engine.sandbox import Sandbox
from ralphproof.engine.state import IterationJudged, RunOver, State, build_state
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock, SignalRouter
from ralphproof.runs.assembly import prepare_worktree
from ralphproof.runs.children import (
    apply_parent_constraints,
    cap_budget_by_ancestors,
    load_constraints,
    sandbox_as_settings,
    save_constraints,
)
from ralphproof.runs.context import RunContext, build_environment, open_run_scm, put_away_stale_markers, run_tripwires
from ralphproof.runs.open_project import refuse_unrelated_run_in_turn
from ralphproof.runs.recovery import (
    close_dead_runs,
    end_leftover_processes,
    find_unjudged_work,
    idle_since_ns,
    refuse_tampered_settings,
    state_when_resumed,
    turn_end_ns,
)
from ralphproof.runs.request import (
    FRESH_RUN,
    REQUEST_NOTE,
    RUN_ID_VARIABLE,
    RunRequest,
    RunTarget,
    find_parent_run,
    load_request,
    override_request,
    save_request,
)
from ralphproof.runs.saved_work import first_line
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.runs.stories import prepare_marker
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.settings.declarations import Settings
from ralphproof.store.ledger import MemoryLedger, RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, SignalFiles
from ralphproof.store.run_state import RUNNING, find_live_turn, find_run, refuse_collected_run, run_state
from ralphproof.store.spend import InProcessSharedBudget
from ralphproof.store.statistics import describe_estimate, estimate_run
from ralphproof.stories.workflow import StoryWorkflow
from ralphproof.views.run_status import active_seconds, describe_takeover, refuse_finished_run
from ralphproof.workspace.tripwires import ProtectedFileTripwires

if TYPE_CHECKING:
    from ralphproof.runs.context import CreateObservers, Listen
    from ralphproof.runs.displays import PoolDisplay


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
            outcome = begin_run(context).run() if target.row is None else execute_resumed(context)
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


def _error_before_first_turn(context: RunContext, outcome: Outcome) -> str:
    """Why the loop itself failed before any agent was started; empty where it did not."""
    failed = isinstance(outcome, Failed) and outcome.exit_code == HarnessFailed.exit_code
    return outcome.error if failed and not context.turns.begun and isinstance(outcome, Failed) else ""


def begin_run(context: RunContext) -> Loop:
    """Put a new run on record and return its loop, which has done nothing yet."""
    remarks = close_dead_runs(context.ledger, context.project, context.run, context.parent)
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
        prepare_worktree(context.spec, context.folder, environment)
    # From here on a refusal is on record.
    context.ledger.begin_run(context.run, root, time.time(), current_process(), context.parent, request.task.id)
    if request.message:
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
    if not context.parent:
        return rules
    budget = cap_budget_by_ancestors(
        rules.limits.budget, context.run, context.project, context.ledger, context.spend, context.parent
    )
    return replace(rules, hooks=(), limits=replace(rules.limits, budget=budget))


def request_to_save(context: RunContext) -> RunRequest:
    """The request, with the verify commands of stories as they were when the run began."""
    request, workflow = context.spec.request, context.spec.story_workflow
    return replace(request, stories=replace(request.stories, verify_commands=workflow.verify)) if workflow else request


def _clear_stale_markers(context: RunContext) -> list[str]:
    """Put away marker files that an earlier run left or has seen; remarks about it."""
    if context.spec.story_workflow:
        return prepare_marker(context.project.root, context.run)
    if not context.spec.request.task.folder:
        return []
    return put_away_stale_markers(context.ledger, context.folder.task_folder, context.run)


def _estimate(context: RunContext) -> str:
    """What such a run takes, by this repository's past runs; empty where there is nothing to compare with."""
    skill = context.spec.skill.name if context.spec.skill else ""
    estimate = estimate_run(context.ledger.past_runs(), skill)
    return describe_estimate(estimate) if estimate else ""


def _execute_single_pass(
    spec: RunSpec, keeper: KeeperClient, create_observers: CreateObservers, on_end: OnEnd, listen: Listen, error: str
) -> Outcome:
    """One turn with all limits and checks, in the same sandbox. It leaves files for people, and no record.

    What is usually stored beside the ledger may be what broke, so none of it is used.
    """
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


# Resuming a run that lost its harness, or that ended in a way that allows it.


PLAN_COMMAND_NOTE = "plan-command"  # the `ralph plan` that began the run


def load_resumed_request(project: Project, name: str, overrides: RunRequest) -> tuple[RunRow, RunRequest]:
    """The run to resume, and its saved request with the overrides."""
    ledger = project.ledger()
    try:
        if not ledger.runs(1):
            raise Refused("there is no run to resume; begin one: ralph run")
        row = find_run(ledger, name)
        refuse_unrelated_run_in_turn("run --resume", ledger, row)
        refuse_collected_run(project, row.id)
        _refuse_unresumable(run_state(ledger, row, project), row, project)
        refuse_finished_run(build_state(ledger.records(row.id)), row.id)
        _refuse_changed_task(ledger, row)
    finally:
        ledger.close()
    saved = load_request(RunFolder(row.directory, row.id, project.store))
    if saved is None:
        raise Refused(f"what run {row.id} was asked to do is not on record; begin a new run")
    request, custom = saved
    if custom and overrides.custom == request.custom:
        if again := RunFolder(row.directory, row.id, project.store).noted(PLAN_COMMAND_NOTE):
            raise Refused(f"run {row.id} was begun by ralph plan; plan again: {again}")
        raise Refused(f"run {row.id} was begun by a program, with functions of its own; resume it there")
    return row, replace(
        override_request(_keep_sandbox(request, overrides, row, project), overrides), project_dir=row.directory
    )


def _keep_sandbox(request: RunRequest, overrides: RunRequest, row: RunRow, project: Project) -> RunRequest:
    """The request with the sandbox that the run had, whatever the settings say now; a flag may change it."""
    constraints = load_constraints(RunFolder(row.directory, row.id, project.store))
    if constraints is None or not (request.guarded and overrides.guarded):
        return request
    return replace(
        request, allow_hosts=(), flags={**request.flags, "sandbox": sandbox_as_settings(constraints.sandbox)}
    )


def _refuse_changed_task(ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused where the task was changed since the run began: what passed says nothing about it then."""
    task = ledger.tasks.row(ledger.tasks.task_of_run(row.id) or "")
    if task is not None and task.updated_at > row.began_at:
        raise Refused(f"task {task.id} was changed since run {row.id} began; begin it anew: ralph work {task.id}")


def _refuse_unresumable(status: str, row: RunRow, project: Project) -> None:
    if status == RUNNING:
        raise Refused(f"run {row.id} is running (pid {row.pid}); look on: ralph attach {row.id}")
    if not os.path.isdir(row.directory):
        raise Refused(f"run {row.id} worked in {row.directory}, which is gone; its saved work is in its branch or refs")
    if row.directory != project.root and not is_run_worktree(row.directory, project.store):
        raise Refused(f"run {row.id} works in {row.directory}; resume it there: ralph run --resume {row.id} -d DIR")


@value
class ResumedLoop:
    """The loop of a resumed run, which has done nothing yet, and what to tell the user.

    `summary` says where the run stood; `remarks` what was cleaned up; `records` how many records there were.
    """

    loop: Loop
    summary: str
    remarks: tuple[str, ...]
    records: int


def execute_resumed(context: RunContext) -> Outcome:
    """Resume a run and loop to its end. What was requested anew holds for later resumes too.

    Where the run fails before another iteration is judged, the earlier request is restored.
    """
    resumed = resume_run(context)
    loop = resumed.loop
    for line in (resumed.summary, *context.spec.remarks, *resumed.remarks):
        loop.notice(line)
    before, judged = context.folder.noted(REQUEST_NOTE), len(loop.state.history.iterations)
    take_over(context, loop)
    outcome = loop.run()
    if isinstance(outcome, Failed) and len(loop.state.history.iterations) <= judged:
        context.folder.note(REQUEST_NOTE, before)
    return outcome


def resume_run(context: RunContext) -> ResumedLoop:
    """The loop at the point where the records say that the run stands. Nothing that ended is done again."""
    project, run, ledger = context.project, context.run, context.ledger
    remarks = close_dead_runs(ledger, project, run, context.parent)
    stamped = ledger.timed_records(run)
    state = build_state(record for _, record in stamped)
    refuse_finished_run(state, run)  # another process may have resumed and ended it meanwhile
    refuse_collected_run(project, run)
    if find_live_turn(project, run) is None:
        remarks += end_leftover_processes(run)
    resumed = state_when_resumed(state)
    tripwires = run_tripwires(context)
    assert isinstance(tripwires, ProtectedFileTripwires)
    if work := find_unjudged_work(project, ledger, run, resumed, context.spec.custom.agent is not None):
        refuse_tampered_settings(context.spec, run, work, tripwires)
    _refuse_other_agent(context, resumed)
    scm = open_run_scm(context)
    context.folder.begin()
    rules = run_rules(context)
    if rules.step_after is not None:
        rules = replace(rules, step_after=resumed.history.turn_count)
    environment = build_environment(context, scm, tripwires, tuple(record for _, record in stamped))
    loop = build_loop(context, rules, environment, state)
    summary = f"run {run}: {describe_takeover(project, run, state)}"
    if state.run.id:
        runs = (run, *(row.id for row in ledger.descendants(run)))
        age_s = active_seconds(project, run, stamped, time.time())
        loop.resume(age_s, turn_end_ns(project, run, resumed), idle_since_ns(project, runs))
        refuse_unraised_limit(loop, state)
    remarks += [
        f"the marker that asked to wait was put away as {name}" for name in _clear_answered_marker(context, state)
    ]
    return ResumedLoop(loop, summary, tuple(remarks), len(stamped))


def take_over(context: RunContext, loop: Loop) -> None:
    """Record that this process owns the run from now on, with its present request and constraints."""
    save_constraints(context.folder, loop.rules, context.spec, context.sandbox.name)
    save_request(context.folder, request_to_save(context), context.project.mask)
    context.ledger.assign_process(context.run, current_process())
    context.ledger.request_control(context.run, "resume")
    context.clock.follow(context.ledger, context.run)


def _clear_answered_marker(context: RunContext, state: State) -> tuple[str, ...]:
    """Put away the marker by which the agent asked to wait: resuming the run answers it."""
    match state.phase, state.phase_before_end:
        case RunOver(Aborted(Breach(reason))), IterationJudged(facts) if reason == WAITING and facts.claim is not None:
            markers, judged = SignalFiles(context.folder.task_folder), facts.claim.stamp
        case _:
            return ()
    now = markers.look()
    if now is None or not now.waiting or judged not in ("", now.stamp):
        return ()
    return markers.consume(time.strftime("%Y%m%d-%H%M%S", time.gmtime()))


def _refuse_other_agent(context: RunContext, state: State) -> None:
    """Raise Refused where an unfinished turn was begun by an agent that the settings no longer name."""
    begun_by = state.agent.name
    if state.turn_running and begun_by not in (agent.name for agent in context.spec.agents):
        raise Refused(
            f"the last turn of run {context.run} was begun by {begun_by}, and the settings name another agent now; "
            f"resume it with --agent {begun_by}, or close it: ralph cancel {context.run}"
        )


def refuse_unraised_limit(loop: Loop, state: State) -> None:
    """Raise Refused where the limit that stopped a run would stop it again at once."""
    if not (isinstance(state.phase, RunOver) and isinstance(state.phase.outcome, Aborted)):
        return
    reason = state.phase.outcome.reason
    match next_action(loop.state.attended(), loop.rules, loop.conditions()):
        case EndRun(Aborted(breach)) | Conclude(Stopped(breach)) if breach.reason == reason:
            how = abort_reason(reason).way_on
            raise Refused(f"run {loop.id} was stopped by {reason}, and still is ({breach.message}); {how}")
        case _:
            return


# Facts of a run, for its first record.


MAX_TITLE_CHARS = 120


def build_run_facts(spec: RunSpec, sandbox: Sandbox, workspace: str, task_folder: str, parent: str) -> dict[str, Json]:
    """The facts of a run with this spec."""
    settings = spec.loaded.settings
    agent, fallback_index = spec.selected_agents[0], len(spec.selected_agents) - len(settings.agent.fallbacks)
    fallbacks = [_agent_facts(fallback) for fallback in spec.selected_agents[fallback_index:]]
    return {
        "title": first_line(spec.request.prompt[0] or shlex.join(spec.request.program), MAX_TITLE_CHARS),
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
            *spec.stage_plan.check_labels,
            *(check.name for check in spec.custom.checks),
        ],
        "skill": spec.skill.name if spec.skill else "",
        "taskType": spec.fitness.type if spec.fitness else "",
        "sandbox": _sandbox_facts(sandbox, spec),
        "workspace": workspace,
        **spec.rules.limits.budget.facts,
        "protectedPaths": list(settings.protected_paths),
        "promptFile": spec.prompt_file,
        "settingsDigest": spec.loaded.digest,
        "mustFailFirst": settings.must_fail_first,
        "protectTests": settings.protect_tests,
        "verifyIn": settings.verify_in,
        "setup": list(settings.setup),
        "mayChange": list(spec.request.checks.may_change),
        "directory": spec.project.root,
        "taskFolder": task_folder,
        "project": spec.request.task.project,
        "task": spec.request.task.name,
        "parent": parent,
        "work": spec.request.task.id,
        "stages": _stage_facts(spec),
        **({"stories": _story_facts(spec.story_workflow)} if spec.story_workflow else {}),
    }


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
    stages = spec.stage_plan.pipeline.stages
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


Prepare = Callable[[], tuple[RunSpec, RunTarget]]


THREAD_STACK_BYTES = 1 << 20  # of a loop's thread; pages that it does not use are never allocated
POLL_S = 0.2  # after so long a signal is seen that another thread received


@value
class PooledRunEnded:
    """The end of one run: an `outcome`, or the `error` that refused or broke it."""

    name: str
    run: str = ""
    outcome: Outcome | None = None
    error: RalphError | None = None


class RunPool:
    """Begins runs in threads, and returns each as it ends. `next` raises other exceptions of those threads."""

    def __init__(self, display: PoolDisplay, signals: SignalRouter, shared_budget: InProcessSharedBudget) -> None:
        self.open: dict[str, threading.Thread] = {}
        self.signals = signals
        self._display, self._shared_budget = display, shared_budget
        self._ended: SimpleQueue[PooledRunEnded | tuple[str, BaseException]] = SimpleQueue()

    def begin(self, name: str, prepare: Prepare) -> None:
        """Begin a run under a name that no running one has. `prepare` is called in the run's own thread."""
        before = threading.stack_size(THREAD_STACK_BYTES)
        try:
            thread = threading.Thread(target=self._run, args=(name, prepare), name=name, daemon=True)
            self.open[name] = thread
            thread.start()
        finally:
            threading.stack_size(before)

    def next(self) -> PooledRunEnded | None:
        """A run that has ended; None where none ends for a moment."""
        try:
            ended = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        if isinstance(ended, tuple):
            self.open.pop(ended[0]).join()
            raise ended[1]
        self.open.pop(ended.name).join()
        return ended

    def cancel(self, name: str) -> None:
        """End a run as `ralph cancel` would."""
        self.signals.cancel(name)

    def drain(self) -> list[PooledRunEnded]:
        """Wait until all have ended, and return all of them."""
        ended: list[PooledRunEnded] = []
        while self.open:
            if one := self.next():
                ended.append(one)
        return ended

    def abandon(self) -> None:
        """End all runs, so that no agent of theirs is left behind; how they end is ignored."""
        self.signals.end_all()
        while self.open:
            try:
                self.next()
            except BaseException:  # noqa: BLE001, S112 (the first fault is the one that is raised)
                continue

    def _run(self, name: str, prepare: Prepare) -> None:
        run: list[str] = []
        try:
            self._ended.put(self._execute(name, prepare, run))
        except RalphError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=error))
        except OSError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=wrap_os_error(error)))
        except BaseException as error:  # noqa: BLE001 (`next` raises it)
            self._ended.put((name, error))
        finally:
            self.signals.unregister(name)

    def _execute(self, name: str, prepare: Prepare, run: list[str]) -> PooledRunEnded:
        spec, target = prepare()
        spec = replace(spec, custom=replace(spec.custom, shared_budget=self._shared_budget))
        mask = spec.project.mask

        def create_observers(folder: RunFolder, settings: Settings) -> tuple[Observer, ...]:
            run[:] = [folder.run]
            self._shared_budget.join(folder.run, spec.project.state_dir)
            return self._display.create_observers(name, folder, settings, mask)

        def on_end(context: RunContext, outcome: Outcome) -> None:
            for trouble in context.notifiers.deliver(outcome):
                self._display.warn(name, mask(trouble))

        keeper = KeeperClient()
        try:
            outcome = execute(
                spec, keeper, create_observers, on_end, lambda clock: self.signals.register(name, clock), target
            )
        finally:
            keeper.close()
        return PooledRunEnded(name, "".join(run), outcome)
