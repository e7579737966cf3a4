"""No sandbox: the command runs as the user. Its processes are owned and ended all the same."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ralphproof.sandbox import Command, Exit, Watch


class Owner(Protocol):
    """Whoever owns a command's processes from their start to their verified end."""

    def run(self, command: Command, watch: Watch) -> Exit:
        """Run to the end and tell how it ended."""


class Direct:
    """Runs commands as they are."""

    name = "direct"
    strength = "none"

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def run(self, command: Command, watch: Watch) -> Exit:
        """Run to the end and tell how it ended."""
        return self._owner.run(command, watch)
