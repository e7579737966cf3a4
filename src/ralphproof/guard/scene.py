"""What a shell would know at one point of a line: variables, the folder, what was written before."""

from __future__ import annotations

from ralphproof.guard.place import spot
from ralphproof.guard.simple import SOME
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.guard.simple import Simple
    from ralphproof.guard.tree import Node
    from ralphproof.guard.verdict import Ground

# Set in every shell, never empty, and never a path or a command.
FILLED = ("$", "?", "#", "!", "0", "-", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "USER", "LOGNAME", "HOSTNAME")


class Scene:
    """The state of one shell; a subshell works on a copy."""

    __slots__ = ("aliases", "at", "cwd", "fetched", "functions", "scripts", "sources", "stack", "text", "variables")

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.cwd = at.cwd
        self.stack: list[str] = []
        self.variables: dict[str, str] = dict.fromkeys(FILLED, SOME)
        self.variables |= {"HOME": at.home, "OLDPWD": "", "TMPDIR": "/tmp", "SHELL": "/bin/sh"}  # noqa: S108
        self.scripts: dict[str, str] = {}  # files that the line itself has written, and their text
        self.aliases: dict[str, str] = {}
        self.functions: dict[str, tuple[bytes, Node]] = {}
        self.fetched: set[str] = set()  # files and remotes that came from elsewhere in this line
        self.sources: tuple[Simple, ...] = ()  # what flows into this shell
        self.text: str | None = None

    def copy(self) -> Scene:
        """The state of a subshell. Files that it writes are seen outside, so they are held in common."""
        twin = Scene.__new__(Scene)
        for name in Scene.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.variables, twin.aliases, twin.functions = dict(self.variables), dict(self.aliases), dict(self.functions)
        twin.stack = list(self.stack)
        return twin

    def path(self, word: str) -> str:
        """The real path that a word names; empty where it names none for sure."""
        place = spot(word, self.cwd, self.at)
        return "" if place.tail else place.path

    def go(self, word: str) -> None:
        """Change the folder."""
        place = spot(word, self.cwd, self.at)
        self.cwd = f"{place.path}/{SOME}" if place.tail and place.path else place.path
