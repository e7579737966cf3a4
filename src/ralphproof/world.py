"""Everything that a loop touches, handed to it in one piece."""

from __future__ import annotations

from ralphproof.agent import Agent, Brief
from ralphproof.budget import Budget, Children, Spend
from ralphproof.check import Check, Finding, Inspection, Onlooker
from ralphproof.claim import Claim
from ralphproof.event import Ended, Event, Spent, Usage
from ralphproof.iteration import History
from ralphproof.ledger import Folder, Ledger, Observer
from ralphproof.notebook import Blank, Notebook
from ralphproof.pin import Pins, Unpinned
from ralphproof.plan import PlanSource
from ralphproof.purse import Day, Kitty, NoKitty, Purse
from ralphproof.record import Record
from ralphproof.run_hook import HookRunner, NoHooks
from ralphproof.sandbox import ACTIVE, GO_ON, STOP, Sandbox
from ralphproof.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.workspace import Committed, Scm, Snapshot, Tripwires, Unwatched, Work, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """Time, and whether somebody wants the run to end."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def epoch(self) -> float:
        """Seconds since 1970."""

    def wish(self) -> str:
        """Empty, INTERRUPTED or CANCELLED."""

    def paused(self) -> bool:
        """Whether somebody wants the run to rest before its next turn."""

    def urgency(self) -> int:
        """What a running agent or check must do now: GO_ON, STOP or KILL."""

    def rest(self, seconds: float) -> None:
        """Do nothing for so long, or until somebody wants the run to end."""


class Family(Protocol):
    """Runs that the agent of this one began."""

    def look(self) -> Children:
        """Those that are not over, and what all of them have cost."""

    def dismiss(self) -> tuple[str, ...]:
        """This run is over: they end too. What there is to say of that."""

    def stirred(self) -> bool:
        """Whether one of them was at work since this was last asked."""


class Childless:
    """No runs."""

    def look(self) -> Children:
        return Children()

    def dismiss(self) -> tuple[str, ...]:
        return ()

    def stirred(self) -> bool:
        return False


def one_by_one(checks: tuple[Check, ...], inspection: Inspection, watch: Onlooker) -> tuple[Finding, ...]:
    """The answers of several checks, each asked when the one before has answered."""
    return tuple(check.ask(inspection, watch) for check in checks)


@value
class World:
    """The parts of one run that do things. `env` is what agents are started with."""

    plan: PlanSource
    agents: tuple[Agent, ...]  # the usual one, and those to go on with when its service is not there
    sandbox: Sandbox
    workspace: Workspace
    checks: dict[str, Check]
    ledger: Ledger
    folder: Folder
    clock: Clock
    purse: Purse
    env: tuple[tuple[str, str], ...] = ()
    scm: Scm | None = None
    observers: tuple[Observer, ...] = ()
    marker: Callable[[int], Claim | None] = lambda _: None  # what a file claims, or a message of this iteration
    refuse: Callable[[str], tuple[str, ...]] = lambda _: ()  # put a marker with this stamp away; its new name
    family: Family = Childless()
    started: Callable[[str], bool] = lambda _: True  # whether the command of this name was ever started
    wires: Tripwires = Unwatched()
    pins: Pins = Unpinned()
    notebook: Notebook = Blank()
    saved: Callable[[History], int | None] = lambda _: None  # micro-dollars that cheaper models saved
    lookouts: tuple[Callable[[], tuple[str, ...]], ...] = ()  # asked after every turn what else is worth telling
    origin: Snapshot | None = None  # the tree that the task's work began on, where earlier runs were at it too
    together: Callable[[tuple[Check, ...], Inspection, Onlooker], tuple[Finding, ...]] = one_by_one
    hooks: tuple[tuple[str, str], ...] = ()  # what agents call at events of their own
    kitty: Kitty = NoKitty()
    prompt_file: str = ""  # from the project's root; whoever changes it, it is no work of the agent's
    hook_runner: HookRunner = NoHooks()
    may_run: tuple[str, ...] = ()  # commands that guarded agents may run all the same

    def brief(
        self, prompt: str, prompt_name: str, name: str, exports: dict[str, str],
        timeout_s: float, idle_s: float | None, stream: bool,
    ) -> Brief:  # fmt: skip
        """Write the prompt down, and say where the files of this turn go."""
        folder, env = self.folder, dict(self.env) | exports
        return Brief(
            prompt, folder.prompt(prompt_name, prompt), self.workspace.root, tuple(env.items()), folder.base(name),
            folder.turn_file(name), f"{folder.run}/{name}", timeout_s, idle_s, stream,
            hooks=self.hooks if stream else (), may_run=self.may_run if stream else (),
        )  # fmt: skip

    def agent_at(self, place: int, name: str = "") -> Agent:
        """The agent at this place, or of this name where another one stands there now."""
        named = (agent for agent in self.agents if agent.name == name)
        there = self.agents[place if place < len(self.agents) else 0]
        return there if there.name == name else next(named, there)

    def rest(self, seconds: float) -> None:
        """Wait, and let those who look on see that."""
        self.clock.rest(seconds)
        for observer in self.observers:
            _spare(observer.tick)

    def keep(self, work: Work, others: frozenset[str]) -> Committed:
        """Give passed work to the user's SCM, unless it has no message or somebody wants the run to end.

        That a commit leaves out what only `others` have changed, checks or the user, concerns nobody.
        """
        if not work.message:
            return Committed(error="the agent gave no commit message; the work is saved, not committed")
        if self.clock.wish():
            return Committed(error="the run was asked to end; the work is saved, not committed")
        kept = self.scm.keep(work, Eyes(self)) if self.scm else Committed()
        return replace(kept, left=tuple(path for path in kept.left if path not in others))

    def show(self, record: Record) -> None:
        """Let all observers see a record that is durable."""
        for observer in self.observers:
            _spare(observer.saw, record)


@value
class Left:
    """What a turn may still spend. None is no limit."""

    micro_usd: int | None = None
    tokens: int | None = None
    daily_micro_usd: int | None = None  # what all runs of the user may spend in a day, whatever they have spent

    @staticmethod
    def of(budget: Budget, spend: Spend, day: Day) -> Left:
        """What a run leaves to its next turn that has spent this, on a day on which so much was spent."""
        money = [] if budget.micro_usd is None else [budget.micro_usd - spend.micro_usd]
        money += [] if budget.daily_micro_usd is None else [budget.daily_micro_usd - day.micro_usd]
        money += [] if day.together is None else [day.together.limit - day.together.micro_usd]
        tokens = None if budget.tokens is None else budget.tokens - spend.tokens
        return Left(min(money, default=None), tokens, budget.daily_micro_usd)

    def passed_by(self, spent: Spent) -> bool:
        """Whether this is more."""
        if self.micro_usd is not None and spent.micro_usd is not None and spent.micro_usd > self.micro_usd:
            return True
        return self.tokens is not None and spent.usage is not None and spent.usage.total > self.tokens

    def less(self, micro_usd: int, tokens: int) -> Left:
        """What is left when others have spent this."""
        return Left(
            None if self.micro_usd is None else self.micro_usd - micro_usd,
            None if self.tokens is None else self.tokens - tokens,
            self.daily_micro_usd,
        )

    def day_passed_by(self, others_micro_usd: int | None, spent: Spent) -> bool:
        """Whether this and what others have spent in the day is more than a day may cost."""
        if self.daily_micro_usd is None or others_micro_usd is None:
            return False
        return others_micro_usd + (spent.micro_usd or 0) > self.daily_micro_usd


NO_LIMIT = Left()
CHILDREN_EVERY_S = 1.0
LIVE_EVERY_S, LIVE_SOONEST_S = 1.0, 0.1
LOOKS_LEFT = 4  # for so many looks what is left must last


class Pace:
    """How often what is spent is told, and what others spend is looked at: once a second, and more often where what
    is left would not last for some looks at the rate at which all together spend."""

    def __init__(self) -> None:
        self._next_s = float("-inf")
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def due(self, now_s: float) -> bool:
        """Whether it is time for a look."""
        return now_s >= self._next_s

    def looked(self, now_s: float, all_micro_usd: int, most_micro_usd: int | None) -> None:
        """All have spent so much by now, and may spend this."""
        rate = max((_rate(before, (now_s, all_micro_usd)) for before in (self._first, self._last) if before), default=0)
        pause_s = LIVE_EVERY_S if self._first and (most_micro_usd is None or rate <= 0) else LIVE_SOONEST_S
        if rate > 0 and most_micro_usd is not None:
            pause_s = max(LIVE_SOONEST_S, min(LIVE_EVERY_S, (most_micro_usd - all_micro_usd) / rate / LOOKS_LEFT))
        self._first, self._last = self._first or (now_s, all_micro_usd), (now_s, all_micro_usd)
        self._next_s = now_s + pause_s


def _rate(before: tuple[float, int], now: tuple[float, int]) -> float:
    return (now[1] - before[1]) / max(now[0] - before[0], LIVE_SOONEST_S)


class Eyes:
    """Looks on while something runs: passes events on, says when it must end, and when a silent one is at work.

    What the runs cost that the agent begins meanwhile is not left for itself. At `until_s`, by the clock that only
    grows, the run's time is up. What is spent is told to all runs of the user as that of `call`; when they have spent
    what a day may cost, all end.
    """

    def __init__(
        self, world: World, left: Left = NO_LIMIT, idle_s: float | None = None, until_s: float = float("inf"),
        call: str = "",
    ) -> None:  # fmt: skip
        self._world, self._left, self.over, self._until_s = world, left, False, until_s
        self._spent, self._ended = Spent(0, Usage()), False
        self._children = world.family.look().spend
        self._asked_s = world.clock.monotonic()
        self._look_every_s = idle_s / 4 if idle_s else float("inf")
        self._last_s = world.clock.monotonic()
        self._heard = False
        self._call, self._priced, self._pace = call, False, Pace()
        self._others: int | None = None  # what others have spent today, when we last looked

    def events(self, events: list[Event]) -> None:
        self._heard = True
        for event in events:
            if type(event) is Spent:
                self._spent, self._ended = event, False
                self._priced = self._priced or event.micro_usd is not None
                self._world.kitty.so_far(self._world.folder.run, event)
                self.over = self.over or self._left.passed_by(event) or self._left.day_passed_by(self._others, event)
            elif type(event) is Ended:  # it spends no more: to end it now would only spoil what was paid for
                self.over, self._ended = False, True
        for observer in self._world.observers:
            _spare(observer.heard, events)

    def output(self, chunk: bytes) -> None:
        """A check's output is in its log; nobody needs it sooner."""

    def tick(self) -> int:
        for observer in self._world.observers:
            _spare(observer.tick)
        self._look_at_children()
        self._look_at_kitty()
        self._look_at_day()
        late = self._world.clock.monotonic() >= self._until_s
        urgency = max(self._world.clock.urgency(), STOP if self.over or late else GO_ON)
        return ACTIVE if urgency == GO_ON and self._at_work() else urgency

    def _look_at_kitty(self) -> None:
        """Others spend from it at the same time: when it is empty, all stop."""
        shared = self._world.kitty.together()
        if shared is not None and shared.micro_usd > shared.limit and not self._ended:
            self.over = True

    def _look_at_day(self) -> None:
        """Tell all runs of the user what was spent here, and see what they have: when the day is spent, all stop."""
        now_s = self._world.clock.monotonic()
        if not self._call or not self._priced or not self._pace.due(now_s):
            return
        others = self._world.purse.so_far(
            self._world.folder.run, self._call, self._spent, self._world.clock.epoch()
        )  # fmt: skip
        self._others = self._others if others is None else others
        all_micro_usd = (self._others or 0) + (self._spent.micro_usd or 0)
        self._pace.looked(now_s, all_micro_usd, self._left.daily_micro_usd)
        if self._left.day_passed_by(self._others, self._spent) and not self._ended:
            self.over = True

    def _look_at_children(self) -> None:
        now_s = self._world.clock.monotonic()
        if now_s - self._asked_s < CHILDREN_EVERY_S:
            return
        self._asked_s = now_s
        spend = self._world.family.look().spend
        micro_usd, tokens = spend.micro_usd - self._children.micro_usd, spend.tokens - self._children.tokens
        if (micro_usd or tokens) and not self._ended:
            self.over = self.over or self._left.less(micro_usd, tokens).passed_by(self._spent)

    def _at_work(self) -> bool:
        """It has been silent for long, and yet files change."""
        now_s = self._world.clock.monotonic()
        if self._heard:
            self._heard, self._last_s = False, now_s
        if now_s - self._last_s < self._look_every_s:
            return False
        self._last_s = now_s
        return self._world.workspace.stirred()


def numbered(name: str, turn: int, joint: str = "_") -> str:
    """A name for a turn's files; an iteration is rarely taken more than once, so the first turn has the plain name."""
    return name if turn == 1 else f"{name}{joint}{turn}"


def _spare(call: Callable[..., None], *what: object) -> None:
    """Nothing that only looks on may stop the loop."""
    try:
        call(*what)
    except Exception:  # noqa: BLE001, S110
        pass
