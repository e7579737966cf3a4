"""The steps at work on one machine. A step that is asked for twice is one: whoever asks again listens along."""

from __future__ import annotations

from ralphproof.fleet.running import RunningStep
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Workplace:
    """A worker's own: its name, its folder, and what is at work in it."""

    def __init__(self, name: str, folder: str, slots: int, argv: Sequence[str]) -> None:
        self.name, self.folder, self.slots = name, folder, slots
        self._argv = tuple(argv)
        self._steps: dict[tuple[str, int], RunningStep] = {}
        self._listeners: dict[tuple[str, int], object] = {}
        self._promised: dict[str, float] = {}

    def step(self, asked: dict[str, Any], number: int, listener: object) -> RunningStep:
        """The step of this number, begun or found at work; the last `listener` has its ear."""
        key = asked["order"]["loop"], number
        self._promised.pop(key[0], None)
        known = self._steps.get(key)
        if known is None or (known.done.done() and known.done.exception()):
            known = RunningStep(self._argv, self.folder, {**asked, "standing": self.name})
            self._steps[key] = known
        self._listeners[key] = listener
        return known

    def listens(self, loop: str, number: int, listener: object) -> bool:
        """Whether nobody else has asked for the same step since."""
        return self._listeners.get((loop, number)) is listener

    def over(self, loop: str, number: int) -> None:
        """Forget a step whose result somebody else keeps by now."""
        self._steps.pop((loop, number), None)
        self._listeners.pop((loop, number), None)

    def running(self) -> list[RunningStep]:
        """All that is at work."""
        return [step for step in self._steps.values() if not step.done.done()]

    def promise(self, loop: str, now: float, patience_s: float) -> bool:
        """Keep a slot for this loop, whose step is about to come; whether there is one."""
        self._promised = {name: until for name, until in self._promised.items() if until > now}
        if loop not in self._promised and len(self.running()) + len(self._promised) >= self.slots:
            return False
        self._promised[loop] = now + patience_s
        return True
