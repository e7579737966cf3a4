"""How a run that ends now has ended."""

from __future__ import annotations

from ralphproof.action import Moment
from ralphproof.agent import bounded
from ralphproof.limit import Breach
from ralphproof.phase import Checking, Picking, Turned, Turning
from ralphproof.state import State
from ralphproof.verdict import Aborted, Completed, Failed

OUTPUT_CHARS = 10_000  # of the last message, in the outcome


def completed(state: State, now: Moment) -> Completed:
    """The outcome of a run whose plan is done."""
    output = state.history.latest.turn.text if state.history.iterations else ""
    verified = state.proved and bool(state.history.iterations) and state.history.latest.report.verified
    concerns = tuple(f"scm: {concern}" for concern in state.committed.concerns)
    spend = state.spend.beside(now.children.spend)
    return Completed(state.history.turns, spend, now.elapsed_s, bounded(output, OUTPUT_CHARS), verified, concerns)


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


def aborted(state: State, now: Moment, breach: Breach, checks_passed: bool = False) -> Aborted:
    """The outcome of a run that a breach ends."""
    past = state.history.iterations
    said = state.facts.turn.text if isinstance(state.phase, Checking) else past[-1].turn.text if past else ""
    output, spend = bounded(said, OUTPUT_CHARS), state.bill.beside(now.children.spend)
    return Aborted(breach, begun_iterations(state), spend, now.elapsed_s, output, checks_passed)
