"""The loop's environment: protocols of ledger, run files, clock, child runs and editable plan; the turn monitor."""

from __future__ import annotations

from collections.abc import Callable

from ralphproof.base.value import Json, Protocol, replace, value
from ralphproof.engine.agent import Agent, Ended, Event, Spent, Usage
from ralphproof.engine.check import Check, CheckPins, CheckWatcher, Finding, Inspection, NoCheckPins
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import (
    Budget,
    ChildRunsStatus,
    DailySpend,
    NoSharedBudget,
    SharedBudget,
)
from ralphproof.engine.outcome import StoryReview, Verdict
from ralphproof.engine.plan import History, Iteration, Job, PlanSource
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, STOP, HookRunner, Sandbox
from ralphproof.engine.workspace import (
    Change,
    CommitRequest,
    CommitResult,
    Scm,
    Snapshot,
    Tripwires,
    Workspace,
)


class Ledger(Protocol):
    """Stores records. `append` is durable and atomic when it returns."""

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add records in one transaction."""

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""

    def requested_control(self, run: str) -> str:
        """The control requested for this run: "", "pause" or "cancel"."""

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """The user's messages to this run after this number, each with its number."""


class Observer(Protocol):
    """Receives records and events. Its failures never stop the loop."""

    def on_record(self, record: Record) -> None:
        """Handle a record that is now durable."""

    def on_events(self, events: list[Event]) -> None:
        """Handle agent events, in order, as they happen."""

    def tick(self) -> None:
        """Called periodically while an agent or a check runs."""


class RunFiles(Protocol):
    """The run's files for people: prompts, logs, the outcome."""

    run: str

    def write_prompt(self, name: str, text: str) -> str:
        """Write a prompt; return its path."""

    def read_prompt(self, name: str) -> str | None:
        """The prompt as written under this name, even if its file has changed since."""

    def log_base(self, name: str) -> str:
        """The path of a log without its suffix, out of the agent's reach."""

    def publish(self, name: str) -> None:
        """Copy the logs of this name to the public run folder."""

    def published_path(self, name: str) -> str:
        """The path of such a copy without its suffix."""

    def write_patch(self, name: str, data: bytes) -> str:
        """Store a patch under this name; returns its public path relative to the project's root."""

    def turn_file(self, name: str) -> str:
        """The path of a turn's lock and result, out of the agent's reach."""

    def begin_outcome(self) -> None:
        """Announce that the run's end will be recorded next, so that its outcome is written even after a crash."""

    def write_outcome(self, result: dict[str, Json]) -> None:
        """Publish the outcome, the last file written for a run."""


@value
class PlanEdits:
    """What a turn changed in the plan. `violations` lists every broken rule: the edits are reverted then. `claim` is
    what the plan now says about the job. `stray_files` are changed files that this stage may not touch.
    """

    violations: tuple[str, ...] = ()
    claim: Claim | None = None
    stray_files: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def has_reverted(self) -> bool:
        """Whether something was reverted."""
        return bool(self.violations or self.stray_files)


NO_PLAN_EDITS = PlanEdits()


class EditablePlan(Protocol):
    """A plan file that agents may edit. The harness's own state is authoritative; the file is compared with it. Every
    step is idempotent, so it may be repeated after a crash.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """Project files that the loop itself writes: they are committed with the work, whoever changed them before."""

    def begin_turn(self, iteration: int, job: Job, window: int | None) -> None:
        """Publish the job of the turn about to begin, for processes inside the turn. `window` is the size of the
        agent's context in tokens, where known.
        """

    def review_edits(self, name: str, job: Job, change: Change) -> PlanEdits:
        """Check the edits of the turn of this name against the rules; illegal ones are reverted."""

    def apply_verdict(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        """Write the verdict into the plan; returns notices."""

    def status_word(self, task: str) -> str:
        """The plan's present status of a task in one word; empty where it states none."""

    def accept_user_changes(self, busy: bool) -> tuple[str, ...]:
        """Accept changes made to the file while no agent or check ran, as the user's; returns notices. With `busy`,
        other processes ran during a commit, so changes are not certainly the user's.
        """

    def story_reviews(self) -> tuple[StoryReview, ...]:
        """The review results of each part of the plan so far; empty where none are known."""

    def close(self) -> None:
        """End the publication of the current job: the run is over or paused."""


