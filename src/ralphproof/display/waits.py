"""Services that may not be asked yet, and what is said of it: that somebody waits, or that another agent goes on."""

from __future__ import annotations

from ralphproof.display.words import duration, moment
from ralphproof.record import TurnAgain, TurnBegan
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.value import Json


class Waits:
    """Follows which agent is asked, and until when the others may not be. What follows a refusal shows what it means:

    time that passes, or another turn.
    """

    def __init__(self) -> None:
        self._agent, self._place = "", 0
        self._shared = 99  # so many places are those of the run; stages that have an agent of their own come after them
        self._usual = 1  # so many places are those of a ladder or rotation; fallbacks come after them
        self._untils: dict[int, float] = {}  # by the place of the agent
        self._why = ""  # of a refusal, while it is open what follows
        self.until = 0.0  # somebody waits

    def told(self, facts: dict[str, Json]) -> None:
        """What the beginning of a run says of its agents."""
        ladder, rotate = facts.get("ladder"), facts.get("rotate")
        self._usual = max([1, *(len(places) for places in (ladder, rotate) if isinstance(places, list | tuple))])
        fallbacks = facts.get("fallbacks")
        self._shared = self._usual + (len(fallbacks) if isinstance(fallbacks, list | tuple) else 0)

    def again(self, record: TurnAgain, now: float) -> str:
        """The line for an iteration that is taken again at once; nothing where that depends on what follows."""
        if record.until <= now:
            return f"{record.why}; taken again"
        self._untils[self._place] = record.until
        self._why = record.why
        return ""

    def began(self, record: TurnBegan, now: float) -> str:
        """The line for a turn that is another agent's than the one before, or that needed no wait after all."""
        why, before, place, until = self._why, self._agent, self._place, self._untils.get(self._place, 0.0)
        self._why, self.until = "", 0.0
        self._agent, self._place = record.agent or before, record.place
        if not before or record.place == place:
            return f"{why}; taken again" if why else ""
        alike = self._agent == before
        if not why and max(place, record.place) >= self._shared:
            return ""  # which agent a stage has is told with the stage
        if alike and not why and max(place, record.place) < self._usual:
            return ""  # a ladder is told where it is climbed, and taking turns is no news
        notes = [rank] if alike and (rank := self._rank(record.place)) else []
        if why and until > now:
            other = self._rank(place) or "the last one"
            notes.append(f"{other if alike else before} not before {moment(until, now)}")
        onward = f"goes on with {self._agent}" + (f" ({', '.join(notes)})" if notes else "")
        return f"{why}; {onward}" if why else onward

    def passes(self, now: float) -> str:
        """Time passes and no turn begins: the line for a wait, once."""
        if not self._why:
            return ""
        why, self._why = self._why, ""
        self.until = min((until for until in self._untils.values() if until > now), default=now)
        left = f" ({duration(self.until - now)})" if self.until > now else ""
        return f"{why}; waits until {moment(self.until, now)}{left}, then takes the iteration again"

    def left(self, now: float) -> str:
        """How long somebody still waits."""
        if self.until <= now:
            return "the wait is over"
        return f"waits until {moment(self.until, now)}, {duration(self.until - now)} left"

    def _rank(self, place: int) -> str:
        """Which of several agents of one name is meant, where a word can say it."""
        if place >= self._usual:
            return f"fallback {place - self._usual + 1}"
        return "the usual one" if self._usual == 1 else ""
