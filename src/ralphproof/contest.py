"""Several runs at the same task: who enters, and who has won."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.value import value

CHECKS, JUDGE, DIFF, COST, TIME = "checks", "judge", "diff", "cost", "time"
CRITERIA = (CHECKS, JUDGE, DIFF, COST, TIME)
USUAL = (CHECKS, JUDGE, DIFF, COST)
UNKNOWN = 1 << 62  # what is not known is not good


@value
class Entrant:
    """One of those who race: its number, and the agent and model that it has; empty: the settings' own."""

    number: int
    agent: str = ""
    model: str = ""

    @property
    def label(self) -> str:
        """How people tell it from the others."""
        said = " ".join(filter(None, (self.agent, self.model)))
        return f"#{self.number} {said}" if said else f"#{self.number}"


@value
class Arrival:
    """How one of them ended. `judged` counts the criteria that a model found met, `lines` those that were changed.

    `place` counts those that ended before it; `why` says how it ended in words.
    """

    entrant: Entrant
    run: str
    verified: bool = False
    place: int = 0
    judged: int = 0
    lines: int | None = None
    micro_usd: int | None = None
    seconds: float = 0.0
    why: str = ""

    def score(self, criteria: tuple[str, ...]) -> tuple[float, ...]:
        """Smaller is better, from the first criterion to the last, then who was first."""
        worth = {
            CHECKS: 0 if self.verified else 1,
            JUDGE: -self.judged,
            DIFF: UNKNOWN if self.lines is None else self.lines,
            COST: UNKNOWN if self.micro_usd is None else self.micro_usd,
            TIME: self.seconds,
        }
        return (*(float(worth[name]) for name in criteria), float(self.place))


def entrants(count: int, agents: tuple[str, ...], models: tuple[str, ...]) -> tuple[Entrant, ...]:
    """Those who race: agents and models in turn. Raises Refused where it is not clear which belong together."""
    if len(agents) > 1 and len(models) > 1 and len(agents) != len(models):
        raise Refused(
            f"{len(agents)} agents and {len(models)} models: give one --model for each --agent, one for all, or none"
        )
    most = max(len(agents), len(models))
    if most > count:
        raise Refused(f"{most} agents or models, and only {count} may race; ralph race {most} lets all of them")
    turns = [(agents or ("",), models or ("",))] * count
    return tuple(
        Entrant(number + 1, some[number % len(some)], others[number % len(others)])
        for number, (some, others) in enumerate(turns)
    )


def first(arrivals: tuple[Arrival, ...]) -> Arrival | None:
    """Who was verified first; None where nobody was."""
    return min((one for one in arrivals if one.verified), key=lambda one: one.place, default=None)


def best(arrivals: tuple[Arrival, ...], criteria: tuple[str, ...]) -> Arrival | None:
    """Who is best of those that were verified: nobody wins whose work the checks refuse, whatever it costs."""
    return min((one for one in arrivals if one.verified), key=lambda one: one.score(criteria), default=None)


def criteria_in(text: str) -> tuple[str, ...]:
    """The criteria in a list with commas, from the weightiest on; raises Refused for one that there is not."""
    found = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    for word in found:
        if word not in CRITERIA:
            raise Refused(f"{word!r} is no criterion of a race; there are {', '.join(CRITERIA)}")
    if not found or len(set(found)) != len(found):
        raise Refused(f"--by wants criteria in the order of their weight, each once, such as {','.join(USUAL)}")
    return found
