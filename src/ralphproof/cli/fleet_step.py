"""One step of a run that many machines may take: until the next iteration, a wait, or the end."""

from __future__ import annotations

from ralphproof.action import (
    Action,
    Await,
    End,
    Hold,
    PickNext,
    Regain,
    Rest,
    Save,
    TakeTurn,
    Warn,
)
from ralphproof.cli.begin import Begun
from ralphproof.cli.notes import keep_limits
from ralphproof.cli.resume_run import Retaken
from ralphproof.cli.signals import deaf
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.loop import NEW, Loop
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.world import Left

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.action import Rules
    from ralphproof.cli.equipment import Hearing, Watching
    from ralphproof.cli.order import Order
    from ralphproof.keeper.client import Keeper
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.limit import Limits
    from ralphproof.record import Record
    from ralphproof.state import State
    from ralphproof.world import World

    Then = Callable[[tuple[Record, ...]], None]

RESTED = "rested"  # the note of how many records there were when a step came to its end


class SharedLedger(Sqlite):
    """A ledger whose records are told to somebody before anything follows from them."""

    then: Then = staticmethod(lambda _: None)

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        super().append(run, records)
        self.then(records)


class Stepwise(Loop):
    """A loop that rests. `allot` is what one step may spend at most, beside what the run's own limits say.

    `before` is what the run had spent when that was allotted. What an earlier try of the same step has spent since
    then is reported before anything else is begun.
    """

    allot: int | None = None
    before = 0
    finish = False
    halted: Callable[[], bool] = staticmethod(lambda: False)
    _worked = False

    def step(self) -> tuple[Action, float | None]:
        """Go on until the next iteration, a wait or the end comes: that, not done, and until when it waits.

        What is to be told of a wait is told; nobody waits here.
        """
        step = self.until(self._rests)
        if isinstance(step, Rest | Hold | Await):
            self._do(replace(step, seconds=0.0))
            self._flush()
        return step, self._wait_until(step)

    def _rests(self, step: Action) -> bool:
        match step:
            case Rest() | Hold() | Await():
                return True
            case End():
                return not (self.finish or self.world.clock.wish())
            case Save():
                return False
            case TakeTurn() if self.state.turning:
                return False
            case _ if self.halted():
                return True
            case PickNext() if self._worked or self.state.spend.micro_usd > self.before:
                return True
            case Regain() | Warn():
                return False
            case _:
                self._worked = True
                return False

    @property
    def _ending(self) -> bool:
        return super()._ending or self.halted()

    def _wait_until(self, step: Action) -> float | None:
        match step:
            case Rest():
                return self.state.services.ready_at(self.rules.order(self.state, self.state.job))
            case Await(seconds=seconds):
                return self.world.clock.epoch() + seconds
            case _:
                return None

    def _left(self, call: str) -> Left:
        left = super()._left(call)
        if self.allot is None:
            return left
        own = self.allot - (self.state.spend.micro_usd - self.before)
        return replace(left, micro_usd=own if left.micro_usd is None else min(own, left.micro_usd))


class FirstStep(Begun):
    """A run that is begun, and goes on to where it first rests."""

    def __init__(
        self, order: Order, keeper: Keeper, watching: Watching, run: str, then: Then, hear: Hearing = deaf
    ) -> None:
        self._then = then
        super().__init__(order, keeper, watching, hear, run)

    def _record(self) -> Sqlite:
        return _opened(self._order, self._then)

    def _made(self, rules: Rules, world: World, state: State = NEW) -> Loop:
        return Stepwise(self.run, rules, world, self._facts(), state)

    def have(self, loop: Loop) -> None:
        """This process has the run already: it began it."""

    def step(
        self, allot: int | None, finish: bool, halted: Callable[[], bool], spent: int | None = None
    ) -> tuple[Action, float | None]:
        """Go on to where the run rests next."""
        loop = self.loop()
        assert isinstance(loop, Stepwise)
        loop.allot, loop.finish, loop.halted = allot, finish, halted
        loop.before = loop.state.spend.micro_usd if spent is None else min(spent, loop.state.spend.micro_usd)
        if allot == 0:  # no turn will be paid any more: the run ends as one does that has used up its own limit
            loop.rules = replace(loop.rules, limits=_held_to(loop, 0))
        self.have(loop)
        self._hold(loop, allot)
        found = loop.step()
        self._folder.note(RESTED, len(self._ledger.records(self.run)))
        return found

    def _hold(self, loop: Stepwise, allot: int | None) -> None:
        """Who looks on in our place, should we die, holds the turn to its allotment too."""
        if allot is None:
            return
        rules = replace(loop.rules, limits=_held_to(loop, allot))
        keep_limits(self._folder, rules, self._order, self._sandbox.name)


class NextStep(FirstStep, Retaken):
    """A run that goes on from where it rested, or was left, to where it rests next."""

    def __init__(
        self, order: Order, keeper: Keeper, watching: Watching, row: RunRow, then: Then, hear: Hearing = deaf
    ) -> None:
        self._then = then
        Retaken.__init__(self, order, keeper, watching, row, hear)

    def have(self, loop: Loop) -> None:
        """This process has the run from now on."""
        self._have(loop)

    def _remarks(self, remark: str, told: list[str]) -> tuple[str, ...]:
        """What a step says that follows one which came to its end: nothing, but what was found."""
        rested = self._folder.noted(RESTED) == len(self._earlier)
        return (*(() if rested else (remark,)), *told)


def _held_to(loop: Stepwise, allot: int) -> Limits:
    """The run's limits, with no more money than was allotted."""
    budget, most = loop.rules.limits.budget, loop.before + allot
    least = most if budget.micro_usd is None else min(most, budget.micro_usd)
    return replace(loop.rules.limits, budget=replace(budget, micro_usd=least))


def _opened(order: Order, then: Then) -> Sqlite:
    ledger = SharedLedger.open(order.project.store, order.project.mask)
    assert isinstance(ledger, SharedLedger)
    ledger.then = then
    return ledger
