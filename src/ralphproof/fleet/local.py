"""The fleet without a server: loops, books and wishes in one SQLite file that all local workers share."""

from __future__ import annotations

import json
import os
import sqlite3
import time

from ralphproof.errors import NotThere, Refused
from ralphproof.fleet.governor import Governor
from ralphproof.fleet.hearsay import folded
from ralphproof.fleet.permit import Granted, Unaffordable
from ralphproof.fleet.progress import LoopProgress, broken
from ralphproof.fleet.submission import packed_submission
from ralphproof.value import TYPE_CHECKING, pack, unpack, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from ralphproof.fleet.permit import Answer
    from ralphproof.fleet.submission import FleetSubmission

    T = TypeVar("T")

FILE, VERSION = "fleet.db", 1
SCHEMA = """
CREATE TABLE loop (
    name TEXT PRIMARY KEY, submission TEXT NOT NULL, given TEXT NOT NULL, progress TEXT NOT NULL,
    over INTEGER NOT NULL DEFAULT 0, wish TEXT NOT NULL DEFAULT '', began REAL NOT NULL
);
CREATE TABLE answer (loop TEXT PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE governor (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL);
"""


@value
class LocalLoop:
    """A loop as the file has it. `given` is what was submitted of it; a `wish` is what somebody wants of it."""

    name: str
    submission: str
    given: dict[str, Any]
    progress: LoopProgress
    over: bool
    wish: str

    @property
    def shown(self) -> dict[str, Any]:
        memo = self.given["memo"]
        about = {**memo, "submission": self.submission, "trouble": "", **self.progress.shown}
        return {"loop": self.name, "running": not self.over, **about}


class LocalFleet:
    """The file. Everything that changes it is one transaction; what was written is on disk when a call returns."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._db = sqlite3.connect(os.path.join(store, FILE), timeout=10.0, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._together(self._made)

    def _made(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise Refused(f"{FILE} in {self.store} was made by a newer version of ralph; use that one")
        if version == 0:
            for statement in SCHEMA.split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def close(self) -> None:
        self._db.close()

    def _together(self, work: Callable[[], T]) -> T:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            done = work()
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return done

    def submit(self, submission: FleetSubmission) -> None:
        """Keep all loops, or none."""
        given = packed_submission(submission)
        about = {name: given[name] for name in ("submission", "submitter", "allowance", "tempo")}
        now, fresh = time.time(), json.dumps(pack(LoopProgress()))

        def work() -> None:
            for loop in given["loops"]:
                row = (loop["order"]["loop"], submission.id, json.dumps({**loop, "tempo": given["tempo"]}), fresh, now)
                self._db.execute("INSERT INTO loop(name, submission, given, progress, began) VALUES (?,?,?,?,?)", row)
            self._told([{"what": "bounded", **about}])

        try:
            self._together(work)
        except sqlite3.IntegrityError:
            raise Refused(f"a loop of submission {submission.id} exists already") from None

    def loops(self) -> list[LocalLoop]:
        """All loops, the newest first."""
        return self._rows("ORDER BY began DESC, name")

    def open(self) -> list[LocalLoop]:
        """Those that are not over, the oldest first."""
        return self._rows("WHERE NOT over ORDER BY began, name")

    def loop(self, name: str) -> LocalLoop:
        """One loop; raises NotThere."""
        found = self._rows("WHERE name = ?", (name,))
        if not found:
            raise NotThere(f"there is no loop {name!r} in this fleet; ralph fleet status names them")
        return found[0]

    def _rows(self, which: str, values: Iterable[object] = ()) -> list[LocalLoop]:
        asked = f"SELECT name, submission, given, progress, over, wish FROM loop {which}"  # noqa: S608 (our own words)
        return [
            LocalLoop(row[0], row[1], json.loads(row[2]), unpack(json.loads(row[3])), bool(row[4]), row[5])
            for row in self._db.execute(asked, tuple(values))
        ]

    def cancel(self, names: Iterable[str]) -> None:
        """Wish that loops end."""
        rows = [(name,) for name in names]
        self._together(lambda: self._db.executemany("UPDATE loop SET wish='cancel' WHERE name=? AND NOT over", rows))

    def rebased(self, loop: LocalLoop, base: str) -> LocalLoop:
        """The loop, which begins from there."""
        given = {**loop.given, "order": {**loop.given["order"], "base": base}}
        self._together(lambda: self._db.execute("UPDATE loop SET given=? WHERE name=?", (json.dumps(given), loop.name)))
        return self.loop(loop.name)

    def keep(self, name: str, progress: LoopProgress, *events: dict[str, Any]) -> None:
        """Where a loop stands from now on, and what the governor is told with it: both, or neither."""

        def work() -> None:
            row = (json.dumps(pack(progress)), int(progress.end is not None), name)
            self._db.execute("UPDATE loop SET progress=?, over=? WHERE name=?", row)
            self._told(list(events))

        self._together(work)

    def permit(self, event: dict[str, Any]) -> Answer | None:
        """Ask for a turn; None: not yet. Whoever holds it already is told so again."""

        def work() -> Answer | None:
            governor = self._told([event])
            held = governor.held.get(event["loop"])
            if held is not None and held.want.number == event["number"]:
                return Granted(event["loop"], event["number"], held.reserved)
            row = self._db.execute("SELECT said FROM answer WHERE loop=?", (event["loop"],)).fetchone()
            said = unpack(json.loads(row[0])) if row else None
            return said if isinstance(said, Unaffordable) and said.number == event["number"] else None

        return self._together(work)

    def tell(self, *events: dict[str, Any]) -> None:
        """Tell the governor something."""
        self._together(lambda: self._told(list(events)))

    def books(self) -> Governor:
        """Where all spending stands."""
        row = self._db.execute("SELECT state FROM governor").fetchone()
        governor: Governor = unpack(json.loads(row[0])) if row else Governor()
        return governor

    def _told(self, events: list[dict[str, Any]]) -> Governor:
        """Fold events in and give out what may be given out; within a transaction."""
        now, governor = time.time(), self.books()
        for event in events:
            governor = folded(governor, event, now)
        governor, answers = governor.answered(now)
        for answer in answers:
            row = (answer.loop, json.dumps(pack(answer)))
            self._db.execute("INSERT OR REPLACE INTO answer(loop, said) VALUES (?,?)", row)
        self._db.execute("INSERT OR REPLACE INTO governor(id, state) VALUES (1,?)", (json.dumps(pack(governor)),))
        return governor

    def waits_for(self, loop: LocalLoop) -> tuple[LocalLoop, ...] | LoopProgress | None:
        """None where loops before it are not over; those loops; or its end where one of them did not complete."""
        before = tuple(self.loop(name) for name in loop.given["after"])
        if any(not one.over for one in before):
            return None
        ends = {one.name: one.progress.end for one in before}
        if wrong := [name for name, end in ends.items() if end is None or end.status != "COMPLETED"]:
            return loop.progress.ended(broken(f"not begun: {', '.join(wrong)} did not complete", 1))
        return before
