"""The state of a run, computed from its records alone, and the phases of an iteration."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, assert_never, replace, value
from ralphproof.engine.agent import ConfigFault, Turn, classify_fault
from ralphproof.engine.budget import Spend
from ralphproof.engine.check import CheckReport
from ralphproof.engine.events import Spent, Usage
from ralphproof.engine.iteration import History, Iteration
from ralphproof.engine.outcome import Outcome, Passed, Retry, SentBack, Stopped, Verdict, Waiting
from ralphproof.engine.plan import Job, PlanChoice
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    BaselineSaved,
    CheckBegan,
    CheckEnded,
    CheckStopped,
    ChildRunsAwaited,
    ChildWorkJoined,
    ClaimFound,
    Escalated,
    ExternalRecord,
    HookBegan,
    HookEnded,
    Judged,
    Noticed,
    Paused,
    Picked,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    ScmBegan,
    ScmEnded,
    TurnBegan,
    TurnEnded,
    TurnRetried,
    UserChangesSaved,
    UserMessageAdded,
    Warned,
)
from ralphproof.engine.retry import ServiceOutages
from ralphproof.engine.run_hooks import AFTER_ITERATION, AFTER_RUN, BEFORE_ITERATION, BEFORE_RUN, HookProgress
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import CommitResult, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.base.value import Json


# Phases of an iteration.


@value
class BetweenIterations:
    """Between iterations."""


@value
class JobPicked:
    """The plan was read; the turn has not begun."""

    choice: PlanChoice


@value
class TurnRunning:
    """A turn began and its end is not recorded."""

    job: Job


@value
class TurnFinished:
    """The agent has ended; its work is not saved yet."""

    job: Job
    reply: Turn


@value
class Checking:
    """The work is saved; checks are running."""

    facts: Iteration


@value
class IterationJudged:
    """The iteration is judged. `kept`: the SCM step is over."""

    facts: Iteration
    verdict: Verdict
    scm_done: bool = False


@value
class RunOver:
    outcome: Outcome


Phase = BetweenIterations | JobPicked | TurnRunning | TurnFinished | Checking | IterationJudged | RunOver


SCM_STEP = "the SCM step"


@value
class State:
    """The state of a run.

    `elapsed_s` is the run's age when an iteration was last judged, or the run was resumed. `last` is the tree that the
    next change is measured against, `found` the one at the start of this iteration: all its turns together made its
    change. `unkept`: the tree changed since the last commit to the user's SCM; `committed` is the result of that.
    `begun` is the check or SCM step that began and has no recorded end: it is adopted, never begun a second time.
    `place`, `agent` and `digest` are those of the last called agent and its prompt. `thread` is a session of that
    agent, with work that a service fault interrupted, and `billed` its cost. `labels` are the facts of `RunBegan`.
    `baseline` is the check report before the first turn, `written` what the checks wrote. Repetitions are looked for
    from iteration `since` on, with the model of the ladder at `rung`; iteration `deep` gets debugging instructions.

    `session` counts the processes that ran this run; `before` is the state in which one of them ended it. While
    `unsure`, no harness was running, and while `paused`, nothing was running: what changes then is `theirs`, the
    user's. `base` is the tree whose commits must not be rewritten: the first one, until the user commits during such a
    time. `words` are the user's messages for this iteration, `last_word` the number of the last message of all.

    `seen` is the tree as last saved by anyone; `round` counts how often the checks started again on this turn's work.
    `awaited_s` is the run's age when it began to wait for child runs, None where it does not. `hooks` is the progress
    of hook commands. `unjudged`: somebody else changed the tree since checks saw it.
    """

    run: str = ""
    phase: Phase = BetweenIterations()
    iteration: int = 0
    turn: int = 0
    history: History = History()
    spend: Spend = Spend()
    feedback: Feedback = Feedback()
    passed: frozenset[tuple[str, str]] = frozenset()
    run_start: Snapshot = Snapshot(None, None)
    current_tree: Snapshot = Snapshot(None, None)
    iteration_start: Snapshot = Snapshot(None, None)
    empty_replies: int = 0
    services: ServiceOutages = ServiceOutages()
    agent_index: int = 0
    agent_session: str | None = None
    session_spent: Spent = Spent(0, Usage())
    notices: int = 0
    elapsed_s: float = 0.0
    open_steps: tuple[str, ...] = ()
    uncommitted: bool = False
    committed: CommitResult = CommitResult()
    began_s: float = 0.0
    labels: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    baseline: CheckReport = CheckReport()
    baseline_saved: bool = False
    baseline_paths: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    pattern_start: int = 1
    rung: int = 0
    debug_iteration: int = 0
    session: int = 1
    phase_before_end: Phase = BetweenIterations()
    user_paths: frozenset[str] = frozenset()
    history_base: Snapshot = Snapshot(None, None)
    user_messages: tuple[str, ...] = ()
    last_user_message: int = 0
    paused: bool = False
    pauses: int = 0
    user_saves: int = 0
    unattended: bool = False
    prompt_digest: str = ""
    agent: str = ""
    children_awaited_s: float | None = None
    last_saved: Snapshot = Snapshot(None, None)
    round: int = 1
    hooks: HookProgress = HookProgress()
    changed_since_checks: bool = False

    def after(self, record: Record) -> State:
        """The state that this record leads to."""
        match record:
            case RunBegan(run, tree, labels, at):
                return replace(
                    self,
                    run_start=tree,
                    history_base=tree,
                    current_tree=tree,
                    last_saved=tree,
                    run=run,
                    labels=labels,
                    began_s=at,
                )
            case (
                Resumed() | UserChangesSaved() | Paused() | UserMessageAdded()
                | ClaimFound() | ChildRunsAwaited()
                | ChildWorkJoined()
            ):  # fmt: skip
                return self._after_others(record)
            case BaselineSaved(tree, written):
                grounded = replace(self, baseline_saved=True, baseline_paths=frozenset(written))
                return replace(grounded, run_start=tree, current_tree=tree, iteration_start=tree, last_saved=tree)
            case Escalated(iteration, rung, deep):
                return replace(
                    self,
                    pattern_start=iteration,
                    rung=rung,
                    debug_iteration=iteration if deep else self.debug_iteration,
                )
            case Warned(_, what):
                return replace(self, warned=self.warned | {what})
            case Picked(iteration, choice):
                again = (AFTER_ITERATION, AFTER_RUN, *((BEFORE_ITERATION,) if iteration != self.iteration else ()))
                picked = replace(self, phase=JobPicked(choice), iteration=iteration, turn=1)
                picked = replace(picked, hooks=self.hooks.without(*again))
                return replace(
                    picked,
                    empty_replies=0,
                    iteration_start=self.current_tree,
                    agent_session=None,
                    user_messages=(),
                    children_awaited_s=None,
                    round=1,
                )
            case TurnBegan(prompt_digest=digest, agent=agent, place=place):
                thread = self.agent_session if place == self.agent_index else None
                return replace(
                    self,
                    phase=TurnRunning(self.job),
                    agent_index=place,
                    agent_session=thread,
                    prompt_digest=digest,
                    agent=agent,
                )
            case TurnEnded(_, _, reply):
                return replace(self, phase=TurnFinished(self.job, reply), spend=self.spend.plus_turn(reply))
            case Saved():
                return self._saved(record)
            case TurnRetried():
                return self._again(record)
            case CheckBegan(_, _, check):
                return replace(self, open_steps=(*self.open_steps, check))
            case CheckEnded():
                return self._checked(record)
            case CheckStopped(spent=spent):
                return replace(self, spend=self.spend.plus(Spend.of(spent)))
            case Judged():
                return self._judged(record)
            case ScmBegan():
                return replace(self, open_steps=(SCM_STEP,))
            case ScmEnded(_, committed, called):
                return self._kept(committed, called)
            case HookBegan(_, hook, place, number):
                return replace(self, hooks=self.hooks.began(hook, place, number))
            case HookEnded():
                return self._hooked(record)
            case Noticed():
                return replace(self, notices=self.notices + 1)
            case RunEnded(outcome):
                hooks = replace(self.hooks.without(BEFORE_RUN, AFTER_RUN), open=None)
                return replace(self, phase=RunOver(outcome), phase_before_end=self.phase, hooks=hooks)
            case _:
                assert_never(record)

    def _after_others(self, record: ExternalRecord) -> State:
        """The state after a record of what a user, another process or another run did."""
        match record:
            case Resumed():
                return self._resumed(record)
            case UserChangesSaved():
                return self._regained(record)
            case Paused(_, number):
                return replace(self, paused=True, pauses=number + 1)
            case UserMessageAdded(_, number, text):
                return replace(self, user_messages=(*self.user_messages, text), last_user_message=number)
            case ClaimFound():
                return replace(self, phase=TurnFinished(self.job, Turn(Exit(0), taken=False)))
            case ChildRunsAwaited(elapsed_s=elapsed_s):
                return replace(self, children_awaited_s=elapsed_s)
            case ChildWorkJoined():
                return self._joined(record)
            case _:
                assert_never(record)

    @property
    def job(self) -> Job:
        """The current job."""
        match self.phase:
            case JobPicked(Job() as job) | TurnRunning(job) | TurnFinished(job):
                return job
            case Checking(facts) | IterationJudged(facts):
                return facts.job
            case _:
                raise ValueError("no job is at hand")

    @property
    def attempt(self) -> int:
        """The number of this iteration among those with an agent call; a claim in a file needs none."""
        return self.history.turn_count + (0 if isinstance(self.phase, IterationJudged) else 1)

    @property
    def turn_running(self) -> bool:
        """A turn began whose end is not recorded: it is adopted, never begun a second time."""
        return isinstance(self.phase, TurnRunning)

    @property
    def bill(self) -> Spend:
        """The cost of the run. A call that began and whose end is unknown has an unknown cost."""
        calling = (
            isinstance(self.phase_before_end if isinstance(self.phase, RunOver) else self.phase, TurnRunning)
            or SCM_STEP in self.open_steps
        )
        return replace(self.spend, unpriced=self.spend.unpriced + 1) if calling else self.spend

    @property
    def reply(self) -> Turn:
        """The agent's turn whose work is not saved yet."""
        if isinstance(self.phase, TurnFinished):
            return self.phase.reply
        raise ValueError("no turn has just ended")

    @property
    def facts(self) -> Iteration:
        """The iteration whose work is saved."""
        if isinstance(self.phase, Checking | IterationJudged):
            return self.phase.facts
        raise ValueError("no iteration's work is saved")

    def _checked(self, record: CheckEnded) -> State:
        finding = record.finding
        spend = self.spend.plus(Spend.of(finding.spent)) if finding.spent else self.spend
        ended = replace(
            self, spend=spend, open_steps=tuple(check for check in self.open_steps if check != finding.check)
        )
        if record.iteration == 0:
            return replace(ended, baseline=self.baseline.with_finding(finding))
        return replace(ended, phase=Checking(replace(self.facts, report=self.facts.report.with_finding(finding))))

    def _saved(self, record: Saved) -> State:
        facts = Iteration(
            record.iteration, self.job, self.reply, record.snapshot, record.change, CheckReport(),
            record.heard.claim, record.heard.uncounted, record.sprung, record.illegal, record.altered,
        )  # fmt: skip
        unkept, tree = self.uncommitted or bool(record.change.paths), record.snapshot
        kept = replace(
            self, current_tree=tree, last_saved=tree, uncommitted=unkept, unattended=False, phase=Checking(facts)
        )
        return replace(kept, changed_since_checks=False)

    def _resumed(self, record: Resumed) -> State:
        """The state before the interruption. After an end, a wait continues; what a limit or the settings had stopped
        is retried.
        """
        labels = self.labels if record.sandbox is None else {**self.labels, "sandbox": record.sandbox}
        taken = replace(self, session=record.session, elapsed_s=record.elapsed_s, unattended=True, labels=labels)
        if not isinstance(self.phase, RunOver):
            return taken
        open_again = replace(taken, phase=self.phase_before_end, services=ServiceOutages(), empty_replies=0)
        open_again = replace(open_again, hooks=replace(self.hooks, failed=None))
        match self.phase_before_end:
            case Checking(facts) if isinstance(classify_fault(facts.turn), ConfigFault):
                return replace(
                    open_again,
                    phase=JobPicked(facts.job),
                    turn=self.turn + 1,
                    round=1,
                    current_tree=self.iteration_start,
                )
            case IterationJudged(facts, Stopped()):
                return replace(open_again, phase=Checking(facts), history=History(self.history.iterations[:-1]))
            case IterationJudged(_, Waiting()):
                return replace(open_again, phase=BetweenIterations())
            case _:
                return open_again

    def _regained(self, record: UserChangesSaved) -> State:
        """Changes count as the agent's again; a commit made by the user meanwhile is no rewriting of history."""
        tree = record.snapshot
        regained = replace(
            self, history_base=self.history_base if tree.head == self.last_saved.head else tree, last_saved=tree,
            unattended=False, paused=False,
            user_paths=self.user_paths.union(record.paths), user_saves=record.number + 1,
        )  # fmt: skip
        return regained._onto(tree, bool(record.paths), record.replanned)

    def _onto(self, tree: Snapshot, changed: bool, replanned: bool) -> State:
        """The state on another tree, which the agent did not make: its changes are measured from there."""
        match self.phase:
            case Checking(facts) if changed:
                return self._looked_at_anew(replace(facts, snapshot=tree))
            case Checking():
                return replace(self, current_tree=tree)
            case JobPicked() if self.turn > 1:  # what all turns of an iteration changed is measured together
                return replace(self, changed_since_checks=self.changed_since_checks or changed)
            case phase:
                anew = replanned and isinstance(phase, JobPicked)
                onto = replace(
                    self,
                    changed_since_checks=self.changed_since_checks or changed,
                    phase=BetweenIterations() if anew else phase,
                )
                return replace(onto, current_tree=tree, iteration_start=tree)

    def _hooked(self, record: HookEnded) -> State:
        """A hook's changes are not the agent's work. Before the first turn they can only be the user's."""
        known = replace(self, hooks=self.hooks.ended(record.hook, record.place, record.result))
        if (tree := record.snapshot) is None:
            return known
        base = self.history_base if tree.head == self.last_saved.head else tree
        known = replace(known, history_base=base, last_saved=tree, user_saves=self.user_saves + record.replanned)
        if self.agent_started:
            known = replace(known, hooks=replace(known.hooks, paths=known.hooks.paths.union(record.paths)))
        else:
            known = replace(known, user_paths=self.user_paths.union(record.paths))
        return known._onto(tree, bool(record.paths), record.replanned)

    @property
    def agent_started(self) -> bool:
        """Whether an agent was ever started in this run."""
        return bool(self.prompt_digest)

    def _joined(self, record: ChildWorkJoined) -> State:
        snapshot, change, sprung = record.snapshot, record.change, record.sprung
        facts = replace(self.facts, snapshot=snapshot, change=change, tripwires=sprung)
        facts = replace(facts, plan_violations=record.illegal, altered_inputs=record.altered)
        joined = replace(
            self, uncommitted=self.uncommitted or bool(change.paths), children_awaited_s=None, last_saved=snapshot
        )
        return joined._looked_at_anew(facts)

    def _looked_at_anew(self, facts: Iteration) -> State:
        """The tree differs from the one checked, so earlier findings do not apply to it."""
        round = self.round + (1 if facts.report.findings or self.open_steps else 0)
        blank = Checking(replace(facts, report=CheckReport()))
        return replace(self, phase=blank, current_tree=facts.snapshot, round=round, open_steps=())

    def _again(self, record: TurnRetried) -> State:
        again = replace(
            self, phase=JobPicked(self.job), turn=record.turn + 1, round=1, current_tree=self.iteration_start
        )
        if record.empty:
            return replace(
                again,
                empty_replies=self.empty_replies + 1,
                services=self.services.with_answer(self.agent_index),
                agent_session=None,
            )
        reply, services = self.facts.turn, self.services.with_failure(self.agent_index, record.until, record.wait_s)
        if not reply.session or not reply.tools:  # nothing in it is worth going on with
            return replace(again, services=services, agent_session=None)
        billed = self.session_spent.plus(reply.spent) if reply.session == self.agent_session else reply.spent
        return replace(again, services=services, agent_session=reply.session, session_spent=billed)

    def _kept(self, committed: CommitResult, called: Turn | None) -> State:
        """The harness's own commit is not the agent's work: the next change is measured from after it."""
        last = replace(self.current_tree, head=committed.commit) if committed.commit else self.current_tree
        spend = self.spend.plus_turn(called) if called else self.spend
        phase, unkept = replace(self.phase, scm_done=True), self.uncommitted and bool(committed.error)
        return replace(
            self, phase=phase, spend=spend, open_steps=(), current_tree=last, uncommitted=unkept, committed=committed
        )

    def _judged(self, record: Judged) -> State:
        facts, verdict = self.facts, record.verdict
        passed = self.passed | {facts.job.key} if isinstance(verdict, Passed) else self.passed
        if isinstance(verdict, SentBack):
            passed -= {(facts.job.task.id, stage) for stage in verdict.reopened}
        feedback = verdict.feedback if isinstance(verdict, Retry | SentBack) else Feedback()
        return replace(
            self, phase=IterationJudged(facts, verdict), history=self.history.with_iteration(facts),
            passed=passed, feedback=feedback,
            elapsed_s=record.elapsed_s, services=self.services.with_answer(self.agent_index),
            hooks=self.hooks.without(AFTER_ITERATION),
        )  # fmt: skip


def build_state(records: Iterable[Record]) -> State:
    """The state that these records lead to."""
    state = State()
    for record in records:
        state = state.after(record)
    return state


def count_begun_iterations(state: State) -> int:
    """The number of iterations. One that was begun and not judged counts, unless its agent could not start."""
    match state.phase:
        case Checking(facts):
            begun = facts.turn.exit.why != "unstartable" and facts.turn.taken
        case TurnFinished(_, reply):
            begun = reply.taken
        case JobPicked():
            begun = state.turn > 1
        case phase:
            begun = isinstance(phase, TurnRunning)
    return state.history.turn_count + begun
