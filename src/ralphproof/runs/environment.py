"""The LoopEnvironment of a run, built from its RunContext: checks, observers, child runs, tripwires, hooks."""

from __future__ import annotations

import os
import time

from ralphproof.agents.cost import savings_calculator
from ralphproof.agents.hook_commands import HOOKED_VARIABLE, hook_commands
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.checks.check_plan import CLEAN_CHECKOUT
from ralphproof.checks.parallel import run_checks_in_parallel
from ralphproof.engine.environment import FixedPlan, LoopEnvironment, NoChildRuns
from ralphproof.engine.run_hooks import NoHooks
from ralphproof.proof.publish import make_proof_writer
from ralphproof.runs.agent_signals import AgentSignals
from ralphproof.runs.assembly import (
    SettingsChangeDetector,
    build_checks,
    build_tripwires,
    open_scm,
    uncommitted_at_start,
)
from ralphproof.runs.children import LedgerChildRuns
from ralphproof.runs.pins import create_check_pins
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.bus_observer import BusObserver
from ralphproof.store.memory_ledger import MemoryLedger
from ralphproof.store.run_folder import NOTE_SUFFIX

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.environment import ChildRuns, Observer
    from ralphproof.engine.records import Record
    from ralphproof.engine.run_hooks import HookRunner
    from ralphproof.engine.workspace import Scm, Snapshot, Tripwires
    from ralphproof.runs.checkouts import CleanCheckouts
    from ralphproof.runs.context import RunContext
    from ralphproof.stories.plan import StoryPlan

GUARD_NOTE = "guard"  # the note that holds the rules of the command guard


def open_run_scm(context: RunContext) -> Scm | None:
    """The user's SCM. Hooks of the project that a commit starts run in the sandbox, like its checks."""
    return open_scm(context.settings, context.project.root, context.direct, context.folder, context.sandbox)


def run_tripwires(context: RunContext) -> Tripwires:
    """Tripwires for the protected paths of this run."""
    protected = context.settings.protected_paths
    return build_tripwires(protected, context.workspace, context.folder, context.fixed_files)


def build_environment(
    context: RunContext, scm: Scm | None, tripwires: Tripwires, earlier: tuple[Record, ...] = ()
) -> LoopEnvironment:
    """Everything that the loop acts on. `earlier` are the records of a run that is resumed."""
    spec, folder = context.spec, context.folder
    custom_checks = {check.name: check for check in spec.custom.checks}
    signals = AgentSignals(context.run, folder.task_folder, context.project.root, context.project.mask)
    children, story_plan = _child_runs(context), _open_story_plan(context)
    child_remarks = (children.remarks,) if isinstance(children, LedgerChildRuns) else ()
    checks = build_checks(spec, folder, context.sandbox, context.workspace, _open_clean_checkouts(context))
    return LoopEnvironment(
        story_plan or spec.plan, spec.agents, context.sandbox, context.workspace, checks | custom_checks,
        context.ledger, folder, context.clock, context.spend, _agent_variables(context), scm,
        (context.turns, *_display_observers(context, earlier), *_recording_observers(context, signals, earlier)),
        find_claim=(
            signals if story_plan is None else lambda iteration: story_plan.claim(iteration) or signals(iteration)
        ),
        set_aside_claim=signals.refuse, editable_plan=story_plan or FixedPlan(), child_runs=children,
        was_started=lambda name: _was_started(context, name), tripwires=tripwires,
        shared_budget=spec.custom.shared_budget,
        check_pins=create_check_pins(spec, folder, context.workspace, context.ledger),
        model_savings=savings_calculator(context.settings, spec.selected_agents),
        extra_notices=(SettingsChangeDetector(spec.loaded.files), signals.remarks, *child_remarks),
        run_checks=run_checks_in_parallel, task_base=_task_origin(context),
        agent_hooks=(*(hook_commands() if story_plan else ()), *_guard_hooks(context)),
        allowed_commands=spec.story_workflow.may_run if spec.story_workflow else (), hook_runner=_hook_runner(context),
        prompt_file=context.prompt_file,
    )  # fmt: skip


def _display_observers(context: RunContext, earlier: tuple[Record, ...]) -> tuple[Observer, ...]:
    """The caller's observers; those of a resumed run are given its earlier records."""
    observers = context.create_observers(context.folder, context.settings)
    for observer in observers if earlier else ():
        if catch_up := getattr(observer, "catch_up", None):
            catch_up(earlier, time.time())
    return observers


