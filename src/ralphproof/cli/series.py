"""Slots of time in a row, with none missing, as many as a chart has room for."""

from __future__ import annotations

from itertools import pairwise

from ralphproof.figure import Slot
from ralphproof.value import value

STEPS = ((1, "day"), (7, "week"), (28, "4 weeks"), (91, "quarter"), (364, "year"))
YEAR = 366
HOURS = 24
APART = 92  # bars stand apart; more are drawn without gaps


@value
class Series:
    """Spans of time, all alike but for the first, which may be shorter or longer.

    `edges` are where they begin, and where the last one ends, in days counted from 1970.
    """

    unit: str
    edges: tuple[float, ...]
    slots: tuple[Slot, ...]

    @property
    def middles(self) -> list[float]:
        return [(low + high) / 2 for low, high in pairwise(self.edges)]

    @property
    def widths(self) -> list[float]:
        """Of bars."""
        part = 0.8 if len(self.slots) <= APART else 1.0
        return [(high - low) * part for low, high in pairwise(self.edges)]

    def column(self, name: str) -> list[int]:
        """One number of every slot."""
        return [getattr(slot, name) for slot in self.slots]


def series_of(slots: tuple[Slot, ...], first_day: int, last_day: int, most: int) -> Series:
    """The hours of one day, or all days from the first to the last, several in one where they are more than `most`.

    Of more than a year, only the part in which something ended, or the first year if nothing did.
    """
    known = {slot.at: slot for slot in slots}
    if first_day == last_day:
        hours = tuple(known.get(hour, Slot(hour)) for hour in range(HOURS))
        return Series("hour", tuple(first_day + hour / HOURS for hour in range(HOURS + 1)), hours)
    if last_day - first_day >= YEAR:
        first_day, last_day = min(known, default=first_day), max(known, default=first_day + YEAR - 1)
    days = last_day - first_day + 1
    step, unit = next((found for found in STEPS if -(-days // found[0]) <= most), STEPS[-1])
    edges = _edges(first_day, last_day + 1, step)
    joined = (_sum(known, low, high) for low, high in pairwise(edges))
    return Series(unit, tuple(map(float, edges)), tuple(joined))


def _edges(first: int, end: int, step: int) -> list[int]:
    """All spans are whole but the first: what is left for it stands alone, or, if it is little, with the next one."""
    whole, rest = divmod(end - first, step)
    starts = [end - step * number for number in range(whole, -1, -1)]
    if not rest:
        return starts
    return [first, *(starts if 2 * rest >= step or not whole else starts[1:])]


def _sum(known: dict[int, Slot], low: int, high: int) -> Slot:
    slots = [known[day] for day in range(low, high) if day in known]
    return Slot(low, *(sum(getattr(slot, name) for slot in slots) for name in Slot.__match_args__[1:]))


def smooth(numbers: list[float]) -> list[float]:
    """The mean of each and the six around it, or of those that there are."""
    around = [numbers[max(0, at - 3) : at + 4] for at in range(len(numbers))]
    return [sum(some) / len(some) for some in around]
