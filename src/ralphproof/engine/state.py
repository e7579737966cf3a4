"""The state of a run, computed from its records alone, and the phases of an iteration."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, assert_never, replace, value
from ralphproof.engine.agent import ConfigFault, ServiceOutages, Spent, Turn, Usage, classify_fault
from ralphproof.engine.check import CheckReport
from ralphproof.engine.limits import Spend
from ralphproof.engine.outcome import Outcome, Passed, Retry, SentBack, Stopped, Verdict, Waiting
from ralphproof.engine.plan import History, Iteration, Job, PlanChoice
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
from ralphproof.engine.sandbox import AFTER_ITERATION, AFTER_RUN, BEFORE_ITERATION, BEFORE_RUN, Exit, HookProgress
from ralphproof.engine.workspace import Change, CommitResult, Snapshot

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
    """The iteration is judged. `scm_done`: the SCM step is over."""

    facts: Iteration
    verdict: Verdict
    scm_done: bool = False


@value
class RunOver:
    outcome: Outcome


Phase = BetweenIterations | JobPicked | TurnRunning | TurnFinished | Checking | IterationJudged | RunOver


SCM_STEP = "the SCM step"
NO_TREE = Snapshot(None, None)


@value
class RunInfo:
    """A run and the processes that ran it.

    `facts` are those of its first record; `session` counts the processes. `elapsed_s` is the run's age when an
    iteration was last judged, or the run was resumed.
    """

    id: str = ""
    facts: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    began_s: float = 0.0
    session: int = 1
    elapsed_s: float = 0.0


@value
class Trees:
    """Saved trees that changes are measured from.

    `history_base` is the tree whose commits must not be rewritten: the first one, until the user commits while no agent
    runs. All turns of an iteration together make its change, from `iteration_start` on. `last_saved` is the tree as
    last saved for any reason; `changed_since_checks`: the user or a hook changed it after the checks.
    """

    run_start: Snapshot = NO_TREE
    history_base: Snapshot = NO_TREE
    iteration_start: Snapshot = NO_TREE
    current: Snapshot = NO_TREE
    last_saved: Snapshot = NO_TREE
    changed_since_checks: bool = False


@value
class Baseline:
    """The checks before the first turn: what they found, whether their tree was saved, and the paths they wrote."""

    report: CheckReport = CheckReport()
    saved: bool = False
    paths: frozenset[str] = frozenset()


@value
class AgentState:
    """The agent that was called last, by its index and name, with the digest of its prompt.

    `session` is a session of that agent with work that a service fault interrupted, and `session_spent` its cost.
    """

    index: int = 0
    name: str = ""
    prompt_digest: str = ""
    session: str | None = None
    session_spent: Spent = Spent(0, Usage())
    empty_replies: int = 0
    services: ServiceOutages = ServiceOutages()


@value
class UserState:
    """The user's messages and changes. `unattended`: no harness was running; `paused`: neither agent nor check was
    running: changes made meanwhile are the user's. `messages` are those for this iteration, `last_message` is the
    number of the last one of all.
    """

    messages: tuple[str, ...] = ()
    last_message: int = 0
    paused: bool = False
    pauses: int = 0
    saves: int = 0
    paths: frozenset[str] = frozenset()
    unattended: bool = False


@value
class Escalation:
    """Repetitions are looked for from iteration `since` on, with the model of the ladder at `rung`; iteration
    `debug_iteration` gets debugging instructions.
    """

    since: int = 1
    rung: int = 0
    debug_iteration: int = 0


@value
class ScmState:
    """Whether the tree changed since the last commit to the user's SCM, and the result of that commit."""

    uncommitted: bool = False
    committed: CommitResult = CommitResult()


