"""Unattended planning: a run whose check is that the plan is valid."""

from __future__ import annotations

import sys

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.limits import MAX_ITERATIONS
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.records import CheckBegan, TurnBegan
from ralphproof.engine.run_hooks import HOOKS
from ralphproof.planning.result import SENT_BACK, Planned, outside
from ralphproof.runs.request import drop_unset, is_guarded
from ralphproof.stories.story_folder import folder_flags

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from ralphproof.engine.check import Inspection
    from ralphproof.engine.environment import Observer
    from ralphproof.engine.events import Event
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.records import Record
    from ralphproof.planning.plan_files import Desk
    from ralphproof.runs.context import CreateObservers, RunContext
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.settings.typed_settings import Settings
    from ralphproof.store.project import Project
    from ralphproof.store.run_folder import RunFolder

CHECK = STAGE = "plan"


class PlanReader:
    """The check, and an observer: reads what a turn has written, and remembers what there is to say of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.remarks: dict[str, None] = {}

    def on_record(self, record: Record) -> None:
        """Put a PRD back that was not to be changed, before the plan is judged: what changes then does not count."""
        if isinstance(record, CheckBegan) and record.check == CHECK:
            self._hold()

    def on_events(self, events: list[Event]) -> None:
        """What an agent says changes nothing."""

    def tick(self) -> None:
        """Neither does time."""

    def _hold(self) -> None:
        if held := self._desk.hold():
            self.remarks[held] = None

    def __call__(self, inspection: Inspection) -> tuple[bool, str]:
        """Whether the plan is valid, and all that is wrong with it."""
        self._hold()
        self.remarks |= dict.fromkeys(outside(inspection.change, self._desk.folder))
        wrong = self._desk.faults()
        return not wrong, "\n".join(wrong)


def wish_of(args: Namespace, prompt: str, reader: PlanReader, project: Project, attended: bool) -> RunRequest:
    """What the command line asks for. Whoever sits at the agent's own terminal sees there what it costs."""
    from ralphproof.checks.function import FunctionCheck
    from ralphproof.runs.request import CustomComponents, RunRequest

    limits = drop_unset({"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes})
    flags: dict[str, Any] = {
        **drop_unset({"agent": {"command": args.agent, "model": args.model}, "sandbox": {"backend": args.sandbox}}),
        "limits": {**limits, "stallIterations": None, "sameErrorIterations": None},  # the tries are counted already
        "maximumIterations": 1 + SENT_BACK,
        "preset": "harness",
        "guardrails": [],
        "scm": None,
        "contextInjection": False,
        "on": {hook: [] for hook in HOOKS},
        "onInternalError": "stop",
    }
    if attended:  # a session at somebody's terminal is theirs to hold
        flags["sandbox"] = {"backend": None}
    return RunRequest(
        (prompt, None), flags, project.root, guarded=is_guarded(args), allow_hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=attended or args.allow_unknown_cost, verbose=args.verbose,
        custom=CustomComponents(checks=(FunctionCheck(reader, CHECK),)),
    )  # fmt: skip


def drafted(args: Namespace, order: RunSpec, desk: Desk, reader: PlanReader, say: Callable[[str], None]) -> Planned:
    """Let the agent plan until the plan is valid, or a limit says stop."""
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.runs.execute import execute

    order, keeper, runs = _for_a_plan(order), KeeperClient(), list[str]()
    watching = _watching(args, order, desk, reader, say)
    try:
        outcome = execute(order, keeper, watching, lambda *end: _tell(order, runs, *end))
    finally:
        keeper.close()
    sent, remarks = _sent_back(order.project, runs[0]), list(reader.remarks)
    if isinstance(outcome, Completed):
        return Planned(0, sent, remarks=(*remarks, *desk.remarks()), run=runs[0], outcome=outcome)
    remarks += filter(None, [desk.hold()])
    if not (isinstance(outcome, Aborted) and outcome.reason == MAX_ITERATIONS):  # it was cut off in the middle
        remarks += filter(None, [desk.mend()])
    return Planned(outcome.exit_code, sent, desk.faults(), tuple(dict.fromkeys(remarks)), runs[0], outcome)


def _for_a_plan(order: RunSpec) -> RunSpec:
    """The same order as one stage that needs no claim: a valid plan is enough.

    Its check is asked as judges are, after a turn: before the first one there is no plan to look at.
    """
    assert order.stage_plan is not None
    stage, own = order.stage_plan.pipeline.stages[0], tuple(check.name for check in order.custom.checks)
    asked = tuple(check for check in stage.checks if check not in own)
    plans = replace(stage, name=STAGE, claim=ClaimRule(), checks=asked, judges=(*stage.judges, *own))
    return replace(order, stage_plan=replace(order.stage_plan, pipeline=Pipeline((plans,))))


def _watching(
    args: Namespace, order: RunSpec, desk: Desk, reader: PlanReader, say: Callable[[str], None]
) -> CreateObservers:  # fmt: skip
    """People look on; programs get one object at the end. When this is asked, the directory is ours."""
    from argparse import Namespace as Flags

    from ralphproof.runs.observers import create_observers

    flags = Flags(**{**vars(args), "json": False})

    def watching(folder: RunFolder, settings: Settings) -> tuple[Observer, ...]:
        desk.refuse_others()
        if kept := desk.keep(folder.run, _again(args, desk)):
            say(kept)
        return (reader, *create_observers(folder, flags, settings, order.project.mask))

    return watching


def _again(args: Namespace, desk: Desk) -> str:
    """The command that plans the same once more."""
    import shlex

    return f"ralph plan --from {shlex.quote(args.source)}{folder_flags(desk.folder)}"


def _tell(order: RunSpec, runs: list[str], begun: RunContext, outcome: Outcome) -> None:
    from ralphproof.base.escaping import sanitize

    runs.append(begun.run)
    for trouble in begun.notifiers.deliver(outcome):
        print(sanitize(order.project.mask(trouble)), file=sys.stderr)


def _sent_back(project: Project, run: str) -> int:
    """How often the agent was asked again."""
    ledger = project.ledger()
    try:
        asked = {record.iteration for record in ledger.records(run) if isinstance(record, TurnBegan)}
    finally:
        ledger.close()
    return max(0, len(asked) - 1)
