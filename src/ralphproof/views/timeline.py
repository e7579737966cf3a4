"""The timeline of a run: its iterations, turns and checks, from its records."""

from __future__ import annotations

from ralphproof.base.text import truncate_middle
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine import records
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import Finding
from ralphproof.engine.plan import Job

if TYPE_CHECKING:
    from ralphproof.engine.outcome import Verdict

MAX_EXCERPT_CHARS = 4000  # of what an agent said last, or a check printed; the logs have all of it
BASELINE_NUMBER = 0  # the number of what was asked before the first iteration
# Records that are shown as notices of an iteration.
TimelineNote = (
    records.Noticed | records.Warned | records.Escalated | records.UserMessageAdded | records.Paused
    | records.UserChangesSaved | records.Resumed | records.HookEnded
)  # fmt: skip


@value
class TimelineTurn:
    """One turn of an iteration. `again` is why it was repeated."""

    turn: int
    agent: str
    began_s: float
    reply: Turn | None = None
    ended_s: float | None = None
    again: str = ""


@value
class TimelineCheck:
    """One check; without a `finding` it is running, unless it was `stopped`."""

    check: str
    began_s: float
    finding: Finding | None = None
    stopped: bool = False


@value
class TimelineIteration:
    """One iteration so far. `saved` is its latest saved work.

    `seconds` is its duration, where it is over and that is known; until then it has lasted since `counts_s`.
    """

    number: int
    began_s: float
    job: Job | None = None
    legs: tuple[TimelineTurn, ...] = ()
    saved: records.Saved | None = None
    checks: tuple[TimelineCheck, ...] = ()
    round: int = 1
    verdict: Verdict | None = None
    ended_s: float | None = None
    counts_s: float = 0.0
    seconds: float | None = None
    remarks: tuple[TimelineNote, ...] = ()
    kept: records.ScmEnded | None = None


class RunAge:
    """The active time of a run and the duration of each iteration, counted from the end of the one before, or of the
    baseline checks.

    Time without a harness does not count: whoever resumes a run records its age.
    """

    def __init__(self) -> None:
        self._at_s = self._age_s = self._ground_s = 0.0  # when its age was last known, that age, the first look
        self._rests_s: float | None = None
        self._judged: dict[int, tuple[float, float]] = {}  # of each iteration: the ages before and after it

    def take(self, at_s: float, record: records.Record) -> None:
        """Add a record and its time."""
        match record:
            case records.RunBegan():
                self._at_s = at_s
            case records.CheckEnded(0, _, finding):
                self._ground_s += finding.seconds
            case records.Judged(iteration, elapsed_s=elapsed_s):
                self._judged[iteration] = self._before_s(iteration), elapsed_s
                self._at_s, self._age_s = at_s, elapsed_s
            case records.Resumed(elapsed_s=elapsed_s):
                self._at_s, self._age_s, self._rests_s = at_s, elapsed_s, None
            case records.Paused():
                self._rests_s = at_s
            case records.UserChangesSaved() if self._rests_s is not None:
                self._at_s, self._rests_s = self._at_s + at_s - self._rests_s, None
            case _:
                pass

    def age_s(self, at_s: float) -> float:
        """The active time of a run at this time, if it was active."""
        return self._age_s + max(0.0, (at_s if self._rests_s is None else self._rests_s) - self._at_s)

    def seconds(self, iteration: int, age_s: float) -> float:
        """The duration of an iteration when the run had this age."""
        return max(0.0, age_s - self._before_s(iteration))

    def judged_s(self, iteration: int) -> float:
        """The duration of a judged iteration."""
        before_s, after_s = self._judged[iteration]
        return max(0.0, after_s - before_s)

    def counts_s(self, iteration: int) -> float:
        """The time from which the duration of an open iteration is counted, without pauses."""
        return self._at_s - (self._age_s - self._before_s(iteration))

    def _before_s(self, iteration: int) -> float:
        """The age of the run when the iteration before was judged, which is nearly always the last judged one."""
        ages = (age_s for number, (_, age_s) in reversed(self._judged.items()) if number < iteration)
        return next(ages, self._ground_s)


