"""What decides over the checks beside the work itself, and what became of it during a run."""

from __future__ import annotations

from ralphproof.value import Protocol, value
from ralphproof.workspace import Snapshot


@value
class Altered:
    """Something that decides over the checks, or a test of them, and is not as it was when the run began.

    `what` says which part of the file it is, and what became of it, in words that follow the path. One that `stops`
    ends the run. Where the user said that it may change, it is `allowed`, and only told.
    """

    path: str
    what: str
    stops: bool = False
    allowed: bool = False

    @property
    def told(self) -> str:
        """The fact in a few words."""
        return f"{self.path}: {self.what}{', as --may-change allows' if self.allowed else ''}"


class Pins(Protocol):
    """Knows what decides over the checks of a run as it was when the run began, whoever has the run by now."""

    def begin(self) -> None:
        """Remember it, out of the agent's reach, durably. Asked again, what is remembered stays."""

    def regain(self, paths: tuple[str, ...]) -> None:
        """The user changed these paths: as they are now they are meant."""

    def altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[Altered, ...]:
        """What is not as it was in the tree that the run began on. `theirs` are paths that the user has changed."""


class Unpinned:
    """Nothing decides over the checks."""

    def begin(self) -> None:
        """Nothing to remember."""

    def regain(self, paths: tuple[str, ...]) -> None:
        """Nothing was remembered."""

    def altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[Altered, ...]:
        return ()
