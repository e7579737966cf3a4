"""The durable record that everything can be rebuilt from. A run's State is the fold of its records, nothing else."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.agent import Turn
from ralphproof.budget import Spend
from ralphproof.check import Report
from ralphproof.event import Event, Spent, Usage
from ralphproof.iteration import History, Iteration
from ralphproof.phase import Checking, Concluded, Over, Phase, Picking, Ready, Turned, Turning
from ralphproof.record import Record
from ralphproof.service import Services
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, Protocol, assert_never, replace, value
from ralphproof.verdict import Feedback, Passed, Retry
from ralphproof.workspace import Committed, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.value import Json


SCM = "the SCM step"


@value
class State:
    """Where a run stands. `elapsed_s` is the time it had taken when an iteration was last judged.

    `last` is the tree that the next change is measured against, `found` the one that this iteration found: all its
    turns together made its change. `unkept` says that the tree changed since the user's SCM was last given work,
    `committed` what came of that. `begun` is the check, or SCM, that began and whose end is not recorded: it is taken
    up, never begun a second time. `place` is that of the agent that was last asked. `session` is one of that agent's
    own, with work in it that its service broke off, and `billed` what it has cost. `labels` is what the record's
    beginning tells of the run. `baseline` is what the checks said before the first turn, `written` what they
    wrote. Patterns are looked for from
    iteration `since` on, with the model of the ladder at `rung`; iteration `deep` is told how to debug.
    """

    run: str = ""
    phase: Phase = Ready()
    iteration: int = 0
    turn: int = 0
    history: History = History()
    spend: Spend = Spend()
    feedback: Feedback = Feedback()
    passed: frozenset[tuple[str, str]] = frozenset()
    proved: bool = True
    began: Snapshot = Snapshot(None, None)
    last: Snapshot = Snapshot(None, None)
    found: Snapshot = Snapshot(None, None)
    empties: int = 0
    services: Services = Services()
    place: int = 0
    session: str | None = None
    billed: Spent = Spent(0, Usage())
    notices: int = 0
    elapsed_s: float = 0.0
    begun: str = ""
    unkept: bool = False
    committed: Committed = Committed()
    began_s: float = 0.0
    labels: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    baseline: Report = Report()
    grounded: bool = False
    written: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    since: int = 1
    rung: int = 0
    deep: int = 0

    def after(self, record: Record) -> State:
        """The state that this record leads to."""
        match record:
            case told.RunBegan(run, snapshot, labels, at):
                return replace(self, run=run, began=snapshot, last=snapshot, labels=labels, began_s=at)
            case told.Grounded(tree, written):
                return replace(self, grounded=True, began=tree, last=tree, found=tree, written=frozenset(written))
            case told.Escalated(iteration, rung, deep):
                return replace(self, since=iteration, rung=rung, deep=iteration if deep else self.deep)
            case told.Warned(_, what):
                return replace(self, warned=self.warned | {what})
            case told.Picked(iteration, choice):
                picked = replace(self, phase=Picking(choice), iteration=iteration, turn=1)
                return replace(picked, empties=0, found=self.last, session=None)
            case told.TurnBegan(place=place):
                session = self.session if place == self.place else None
                return replace(self, phase=Turning(self.job), place=place, session=session)
            case told.TurnEnded(_, _, reply):
                return replace(self, phase=Turned(self.job, reply), spend=self.spend.plus(reply))
            case told.Saved():
                return self._saved(record)
            case told.TurnAgain():
                return self._again(record)
            case told.CheckBegan(_, _, check):
                return replace(self, begun=check)
            case told.CheckEnded(0, _, finding):
                return replace(self, baseline=self.baseline.plus(finding), begun="")
            case told.CheckEnded(_, _, finding):
                grown = replace(self.facts, report=self.facts.report.plus(finding))
                return replace(self, phase=Checking(grown), begun="")
            case told.Judged():
                return self._judged(record)
            case told.ScmBegan():
                return replace(self, begun=SCM)
            case told.ScmEnded(_, committed, called):
                return self._kept(committed, called)
            case told.Noticed():
                return replace(self, notices=self.notices + 1)
            case told.RunEnded(outcome):
                return replace(self, phase=Over(outcome))
            case _:
                assert_never(record)

    @property
    def job(self) -> Job:
        """The job at hand."""
        match self.phase:
            case Picking(Job() as job) | Turning(job) | Turned(job):
                return job
            case Checking(facts) | Concluded(facts):
                return facts.job
            case _:
                raise ValueError("no job is at hand")

    @property
    def turning(self) -> bool:
        """A turn began whose end is not recorded: it is taken up, never begun a second time."""
        return isinstance(self.phase, Turning)

    @property
    def bill(self) -> Spend:
        """What the run has cost. A turn that began and whose end is not known has cost something, nobody knows what."""
        return replace(self.spend, unpriced=self.spend.unpriced + 1) if self.turning else self.spend

    @property
    def reply(self) -> Turn:
        """What the agent came back with; its work is not saved yet."""
        if isinstance(self.phase, Turned):
            return self.phase.reply
        raise ValueError("no turn has just ended")

    @property
    def facts(self) -> Iteration:
        """The iteration whose work is saved."""
        if isinstance(self.phase, Checking | Concluded):
            return self.phase.facts
        raise ValueError("no iteration's work is saved")

    def _saved(self, record: told.Saved) -> State:
        facts = Iteration(
            record.iteration, self.job, self.reply, record.snapshot, record.change, Report(),
            record.heard.claim, record.heard.uncounted, record.sprung,
        )  # fmt: skip
        unkept = self.unkept or bool(record.change.paths)
        return replace(self, phase=Checking(facts), last=record.snapshot, unkept=unkept)

    def _again(self, record: told.TurnAgain) -> State:
        again = replace(self, phase=Picking(self.job), turn=record.turn + 1, last=self.found)
        if record.empty:
            return replace(again, empties=self.empties + 1, services=self.services.answered(self.place), session=None)
        reply, services = self.facts.turn, self.services.failed(self.place, record.until)
        if not reply.session or not reply.tools:  # nothing in it is worth going on with
            return replace(again, services=services, session=None)
        billed = self.billed.plus(reply.spent) if reply.session == self.session else reply.spent
        return replace(again, services=services, session=reply.session, billed=billed)

    def _kept(self, committed: Committed, called: Turn | None) -> State:
        """Our own commit is no work of the agent's: the next change is measured from behind it."""
        last = replace(self.last, head=committed.commit) if committed.commit else self.last
        spend = self.spend.plus(called) if called else self.spend
        phase, unkept = replace(self.phase, kept=True), self.unkept and bool(committed.error)
        return replace(self, phase=phase, spend=spend, begun="", last=last, unkept=unkept, committed=committed)

    def _judged(self, record: told.Judged) -> State:
        facts, verdict = self.facts, record.verdict
        passed = self.passed | {facts.job.key} if isinstance(verdict, Passed) else self.passed
        proved = self.proved and (not isinstance(verdict, Passed) or verdict.report.verified)
        feedback = verdict.feedback if isinstance(verdict, Retry) else Feedback()
        return replace(
            self, phase=Concluded(facts, verdict), history=self.history.plus(facts), passed=passed, proved=proved,
            feedback=feedback, elapsed_s=record.elapsed_s, services=self.services.answered(self.place),
        )  # fmt: skip