def _recording_observers(
    context: RunContext, signals: AgentSignals, earlier: tuple[Record, ...]
) -> tuple[Observer, ...]:
    """Observers that write files, messages, metrics, notifications and spans, with or without a display."""
    project, request, settings = context.project, context.spec.request, context.settings
    observers: list[Observer] = [
        *context.spec.custom.observers,
        BusObserver(signals.task_bus, signals.project_bus, context.run, request.project, request.task, earlier),
        make_proof_writer(project, context.run, context.ledger, context.workspace, context.folder),
    ]
    if settings.metrics:
        from ralphproof.reports.metrics import MetricsFolder, MetricsObserver

        files = MetricsFolder(project.root, project.mask)
        observers.append(MetricsObserver(files, context.ledger.statistics, settings.cost_limit_micro_usd))
    if settings.notify:
        from ralphproof.reports.notifications import NotificationObserver

        name = os.path.basename(project.root)
        context.notifiers.add(
            NotificationObserver(settings.notify, context.run, name, project.mask, os.environ, project.root)
        )
    if settings.otel:
        from ralphproof.reports.otel_exporter import OtlpExporter
        from ralphproof.reports.otel_spans import OtelObserver

        exporter = OtlpExporter(settings.otel, project.mask, os.environ)
        stamped = context.ledger.timed_records(context.run) if earlier else ()
        context.notifiers.add(OtelObserver(exporter, context.run, stamped))
    return (*observers, *context.notifiers.observers)


def _open_story_plan(context: RunContext) -> StoryPlan | None:
    """The stories, where the run works by stories."""
    if context.spec.story_workflow is None:
        return None
    from ralphproof.runs.stories import open_story_plan

    plan = open_story_plan(context.spec, context.folder, lambda: uncommitted_at_start(context.workspace, context.run))
    context.cleanup.callback(plan.close)  # however the run ends, no turn is open then
    return plan


def _open_clean_checkouts(context: RunContext) -> CleanCheckouts | None:
    """Clean checkouts, where the settings ask for them. What a dead run left of one is removed in any case."""
    project, wanted = context.project, context.settings.verify_in == CLEAN_CHECKOUT
    if not wanted and not os.path.isdir(os.path.join(project.store, CLEAN_CHECKOUT)):
        return None
    from ralphproof.runs.checkouts import CleanCheckouts, remove_stale_checkout

    remove_stale_checkout(project.store, project.root, context.run)
    if not wanted:
        return None
    checkouts = CleanCheckouts(
        context.spec, context.folder, context.workspace, context.sandbox, context.direct, context.ledger.records,
        context.parent,
    )  # fmt: skip
    context.cleanup.callback(checkouts.close)
    return checkouts


def _guard_hooks(context: RunContext) -> tuple[tuple[str, str], ...]:
    """The command guard, which agents call before every tool, for a run without other protection."""
    if context.spec.request.guarded:
        return ()
    from ralphproof.agents.hook_commands import guard_hook_commands

    guard, root = context.settings.guard, context.project.root
    fixed = [os.path.relpath(file, root) for file in context.fixed_files]
    protected: list[Json] = [*context.settings.protected_paths, *fixed]
    task_folder = os.path.realpath(context.folder.task_folder) if context.spec.request.task_folder else ""
    rules: dict[str, Json] = {
        "root": root, "allow": list(guard.allow), "deny": list(guard.deny), "protected": protected,
        "taskFolder": task_folder,
    }  # fmt: skip
    context.folder.note(GUARD_NOTE, rules)
    return guard_hook_commands(context.folder.log_base(GUARD_NOTE) + NOTE_SUFFIX)


def _hook_runner(context: RunContext) -> HookRunner:
    """Runner of the user's own commands before and after the run, where the settings name any."""
    if not context.settings.on.by_name:
        return NoHooks()
    from ralphproof.runs.run_hooks import CommandHooks

    grace_s = context.settings.shutdown_grace_s
    return CommandHooks(context.sandbox, context.folder, context.project.root, context.spec.check_env, grace_s)


def _task_origin(context: RunContext) -> Snapshot | None:
    """The tree before the first run of this task, where an earlier run left the task undone."""
    task = context.spec.request.task_id
    if not task or isinstance(context.ledger, MemoryLedger):
        return None
    from ralphproof.tasks.store import first_run_of_task

    first = first_run_of_task(context.ledger, task, context.run)
    return context.workspace.find_snapshot(first, "0") if first else None


def _agent_variables(context: RunContext) -> tuple[tuple[str, str], ...]:
    """The environment of agents; variables of an enclosing run are replaced by this run's."""
    request, sandbox = context.spec.request, context.sandbox
    own = {
        "TASK_FOLDER": context.folder.task_folder,
        "RALPH_PROJECT": request.project,
        "RALPH_TASK": request.task,
        HOOKED_VARIABLE: "1",
        SANDBOX_VARIABLE: "" if isinstance(sandbox, DirectRunner) else sandbox.name,
    }
    return tuple((dict(context.spec.agent_env) | {name: text for name, text in own.items() if text}).items())


def _was_started(context: RunContext, name: str) -> bool:
    """Whether a command was started, or is about to be. Functions leave no trace, and count as started."""
    if context.spec.custom.agent is not None:
        return True
    from ralphproof.process import turn_journal

    file = context.folder.turn_file(name)
    return turn_journal.is_turn_locked(file) or (os.path.exists(file) and os.path.getsize(file) > 0)


def _child_runs(context: RunContext) -> ChildRuns:
    if isinstance(context.ledger, MemoryLedger):
        return NoChildRuns()
    variables = dict(context.spec.agent_env)
    return LedgerChildRuns(context.folder, context.project, context.ledger, context.spend, variables)
