"""Executing a run from its spec to its outcome, with a single pass where the loop itself breaks."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import HarnessFailed, Refused, StaleRead, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.limits import RESUMABLE_REASONS, SERVICE_UNAVAILABLE, Breach
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import RunEnded
from ralphproof.process.signals import RunClock
from ralphproof.runs.context import NewRun
from ralphproof.runs.recovery import find_live_turn
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.memory_ledger import MemoryLedger
from ralphproof.store.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.state import State
    from ralphproof.process.client import Keeper
    from ralphproof.runs.context import Hearing, Watching
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow

    Telling = Callable[[NewRun, Outcome], object]


# A run from its order to its end, with what the user prefers where the loop itself breaks.


SINGLE_PASS = "single-pass"
RUN_ID_VARIABLE = "RALPH_RUN_ID"


@value
class RunTarget:
    """Which run it is: a new one, one that was ordered under this id, or the one of this row that is taken up."""

    run: str = ""
    row: RunRow | None = None


FRESH_RUN = RunTarget()


def _open_run(spec: RunSpec, keeper: Keeper, watching: Watching, hear: Hearing, target: RunTarget) -> NewRun:
    """The run, held as the one is that it is part of."""
    parent = (
        target.row.parent
        if target.row
        else _find_requesting_run(spec.project, target.run) or find_enclosing_run(spec.project)
    )
    if parent:
        from ralphproof.runs.constraints import apply_parent_constraints

        spec = apply_parent_constraints(spec, parent)
    if target.row is None:
        return NewRun(spec, keeper, watching, hear, target.run, parent)
    from ralphproof.runs.resume import ResumedRun

    return ResumedRun(spec, keeper, watching, target.row, hear)


def find_enclosing_run(project: Project) -> str:
    """The run whose agent we are part of, as far as this repository knows it; empty for most."""
    name = os.environ.get(RUN_ID_VARIABLE, "")
    if not name:
        return ""
    ledger = project.ledger()
    try:
        row = ledger.row(name)
        return row.id if row and not row.ended else ""
    finally:
        ledger.close()


def _find_requesting_run(project: Project, run: str) -> str:
    """The run whose agent asked for this one; raises Refused where that is over, unless it only waits."""
    from ralphproof.runs.request import load_requesting_run

    parent = load_requesting_run(RunFolder(project.root, run, project.store)) if run else ""
    if not parent:
        return ""
    ledger = project.ledger()
    try:
        row, end = ledger.row(parent), ledger.end_of(parent)
    finally:
        ledger.close()
    waits = isinstance(end, RunEnded) and isinstance(end.outcome, Aborted) and end.outcome.reason in RESUMABLE_REASONS
    if row is None or (end is not None and not waits):
        raise Refused(f"run {parent} asked for this one, and is {'over' if row else 'not on record'}; begin it anew")
    return parent


def execute(
    spec: RunSpec,
    keeper: Keeper,
    watching: Watching,
    tell: Telling,
    hear: Hearing = RunClock.listen,
    target: RunTarget = FRESH_RUN,
) -> Outcome:
    """Run the loop. Where it fails before any agent was asked, the user may prefer a single pass to nothing.

    `tell` is called once with how it ended, while the run still holds its directory.
    """
    if kind := os.environ.get(SANDBOX_VARIABLE):
        raise Refused(f"this is inside sandbox {kind}; --detach asks the harness outside for a run of your own")
    alone = target.row is None and not os.environ.get(
        RUN_ID_VARIABLE
    )  # a part of another run is held by what is on record
    try:
        return _execute_once(spec, keeper, watching, tell, hear, target, alone)
    except StaleRead as early:
        from ralphproof.runs.spec import prepare_spec

        anew = prepare_spec(spec.original_request)
        anew = replace(anew, remarks=(str(early), *anew.remarks))
        return _execute_once(anew, keeper, watching, tell, hear, target, alone)


def _execute_once(
    spec: RunSpec, keeper: Keeper, watching: Watching, tell: Telling, hear: Hearing, target: RunTarget, alone: bool
) -> Outcome:
    once, begun = spec.loaded.settings.on_internal_error == SINGLE_PASS and alone, None
    try:
        with _open_run(spec, keeper, watching, hear, target) as begun:
            outcome, broken = begun.go(), begun.broken
            if not (broken and once):
                tell(begun, outcome)
                return outcome
    except (HarnessFailed, OSError) as error:
        fault = wrap_os_error(error) if isinstance(error, OSError) else error
        if not once or fault.exit_code != HarnessFailed.exit_code or (begun is not None and begun.asked):
            raise
        broken = str(fault)

    with SinglePassRun(single_pass_spec(spec), keeper, watching, broken, hear) as begun:
        outcome = begun.go()
        tell(begun, outcome)
        return outcome


# The agent, once, where the loop around it broke before it began, and the user prefers that to nothing.


FALLBACK_NOTICE = "[Ralph] Falling back to normal execution..."


class SinglePassRun(NewRun):
    """One turn with all limits and checks, in the same sandbox. Files are left for people, and no record.

    The order is one that `single` made.
    """

    recorded = False

    def __init__(
        self, spec: RunSpec, keeper: Keeper, watching: Watching, error: str, hear: Hearing = RunClock.listen
    ) -> None:
        failed = f"[Ralph] Wrapper failed: {collapse_lines(sanitize(spec.project.mask(error)))}"
        _print_error(failed)
        _print_error(FALLBACK_NOTICE)
        self._project = spec.project
        told = replace(spec, remarks=(failed, FALLBACK_NOTICE, *spec.remarks))  # programs read no standard error
        super().__init__(told, keeper, watching, hear)

    def _open(self, keeper: Keeper) -> None:
        """What is usually kept beside the ledger may be what broke, so none of it is used."""
        import tempfile

        aside = tempfile.TemporaryDirectory(prefix="ralph-single-pass-")
        self._held.append(aside.cleanup)
        self._spec = replace(self._spec, project=replace(self._project, store=aside.name))
        super()._open(keeper)

    def _record(self) -> MemoryLedger:
        return MemoryLedger(self._project.mask)

    def _left_behind(self) -> list[str]:
        """Refuse to begin beside an agent whose harness died. Without the ledger, only their folders tell of runs."""
        folder = os.path.join(self._project.root, ".ralph", "runs")
        for run in os.listdir(folder) if os.path.isdir(folder) else ():
            if find_live_turn(self._project, run):
                raise Refused(f"run {run} lost its harness, and its agent is still at work here; wait for it to end")
        return []

    def _rules(self) -> RunRules:
        rules = super()._rules()
        return replace(rules, baseline=False, own=(*rules.own, _refuse_second_attempt))


def single_pass_spec(spec: RunSpec) -> RunSpec:
    """The same order for one iteration, of which nothing is kept but its files."""
    settings = spec.loaded.settings
    own = replace(settings.agent, retries=0)
    once = replace(settings, maximum_iterations=1, scm=None, metrics=False, agent=own)
    return replace(spec, loaded=replace(spec.loaded, settings=once))


def _refuse_second_attempt(state: State) -> Breach | None:
    """What an iteration may do that waits for a service, a single pass may not."""
    if state.turn == 1:
        return None
    return Breach(SERVICE_UNAVAILABLE, "the agent's service did not answer, and a single pass asks it only once")


def _print_error(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody listens; the work goes on
