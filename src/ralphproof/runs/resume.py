"""Resuming a run that lost its harness, or that ended in a way that allows it."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import is_run_worktree
from ralphproof.base.processes import current_process
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.actions import Conclude, EndRun
from ralphproof.engine.limits import WAITING, Breach
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import next_action
from ralphproof.engine.outcome import Aborted, Failed, Stopped
from ralphproof.engine.state import IterationJudged, RunOver, State, build_state
from ralphproof.runs.children import load_constraints, sandbox_as_settings, save_constraints
from ralphproof.runs.enclosing_turn import refuse_unrelated_run_in_turn
from ralphproof.runs.environment import build_environment, open_run_scm, run_tripwires
from ralphproof.runs.execute import build_loop, request_to_save, run_rules
from ralphproof.runs.recovery import (
    close_dead_runs,
    end_leftover_processes,
    find_unjudged_work,
    idle_since_ns,
    refuse_tampered_settings,
    state_when_resumed,
    turn_end_ns,
)
from ralphproof.runs.request import REQUEST_NOTE, load_request, override_request, save_request
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import RUNNING, find_live_turn, find_run, refuse_collected_run, run_state
from ralphproof.store.signal_files import SignalFiles
from ralphproof.views.interrupted_run import active_seconds, describe_takeover
from ralphproof.views.run_status import refuse_finished_run
from ralphproof.workspace.tripwires import ProtectedFileTripwires

if TYPE_CHECKING:
    from ralphproof.engine.outcome import Outcome
    from ralphproof.runs.context import RunContext
    from ralphproof.runs.request import RunRequest
    from ralphproof.store.ledger import RunRow
    from ralphproof.store.project import Project


PLAN_COMMAND_NOTE = "plan-command"  # the `ralph plan` that began the run
HOW_TO_RAISE_LIMIT = {
    "MAX_ITERATIONS": "--max-iterations N is the new total",
    "COST_LIMIT": "--max-cost-usd is the new total",
    "TOKEN_LIMIT": "--max-tokens is the new total",
    "TIME_LIMIT": "--max-minutes is the new total",
    "DAILY_COST_LIMIT": "raise limits.dailyCostUsd, or wait for the next UTC day",
}


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
    assert isinstance(context.ledger, SqliteLedger)
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
    assert isinstance(context.ledger, SqliteLedger)
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
            how = HOW_TO_RAISE_LIMIT.get(reason, "raise that limit in the settings")
            raise Refused(f"run {loop.id} was stopped by {reason}, and still is ({breach.message}); {how}")
        case _:
            return