class FixedPlan:
    """A plan that agents do not edit."""

    files: tuple[str, ...] = ()

    def begin_turn(self, iteration: int, job: Job, window: int | None) -> None:
        """Do nothing."""

    def review_edits(self, name: str, job: Job, change: Change) -> PlanEdits:
        return NO_PLAN_EDITS

    def apply_verdict(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        return ()

    def status_word(self, task: str) -> str:
        return ""

    def accept_user_changes(self, busy: bool) -> tuple[str, ...]:
        return ()

    def story_reviews(self) -> tuple[StoryReview, ...]:
        return ()

    def close(self) -> None:
        """Do nothing."""


class Clock(Protocol):
    """Time, and requests to pause or end the run."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def epoch(self) -> float:
        """Seconds since 1970."""

    def stop_reason(self) -> str:
        """Empty, INTERRUPTED or CANCELLED."""

    def paused(self) -> bool:
        """Whether the run should pause before its next turn."""

    def stop_level(self) -> int:
        """What a running agent or check must do now: CONTINUE, STOP or KILL."""

    def sleep(self, seconds: float) -> None:
        """Sleep for this time, or until a stop is requested."""


class ChildRuns(Protocol):
    """Runs started by this run's agent."""

    def status(self) -> ChildRunsStatus:
        """The unfinished ones, and the cost of all."""

    def stop_all(self) -> tuple[str, ...]:
        """End them, because this run is over; returns notices."""

    def has_activity(self) -> bool:
        """Whether one of them has been active since the last call."""


class NoChildRuns:
    """The run has no child runs."""

    def status(self) -> ChildRunsStatus:
        return ChildRunsStatus()

    def stop_all(self) -> tuple[str, ...]:
        return ()

    def has_activity(self) -> bool:
        return False


@value
class AgentAccess:
    """Agents and how they run: the usual one first, then the fallbacks for when its service is down."""

    order: tuple[Agent, ...]
    sandbox: Sandbox
    env: tuple[tuple[str, str], ...] = ()
    hooks: tuple[tuple[str, str], ...] = ()  # (event, command) pairs that agents call
    allowed_commands: tuple[str, ...] = ()  # commands that guarded agents may run


@value
class PlanAccess:
    """The plan, and claims found outside an agent's message."""

    source: PlanSource
    editable: EditablePlan = FixedPlan()
    find_claim: Callable[[int], Claim | None] = lambda _: None  # in a file, or in a bus message of this iteration
    set_aside_claim: Callable[[str], tuple[str, ...]] = (
        lambda _: ()
    )  # rename the marker with this stamp; returns its new name


@value
class CheckAccess:
    """Checks by name, how several are run, and the pins of the files that determine their results."""

    by_name: dict[str, Check]
    run: Callable[[tuple[Check, ...], Inspection, CheckWatcher], tuple[Finding, ...]]
    pins: CheckPins = NoCheckPins()


@value
class WorkAccess:
    """The tree that the agent works in, and what guards and commits it."""

    workspace: Workspace
    tripwires: Tripwires
    scm: Scm | None = None
    task_base: Snapshot | None = None  # the tree before the task's first run, where this is not the first
    prompt_file: str = ""  # relative to the project's root; changes to it are never the agent's work


@value
class SpendAccess:
    """Spend of this and other runs, and what cheaper models saved, in micro-dollars."""

    daily: DailySpend
    shared: SharedBudget = NoSharedBudget()
    model_savings: Callable[[History], int | None] = lambda _: None


@value
class LoopEnvironment:
    """The services that one run uses."""

    agents: AgentAccess
    plan: PlanAccess
    checks: CheckAccess
    work: WorkAccess
    spend: SpendAccess
    ledger: Ledger
    files: RunFiles
    clock: Clock
    hook_runner: HookRunner
    observers: tuple[Observer, ...] = ()
    child_runs: ChildRuns = NoChildRuns()
    was_started: Callable[[str], bool] = lambda _: True  # whether the command of this name was ever started
    extra_notices: tuple[Callable[[], tuple[str, ...]], ...] = ()  # called after every turn for more notices

    def agent_at(self, index: int, name: str = "") -> Agent:
        """The agent at this index, or the one with this name if the order has changed."""
        order = self.agents.order
        agent = order[index if index < len(order) else 0]
        return agent if agent.name == name else next((other for other in order if other.name == name), agent)

    def sleep(self, seconds: float) -> None:
        """Sleep, with ticks to the observers."""
        self.clock.sleep(seconds)
        for observer in self.observers:
            _call_observer(observer.tick)

    def commit(self, request: CommitRequest, others: frozenset[str]) -> CommitResult:
        """Commit passed work to the user's SCM, unless it has no message or a stop is requested. Paths changed only by
        `others` (checks or the user) and left out of the commit are not reported.
        """
        if not request.message:
            return CommitResult(error="the agent gave no commit message; the work is saved, not committed")
        if self.clock.stop_reason():
            return CommitResult(error="the run was asked to end; the work is saved, not committed")
        result = self.work.scm.commit(request, TurnMonitor(self)) if self.work.scm else CommitResult()
        return replace(result, left=tuple(path for path in result.left if path not in others))

    def notify_record(self, record: Record) -> None:
        """Pass a durable record to all observers."""
        for observer in self.observers:
            _call_observer(observer.on_record, record)


CHILD_RUNS_POLL_S = 1.0
LIVE_SPEND_POLL_S, MIN_LIVE_SPEND_POLL_S = 1.0, 0.1
MIN_POLLS_LEFT = 4  # the remaining budget must last for this many polls


class SpendPollTimer:
    """The interval between exchanges of spend with other runs: one second, and shorter where the remaining budget would
    not last for several intervals at the total rate of spending.
    """

    def __init__(self) -> None:
        self._next_s = float("-inf")
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def due(self, now_s: float) -> bool:
        """Whether to poll now."""
        return now_s >= self._next_s

    def record_poll(self, now_s: float, all_micro_usd: int, limit_micro_usd: int | None) -> None:
        """Record the total spend so far and its limit."""
        rate = max(
            (_spend_rate(earlier, (now_s, all_micro_usd)) for earlier in (self._first, self._last) if earlier),
            default=0,
        )
        pause_s = LIVE_SPEND_POLL_S if self._first and (limit_micro_usd is None or rate <= 0) else MIN_LIVE_SPEND_POLL_S
        if rate > 0 and limit_micro_usd is not None:
            pause_s = max(
                MIN_LIVE_SPEND_POLL_S, min(LIVE_SPEND_POLL_S, (limit_micro_usd - all_micro_usd) / rate / MIN_POLLS_LEFT)
            )
        self._first, self._last = self._first or (now_s, all_micro_usd), (now_s, all_micro_usd)
        self._next_s = now_s + pause_s


def _spend_rate(before: tuple[float, int], now: tuple[float, int]) -> float:
    return (now[1] - before[1]) / max(now[0] - before[0], MIN_LIVE_SPEND_POLL_S)


NO_LIMITS = Budget()


class TurnMonitor:
    """Watches a running agent or check: forwards events, decides when it must end, and detects activity without output.

    The cost of child runs started meanwhile reduces its remaining budget. At `until_s` of the monotonic clock the run's
    time is up. Its spend is published to all runs of the user under `call`; when the daily limit is reached, all end.
    """

    def __init__(
        self, environment: LoopEnvironment, remaining: Budget = NO_LIMITS, idle_s: float | None = None,
        until_s: float = float("inf"),
        call: str = "",
    ) -> None:  # fmt: skip
        self._environment, self._remaining, self.overspent, self._until_s = environment, remaining, False, until_s
        self._spent, self._ended = Spent(0, Usage()), False
        self._child_spend = environment.child_runs.status().spend
        self._child_poll_s = environment.clock.monotonic()
        self._activity_poll_s = idle_s / 4 if idle_s else float("inf")
        self._last_active_s = environment.clock.monotonic()
        self._has_events = False
        self._call, self._priced, self._spend_poll = call, False, SpendPollTimer()
        self._others_today: int | None = None  # what others have spent today, at the last poll

    def events(self, events: list[Event]) -> None:
        self._has_events = True
        for event in events:
            if type(event) is Spent:
                self._spent, self._ended = event, False
                self._priced = self._priced or event.micro_usd is not None
                self._environment.spend.shared.update_live(self._environment.files.run, event)
                self.overspent = (
                    self.overspent
                    or self._remaining.exceeded_by(event)
                    or self._remaining.day_exceeded_by(self._others_today, event)
                )
            elif type(event) is Ended:  # it spends no more; ending it now would waste its result
                self.overspent, self._ended = False, True
        for observer in self._environment.observers:
            _call_observer(observer.on_events, events)

    def output(self, chunk: bytes) -> None:
        """Do nothing: a check's output is already in its log."""

    def tick(self) -> int:
        for observer in self._environment.observers:
            _call_observer(observer.tick)
        self._poll_child_runs()
        self._poll_shared_budget()
        self._poll_daily_spend()
        late = self._environment.clock.monotonic() >= self._until_s
        urgency = max(self._environment.clock.stop_level(), STOP if self.overspent or late else CONTINUE)
        return ACTIVE if urgency == CONTINUE and self._is_active() else urgency

    def _poll_shared_budget(self) -> None:
        """Stop when the shared budget, from which other runs spend at the same time, is used up."""
        shared = self._environment.spend.shared.total()
        if shared is not None and shared.micro_usd > shared.limit and not self._ended:
            self.overspent = True

    def _poll_daily_spend(self) -> None:
        """Publish this call's spend to the user's other runs and read theirs; stop when the daily limit is reached."""
        now_s = self._environment.clock.monotonic()
        if not self._call or not self._priced or not self._spend_poll.due(now_s):
            return
        others = self._environment.spend.daily.update_live(
            self._environment.files.run, self._call, self._spent, self._environment.clock.epoch()
        )  # fmt: skip
        self._others_today = self._others_today if others is None else others
        all_micro_usd = (self._others_today or 0) + (self._spent.micro_usd or 0)
        self._spend_poll.record_poll(now_s, all_micro_usd, self._remaining.daily_micro_usd)
        if self._remaining.day_exceeded_by(self._others_today, self._spent) and not self._ended:
            self.overspent = True

    def _poll_child_runs(self) -> None:
        now_s = self._environment.clock.monotonic()
        if now_s - self._child_poll_s < CHILD_RUNS_POLL_S:
            return
        self._child_poll_s = now_s
        spend = self._environment.child_runs.status().spend
        if spend != self._child_spend and not self._ended:
            left = self._remaining.less(spend.less(self._child_spend))
            self.overspent = self.overspent or left.exceeded_by(self._spent)

    def _is_active(self) -> bool:
        """Whether files change although there has been no output for long."""
        now_s = self._environment.clock.monotonic()
        if self._has_events:
            self._has_events, self._last_active_s = False, now_s
        if now_s - self._last_active_s < self._activity_poll_s:
            return False
        self._last_active_s = now_s
        return self._environment.work.workspace.has_activity()


def _call_observer(call: Callable[..., None], *what: object) -> None:
    """Call an observer; its exceptions never stop the loop."""
    try:
        call(*what)
    except Exception:  # noqa: BLE001, S110
        pass
