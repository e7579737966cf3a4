"""The calls that it takes to get an answer from a judge."""

from __future__ import annotations

from ralphproof.agent import Brief, Turn, bounded
from ralphproof.check import Onlooker
from ralphproof.claim import harmless
from ralphproof.event import Event, Spent, Usage
from ralphproof.fault import ServiceFault, fault_of
from ralphproof.judgement import Judgement
from ralphproof.sandbox import STOP
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.checks.waiting import Patience

WHY_CHARS = 300
STOPPED, INTERRUPTED = "stopped", "interrupted"
CUT = (STOPPED, "killed", INTERRUPTED)
NOTHING = Spent(0, Usage())
ANSWERS = 2  # calls that may come to an answer; a second one where the first is none
CUT_OFF = 3  # so often a call is made again that died with its keeper, or with somebody who has left since


@value
class Called:
    """What came of one call: what it ruled, or else why it did not."""

    turn: Turn
    judgement: Judgement | None = None
    why: str = ""
    malformed: bool = False
    fault: ServiceFault | None = None


class Calls:
    """All that is asked about one tree. Its calls together have one limit of money.

    `call` makes one of this name, with these criteria, so much money and what was spent before; `begun` says whether
    there was one of this name before.
    """

    def __init__(
        self, call: Callable[[str, tuple[str, ...], int, Spent], Called], begun: Callable[[str], bool],
        most_micro_usd: int, patience: Patience, watch: Onlooker,
    ) -> None:  # fmt: skip
        self.made: list[Called] = []
        self.last = ""  # the name of the last call
        self._told: set[int] = set()  # those that somebody had stopped before: what they cost was told then
        self._call, self._begun, self._most = call, begun, most_micro_usd
        self._patience, self._watch = patience, watch

    @property
    def spent(self) -> Spent:
        """What all calls have cost."""
        return _sum(self.made)

    @property
    def billed(self) -> Spent:
        """The same less what was paid for when somebody stopped a call: that was told then."""
        return _sum([call for place, call in enumerate(self.made) if place not in self._told])

    def answer(self, name: str, criteria: tuple[str, ...]) -> Called:
        """Call until there is an answer, as long as another call may bring one."""
        mine: list[Called] = []
        while True:
            self.last = _numbered(name, len(mine) + 1)
            earlier = self._begun(self.last)
            called = self._call(self.last, criteria, self.left_micro_usd, self.spent)
            if earlier and called.turn.exit.why in (STOPPED, "killed"):
                self._told.add(len(self.made))
            mine.append(called)
            self.made.append(called)
            if not self._again(mine, _numbered(name, len(mine) + 1)):
                return self._final(called)

    @property
    def left_micro_usd(self) -> int:
        """What the next call may cost."""
        return self._most - (self.spent.micro_usd or 0)

    def _again(self, mine: list[Called], following: str) -> bool:
        last = mine[-1]
        if last.fault is None:
            self._patience.answered()
        if last.judgement is not None or self._watch.tick() >= STOP:
            return False
        if last.turn.exit.why in CUT:
            return sum(call.turn.exit.why in CUT for call in mine) <= CUT_OFF
        if self.left_micro_usd <= 0:
            return False
        if last.fault is not None:
            return self._patience.outlasts(last.fault, self._watch, waited=self._begun(following))
        return last.malformed and sum(call.malformed for call in mine) < ANSWERS

    def _final(self, last: Called) -> Called:
        """The last call as it counts: where somebody wanted an end, there was to be another one."""
        if (last.malformed or last.fault) and self._watch.tick() >= STOP:
            return replace(last, why=STOPPED, malformed=False)
        return last


def _numbered(name: str, run: int) -> str:
    return name if run == 1 else f"{name}-run{run}"


class Adding:
    """Looks on at a call; what was spent on those before it counts too."""

    def __init__(self, watch: Onlooker, before: Spent) -> None:
        self._watch, self._before = watch, before

    def events(self, events: list[Event]) -> None:
        self._watch.events([both(self._before, one) if isinstance(one, Spent) else one for one in events])

    def tick(self) -> int:
        return self._watch.tick()


def _sum(calls: list[Called]) -> Spent:
    total = NOTHING
    for call in calls:
        total = both(total, call.turn.spent)
    return total


def both(one: Spent, other: Spent) -> Spent:
    """What both have cost together."""
    if one is NOTHING:
        return other
    return replace(one.plus(other), at_least=one.at_least or other.at_least, notional=one.notional or other.notional)


def trouble(turn: Turn, brief: Brief) -> Called | None:
    """A turn that is none that could hold an answer, and why."""
    fault = fault_of(turn)
    if isinstance(fault, ServiceFault) and not turn.exit.survivors:
        return Called(turn, why=line(f"an error of the judge: {fault.message}"), fault=fault)
    why = _why(turn, brief)
    return Called(turn, why=why) if why else None


def _why(turn: Turn, brief: Brief) -> str:
    end, most = turn.exit, brief.most_micro_usd
    match end.why:
        case "stopped" | "killed":
            return STOPPED
        case "interrupted":
            return INTERRUPTED
        case "timeout":
            return f"a timeout after {brief.timeout_s:g} s"
        case "unstartable":
            return line(f"a judge that could not be started: {end.error}")
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    if turn.errored:
        return line(f"an error of the judge: {turn.error or f'its end by {_end(turn)}'}")
    if most is not None and turn.micro_usd is not None and turn.micro_usd > most:
        spent = f"${turn.micro_usd / 1e6:.4f} of ${most / 1e6:.4f}"
        return f"a judge that spent more than it may: {spent}"
    return ""


def _end(turn: Turn) -> str:
    return f"signal {turn.exit.signal}" if turn.exit.signal else f"exit code {turn.exit.code}"


def line(text: str) -> str:
    """A text of others in one short line."""
    return bounded(" ".join(harmless(text).split()), WHY_CHARS).replace("\n", " ")
