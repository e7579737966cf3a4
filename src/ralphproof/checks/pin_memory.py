"""What is remembered of a run's pins, small, and never what files hold."""

from __future__ import annotations

from ralphproof.checks.pin_piece import Piece, from_note, to_note
from ralphproof.checks.pin_tests import TestTally
from ralphproof.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from ralphproof.value import Json

NOTE = "pins"


class Notes(Protocol):
    """Keeps something small, durably, out of the agent's reach."""

    def note(self, name: str, data: Json) -> None:
        """Keep it under this name."""

    def noted(self, name: str) -> Json | None:
        """What was kept."""


@value
class PinsKept:
    """The pieces as they are meant, what was looked at to find them, and tests as the user left them in a pause.

    `manifests` are the languages that the project had a manifest of. A test of None was deleted by the user. `fresh`
    are the keys of pieces that an agent's turn brought.
    """

    pieces: dict[str, Piece]
    facts: Json
    manifests: tuple[str, ...] = ()
    tests: dict[str, TestTally | None] = {}  # noqa: RUF012 (never changed)
    fresh: tuple[str, ...] = ()


def keep(notes: Notes, kept: PinsKept) -> None:
    """Remember it."""
    tests: dict[str, Json] = {path: _row(one) for path, one in kept.tests.items()}
    notes.note(NOTE, {
        "pieces": to_note(kept.pieces), "facts": kept.facts, "manifests": list(kept.manifests), "tests": tests,
        "fresh": list(kept.fresh),
    })  # fmt: skip


def recall(notes: Notes) -> PinsKept | None:
    """What is remembered; None where nothing is."""
    noted = notes.noted(NOTE)
    pieces = from_note(noted.get("pieces")) if isinstance(noted, dict) else None
    if not isinstance(noted, dict) or pieces is None:
        return None
    tests = noted.get("tests")
    rows = tests.items() if isinstance(tests, dict) else ()
    counts = {path: _counted(row) for path, row in rows}
    return PinsKept(pieces, noted.get("facts"), _words(noted.get("manifests")), counts, _words(noted.get("fresh")))


def _words(data: Json) -> tuple[str, ...]:
    return tuple(map(str, data)) if isinstance(data, list) else ()


def _row(one: TestTally | None) -> Json:
    return None if one is None else [one.digest, one.assertions, one.skips, one.tests]


def _counted(row: Json) -> TestTally | None:
    match row:
        case [str(digest), int(assertions), int(skips), int(tests)]:
            return TestTally(digest, assertions, skips, tests)
        case _:
            return None
