"""The numbers that a stage or a run may use up, and what was used. Money is whole micro-dollars: sums are exact."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.event import Spent
from ralphproof.value import value


@value
class Budget:
    """What may be used. None is no limit."""

    iterations: int | None = None
    micro_usd: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    daily_micro_usd: int | None = None  # of all runs of the user together


@value
class Spend:
    """What has been used. `unpriced` counts turns whose cost is not wholly known: the sum is then a lower bound.

    `notional` is the part of it that a subscription pays for.
    """

    micro_usd: int = 0
    tokens: int = 0
    unpriced: int = 0
    notional: int = 0

    def plus(self, turn: Turn) -> Spend:
        """With one more turn, of whatever kind. One that never started cost nothing."""
        if turn.exit.why == "unstartable" or not turn.taken:
            return self
        return self.beside(Spend.of(turn.spent))

    @staticmethod
    def of(spent: Spent) -> Spend:
        """What one call of an agent has used."""
        tokens, unpriced = spent.usage.total if spent.usage else 0, spent.micro_usd is None or spent.at_least
        return Spend(spent.micro_usd or 0, tokens, int(unpriced), spent.micro_usd or 0 if spent.notional else 0)

    def beside(self, other: Spend) -> Spend:
        """With what others spent on the same account."""
        return Spend(
            self.micro_usd + other.micro_usd, self.tokens + other.tokens, self.unpriced + other.unpriced,
            self.notional + other.notional,
        )  # fmt: skip

    @property
    def known_usd(self) -> float | None:
        """Dollars as far as they are known; None where nothing is, and something was spent."""
        return None if self.unpriced and not self.micro_usd else self.micro_usd / 1_000_000

    @property
    def usd(self) -> float | None:
        """Dollars, where every turn's cost is known."""
        return None if self.unpriced else self.micro_usd / 1_000_000


@value
class Children:
    """Runs that a run's agent began, theirs too: those that are not over, and what all of them have cost."""

    active: tuple[str, ...] = ()
    spend: Spend = Spend()


def dollars(micro_usd: int) -> str:
    """Money for people: cents, and more digits only for less than a cent."""
    return f"${micro_usd / 1_000_000:.2f}" if micro_usd >= 10_000 or not micro_usd else f"${micro_usd / 1_000_000:.4f}"
