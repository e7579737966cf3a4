"""Parcels on their way onto a branch, as the ledger keeps them: every step is added, none is ever changed."""

from __future__ import annotations

import fcntl
import os
import time

from ralphproof.errors import LedgerBroken
from ralphproof.landing import Landed, Moving, Parcel, Queued, TurnedAway
from ralphproof.ledgers.connection import attempt
from ralphproof.ledgers.files import explain, private_folder
from ralphproof.ledgers.text import plain, to_json
from ralphproof.value import TYPE_CHECKING, pack, replace, unpack, value

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, Self

    from ralphproof.landing import LandingStep

FOLDER = "landing"  # in the store: locks, and throw-away checkouts
LOOK_S = 0.05
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"
_ADD = "INSERT INTO landing (target, run, named, at, parcel, step) VALUES (?, ?, ?, ?, ?, ?)"
_OF_TARGET = "SELECT seq, target, run, named, parcel, step FROM landing WHERE target = ? ORDER BY seq"
_OF_RUN = "SELECT seq, target, run, named, parcel, step FROM landing WHERE run = ? ORDER BY seq"
_OF_ALL = "SELECT seq, target, run, named, parcel, step FROM landing ORDER BY seq"


@value
class LandingRow:
    """Where a parcel is on its way to a target."""

    target: str
    parcel: Parcel
    step: LandingStep

    @property
    def open(self) -> bool:
        """Whether it waits, or was cut off."""
        return isinstance(self.step, Queued | Moving)

    @property
    def left(self) -> bool:
        """Whether the target does not have it."""
        return not isinstance(self.step, Landed)


class Landings:
    """The steps of all parcels in a ledger's file.

    Whatever is added is one transaction. Secrets are masked in all that is kept.
    """

    def __init__(self, connection: Connection, path: str, mask: Callable[[str], str]) -> None:
        self._database, self._path, self._mask = connection, path, mask

    def rows(self, target: str | None = None) -> tuple[LandingRow, ...]:
        """Each parcel for a target, or for any, with its last step; those that were queued first come first."""
        return self._found(_OF_ALL) if target is None else self._found(_OF_TARGET, plain(target))

    def _found(self, question: str, *values: str) -> tuple[LandingRow, ...]:
        def look() -> list[Any]:
            return self._database.execute(question, values).fetchall()

        found: dict[tuple[str, str, str], LandingRow] = {}
        for seq, name, run, named, parcel, step in attempt(self._database, self._path, look):
            key = (name, run, named)
            known = found[key].parcel if key in found else None
            whole = _read(parcel, Parcel, seq) if parcel else known
            if whole is None:
                raise LedgerBroken(f"step {seq} of a landing is of a parcel that was never queued")
            found[key] = LandingRow(name, whole, _step(step, whole, seq))
        return tuple(found.values())

    def of_run(self, run: str) -> tuple[LandingRow, ...]:
        """Where the work of one run is on its way, for each target."""
        return self._found(_OF_RUN, run)

    def queue(self, target: str, parcels: Iterable[Parcel]) -> None:
        """Keep parcels that are to land: from now on none of them is forgotten."""
        self._add(target, [(parcel, Queued()) for parcel in parcels], whole=True)

    def note(self, target: str, steps: Iterable[tuple[Parcel, LandingStep]]) -> None:
        """Keep what became of parcels that were queued: of all of them, or of none."""
        self._add(target, list(steps))

    def _add(self, target: str, steps: list[tuple[Parcel, LandingStep]], whole: bool = False) -> None:
        def texts(parcel: Parcel, step: LandingStep) -> tuple[str, str]:
            kept = to_json(pack(parcel), self._mask) if whole else ""
            return kept, to_json(pack(_bare(step)), self._mask)

        rows = [(plain(target), one.run, one.commit, time.time(), *texts(one, step)) for one, step in steps if one.run]

        def work() -> None:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(_ADD, rows)
            self._database.execute("COMMIT")

        if rows:
            attempt(self._database, self._path, work)


NOBODY = Parcel("", "", "")  # stands in a step for the parcel that its row tells of


def _bare(step: LandingStep) -> LandingStep:
    return replace(step, parcel=NOBODY) if isinstance(step, Landed | TurnedAway) else step


def _step(text: str, parcel: Parcel, seq: int) -> LandingStep:
    step = _read(text, (Queued, Moving, Landed, TurnedAway), seq)
    return replace(step, parcel=parcel) if isinstance(step, Landed | TurnedAway) else step


def _read(text: str, kind: Any, seq: int) -> Any:
    import json

    try:
        found = unpack(json.loads(text))
    except (ValueError, TypeError) as error:
        raise LedgerBroken(f"step {seq} of a landing cannot be read: {error}") from error
    if not isinstance(found, kind):
        raise LedgerBroken(f"step {seq} of a landing is of a kind that this version does not know")
    return found


class TargetLock:
    """The right to move a target, for one at a time over all processes and threads. It ends with who has it."""

    def __init__(self, store: str, target: str) -> None:
        import hashlib

        name = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path, self._file = os.path.join(store, FOLDER, f"{name}.lock"), -1
        self.heed: Callable[[], None] = _go_on

    def __enter__(self) -> Self:
        """Wait until nobody else has it."""
        try:
            private_folder(os.path.dirname(self._path))
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            while not self._taken():
                self.heed()
                time.sleep(LOOK_S)
        except OSError as error:
            self._leave()
            raise explain(error, self._path, _REMEDY) from error
        except BaseException:
            self._leave()
            raise
        return self

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)  # a program that we are just starting may still have a copy of it
        self._leave()

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _go_on() -> None:
    """Nobody wants it to stop."""
