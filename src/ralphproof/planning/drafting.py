"""Runs that draft a plan or tasks: one stage, no claim, and one check that reads what the agent wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ralphproof.base.escaping import sanitize
from ralphproof.base.value import replace
from ralphproof.checks.function import FunctionCheck
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.agent import Event
from ralphproof.engine.check import Inspection
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.environment import Observer
from ralphproof.engine.limits import MAX_ITERATIONS
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.records import CheckBegan, Record, TurnBegan
from ralphproof.engine.sandbox import HOOKS
from ralphproof.engine.workspace import Change
from ralphproof.planning.plan_files import MAX_SENT_BACK, PlanFiles, PlanResult
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.runs.context import RunContext
from ralphproof.runs.displays import create_observers
from ralphproof.runs.execute import PLAN_COMMAND_NOTE, execute
from ralphproof.runs.request import FRESH_RUN, CustomComponents, RunRequest, RunTarget
from ralphproof.runs.spec import RunSpec
from ralphproof.settings.declarations import Settings
from ralphproof.store.run_folder import RunFolder

ReadDraft = Callable[[Inspection], tuple[bool, str]]


STAGE = PLAN_CHECK = "plan"
MAX_NAMED_FILES = 10


def drafting_request(
    request: RunRequest, root: str, prompt: str, check: str, read: ReadDraft, flags: dict[str, Any], **more: Any
) -> RunRequest:
    """A request with the agent, limits and sandbox of `request`; the project's own checks and hooks do not run."""
    chosen = request.flags
    fixed: dict[str, Any] = {
        "preset": "harness",
        "guardrails": [],
        "scm": None,
        "contextInjection": False,
        "on": {hook: [] for hook in HOOKS},
        "onInternalError": "stop",
    }
    return replace(
        request,
        prompt=(prompt, None),
        flags={**chosen, **fixed, **flags, "limits": {**chosen.get("limits", {}), **flags.get("limits", {})}},
        project_dir=root,
        custom=CustomComponents(checks=(FunctionCheck(read, check),)),
        **more,
    )


def execute_drafting(
    display: DisplayFlags,
    spec: RunSpec,
    edits: bool,
    begin: Callable[[RunFolder], tuple[Observer, ...]] = lambda _: (),
    target: RunTarget = FRESH_RUN,
) -> tuple[str, Outcome]:
    """Run to the end; the run's id and outcome. `begin` is called when the project is locked."""
    runs: list[str] = []
    spec = _single_stage(spec, edits)
    console_flags = replace(display, json=False)  # programs get one object at the end

    def observers(folder: RunFolder, settings: Settings) -> tuple[Observer, ...]:
        return (*begin(folder), *create_observers(folder, console_flags, settings, spec.project.mask))

    def on_end(context: RunContext, outcome: Outcome) -> None:
        runs.append(context.run)
        for trouble in context.notifiers.deliver(outcome):
            print(sanitize(spec.project.mask(trouble)), file=sys.stderr)

    keeper = KeeperClient()
    try:
        outcome = execute(spec, keeper, observers, on_end, target=target)
    finally:
        keeper.close()
    return runs[0], outcome


def _single_stage(spec: RunSpec, edits: bool) -> RunSpec:
    """The same run as one stage that needs no claim: a draft that passes its check is enough.

    The check runs as judges do, only after a turn: before the first one there is no draft.
    """
    stage, own = spec.stage_plan.pipeline.stages[0], tuple(check.name for check in spec.custom.checks)
    others = tuple(check for check in stage.checks if check not in own)
    stage = replace(stage, name=STAGE, claim=ClaimRule(), checks=others, judges=(*stage.judges, *own))
    if not edits:
        stage = replace(stage, edits=False, looks=True)
    return replace(spec, stage_plan=replace(spec.stage_plan, pipeline=Pipeline((stage,))))


# Unattended planning


class PlanCheck:
    """The check of a plan, and an observer that puts a changed PRD back before the check runs."""

    def __init__(self, files: PlanFiles) -> None:
        self._files = files
        self.remarks: dict[str, None] = {}

    def on_record(self, record: Record) -> None:
        if isinstance(record, CheckBegan) and record.check == PLAN_CHECK:
            self.restore_prd()

    def on_events(self, events: list[Event]) -> None:
        """Nothing to do."""

    def tick(self) -> None:
        """Nothing to do."""

    def restore_prd(self) -> None:
        if remark := self._files.restore_prd():
            self.remarks[remark] = None

    def __call__(self, inspection: Inspection) -> tuple[bool, str]:
        self.restore_prd()
        self.remarks |= dict.fromkeys(_changes_outside(inspection.change, self._files.folder))
        problems = self._files.problems()
        return not problems, "\n".join(problems)


def _changes_outside(change: Change, folder: str) -> list[str]:
    """Remarks about changes beside the plan, which are left alone: they may be the user's."""
    if not change.known:
        return [f"whether anything was changed outside {folder}/ cannot be told"]
    paths = [path for path in change.paths if not path.startswith(f"{folder}/")]
    more = f" and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else ""
    named = f"changed outside {folder}/, and left as it is: {', '.join(paths[:MAX_NAMED_FILES])}{more}"
    return [*([named] if paths else []), *(["a commit was made meanwhile, and stays"] if change.committed else [])]


def plan_request(request: RunRequest, root: str, prompt: str, check: PlanCheck, interactive: bool) -> RunRequest:
    """The request of a planning. An interactive one takes only the agent from it."""
    flags: dict[str, Any] = {
        "maximumIterations": 1 + MAX_SENT_BACK,
        "limits": {"stallIterations": None, "sameErrorIterations": None},  # the iterations are few already
    }
    if not interactive:
        return drafting_request(request, root, prompt, PLAN_CHECK, check, flags)
    flags["sandbox"] = {"backend": None}
    return drafting_request(request, root, prompt, PLAN_CHECK, check, flags, allow_unknown_cost=True)


def plan_unattended(
    display: DisplayFlags, spec: RunSpec, files: PlanFiles, check: PlanCheck, again: str, tell: Callable[[str], None]
) -> PlanResult:
    """Let the agent plan until the plan is valid, or a limit says stop. `again` is the command that plans anew."""

    def begin(folder: RunFolder) -> tuple[Observer, ...]:
        folder.note(PLAN_COMMAND_NOTE, again)
        if remark := files.begin():
            tell(remark)
        return (check,)

    run, outcome = execute_drafting(display, spec, True, begin)
    ledger = spec.project.ledger()
    try:
        turns = {record.iteration for record in ledger.records(run) if isinstance(record, TurnBegan)}
    finally:
        ledger.close()
    sent_back = max(0, len(turns) - 1)
    if isinstance(outcome, Completed):
        return PlanResult(0, sent_back, remarks=(*check.remarks, *files.remarks()), run=run, outcome=outcome)
    check.restore_prd()
    remarks = [*check.remarks]
    if not (isinstance(outcome, Aborted) and outcome.reason == MAX_ITERATIONS):  # it was interrupted while it wrote
        remarks += filter(None, [files.restore_incomplete_tasks()])
    return PlanResult(outcome.exit_code, sent_back, files.problems(), tuple(remarks), run, outcome)
