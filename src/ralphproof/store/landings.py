"""The landing table of the ledger: items to merge and their progress; the lock of a target branch."""

from __future__ import annotations

import hashlib
import json
import os
import time
from _sqlite3 import Connection
from collections.abc import Callable, Iterable
from typing import Any

from ralphproof.base.errors import LedgerBroken
from ralphproof.base.files import FileLock
from ralphproof.base.value import Json, pack, replace, unpack, value
from ralphproof.engine.check import Finding, PassRule
from ralphproof.store.database import DatabaseTables
from ralphproof.store.serialization import dump_masked_json, to_valid_utf8


@value
class AttestedCheck:
    """A check as a proof describes it. A `command` of None is a judge's, or is withheld; `digest` is that of the
    command.

    `tests_passed` is None if the output did not state it. A `hidden` check is held out: no agent is told of it.
    """

    name: str
    command: str | None
    digest: str
    rule: PassRule
    required: bool
    judged: bool
    passed: bool
    code: int | None
    why: str
    tests: dict[str, Json] | None
    output: str
    withheld: bool = False
    hidden: bool = False

    @property
    def runs_again(self) -> bool:
        """Whether it can be run again. A check that passed without an exit code was a function or a promise."""
        return self.required and not self.judged and self.command is not None and self.code is not None

    @property
    def tests_passed(self) -> int | None:
        count = (self.tests or {}).get("passedCount")
        return count if isinstance(count, int) and not isinstance(count, bool) else None


VERIFIED = "verified"