class Timeline:
    """The iterations of one run, from its records. `touched` has the number of the last record of each."""

    def __init__(self) -> None:
        self.spans: dict[int, TimelineIteration] = {}
        self.touched: dict[int, int] = {}
        self.pace = RunAge()
        self._job: Job | None = None
        self._now, self._last_s = BASELINE_NUMBER, 0.0
        self._held: list[TimelineNote] = []  # what is told of an iteration that has not begun

    def take(self, number: int, at_s: float, record: records.Record) -> None:
        """Add a record, its number in the ledger and its time."""
        before_s, self._last_s = self._last_s, at_s
        self.pace.take(at_s, record)
        match record:
            case records.Picked(choice=choice):
                self._job = choice if isinstance(choice, Job) else None
                return  # a limit may keep it from being begun
            case records.TurnBegan(iteration) | records.ClaimFound(iteration):
                self._now = iteration
            case (
                records.RunBegan()
                | records.BaselineSaved()
                | records.ChildRunsAwaited()
                | records.ScmBegan()
                | records.HookBegan()
            ):
                return
            case _ if isinstance(record, TimelineNote) and self._ahead(record):
                self._held.append(record)
                return
            case _:
                iteration = min(getattr(record, "iteration", self._now), max(self._now, 0))
        span = self.spans.get(iteration) or TimelineIteration(iteration, at_s, self._job if iteration else None)
        if self._held and not isinstance(record, TimelineNote):
            span = replace(span, remarks=(*span.remarks, *self._due(iteration, isinstance(record, records.RunEnded))))
        self.spans[iteration] = self._timed(_apply_record(span, at_s, record), record, before_s)
        self.touched[iteration] = number

    def _ahead(self, remark: TimelineNote) -> bool:
        """Whether a note belongs to an iteration that has not begun."""
        if isinstance(remark, records.Resumed):
            return self._now == BASELINE_NUMBER or self.spans[self._now].ended_s is not None
        return remark.iteration > self._now

    def _due(self, iteration: int, over: bool) -> list[TimelineNote]:
        """The pending notes for this iteration, or all where the run is `over`."""
        due = [one for one in self._held if over or getattr(one, "iteration", iteration) <= iteration]
        self._held = [one for one in self._held if one not in due]
        return due

    def _timed(self, span: TimelineIteration, record: records.Record, before_s: float) -> TimelineIteration:
        match record:
            case records.Judged(iteration):
                return replace(span, seconds=self.pace.judged_s(iteration))
            case records.RunEnded(outcome) if span.ended_s is None:
                worked = self.pace.seconds(span.number, outcome.seconds)
                if not worked:  # who closes the record of a dead run knows no more than it told
                    return close_iteration(span, before_s, None)
                return close_iteration(span, min(self._last_s, self.pace.counts_s(span.number) + worked), worked)
            case _:
                return replace(span, counts_s=self.pace.counts_s(span.number))


def _apply_record(span: TimelineIteration, at_s: float, record: records.Record) -> TimelineIteration:
    match record:
        case records.TurnBegan(_, turn, agent=agent):
            return replace(
                span, legs=(*span.legs, TimelineTurn(turn, agent, at_s)), ended_s=None, verdict=None, seconds=None
            )
        case records.TurnEnded(_, turn, reply):
            light = replace(reply, text=truncate_middle(reply.text, MAX_EXCERPT_CHARS))
            return _update_turn(span, turn, reply=light, ended_s=at_s)
        case records.TurnRetried(_, turn, why=why, empty=empty):
            return _update_turn(span, turn, again=why or ("its reply was empty" if empty else "again"))
        case records.Saved():
            return replace(span, saved=record)
        case records.ChildWorkJoined(snapshot=snapshot, change=change) if span.saved:
            return replace(span, saved=replace(span.saved, snapshot=snapshot, change=change), checks=())
        case records.CheckBegan() | records.CheckEnded() | records.CheckStopped():
            return _update_check(span, at_s, record)
        case records.Judged(verdict=verdict):
            return replace(span, verdict=verdict, ended_s=at_s)
        case records.ScmEnded():
            return replace(span, kept=record)
        case (
            records.Noticed() | records.Warned() | records.Escalated() | records.UserMessageAdded() | records.Paused()
            | records.UserChangesSaved() | records.Resumed() | records.HookEnded()
        ):  # fmt: skip
            return replace(span, remarks=(*span.remarks, record))
        case _:
            return span


def _update_turn(span: TimelineIteration, turn: int, **changes: object) -> TimelineIteration:
    return replace(span, legs=tuple(replace(leg, **changes) if leg.turn == turn else leg for leg in span.legs))


def _update_check(
    span: TimelineIteration, at_s: float, record: records.CheckBegan | records.CheckEnded | records.CheckStopped
) -> TimelineIteration:
    """With a new state of a check. In a new round the tree is another one: earlier results are dropped."""
    round = getattr(record, "round", span.round)
    before = span.checks if round == span.round else ()
    match record:
        case records.CheckBegan(check=name):
            last = TimelineCheck(name, at_s)
        case records.CheckEnded(finding=finding):
            name = finding.check
            last = replace(_find_check(before, name, at_s), finding=replace(finding, output=_excerpt(finding.output)))
        case records.CheckStopped(check=name):
            last = replace(_find_check(before, name, at_s), stopped=True)
    known = [one.check for one in before]
    checks = (
        tuple(last if one.check == name else one for one in before) if name in known else (*before, last)
    )  # asked again, by a later session, it keeps its place
    return replace(span, checks=checks, round=round)


def _find_check(checks: tuple[TimelineCheck, ...], name: str, at_s: float) -> TimelineCheck:
    return next((check for check in checks if check.check == name), TimelineCheck(name, at_s))


def _excerpt(text: str) -> str:
    return truncate_middle(text, MAX_EXCERPT_CHARS)


def close_iteration(span: TimelineIteration, at_s: float, seconds: float | None) -> TimelineIteration:
    """Close an iteration whose run ended or lost its harness at this time."""
    checks = tuple(check if check.finding else replace(check, stopped=True) for check in span.checks)
    legs = tuple(leg if leg.ended_s is not None else replace(leg, ended_s=at_s) for leg in span.legs)
    return replace(span, checks=checks, legs=legs, ended_s=at_s, seconds=seconds)
