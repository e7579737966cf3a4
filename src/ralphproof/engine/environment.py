"""The loop's environment: protocols of ledger, run files, clock, child runs and editable plan; the turn monitor."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.agent import Agent, TurnInput
from ralphproof.engine.budget import UNLIMITED_BUDGET, ChildRunsStatus, DailySpend, NoSharedBudget, SharedBudget
from ralphproof.engine.check import Check, CheckPins, CheckWatcher, Finding, Inspection, NoCheckPins
from ralphproof.engine.claim import Claim
from ralphproof.engine.events import Ended, Event, Spent, Usage
from ralphproof.engine.iteration import History, Iteration
from ralphproof.engine.metrics import StoryReview
from ralphproof.engine.outcome import Verdict
from ralphproof.engine.plan import Job, PlanSource
from ralphproof.engine.records import Record
from ralphproof.engine.run_hooks import HookRunner, NoHooks
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, STOP, Sandbox
from ralphproof.engine.workspace import (
    Change,
    CommitRequest,
    CommitResult,
    NoTripwires,
    Scm,
    Snapshot,
    Tripwires,
    Workspace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import RemainingBudget


# The durable record that everything can be rebuilt from, those who look on, and a run's files.


class Ledger(Protocol):
    """Keeps records. What `append` was given is on disk when it returns, all of it or nothing."""

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add records in one transaction."""

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""

    def requested_control(self, run: str) -> str:
        """What somebody wants of this run: "", "pause" or "cancel"."""

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """What the user said to this run after the words of this number, each with its own."""


class Observer(Protocol):
    """Looks on. Whatever it does, the loop goes on."""

    def on_record(self, record: Record) -> None:
        """A record that is now durable."""

    def on_events(self, events: list[Event]) -> None:
        """What the agent said and did, in order, as it happens."""

    def tick(self) -> None:
        """Time passes while an agent or a check runs."""


class RunFiles(Protocol):
    """The run's files for people: prompts, logs, the outcome."""

    run: str

    def write_prompt(self, name: str, text: str) -> str:
        """Write a prompt; return its path."""

    def read_prompt(self, name: str) -> str | None:
        """The prompt that was written under this name, whatever became of its file since."""

    def log_base(self, name: str) -> str:
        """The path of a log without its ending, out of the agent's reach."""

    def publish(self, name: str) -> None:
        """Copy the logs of this name to where people look."""

    def published_path(self, name: str) -> str:
        """The path of such a copy without its ending."""

    def write_patch(self, name: str, data: bytes) -> str:
        """Keep a patch under this name; where people find it, from the project's root."""

    def turn_file(self, name: str) -> str:
        """Where a turn's lock and result lie, out of the agent's reach."""

    def begin_outcome(self) -> None:
        """The end of the run will be on record next: whatever dies from now on, its outcome gets written."""

    def write_outcome(self, result: dict[str, Json]) -> None:
        """Write how the run ended, the last thing that is published of it."""


# A plan that agents write in: what a turn may write there, and what the harness makes of it.


@value
class PlanEdits:
    """What a turn did to the plan. `illegal` has every rule that it broke: its writing is put back then.

    `claim` is what the plan says of the job now. `strays` are files that this stage may not touch.
    """

    violations: tuple[str, ...] = ()
    claim: Claim | None = None
    stray_files: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def has_reverted(self) -> bool:
        """Whether something is not as the turn left it."""
        return bool(self.violations or self.stray_files)


NO_PLAN_EDITS = PlanEdits()


