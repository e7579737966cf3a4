"""Retries after service outages: which agent may be called now, and when a failed one is called again.

Agents are listed in the user's order of preference. One whose service failed is not called for a while; the next one
continues at once. Afterwards the first is tried again.
"""

from __future__ import annotations

from zlib import crc32

from ralphproof.base.value import value

MAX_FAILURES = 8  # consecutive failures after which a service is given up
BACK_OFF_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
BACK_OFF_SPREAD = 0.25  # random part of a back-off, either way: loops that failed together do not retry together
RESET_MARGIN_S = 1.0  # after a stated reset: clocks differ
MAX_WAIT_S = 24 * 3600.0  # a later reset is not waited for


@value
class Outage:
    """Consecutive failures of a service, until when (epoch seconds) it is not called, and for how long at most."""

    failures: int = 0
    until: float = 0.0
    wait_s: float = 0.0


@value
class AgentRotation:
    """The agents by index: the models of a ladder or the agents that alternate, then the fallbacks."""

    rungs: int = 1
    rotating: int = 0
    fallbacks: int = 0

    def order(self, iteration: int, rung: int, stage_agent: int | None = None) -> tuple[int, ...]:
        """The indexes to try for an iteration, the preferred one first: that of its stage, if it has one."""
        usual = max(self.rungs, self.rotating)
        if stage_agent is not None:
            return (stage_agent, *range(usual, usual + self.fallbacks))
        turns = tuple((iteration - 1 + step) % self.rotating for step in range(self.rotating))
        return (*(turns or (min(rung, self.rungs - 1),)), *range(usual, usual + self.fallbacks))


@value
class ServiceOutages:
    """The outages of all agents' services, by index."""

    by_agent: tuple[Outage, ...] = ()

    def outage_at(self, index: int) -> Outage:
        return self.by_agent[index] if index < len(self.by_agent) else Outage()

    def with_failure(self, index: int, until: float, wait_s: float = 0.0) -> ServiceOutages:
        """The outages after one more failure."""
        return self._with(index, Outage(self.outage_at(index).failures + 1, until, wait_s))

    def with_answer(self, index: int) -> ServiceOutages:
        """The outages after an answer of any kind."""
        return self._with(index, Outage()) if self.outage_at(index) != Outage() else self

    def first_ready(self, indexes: tuple[int, ...], epoch_s: float) -> int | None:
        """The first of these indexes that may be called now."""
        return next((index for index in self._not_given_up(indexes) if self.outage_at(index).until <= epoch_s), None)

    def ready_at(self, indexes: tuple[int, ...]) -> float | None:
        """When the first of them may be called; None where all are given up."""
        return min((self.outage_at(index).until for index in self._not_given_up(indexes)), default=None)

    def _not_given_up(self, indexes: tuple[int, ...]) -> list[int]:
        return [index for index in indexes if self.outage_at(index).failures < MAX_FAILURES]

    def _with(self, index: int, outage: Outage) -> ServiceOutages:
        grown = self.by_agent + (Outage(),) * (index + 1 - len(self.by_agent))
        return ServiceOutages((*grown[:index], outage, *grown[index + 1 :]))


class RetryClock:
    """The time for waits on a service: the wall clock, but no wait lasts longer than intended.

    The wall clock may be set back during a wait, or before a run is resumed. The monotonic clock stops while the
    machine sleeps. So whichever reaches the end of the wait first counts.
    """

    def __init__(self) -> None:
        self._due: dict[float, float] = {}  # end of each wait by the monotonic clock, by its end in epoch seconds

    def now(self, services: ServiceOutages, epoch_s: float, monotonic_s: float) -> float:
        """Epoch seconds, or the end of a wait that has lasted long enough."""
        times = [epoch_s]
        for outage in services.by_agent:
            if outage.until > epoch_s:
                wait_s = outage.wait_s or outage.until - epoch_s
                if monotonic_s >= self._due.setdefault(outage.until, monotonic_s + wait_s):
                    times.append(outage.until)
        return max(times)


def next_retry_at(failures: int, resets_at: float | None, epoch_s: float, seed: str) -> float:
    """When to call again after this many consecutive failures: at the stated reset, else after a growing delay. A
    reset in the past is ignored. `seed` spreads the delays of different runs.
    """
    if resets_at is not None and resets_at > epoch_s:
        return resets_at + RESET_MARGIN_S
    back_off_s = BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1]
    chance = crc32(f"{seed} {failures}".encode("utf-8", "surrogatepass")) / 2**32
    return epoch_s + back_off_s * (1 - BACK_OFF_SPREAD + 2 * BACK_OFF_SPREAD * chance)
