"""The history of a run from its records: iterations, turns and checks; and readers that follow the records."""

from __future__ import annotations

from ralphproof.base.text import truncate
from ralphproof.base.value import TYPE_CHECKING, assert_never, replace, value
from ralphproof.display import phrases
from ralphproof.engine import records
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import Finding
from ralphproof.engine.limits import Spend
from ralphproof.engine.outcome import Passed, Retry, SentBack, Stopped, Waiting
from ralphproof.engine.plan import Job
from ralphproof.engine.state import State
from ralphproof.store.run_state import run_state

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.outcome import Verdict
    from ralphproof.engine.records import Record
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project

MAX_EXCERPT_CHARS = 4000  # of what an agent said last, or a check printed; the logs have all of it
MAX_JUDGEMENT_CHARS = 40_000  # of what a judge said: it rules on each criterion
BASELINE_NUMBER = 0  # the number of what was asked before the first iteration
# Records that are shown as notices of an iteration.
TimelineNote = (
    records.Noticed | records.Warned | records.Escalated | records.UserMessageAdded | records.Paused
    | records.UserChangesSaved | records.Resumed | records.HookEnded
)  # fmt: skip


@value
class TurnView:
    """One turn of an iteration. `again` is why it was repeated."""

    iteration: int
    turn: int
    agent: str
    began_s: float
    reply: Turn | None = None
    ended_s: float | None = None
    again: str = ""


@value
class CheckView:
    """One check; without a `finding` it is running, unless it was `stopped`."""

    name: str
    began_s: float
    finding: Finding | None = None
    stopped: bool = False

    @property
    def excerpt(self) -> str:
        """The beginning and the end of its output."""
        return truncate(self.finding.output, MAX_EXCERPT_CHARS) if self.finding else ""


def check_state(check: CheckView) -> str:
    """running, passed, failed, errored, stopped, or advisory: it failed, and only warns."""
    finding = check.finding
    if finding is None:
        return "stopped" if check.stopped else "running"
    return finding_state(finding)


def finding_state(finding: Finding) -> str:
    """The state of a check with this result."""
    if finding.why == phrases.STOPPED:
        return "stopped"
    if finding.passed:
        return "passed"
    return "errored" if finding.errored else "failed" if finding.required else "advisory"


@value
class IterationView:
    """One iteration so far. `saved` is its latest saved work.

    `seconds` is its duration, where it is over and that is known; until then it has lasted since `counts_s`.
    """

    run: str
    number: int
    began_s: float
    job: Job | None = None
    turns: tuple[TurnView, ...] = ()
    saved: records.Saved | None = None
    checks: tuple[CheckView, ...] = ()
    round: int = 1
    verdict: Verdict | None = None
    ended_s: float | None = None
    counts_s: float = 0.0
    seconds: float | None = None
    notes: tuple[TimelineNote, ...] = ()
    scm: records.ScmEnded | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the agent changed."""
        return self.saved.change.agent_paths if self.saved else ()

    @property
    def claim(self) -> str | None:
        """The word of the agent's claim."""
        return self.saved.heard.claim.word if self.saved and self.saved.heard.claim else None

    @property
    def spend(self) -> Spend:
        """The cost of its turns, its judges, and the call for a commit message."""
        spend = Spend()
        for turn in self.turns:  # one that goes on has cost something, nobody knows what
            spend = spend.plus_turn(turn.reply) if turn.reply else spend.plus(Spend(unpriced=1))
        for check in self.checks:
            if check.finding and check.finding.spent:
                spend = spend.plus(Spend.of(check.finding.spent))
        return spend.plus_turn(self.scm.reply) if self.scm and self.scm.reply else spend

    @property
    def failing_count(self) -> int | None:
        """How many tests failed, where they were counted, else how many checks; None where no check ran."""
        found = [check.finding for check in self.checks if check.finding]
        if not found:
            return None
        return sum(one.tests.failed if one.tests else 1 for one in found if not one.passed)