class EditablePlan(Protocol):
    """The plan's own file. The harness's memory is the truth; whatever stands in the file is held against it.

    Every step may be taken again after a crash, and comes to the same.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """What the loop itself writes in the project: it is kept with the work, whoever changed it before."""

    def begin_turn(self, iteration: int, job: Job, window: int | None) -> None:
        """A turn on this job is about to begin: whoever looks from inside it can see what is asked of it.

        `window` is how many tokens the context of its agent holds, where that is known.
        """

    def review_edits(self, name: str, job: Job, change: Change) -> PlanEdits:
        """Hold the file against the rules after the turn of this name. What is illegal is put back."""

    def apply_verdict(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        """Make the plan say what was judged; what there is to tell of it."""

    def status_word(self, task: str) -> str:
        """What the plan says of a task now, in a word; empty where it says nothing."""

    def accept_user_changes(self, busy: bool) -> tuple[str, ...]:
        """Nobody of ours was at work: what changed in the file since is the user's. What there is to tell of it.

        While work was being committed others were `busy`, and nothing is sure to be the user's.
        """

    def story_reviews(self) -> tuple[StoryReview, ...]:
        """What became of each part of the plan so far, of what was judged; nothing where nothing is known of it."""

    def close(self) -> None:
        """The run is over, or rests: nobody is inside a turn any more."""


class FixedPlan:
    """A plan that no agent writes in."""

    files: tuple[str, ...] = ()

    def begin_turn(self, iteration: int, job: Job, window: int | None) -> None:
        """Nobody needs to know."""

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
        """Nothing is open."""


# Everything that a loop touches, handed to it in one piece.


class Clock(Protocol):
    """Time, and whether somebody wants the run to end."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def epoch(self) -> float:
        """Seconds since 1970."""

    def stop_reason(self) -> str:
        """Empty, INTERRUPTED or CANCELLED."""

    def paused(self) -> bool:
        """Whether somebody wants the run to rest before its next turn."""

    def stop_level(self) -> int:
        """What a running agent or check must do now: GO_ON, STOP or KILL."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long, or until somebody wants the run to end."""


class ChildRuns(Protocol):
    """Runs that the agent of this one began."""

    def status(self) -> ChildRunsStatus:
        """Those that are not over, and what all of them have cost."""

    def stop_all(self) -> tuple[str, ...]:
        """This run is over: they end too. What there is to say of that."""

    def has_activity(self) -> bool:
        """Whether one of them was at work since this was last asked."""


class NoChildRuns:
    """No runs."""

    def status(self) -> ChildRunsStatus:
        return ChildRunsStatus()

    def stop_all(self) -> tuple[str, ...]:
        return ()

    def has_activity(self) -> bool:
        return False


def run_checks_in_sequence(
    checks: tuple[Check, ...], inspection: Inspection, watch: CheckWatcher
) -> tuple[Finding, ...]:
    """The answers of several checks, each asked when the one before has answered."""
    return tuple(check.run(inspection, watch) for check in checks)


