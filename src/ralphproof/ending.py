"""How a run that ends now has ended."""

from __future__ import annotations

from ralphproof.action import Moment
from ralphproof.agent import bounded
from ralphproof.check import Report
from ralphproof.iteration import Iteration
from ralphproof.limit import ERROR_CHARS, TRIPWIRES, Breach
from ralphproof.phase import Checking, Concluded, Picking, Turned, Turning
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted, Completed, Failed
from ralphproof.weakening import lucky, weaker

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT_CHARS = 10_000  # of the last message, in the outcome


def completed(state: State, now: Moment, concerns: tuple[str, ...] = ()) -> Completed:
    """The outcome of a run whose plan is done."""
    output = state.history.latest.turn.text if state.history.iterations else ""
    brought = _brought(state)
    last = {facts.job.task.id: facts.report for facts in state.history.iterations}.values()  # of each task its last
    ends = [Report(tuple(one for one in report.findings if one.check not in brought)) for report in last]
    verified, judged = (bool(ends) and all(oks) for oks in ([e.verified for e in ends], [e.judged for e in ends]))
    spend, said = state.spend.beside(now.children.spend), bounded(output, OUTPUT_CHARS)
    return Completed(state.history.turns, spend, now.elapsed_s, said, verified, (*concerns, *_concerns(state)), judged)


def _brought(state: State) -> set[str]:
    """The checks that could not be run before the first turn: the agent brought them, so their pass is its own word."""
    return {finding.check for finding in state.baseline.findings if finding.unrunnable}


def _concerns(state: State) -> tuple[str, ...]:
    """What somebody should look at although all is done: a stage that was believed, a warning, an unkept commit."""
    last = {facts.job.key: facts for facts in state.history.iterations}
    stages = {stage for _, stage in last}
    found = [why for facts in last.values() for why in _doubts(facts, several=len(stages) > 1)]
    found += _less_than_it_seems(state)
    return (*found, *(f"scm: {concern}" for concern in state.committed.concerns))


def _less_than_it_seems(state: State) -> Iterator[str]:
    """What the checks' yes is not worth: tests and settings of theirs that changed, luck, no evidence at all."""
    if not state.history.iterations:
        return
    latest, report = state.history.latest, state.history.latest.report
    yield from (one.told for one in latest.altered)
    for check in sorted(_brought(state) & {one.check for one in report.findings}):
        yield f"{check} could not be run before the run began: the agent brought it, so its pass is only claimed"
    yield from (one.told for one in weaker(report, state.baseline))
    earlier = ((state.began.tree, state.baseline), *((one.snapshot.tree, one.report) for one in _before(state)))
    for finding in report.findings:
        if times := lucky(finding, latest.snapshot.tree, earlier):
            often = "once" if times == 1 else f"{times} times"
            yield f"{finding.check} is flaky: on this very tree it failed {often} before it passed"
    if state.labels.get("mustFailFirst"):
        green = [one.check for one in report.findings if (known := state.baseline.of(one.check)) and known.passed]
        if green:
            yield f"passed before the run began as well, so no evidence of this work: {', '.join(green)}"


def _before(state: State) -> tuple[Iteration, ...]:
    return state.history.iterations[:-1]


def _doubts(facts: Iteration, several: bool) -> Iterator[str]:
    """What is not sure about an iteration that passed; that a whole run was only claimed is told elsewhere."""
    stage = f"stage {facts.job.stage.name}"
    for finding in facts.report.findings:
        if finding.judged and finding.errored:
            yield f"{stage}: {finding.check} could not answer, so the promise alone counted"
        elif not finding.passed and not finding.required:
            yield f"{stage}: {finding.check} failed, and only warns"
    if several and not facts.report.findings:
        yield f"{stage}: it was claimed; nothing verified it"


def begun_iterations(state: State) -> int:
    """How many iterations there were. One that was begun and not judged counts, unless its agent could not start."""
    match state.phase:
        case Checking(facts):
            begun = facts.turn.exit.why != "unstartable" and facts.turn.taken
        case Turned(_, reply):
            begun = reply.taken
        case Picking():
            begun = state.turn > 1
        case phase:
            begun = isinstance(phase, Turning)
    return state.history.turns + begun


def failed(state: State, now: Moment, error: str, exit_code: int = 3) -> Failed:
    """The outcome of a run that cannot go on. What it cost until then it did cost."""
    spend = state.bill.beside(now.children.spend)
    return Failed(error, begun_iterations(state), exit_code, spend, now.elapsed_s)


def _green(state: State, breach: Breach) -> bool:
    """Whether the tree as it now is passed all checks of its stage; what a tripwire ended shows nothing."""
    past = state.history.iterations
    match state.phase:
        case Checking(facts) | Concluded(facts):
            pass
        case Turning() | Turned():
            return False
        case _ if past:
            facts = past[-1]
        case _:
            return False
    if state.unjudged or breach.reason in TRIPWIRES:
        return False
    asked = {finding.check for finding in facts.report.findings}
    return facts.report.verified and asked.issuperset(facts.job.stage.checks)


def aborted(state: State, now: Moment, breach: Breach) -> Aborted:
    """The outcome of a run that a breach ends."""
    past = state.history.iterations
    last = state.facts.turn if isinstance(state.phase, Checking) else past[-1].turn if past else None
    output, error = (bounded(last.text, OUTPUT_CHARS), bounded(last.error or "", ERROR_CHARS)) if last else ("", "")
    spend = state.bill.beside(now.children.spend)
    return Aborted(breach, begun_iterations(state), spend, now.elapsed_s, output, _green(state, breach), error)
