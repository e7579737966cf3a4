"""What an onlooker may ask of a run, whatever door they look through."""

from __future__ import annotations

from ralphproof.value import Protocol


class Helm(Protocol):
    """Steers runs. Each method returns one sentence for people, or raises Refused with why not and the way on."""

    def pause(self, run: str) -> str:
        """Let it rest before its next turn."""

    def resume(self, run: str) -> str:
        """Let one that rests go on."""

    def cancel(self, run: str) -> str:
        """End it in good order, and the runs that it began; does not wait until they have."""

    def say(self, run: str, text: str) -> str:
        """Leave words for its next prompt."""