@value
class LoopEnvironment:
    """The parts of one run that do things. `env` is what agents are started with."""

    plan: PlanSource
    agents: tuple[Agent, ...]  # the usual one, and those to go on with when its service is not there
    sandbox: Sandbox
    workspace: Workspace
    checks: dict[str, Check]
    ledger: Ledger
    files: RunFiles
    clock: Clock
    daily_spend: DailySpend
    env: tuple[tuple[str, str], ...] = ()
    scm: Scm | None = None
    observers: tuple[Observer, ...] = ()
    find_claim: Callable[[int], Claim | None] = lambda _: None  # what a file claims, or a message of this iteration
    set_aside_claim: Callable[[str], tuple[str, ...]] = lambda _: ()  # put a marker with this stamp away; its new name
    child_runs: ChildRuns = NoChildRuns()
    was_started: Callable[[str], bool] = lambda _: True  # whether the command of this name was ever started
    tripwires: Tripwires = NoTripwires()
    check_pins: CheckPins = NoCheckPins()
    editable_plan: EditablePlan = FixedPlan()
    model_savings: Callable[[History], int | None] = lambda _: None  # micro-dollars that cheaper models saved
    extra_notices: tuple[Callable[[], tuple[str, ...]], ...] = ()  # asked after every turn what else is worth telling
    task_base: Snapshot | None = None  # the tree that the task's work began on, where earlier runs were at it too
    run_checks: Callable[[tuple[Check, ...], Inspection, CheckWatcher], tuple[Finding, ...]] = run_checks_in_sequence
    agent_hooks: tuple[tuple[str, str], ...] = ()  # what agents call at events of their own
    shared_budget: SharedBudget = NoSharedBudget()
    prompt_file: str = ""  # from the project's root; whoever changes it, it is no work of the agent's
    hook_runner: HookRunner = NoHooks()
    allowed_commands: tuple[str, ...] = ()  # commands that guarded agents may run all the same

    def turn_input(
        self, prompt: str, prompt_name: str, name: str, exports: dict[str, str],
        timeout_s: float, idle_s: float | None, stream: bool,
    ) -> TurnInput:  # fmt: skip
        """Write the prompt down, and say where the files of this turn go."""
        folder, env = self.files, dict(self.env) | exports
        return TurnInput(
            prompt, folder.write_prompt(prompt_name, prompt), self.workspace.root, tuple(env.items()),
            folder.log_base(name),
            folder.turn_file(name), f"{folder.run}/{name}", timeout_s, idle_s, stream,
            hooks=self.agent_hooks if stream else (), allowed_commands=self.allowed_commands if stream else (),
        )  # fmt: skip

    def agent_at(self, place: int, name: str = "") -> Agent:
        """The agent at this place, or of this name where another one stands there now."""
        named = (agent for agent in self.agents if agent.name == name)
        there = self.agents[place if place < len(self.agents) else 0]
        return there if there.name == name else next(named, there)

    def sleep(self, seconds: float) -> None:
        """Wait, and let those who look on see that."""
        self.clock.sleep(seconds)
        for observer in self.observers:
            _call_observer(observer.tick)

    def commit(self, work: CommitRequest, others: frozenset[str]) -> CommitResult:
        """Give passed work to the user's SCM, unless it has no message or somebody wants the run to end.

        That a commit leaves out what only `others` have changed, checks or the user, concerns nobody.
        """
        if not work.message:
            return CommitResult(error="the agent gave no commit message; the work is saved, not committed")
        if self.clock.stop_reason():
            return CommitResult(error="the run was asked to end; the work is saved, not committed")
        kept = self.scm.commit(work, TurnMonitor(self)) if self.scm else CommitResult()
        return replace(kept, left=tuple(path for path in kept.left if path not in others))

    def notify_record(self, record: Record) -> None:
        """Let all observers see a record that is durable."""
        for observer in self.observers:
            _call_observer(observer.on_record, record)


CHILD_RUNS_POLL_S = 1.0
LIVE_SPEND_POLL_S, MIN_LIVE_SPEND_POLL_S = 1.0, 0.1
MIN_POLLS_LEFT = 4  # for so many looks what is left must last


class SpendPollTimer:
    """How often what is spent is told, and what others spend is looked at: once a second, and more often where what
    is left would not last for some looks at the rate at which all together spend."""

    def __init__(self) -> None:
        self._next_s = float("-inf")
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def due(self, now_s: float) -> bool:
        """Whether it is time for a look."""
        return now_s >= self._next_s

    def record_poll(self, now_s: float, all_micro_usd: int, most_micro_usd: int | None) -> None:
        """All have spent so much by now, and may spend this."""
        rate = max(
            (_spend_rate(before, (now_s, all_micro_usd)) for before in (self._first, self._last) if before), default=0
        )
        pause_s = LIVE_SPEND_POLL_S if self._first and (most_micro_usd is None or rate <= 0) else MIN_LIVE_SPEND_POLL_S
        if rate > 0 and most_micro_usd is not None:
            pause_s = max(
                MIN_LIVE_SPEND_POLL_S, min(LIVE_SPEND_POLL_S, (most_micro_usd - all_micro_usd) / rate / MIN_POLLS_LEFT)
            )
        self._first, self._last = self._first or (now_s, all_micro_usd), (now_s, all_micro_usd)
        self._next_s = now_s + pause_s


def _spend_rate(before: tuple[float, int], now: tuple[float, int]) -> float:
    return (now[1] - before[1]) / max(now[0] - before[0], MIN_LIVE_SPEND_POLL_S)