def describe_verdict(verdict: Verdict) -> str:
    """A verdict in a few words."""
    match verdict:
        case Passed():
            return "done"
        case Retry():
            return "not done"
        case SentBack(reopened):
            return f"back to {reopened[0]}"
        case Waiting():
            return "waits"
        case Stopped(breach):
            return f"stopped, {breach.reason}"


def verdict_reason(verdict: Verdict) -> str:
    """Why."""
    match verdict:
        case Passed(report):
            return phrases.describe_report(report)
        case Retry(feedback) | SentBack(_, feedback):
            return phrases.describe_feedback(feedback)
        case Waiting(reason):
            return reason
        case Stopped(breach):
            return breach.message
        case _:
            assert_never(verdict)


def describe_note(note: TimelineNote) -> str:
    """A note for people."""
    match note:
        case records.Noticed(message=message) | records.Warned(message=message):
            return message
        case records.Escalated():
            return phrases.describe_escalation(note)
        case records.UserMessageAdded(text=text):
            return f"you said: {text}"
        case records.Paused():
            return "it rests"
        case records.UserChangesSaved(paths=paths):
            return f"it goes on; changed meanwhile, and yours: {', '.join(paths) or 'nothing'}"
        case records.Resumed():
            return phrases.describe_resume(note)
        case records.HookEnded():
            return phrases.describe_hook(note)
        case _:
            assert_never(note)


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

    def __init__(self, run: str) -> None:
        self._run = run
        self.iterations: dict[int, IterationView] = {}
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
        span = self.iterations.get(iteration) or IterationView(
            self._run, iteration, at_s, self._job if iteration else None
        )
        if self._held and not isinstance(record, TimelineNote):
            span = replace(span, notes=(*span.notes, *self._due(iteration, isinstance(record, records.RunEnded))))
        self.iterations[iteration] = self._timed(_apply_record(span, at_s, record), record, before_s)
        self.touched[iteration] = number

    def _ahead(self, remark: TimelineNote) -> bool:
        """Whether a note belongs to an iteration that has not begun."""
        if isinstance(remark, records.Resumed):
            return self._now == BASELINE_NUMBER or self.iterations[self._now].ended_s is not None
        return remark.iteration > self._now

    def _due(self, iteration: int, over: bool) -> list[TimelineNote]:
        """The pending notes for this iteration, or all where the run is `over`."""
        due = [one for one in self._held if over or getattr(one, "iteration", iteration) <= iteration]
        self._held = [one for one in self._held if one not in due]
        return due

    def _timed(self, span: IterationView, record: records.Record, before_s: float) -> IterationView:
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


def _apply_record(span: IterationView, at_s: float, record: records.Record) -> IterationView:
    match record:
        case records.TurnBegan(_, turn, agent=agent):
            return replace(
                span,
                turns=(*span.turns, TurnView(span.number, turn, agent, at_s)),
                ended_s=None,
                verdict=None,
                seconds=None,
            )
        case records.TurnEnded(_, turn, reply):
            light = replace(reply, text=truncate(reply.text, MAX_EXCERPT_CHARS))
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
            return replace(span, scm=record)
        case (
            records.Noticed() | records.Warned() | records.Escalated() | records.UserMessageAdded() | records.Paused()
            | records.UserChangesSaved() | records.Resumed() | records.HookEnded()
        ):  # fmt: skip
            return replace(span, notes=(*span.notes, record))
        case _:
            return span


def _update_turn(span: IterationView, turn: int, **changes: object) -> IterationView:
    return replace(span, turns=tuple(replace(one, **changes) if one.turn == turn else one for one in span.turns))


