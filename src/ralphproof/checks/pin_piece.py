"""A part of the project that decides over a check: known by the digests of its bits, and never by what it holds."""

from __future__ import annotations

from ralphproof.claim import quoted
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.value import Json

NAME_CHARS = 80
WHOLE = ""  # the name of the only bit of a piece that has one
NUMBER = "n:"  # what begins a bit that is a threshold: then it is known itself
# What a piece is, and so how a change of it is judged.
SCRIPT, TARGET, VARIABLE, PACKAGE, SETTINGS = "script", "target", "variable", "package", "settings"
CONFTEST, STARTUP, SHADOW, PLUGIN, PROGRAM = "conftest", "startup", "shadow", "plugin", "program"
DECLARED = "declared"  # what a package says that it needs: free to change, and known as it was


@value
class Piece:
    """A part of a file. `name` is the part's own, empty where it is the whole file; `bits` are sorted by their names.

    `runner` is the program that the piece configures. `rank` tells which of two pieces of one runner counts: the lower.
    """

    kind: str
    path: str
    name: str = ""
    bits: tuple[tuple[str, str], ...] = ()
    runner: str = ""
    rank: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}\n{self.path}\n{self.name}"

    @property
    def by_name(self) -> dict[str, str]:
        return dict(self.bits)


def piece(kind: str, path: str, name: str, bits: Mapping[str, str], runner: str = "", rank: int = 0) -> Piece:
    """A piece of these bits."""
    return Piece(kind, path, name, tuple(sorted(bits.items())), runner, rank)


def whole(kind: str, path: str, digest: str, runner: str = "", rank: int = 0) -> Piece:
    """A piece that is a whole file."""
    return Piece(kind, path, "", ((WHOLE, digest),), runner, rank)


def shown(name: str) -> str:
    """A name out of a file as it can stand in a sentence."""
    return name if name.isprintable() and len(name) <= NAME_CHARS else quoted(name)


def listed(names: list[str], most: int = 5) -> str:
    """Some names in a sentence."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def to_note(pieces: Mapping[str, Piece]) -> Json:
    """What is kept of pieces."""
    return [[one.kind, one.path, one.name, dict(one.bits), one.runner, one.rank] for one in pieces.values()]


def from_note(noted: Json) -> dict[str, Piece] | None:
    """The pieces that were kept; None where they cannot be read."""
    try:
        rows = [tuple(row) for row in noted]  # type: ignore[union-attr, arg-type]
        made = [
            Piece(
                str(kind),
                str(path),
                str(name),
                tuple(sorted((str(a), str(b)) for a, b in bits.items())),
                str(runner),
                int(rank),
            )
            for kind, path, name, bits, runner, rank in rows
        ]
    except (TypeError, ValueError, AttributeError):
        return None
    return {one.key: one for one in made}
