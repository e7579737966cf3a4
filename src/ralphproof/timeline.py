"""A run along its iterations, as its records tell it: also of the one that is not judged yet."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.agent import Turn, bounded
from ralphproof.check import Finding
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from ralphproof.verdict import Verdict

WORDS_CHARS = 4000  # of what an agent said last, or a check printed; the logs have all of it
BEFORE = 0  # the number of what was asked before the first iteration
# What is only told, in the iteration in which it came.
Remark = told.Noticed | told.Warned | told.Escalated | told.Told | told.Paused | told.Regained | told.Resumed


@value
class Leg:
    """One turn of an iteration. `again` is why it was taken once more."""

    turn: int
    agent: str
    began_s: float
    reply: Turn | None = None
    ended_s: float | None = None
    again: str = ""


@value
class CheckRun:
    """One check that was asked; without a `finding` it is still at work, unless it was `stopped`."""

    check: str
    began_s: float
    finding: Finding | None = None
    stopped: bool = False


@value
class Span:
    """One iteration, as far as it has come. `saved` is the last that is known of its work."""

    number: int
    began_s: float
    job: Job | None = None
    legs: tuple[Leg, ...] = ()
    saved: told.Saved | None = None
    checks: tuple[CheckRun, ...] = ()
    round: int = 1
    verdict: Verdict | None = None
    ended_s: float | None = None
    remarks: tuple[Remark, ...] = ()
    kept: told.ScmEnded | None = None


class Timeline:
    """The iterations of one run, which grow with its records. `touched` has the number of the last record of each."""

    def __init__(self) -> None:
        self.spans: dict[int, Span] = {}
        self.touched: dict[int, int] = {}
        self._job: Job | None = None
        self._now = BEFORE

    def take(self, number: int, at_s: float, record: told.Record) -> None:
        """One more record, its number in the ledger and its time."""
        match record:
            case told.Picked(choice=choice):
                self._job = choice if isinstance(choice, Job) else None
                return  # a limit may keep it from being begun
            case told.TurnBegan(iteration) | told.Claimed(iteration):
                self._now = iteration
            case told.RunBegan() | told.Grounded() | told.Awaited() | told.ScmBegan():
                return
            case _:
                iteration = min(getattr(record, "iteration", self._now), max(self._now, 0))
        span = self.spans.get(iteration) or Span(iteration, at_s, self._job if iteration else None)
        self.spans[iteration] = _after(span, at_s, record)
        self.touched[iteration] = number


def _after(span: Span, at_s: float, record: told.Record) -> Span:
    match record:
        case told.TurnBegan(_, turn, agent=agent):
            return replace(span, legs=(*span.legs, Leg(turn, agent, at_s)), ended_s=None, verdict=None)
        case told.TurnEnded(_, turn, reply):
            light = replace(reply, text=bounded(reply.text, WORDS_CHARS))
            return _with_leg(span, turn, reply=light, ended_s=at_s)
        case told.TurnAgain(_, turn, why=why, empty=empty):
            return _with_leg(span, turn, again=why or ("its reply was empty" if empty else "again"))
        case told.Saved():
            return replace(span, saved=record)
        case told.Joined(snapshot=snapshot, change=change) if span.saved:
            return replace(span, saved=replace(span.saved, snapshot=snapshot, change=change), checks=())
        case told.CheckBegan() | told.CheckEnded() | told.CheckStopped():
            return _asked(span, at_s, record)
        case told.Judged(verdict=verdict):
            return replace(span, verdict=verdict, ended_s=at_s)
        case told.ScmEnded():
            return replace(span, kept=record)
        case told.RunEnded():
            return cut_off(span, at_s)
        case (
            told.Noticed() | told.Warned() | told.Escalated() | told.Told() | told.Paused() | told.Regained()
            | told.Resumed()
        ):  # fmt: skip
            return replace(span, remarks=(*span.remarks, record))
        case _:
            return span


def _with_leg(span: Span, turn: int, **changes: object) -> Span:
    return replace(span, legs=tuple(replace(leg, **changes) if leg.turn == turn else leg for leg in span.legs))


def _asked(span: Span, at_s: float, record: told.CheckBegan | told.CheckEnded | told.CheckStopped) -> Span:
    """With what became of a check. In a new round the tree is another one: what was said of the old one is gone."""
    round = getattr(record, "round", span.round)
    before = span.checks if round == span.round else ()
    match record:
        case told.CheckBegan(check=name):
            last = CheckRun(name, at_s)
        case told.CheckEnded(finding=finding):
            name = finding.check
            last = replace(_of(before, name, at_s), finding=replace(finding, output=_end(finding.output)))
        case told.CheckStopped(check=name):
            last = replace(_of(before, name, at_s), stopped=True)
    known = [one.check for one in before]
    asked = (
        tuple(last if one.check == name else one for one in before) if name in known else (*before, last)
    )  # asked again, by a later session, it keeps its place
    return replace(span, checks=asked, round=round)


def _of(asked: tuple[CheckRun, ...], name: str, at_s: float) -> CheckRun:
    return next((one for one in asked if one.check == name), CheckRun(name, at_s))


def _end(text: str) -> str:
    return bounded(text, WORDS_CHARS)


def cut_off(span: Span, at_s: float) -> Span:
    """An iteration that nobody is at any more, because the run ended or lost its harness at this time."""
    asked = tuple(one if one.finding else replace(one, stopped=True) for one in span.checks)
    legs = tuple(leg if leg.ended_s is not None else replace(leg, ended_s=at_s) for leg in span.legs)
    return replace(span, checks=asked, legs=legs, ended_s=at_s if span.ended_s is None else span.ended_s)
