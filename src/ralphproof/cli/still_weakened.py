"""What an earlier run was stopped for and is still in the files: the next run must not take it for the user's own."""

from __future__ import annotations

from ralphproof.limit import CHECKS_WEAKENED
from ralphproof.pin import Altered
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Aborted, Completed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.pin import Pins
    from ralphproof.workspace import Snapshot, Workspace

RUNS = 20  # that are looked at


@value
class LeftWeak:
    """A file that a run was stopped for, and what it held when that run began; None where it was not there."""

    run: str
    path: str
    content: bytes | None


def weakened_before(ledger: Sqlite, workspace: Workspace, root: str, run: str) -> tuple[LeftWeak, ...]:
    """Files for which runs here were stopped since one was last completed."""
    found: list[LeftWeak] = []
    rows = [row for row in ledger.runs() if row.directory == root and row.id != run]
    for row in rows[:RUNS]:
        end = ledger.end_of(row.id)
        outcome = end.outcome if isinstance(end, RunEnded) else None
        if isinstance(outcome, Completed):
            break
        if isinstance(outcome, Aborted) and outcome.reason == CHECKS_WEAKENED:
            began = workspace.saved(row.id, "0-checked") or workspace.saved(row.id, "0")
            paths = outcome.breach.paths if began else ()
            found += (LeftWeak(row.id, path, workspace.content(began, path)) for path in paths if began)
    return tuple({one.path: one for one in found}.values())  # of each the first run: it knew the file before


class StillWeakened:
    """Pins that also tell of what earlier runs were stopped for, as long as it is so."""

    def __init__(
        self, pins: Pins, workspace: Workspace, before: tuple[LeftWeak, ...], allowed: Callable[[str], bool]
    ) -> None:
        self._pins, self._workspace, self._before, self._allowed = pins, workspace, before, allowed

    def begin(self) -> None:
        self._pins.begin()

    def regain(self, paths: tuple[str, ...]) -> None:
        self._pins.regain(paths)

    def altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[Altered, ...]:
        """What is not as it was, in this run and in those that were stopped for it."""
        found = self._pins.altered(began, now, theirs)
        known = {one.path for one in found}
        still = (
            Altered(one.path, f"still as run {one.run} left it, which was stopped for that")
            for one in self._before
            if one.path not in known and not self._allowed(one.path)
            and self._workspace.content(now, one.path) != one.content
        )  # fmt: skip
        return (*found, *still)
