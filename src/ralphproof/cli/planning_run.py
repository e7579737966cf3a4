"""Planning where nobody looks on: a run as every other, whose check is that the plan is valid."""

from __future__ import annotations

import sys

from ralphproof.claim import ClaimRule
from ralphproof.cli.planning_result import SENT_BACK, Planned, outside
from ralphproof.cli.run import given, guarded
from ralphproof.cli.story_folder import flags_for
from ralphproof.limit import MAX_ITERATIONS
from ralphproof.record import CheckBegan, TurnBegan
from ralphproof.run_hook import HOOKS
from ralphproof.stage import Pipeline
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Aborted, Completed

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from ralphproof.check import Inspection
    from ralphproof.cli.begin import Begun
    from ralphproof.cli.equipment import Watching
    from ralphproof.cli.order import Order, Wish
    from ralphproof.cli.planning_desk import Desk
    from ralphproof.config.settings import Settings
    from ralphproof.event import Event
    from ralphproof.ledger import Observer
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.record import Record
    from ralphproof.verdict import Outcome
    from ralphproof.views.project import Project

CHECK = STAGE = "plan"


class PlanReader:
    """The check, and an observer: reads what a turn has written, and remembers what there is to say of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.remarks: dict[str, None] = {}

    def saw(self, record: Record) -> None:
        """Put a PRD back that was not to be changed, before the plan is judged: what changes then does not count."""
        if isinstance(record, CheckBegan) and record.check == CHECK:
            self._hold()

    def heard(self, events: list[Event]) -> None:
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


def wish_of(args: Namespace, prompt: str, reader: PlanReader, project: Project, attended: bool) -> Wish:
    """What the command line asks for. Whoever sits at the agent's own terminal sees there what it costs."""
    from ralphproof.checks.callable import CallableCheck
    from ralphproof.cli.order import Wish
    from ralphproof.config.brought import Brought

    limits = given({"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes})
    flags: dict[str, Any] = {
        **given({"agent": {"command": args.agent, "model": args.model}, "sandbox": {"backend": args.sandbox}}),
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
    return Wish(
        (prompt, None), flags, project.root, guarded=guarded(args), hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=attended or args.allow_unknown_cost, verbose=args.verbose,
        brought=Brought(checks=(CallableCheck(reader, CHECK),)),
    )  # fmt: skip


def drafted(args: Namespace, order: Order, desk: Desk, reader: PlanReader, say: Callable[[str], None]) -> Planned:
    """Let the agent plan until the plan is valid, or a limit says stop."""
    from ralphproof.cli.to_the_end import to_the_end
    from ralphproof.keeper.client import Keeper

    order, keeper, runs = _for_a_plan(order), Keeper(), list[str]()
    watching = _watching(args, order, desk, reader, say)
    try:
        outcome = to_the_end(order, keeper, watching, lambda *end: _tell(order, runs, *end))
    finally:
        keeper.close()
    sent, remarks = _sent_back(order.project, runs[0]), list(reader.remarks)
    if isinstance(outcome, Completed):
        return Planned(0, sent, remarks=(*remarks, *desk.remarks()), run=runs[0], outcome=outcome)
    remarks += filter(None, [desk.hold()])
    if not (isinstance(outcome, Aborted) and outcome.reason == MAX_ITERATIONS):  # it was cut off in the middle
        remarks += filter(None, [desk.mend()])
    return Planned(outcome.exit_code, sent, desk.faults(), tuple(dict.fromkeys(remarks)), runs[0], outcome)


def _for_a_plan(order: Order) -> Order:
    """The same order as one stage that needs no claim: a valid plan is enough.

    Its check is asked as judges are, after a turn: before the first one there is no plan to look at.
    """
    assert order.course is not None
    stage, own = order.course.pipeline.stages[0], tuple(check.name for check in order.brought.checks)
    asked = tuple(check for check in stage.checks if check not in own)
    plans = replace(stage, name=STAGE, claim=ClaimRule(), checks=asked, judges=(*stage.judges, *own))
    return replace(order, course=replace(order.course, pipeline=Pipeline((plans,))))


def _watching(
    args: Namespace, order: Order, desk: Desk, reader: PlanReader, say: Callable[[str], None]
) -> Watching:  # fmt: skip
    """People look on; programs get one object at the end. When this is asked, the directory is ours."""
    from argparse import Namespace as Flags

    from ralphproof.cli.view import observers

    flags = Flags(**{**vars(args), "json": False})

    def watching(folder: RunFolder, settings: Settings) -> tuple[Observer, ...]:
        desk.refuse_others()
        if kept := desk.keep(folder.run, _again(args, desk)):
            say(kept)
        return (reader, *observers(folder, flags, settings, order.project.mask))

    return watching


def _again(args: Namespace, desk: Desk) -> str:
    """The command that plans the same once more."""
    import shlex

    return f"ralph plan --from {shlex.quote(args.source)}{flags_for(desk.folder)}"


def _tell(order: Order, runs: list[str], begun: Begun, outcome: Outcome) -> None:
    from ralphproof.display.clean import clean

    runs.append(begun.run)
    for trouble in begun.tell(outcome):
        print(clean(order.project.mask(trouble)), file=sys.stderr)


def _sent_back(project: Project, run: str) -> int:
    """How often the agent was asked again."""
    ledger = project.ledger()
    try:
        asked = {record.iteration for record in ledger.records(run) if isinstance(record, TurnBegan)}
    finally:
        ledger.close()
    return max(0, len(asked) - 1)