def state_of(records: Iterable[Record]) -> State:
    """The state that these records make."""
    state = State()
    for record in records:
        state = state.after(record)
    return state


class Ledger(Protocol):
    """Keeps records. What `append` was given is on disk when it returns, all of it or nothing."""

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add records in one transaction."""

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""

    def wish(self, run: str) -> str:
        """What somebody wants of this run: "" or "cancel"."""


class Observer(Protocol):
    """Looks on. Whatever it does, the loop goes on."""

    def saw(self, record: Record) -> None:
        """A record that is now durable."""

    def heard(self, events: list[Event]) -> None:
        """What the agent said and did, in order, as it happens."""

    def tick(self) -> None:
        """Time passes while an agent or a check runs."""


class Folder(Protocol):
    """The run's files for people: prompts, logs, the outcome."""

    run: str

    def prompt(self, name: str, text: str) -> str:
        """Write a prompt; return its path."""

    def base(self, name: str) -> str:
        """The path of a log without its ending, out of the agent's reach."""

    def publish(self, name: str) -> None:
        """Copy the logs of this name to where people look."""

    def shown(self, name: str) -> str:
        """The path of such a copy without its ending."""

    def turn_file(self, name: str) -> str:
        """Where a turn's lock and result lie, out of the agent's reach."""

    def outcome(self, result: dict[str, Json]) -> None:
        """Write how the run ended."""