class TurnMonitor:
    """Looks on while something runs: passes events on, says when it must end, and when a silent one is at work.

    What the runs cost that the agent begins meanwhile is not left for itself. At `until_s`, by the clock that only
    grows, the run's time is up. What is spent is told to all runs of the user as that of `call`; when they have spent
    what a day may cost, all end.
    """

    def __init__(
        self, world: LoopEnvironment, left: RemainingBudget = UNLIMITED_BUDGET, idle_s: float | None = None,
        until_s: float = float("inf"),
        call: str = "",
    ) -> None:  # fmt: skip
        self._world, self._left, self.overspent, self._until_s = world, left, False, until_s
        self._spent, self._ended = Spent(0, Usage()), False
        self._children = world.child_runs.status().spend
        self._asked_s = world.clock.monotonic()
        self._look_every_s = idle_s / 4 if idle_s else float("inf")
        self._last_s = world.clock.monotonic()
        self._heard = False
        self._call, self._priced, self._pace = call, False, SpendPollTimer()
        self._others: int | None = None  # what others have spent today, when we last looked

    def events(self, events: list[Event]) -> None:
        self._heard = True
        for event in events:
            if type(event) is Spent:
                self._spent, self._ended = event, False
                self._priced = self._priced or event.micro_usd is not None
                self._world.shared_budget.update_live(self._world.files.run, event)
                self.overspent = (
                    self.overspent or self._left.exceeded_by(event) or self._left.day_exceeded_by(self._others, event)
                )
            elif type(event) is Ended:  # it spends no more: to end it now would only spoil what was paid for
                self.overspent, self._ended = False, True
        for observer in self._world.observers:
            _call_observer(observer.on_events, events)

    def output(self, chunk: bytes) -> None:
        """A check's output is in its log; nobody needs it sooner."""

    def tick(self) -> int:
        for observer in self._world.observers:
            _call_observer(observer.tick)
        self._look_at_children()
        self._look_at_kitty()
        self._look_at_day()
        late = self._world.clock.monotonic() >= self._until_s
        urgency = max(self._world.clock.stop_level(), STOP if self.overspent or late else CONTINUE)
        return ACTIVE if urgency == CONTINUE and self._at_work() else urgency

    def _look_at_kitty(self) -> None:
        """Others spend from it at the same time: when it is empty, all stop."""
        shared = self._world.shared_budget.total()
        if shared is not None and shared.micro_usd > shared.limit and not self._ended:
            self.overspent = True

    def _look_at_day(self) -> None:
        """Tell all runs of the user what was spent here, and see what they have: when the day is spent, all stop."""
        now_s = self._world.clock.monotonic()
        if not self._call or not self._priced or not self._pace.due(now_s):
            return
        others = self._world.daily_spend.update_live(
            self._world.files.run, self._call, self._spent, self._world.clock.epoch()
        )  # fmt: skip
        self._others = self._others if others is None else others
        all_micro_usd = (self._others or 0) + (self._spent.micro_usd or 0)
        self._pace.record_poll(now_s, all_micro_usd, self._left.daily_micro_usd)
        if self._left.day_exceeded_by(self._others, self._spent) and not self._ended:
            self.overspent = True

    def _look_at_children(self) -> None:
        now_s = self._world.clock.monotonic()
        if now_s - self._asked_s < CHILD_RUNS_POLL_S:
            return
        self._asked_s = now_s
        spend = self._world.child_runs.status().spend
        micro_usd, tokens = spend.micro_usd - self._children.micro_usd, spend.tokens - self._children.tokens
        if (micro_usd or tokens) and not self._ended:
            self.overspent = self.overspent or self._left.reduced_by(micro_usd, tokens).exceeded_by(self._spent)

    def _at_work(self) -> bool:
        """It has been silent for long, and yet files change."""
        now_s = self._world.clock.monotonic()
        if self._heard:
            self._heard, self._last_s = False, now_s
        if now_s - self._last_s < self._look_every_s:
            return False
        self._last_s = now_s
        return self._world.workspace.has_activity()


def _call_observer(call: Callable[..., None], *what: object) -> None:
    """Nothing that only looks on may stop the loop."""
    try:
        call(*what)
    except Exception:  # noqa: BLE001, S110
        pass