def _update_check(
    span: IterationView, at_s: float, record: records.CheckBegan | records.CheckEnded | records.CheckStopped
) -> IterationView:
    """With a new state of a check. In a new round the tree is another one: earlier results are dropped."""
    round = getattr(record, "round", span.round)
    before = span.checks if round == span.round else ()
    match record:
        case records.CheckBegan(check=name):
            last = CheckView(name, at_s)
        case records.CheckEnded(finding=finding):
            name = finding.check
            last = replace(_find_check(before, name, at_s), finding=_shorten(finding))
        case records.CheckStopped(check=name):
            last = replace(_find_check(before, name, at_s), stopped=True)
    known = [one.name for one in before]
    checks = (
        tuple(last if one.name == name else one for one in before) if name in known else (*before, last)
    )  # asked again, by a later session, it keeps its place
    return replace(span, checks=checks, round=round)


def _find_check(checks: tuple[CheckView, ...], name: str, at_s: float) -> CheckView:
    return next((check for check in checks if check.name == name), CheckView(name, at_s))


def _shorten(finding: Finding) -> Finding:
    most = MAX_JUDGEMENT_CHARS if finding.judged else MAX_EXCERPT_CHARS
    return replace(finding, output=truncate(finding.output, most))


def close_iteration(span: IterationView, at_s: float, seconds: float | None) -> IterationView:
    """Close an iteration whose run ended or lost its harness at this time."""
    checks = tuple(check if check.finding else replace(check, stopped=True) for check in span.checks)
    turns = tuple(turn if turn.ended_s is not None else replace(turn, ended_s=at_s) for turn in span.turns)
    return replace(span, checks=checks, turns=turns, ended_s=at_s, seconds=seconds)


# Records as they are written.


class RecordTail:
    """Reads each record of a run once, as it is written; `state` is the state after them."""

    def __init__(self, ledger: SqliteLedger, row: RunRow) -> None:
        self._ledger, self.row, self._number = ledger, row, 0
        self.state = State()
        self.last: Record | None = None
        self.earlier = self.more()

    def more(self) -> tuple[Record, ...]:
        """The records since the last call."""
        entries = self._ledger.queries.records_since(self.row.id, self._number)
        for number, _, record in entries:
            self._number, self.last, self.state = number, record, self.state.after(record)
        return tuple(record for _, _, record in entries)

    @property
    def grown(self) -> bool:
        """Whether there are new records."""
        return self._ledger.queries.last_seq_of(self.row.id) > self._number

    def standing(self, project: Project) -> str:
        """The run's state: running, ended, or without a harness. Another process may own it by now."""
        self.row = self._ledger.row(self.row.id) or self.row
        return run_state(self._ledger, self.row, project)


class RunHistory:
    """The state, timeline and title of a run from its records so far. `seq` is the number of the last one.

    `refused` is why an agent's service last refused, `hooks` the user's own commands that have ended.
    """

    def __init__(self, run: str) -> None:
        self.run, self.seq, self.at_s = run, 0, 0.0
        self.state, self.timeline = State(), Timeline(run)
        self.title = self.refused = ""
        self.last: Record | None = None
        self.hooks: tuple[records.HookEnded, ...] = ()
        self._facts: dict[str, Json] = {}

    def catch_up(self, ledger: SqliteLedger) -> None:
        """Read new records."""
        for seq, at_s, record in ledger.queries.records_since(self.run, self.seq):
            self.take(seq, at_s, record)

    def take(self, seq: int, at_s: float, record: Record) -> None:
        """Add a record, its number in the ledger and its time."""
        self.state = self.state.after(record)
        self.timeline.take(seq, at_s, record)
        self.seq, self.at_s, self.last = seq, at_s, record
        match record:
            case records.RunBegan(facts=facts):
                self._facts, self.title = facts, str(facts.get("title") or "")
            case records.Picked(choice=Job() as job) if not self._facts.get("title"):
                self.title = job.task.title
            case records.TurnRetried(empty=False, why=why):
                self.refused = why
            case records.HookEnded():
                self.hooks = (*self.hooks, record)
            case _:
                pass

    @property
    def facts(self) -> dict[str, Json]:
        """The facts of its beginning; who resumed it may have used another sandbox."""
        sandbox = self.state.run.facts.get("sandbox")
        return self._facts | ({"sandbox": sandbox} if sandbox else {})