@value
class LandingItem:
    """Finished work that is to be merged: `commit` has all of it. Without a run, the user committed it themselves.

    `proof` says how the run was completed: verified, or by less. `sandbox` is the kind that it had, if any. `remarks`
    are for people, such as files that were left out.
    """

    run: str
    commit: str
    title: str
    checks: tuple[AttestedCheck, ...] = ()
    setup: tuple[str, ...] = ()
    task: str = ""
    proof: str = VERIFIED
    sandbox: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the item among all items for the same target."""
        return self.run, self.commit

    @property
    def rerunnable_checks(self) -> tuple[AttestedCheck, ...]:
        """Its checks that can be run again."""
        return tuple(check for check in self.checks if check.runs_again)

    @property
    def message(self) -> str:
        """The message of the merge commit."""
        named = (("Ralph-Run", _one_line(self.run)), ("Ralph-Task", _one_line(self.task)))
        trailers = "".join(f"{name}: {text}\n" for name, text in named if text)
        return f"{_one_line(self.title) or 'finished work'}\n" + (f"\n{trailers}" if trailers else "")


@value
class MergeConflict:
    """The item conflicts with that commit. `tree` has the files with conflict markers; empty if git made none."""

    paths: tuple[str, ...]
    tree: str
    onto: str
    said: str = ""


@value
class MergedChecksFailed:
    """Checks fail on `tree`, the result of merging the item onto that commit."""

    findings: tuple[Finding, ...]
    onto: str
    tree: str

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.passed)


@value
class NotVerified:
    """The item was not verified, and has no check that could be run on the merged tree."""

    proof: str


@value
class Landed:
    """The item is in the target, by `commit`. `checks_passed` counts the checks."""

    item: LandingItem
    commit: str
    target: str
    checks_passed: int = 0


@value
class LandingRejected:
    """The item was not merged; the work stays where it was."""

    item: LandingItem
    why: MergeConflict | MergedChecksFailed | NotVerified


LandingResult = Landed | LandingRejected


@value
class LandingQueued:
    """The item waits in the queue."""


@value
class LandingMoving:
    """All checks passed: the target is about to move from `old` to `new`, which has the item by `commit`."""

    old: str
    new: str
    commit: str
    checks_passed: int = 0


LandingStep = LandingQueued | LandingMoving | Landed | LandingRejected


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())


# The table of landing steps. Rows are only added, never changed.


FOLDER = "landing"  # in the store: locks, and temporary checkouts
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"
_INSERT_STEP = "INSERT INTO landing (target, run, named, at, item, step) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT_BY_TARGET = "SELECT seq, target, run, named, item, step FROM landing WHERE target = ? ORDER BY seq"
_SELECT_BY_RUN = "SELECT seq, target, run, named, item, step FROM landing WHERE run = ? ORDER BY seq"
_SELECT_ALL = "SELECT seq, target, run, named, item, step FROM landing ORDER BY seq"


@value
class LandingRow:
    """An item for a target, and its last step."""

    target: str
    item: LandingItem
    step: LandingStep

    @property
    def open(self) -> bool:
        """Whether it is queued, or was interrupted while landing."""
        return isinstance(self.step, LandingQueued | LandingMoving)

    @property
    def left(self) -> bool:
        """Whether the target does not have it."""
        return not isinstance(self.step, Landed)


class LandingTable(DatabaseTables):
    """The steps of all items in a ledger's file.

    Every addition is one transaction. Secrets are masked in what is stored.
    """

    def __init__(self, connection: Connection, path: str, mask: Callable[[str], str]) -> None:
        super().__init__(connection, path)
        self._mask = mask

    def rows(self, target: str | None = None) -> tuple[LandingRow, ...]:
        """Each item for a target, or for any, with its last step; those that were queued first come first."""
        return self._select(_SELECT_ALL) if target is None else self._select(_SELECT_BY_TARGET, to_valid_utf8(target))

    def _select(self, query: str, *values: str) -> tuple[LandingRow, ...]:
        found: dict[tuple[str, str, str], LandingRow] = {}
        for seq, name, run, named, item, step in self._query(query, *values):
            key = (name, run, named)
            queued = found[key].item if key in found else None
            landing_item = _unpack_json(item, LandingItem, seq) if item else queued
            if landing_item is None:
                raise LedgerBroken(f"step {seq} of a landing is of an item that was never queued")
            found[key] = LandingRow(name, landing_item, _parse_step(step, landing_item, seq))
        return tuple(found.values())

    def of_run(self, run: str) -> tuple[LandingRow, ...]:
        """The items of one run, for each target."""
        return self._select(_SELECT_BY_RUN, run)

    def queue(self, target: str, items: Iterable[LandingItem]) -> None:
        """Store items that are to land."""
        self._add(target, [(item, LandingQueued()) for item in items], with_item=True)

    def note(self, target: str, steps: Iterable[tuple[LandingItem, LandingStep]]) -> None:
        """Store steps of queued items: all of them, or none."""
        self._add(target, list(steps))

    def _add(self, target: str, steps: list[tuple[LandingItem, LandingStep]], with_item: bool = False) -> None:
        def texts(item: LandingItem, step: LandingStep) -> tuple[str, str]:
            item_text = dump_masked_json(pack(item), self._mask) if with_item else ""
            return item_text, dump_masked_json(pack(_without_item(step)), self._mask)

        rows = [
            (to_valid_utf8(target), item.run, item.commit, time.time(), *texts(item, step))
            for item, step in steps
            if item.run
        ]

        if rows:
            self._transaction(lambda: self._database.executemany(_INSERT_STEP, rows))


NO_ITEM = LandingItem("", "", "")  # replaces the item in a stored step; the queued row has it


def _without_item(step: LandingStep) -> LandingStep:
    return replace(step, item=NO_ITEM) if isinstance(step, Landed | LandingRejected) else step


def _parse_step(text: str, item: LandingItem, seq: int) -> LandingStep:
    step = _unpack_json(text, (LandingQueued, LandingMoving, Landed, LandingRejected), seq)
    return replace(step, item=item) if isinstance(step, Landed | LandingRejected) else step


def _unpack_json(text: str, kind: Any, seq: int) -> Any:
    try:
        found = unpack(json.loads(text))
    except (ValueError, TypeError) as error:
        raise LedgerBroken(f"step {seq} of a landing cannot be read: {error}") from error
    if not isinstance(found, kind):
        raise LedgerBroken(f"step {seq} of a landing is of a kind that this version does not know")
    return found


def target_lock(store: str, target: str, wait: Callable[[], None]) -> FileLock:
    """The lock of a target branch; `wait` is called while another process lands there."""
    name = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return FileLock(os.path.join(store, FOLDER, f"{name}.lock"), wait, _REMEDY)
