"""What a turn has cost so far, from what comes by: the agent's own account at its end takes its place."""

from __future__ import annotations

from ralphproof.agents.dialect import Hearing
from ralphproof.event import Spent, Usage

REMEMBERED = 500  # messages whose usage may still grow, and as many before them; older ones are counted and forgotten
MOST_MODELS = 100  # that one turn uses; the cost of more is unknown


class Tally:
    """Tells `Spent` when the sum has grown and everything that has come was read.

    What is unknown of one model makes the whole cost unknown.
    """

    def __init__(self, hearing: Hearing) -> None:
        self.notional = False
        self._hearing = hearing
        self._by_model: dict[str | None, list[int]] = {}
        self._messages: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}
        self._grown = False
        self._account = Spent(0, Usage())  # the agent's own, of all that it had used when it gave it
        hearing.pause(self.flush)

    def message(self, name: str, model: str | None, counts: tuple[int, int, int, int]) -> None:
        """The usage of one message as it now stands: it is told in several lines, and must be counted once.

        `counts` are those of `Usage`, in its order: a stream may hold a million of them.
        """
        before = self._messages.get(name) or self._older.get(name)
        if before is None:  # as a rule
            if len(self._messages) >= REMEMBERED:
                self._older, self._messages = self._messages, {}
            self._messages[name] = counts
            self._add(model, counts)
        elif before != counts and (now := tuple(map(max, before, counts))) != before:
            self._messages[name] = now
            self._add(model, tuple(new - old for new, old in zip(now, before, strict=True)))

    def add(self, model: str | None, usage: Usage) -> None:
        """So much more was used."""
        self._add(model, _counts(usage))

    def _add(self, model: str | None, counts: tuple[int, ...]) -> None:
        sums = self._by_model.get(model)
        if sums is None and len(self._by_model) >= MOST_MODELS:
            model, sums = None, self._by_model.get(None)
        if sums is None:
            self._by_model[model] = list(counts)
        else:
            for place in range(4):
                sums[place] += counts[place]
        self._grown = True

    def flush(self) -> None:
        """Tell the sum if it has grown."""
        if self._grown:
            self._grown = False
            self._hearing.tell(self.spent(at_least=True))

    def spent(self, at_least: bool) -> Spent:
        """The agent's last account, if it gave one, and what has come by since."""
        total, costs = self._account.usage or Usage(), [self._account.micro_usd]
        for model, counts in self._by_model.items():
            usage = Usage(*counts)
            total = total.plus(usage)
            costs.append(self._hearing.cost(model, usage))
        known = [cost for cost in costs if cost is not None]
        return Spent(sum(known) if len(known) == len(costs) else None, total, at_least, self.notional)

    def close(self, usage: Usage | None = None, at_least: bool = False) -> None:
        """The agent gave no account of money: its tokens are counted, all in one model or as they came by."""
        self._grown = False
        if usage is None:
            counted = self._by_model or self._account.usage != Usage()
            self._hearing.tell(self.spent(at_least) if counted else Spent(None, notional=self.notional))
            return
        models = list(self._by_model) or [self._hearing.model]
        own = self._own(usage)
        cost = self._hearing.cost(models[0], own) if len(models) == 1 else self.spent(at_least=False).micro_usd
        self._hearing.tell(Spent(cost, own, at_least, self.notional))

    def settle(self, micro_usd: int | None, usage: Usage | None) -> None:
        """The agent's own account of its session, and of the whole of it where it went on with one."""
        self._grown = False
        seen = self.spent(at_least=True).micro_usd or 0
        billed = self._hearing.billed.micro_usd or 0
        if micro_usd is not None and micro_usd - billed >= seen / 2:  # else it does not hold what was billed before
            micro_usd -= billed
        self._account = Spent(micro_usd, None if usage is None else self._own(usage), notional=self.notional)
        self._by_model.clear()
        self._hearing.tell(self._account)

    def _own(self, usage: Usage) -> Usage:
        """This turn's part of a session's usage. One that is smaller than what was billed before cannot hold it."""
        billed = self._hearing.billed.usage or Usage()
        own = usage.less(billed)
        return own if min(_counts(own)) >= 0 else usage


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input, usage.output, usage.cache_read, usage.cache_write