@value
class State:
    """The state of a run.

    `phase_before_end` is the phase in which a process ended the run. `round` counts how often the checks started again
    on this turn's work. `open_steps` are checks and SCM steps that began and have no recorded end: they are adopted,
    never begun a second time. `children_awaited_s` is the run's age when it began to wait for child runs, None where it
    does not.
    """

    run: RunInfo = RunInfo()
    phase: Phase = BetweenIterations()
    phase_before_end: Phase = BetweenIterations()
    iteration: int = 0
    turn: int = 0
    round: int = 1
    open_steps: tuple[str, ...] = ()
    history: History = History()
    feedback: Feedback = Feedback()
    passed: frozenset[tuple[str, str]] = frozenset()
    spend: Spend = Spend()
    trees: Trees = Trees()
    baseline: Baseline = Baseline()
    agent: AgentState = AgentState()
    user: UserState = UserState()
    escalation: Escalation = Escalation()
    scm: ScmState = ScmState()
    hooks: HookProgress = HookProgress()
    children_awaited_s: float | None = None
    notices: int = 0
    warned: frozenset[str] = frozenset()

    def after(self, record: Record) -> State:
        """The state that this record leads to."""
        match record:
            case RunBegan(run, tree, labels, at):
                info = replace(self.run, id=run, facts=labels, began_s=at)
                return replace(
                    self, run=info, trees=Trees(run_start=tree, history_base=tree, current=tree, last_saved=tree)
                )
            case Resumed():
                return self._after_resumed(record)
            case UserChangesSaved():
                return self._after_user_changes(record)
            case Paused(_, number):
                return replace(self, user=replace(self.user, paused=True, pauses=number + 1))
            case UserMessageAdded(_, number, text):
                messages = (*self.user.messages, text)
                return replace(self, user=replace(self.user, messages=messages, last_message=number))
            case ClaimFound():
                return replace(self, phase=TurnFinished(self.job, Turn(Exit(0), taken=False)))
            case ChildRunsAwaited(elapsed_s=elapsed_s):
                return replace(self, children_awaited_s=elapsed_s)
            case ChildWorkJoined():
                return self._after_child_work_joined(record)
            case BaselineSaved(tree, written):
                baseline = replace(self.baseline, saved=True, paths=frozenset(written))
                trees = replace(self.trees, run_start=tree, current=tree, iteration_start=tree, last_saved=tree)
                return replace(self, baseline=baseline, trees=trees)
            case Escalated(iteration, rung, debug):
                debug_iteration = iteration if debug else self.escalation.debug_iteration
                return replace(self, escalation=Escalation(iteration, rung, debug_iteration))
            case Warned(_, what):
                return replace(self, warned=self.warned | {what})
            case Picked(iteration, choice):
                repeatable = (AFTER_ITERATION, AFTER_RUN, *((BEFORE_ITERATION,) if iteration != self.iteration else ()))
                picked = replace(self, phase=JobPicked(choice), iteration=iteration, turn=1)
                picked = replace(picked, hooks=self.hooks.without(*repeatable), children_awaited_s=None, round=1)
                return replace(
                    picked,
                    trees=replace(self.trees, iteration_start=self.trees.current),
                    agent=replace(self.agent, empty_replies=0, session=None),
                    user=replace(self.user, messages=()),
                )
            case TurnBegan(prompt_digest=digest, agent=agent, place=place):
                session = self.agent.session if place == self.agent.index else None
                agent_state = replace(self.agent, index=place, name=agent, prompt_digest=digest, session=session)
                return replace(self, phase=TurnRunning(self.job), agent=agent_state)
            case TurnEnded(_, _, reply):
                return replace(self, phase=TurnFinished(self.job, reply), spend=self.spend.plus_turn(reply))
            case Saved():
                return self._after_saved(record)
            case TurnRetried():
                return self._after_turn_retried(record)
            case CheckBegan(_, _, check):
                return replace(self, open_steps=(*self.open_steps, check))
            case CheckEnded():
                return self._after_check_ended(record)
            case CheckStopped(spent=spent):
                return replace(self, spend=self.spend.plus(Spend.of(spent)))
            case Judged():
                return self._after_judged(record)
            case ScmBegan():
                return replace(self, open_steps=(SCM_STEP,))
            case ScmEnded(_, committed, reply):
                return self._after_scm_ended(committed, reply)
            case HookBegan(_, hook, place, number):
                return replace(self, hooks=self.hooks.began(hook, place, number))
            case HookEnded():
                return self._after_hook_ended(record)
            case Noticed():
                return replace(self, notices=self.notices + 1)
            case RunEnded(outcome):
                hooks = replace(self.hooks.without(BEFORE_RUN, AFTER_RUN), open=None)
                return replace(self, phase=RunOver(outcome), phase_before_end=self.phase, hooks=hooks)
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
                raise ValueError("no job is picked")

    def attended(self) -> State:
        """The same state with a harness running: what changes in the tree is no longer taken for the user's."""
        return replace(self, user=replace(self.user, unattended=False))

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

    def _after_check_ended(self, record: CheckEnded) -> State:
        finding = record.finding
        spend = self.spend.plus(Spend.of(finding.spent)) if finding.spent else self.spend
        ended = replace(
            self, spend=spend, open_steps=tuple(check for check in self.open_steps if check != finding.check)
        )
        if record.iteration == 0:
            return replace(ended, baseline=replace(self.baseline, report=self.baseline.report.with_finding(finding)))
        return replace(ended, phase=Checking(replace(self.facts, report=self.facts.report.with_finding(finding))))

    def _after_saved(self, record: Saved) -> State:
        facts = Iteration(
            record.iteration, self.job, self.reply, record.snapshot, record.change, CheckReport(),
            record.heard.claim, record.heard.uncounted, record.sprung, record.illegal, record.altered,
        )  # fmt: skip
        tree = record.snapshot
        return replace(
            self,
            phase=Checking(facts),
            trees=replace(self.trees, current=tree, last_saved=tree, changed_since_checks=False),
            scm=self._scm_after(record.change),
            user=replace(self.user, unattended=False),
        )

    def _scm_after(self, change: Change) -> ScmState:
        return replace(self.scm, uncommitted=self.scm.uncommitted or bool(change.paths))

    def _after_resumed(self, record: Resumed) -> State:
        """The state before the interruption. After an end, a wait continues; what a limit or the settings had stopped
        is retried.
        """
        facts = self.run.facts if record.sandbox is None else {**self.run.facts, "sandbox": record.sandbox}
        info = replace(self.run, session=record.session, elapsed_s=record.elapsed_s, facts=facts)
        resumed = replace(self, run=info, user=replace(self.user, unattended=True))
        if not isinstance(self.phase, RunOver):
            return resumed
        agent = replace(self.agent, services=ServiceOutages(), empty_replies=0)
        reopened = replace(resumed, phase=self.phase_before_end, agent=agent, hooks=replace(self.hooks, failed=None))
        match self.phase_before_end:
            case Checking(last) if isinstance(classify_fault(last.turn), ConfigFault):
                return reopened._with_next_turn(last.job, self.turn + 1)
            case IterationJudged(last, Stopped()):
                return replace(reopened, phase=Checking(last), history=History(self.history.iterations[:-1]))
            case IterationJudged(_, Waiting()):
                return replace(reopened, phase=BetweenIterations())
            case _:
                return reopened

    def _after_user_changes(self, record: UserChangesSaved) -> State:
        """From here on changes are the agent's again. Commits that the user made meanwhile rewrite no history."""
        paths = self.user.paths.union(record.paths)
        user = replace(self.user, unattended=False, paused=False, paths=paths, saves=record.number + 1)
        state = replace(self, user=user, trees=self._trees_saved_by_others(record.snapshot))
        return state._on_tree(record.snapshot, bool(record.paths), record.replanned)

    def _trees_saved_by_others(self, tree: Snapshot) -> Trees:
        """The trees after a change by the user or a hook; commits in it rewrite no history."""
        base = self.trees.history_base if tree.head == self.trees.last_saved.head else tree
        return replace(self.trees, history_base=base, last_saved=tree)

    def _on_tree(self, tree: Snapshot, changed: bool, replanned: bool) -> State:
        """The state on a tree that the user or a hook left: the agent's changes are measured from there."""
        changed_since_checks = self.trees.changed_since_checks or changed
        match self.phase:
            case Checking(facts) if changed:
                return self._check_again(replace(facts, snapshot=tree))
            case Checking():
                return replace(self, trees=replace(self.trees, current=tree))
            case JobPicked() if self.turn > 1:  # the changes of all turns of an iteration are measured together
                return replace(self, trees=replace(self.trees, changed_since_checks=changed_since_checks))
            case phase:
                trees = replace(
                    self.trees, current=tree, iteration_start=tree, changed_since_checks=changed_since_checks
                )
                pick_again = replanned and isinstance(phase, JobPicked)
                return replace(self, trees=trees, phase=BetweenIterations() if pick_again else phase)

    def _after_hook_ended(self, record: HookEnded) -> State:
        """A hook's changes are not the agent's work. Before the first turn they can only be the user's."""
        state = replace(self, hooks=self.hooks.ended(record.hook, record.place, record.result))
        if (tree := record.snapshot) is None:
            return state
        user = replace(self.user, saves=self.user.saves + record.replanned)
        state = replace(state, trees=self._trees_saved_by_others(tree), user=user)
        if self.agent_started:
            state = replace(state, hooks=replace(state.hooks, paths=state.hooks.paths.union(record.paths)))
        else:
            state = replace(state, user=replace(user, paths=user.paths.union(record.paths)))
        return state._on_tree(tree, bool(record.paths), record.replanned)

    @property
    def agent_started(self) -> bool:
        """Whether an agent was ever started in this run."""
        return bool(self.agent.prompt_digest)

    def _after_child_work_joined(self, record: ChildWorkJoined) -> State:
        snapshot, change, sprung = record.snapshot, record.change, record.sprung
        facts = replace(self.facts, snapshot=snapshot, change=change, tripwires=sprung)
        facts = replace(facts, plan_violations=record.illegal, altered_inputs=record.altered)
        trees = replace(self.trees, last_saved=snapshot)
        joined = replace(self, scm=self._scm_after(change), children_awaited_s=None, trees=trees)
        return joined._check_again(facts)

    def _check_again(self, facts: Iteration) -> State:
        """Start the checks again: the tree differs from the one checked, so earlier findings do not apply."""
        round = self.round + (1 if facts.report.findings or self.open_steps else 0)
        phase = Checking(replace(facts, report=CheckReport()))
        trees = replace(self.trees, current=facts.snapshot)
        return replace(self, phase=phase, trees=trees, round=round, open_steps=())

    def _after_turn_retried(self, record: TurnRetried) -> State:
        retried, agent = self._with_next_turn(self.job, record.turn + 1), self.agent
        if record.empty:
            services = agent.services.with_answer(agent.index)
            empty_replies = agent.empty_replies + 1
            return replace(retried, agent=replace(agent, empty_replies=empty_replies, services=services, session=None))
        reply, services = self.facts.turn, agent.services.with_failure(agent.index, record.until, record.wait_s)
        if not reply.session or not reply.tools:  # the session has no work worth continuing
            return replace(retried, agent=replace(agent, services=services, session=None))
        spent = agent.session_spent.plus(reply.spent) if reply.session == agent.session else reply.spent
        agent = replace(agent, services=services, session=reply.session, session_spent=spent)
        return replace(retried, agent=agent)

    def _with_next_turn(self, job: Job, turn: int) -> State:
        """The same iteration before another turn: the change is measured from the iteration's start again."""
        trees = replace(self.trees, current=self.trees.iteration_start)
        return replace(self, phase=JobPicked(job), turn=turn, round=1, trees=trees)

    def _after_scm_ended(self, committed: CommitResult, reply: Turn | None) -> State:
        """The harness's own commit is not the agent's work: the next change is measured from after it."""
        tree = self.trees.current
        tree = replace(tree, head=committed.commit) if committed.commit else tree
        return replace(
            self,
            phase=replace(self.phase, scm_done=True),
            spend=self.spend.plus_turn(reply) if reply else self.spend,
            open_steps=(),
            trees=replace(self.trees, current=tree),
            scm=ScmState(self.scm.uncommitted and bool(committed.error), committed),
        )

    def _after_judged(self, record: Judged) -> State:
        facts, verdict = self.facts, record.verdict
        passed = self.passed | {facts.job.key} if isinstance(verdict, Passed) else self.passed
        if isinstance(verdict, SentBack):
            passed -= {(facts.job.task.id, stage) for stage in verdict.reopened}
        feedback = verdict.feedback if isinstance(verdict, Retry | SentBack) else Feedback()
        return replace(
            self,
            phase=IterationJudged(facts, verdict),
            history=self.history.with_iteration(facts),
            passed=passed,
            feedback=feedback,
            run=replace(self.run, elapsed_s=record.elapsed_s),
            agent=replace(self.agent, services=self.agent.services.with_answer(self.agent.index)),
            hooks=self.hooks.without(AFTER_ITERATION),
        )


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
