"""Leave to take one turn: what is asked for, what is answered, and the bounds that both go by."""

from __future__ import annotations

from ralphproof.value import value


@value
class Allowance:
    """What a submitter allows. None: no bound.

    `total_micro_usd` holds for the submission; the day's sum and `parallel` for all that the submitter has in the
    fleet; `fleet_parallel` and those of agents for everybody. Where two submissions differ, the newer word holds.
    """

    total_micro_usd: int | None = None
    daily_micro_usd: int | None = None
    parallel: int | None = None
    fleet_parallel: int | None = None
    agent_parallel: dict[str, int] = {}  # noqa: RUF012 (never changed)
    per_minute: dict[str, int] = {}  # noqa: RUF012


@value
class Want:
    """A loop asks to take its turn of this `number`; `wish` is all that it may still spend, None: no end to it."""

    loop: str
    number: int
    submission: str
    submitter: str
    agent: str
    wish: int | None = None
    asked: int = 0  # its place in the line, given by the governor


@value
class Permit:
    """A turn that may be taken. `reserved` is set aside for it, None: nothing bounds it; `spent` is the last told."""

    want: Want
    reserved: int | None
    at: float
    spent: int = 0


@value
class Granted:
    """The turn may be taken, and spend so much."""

    loop: str
    number: int
    allot: int | None


@value
class Unaffordable:
    """There will never be money for this turn. `reason` is the word by which the loop ends."""

    loop: str
    number: int
    reason: str
    message: str


Answer = Granted | Unaffordable


@value
class Booked:
    """What was spent. A turn whose cost nobody knows counts with all that was set aside for it, and is `unknown`."""

    micro_usd: int = 0
    tokens: int = 0
    turns: int = 0
    unknown: int = 0

    def plus(self, micro_usd: int, tokens: int, unknown: bool) -> Booked:
        return Booked(self.micro_usd + micro_usd, self.tokens + tokens, self.turns + 1, self.unknown + unknown)
