"""Pins of a run: what decides over its checks, and what earlier runs were stopped for."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.check import AlteredCheckInput, NoCheckPins
from ralphproof.engine.limits import CHECKS_WEAKENED
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.plan import ExternalVerification
from ralphproof.engine.records import RunEnded
from ralphproof.store.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.check import CheckPins
    from ralphproof.engine.workspace import Snapshot, Workspace
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.run_folder import RunFolder
    from ralphproof.store.sqlite_ledger import SqliteLedger


# What is pinned of a project when a run of it begins: all that decides over its checks.


def pins_of(spec: RunSpec, folder: RunFolder, workspace: Workspace, ledger: SqliteLedger | MemoryLedger) -> CheckPins:
    """The pins of a run of this order; raises Refused for a path that may change and cannot be one."""
    pins = _pins(spec, folder, workspace)
    if isinstance(ledger, MemoryLedger):
        return pins

    before = weakened_before(ledger, workspace, spec.project.root, folder.run)
    return StillWeakened(pins, workspace, before, _allowed(spec.request.may_change)) if before else pins


def _pins(spec: RunSpec, folder: RunFolder, workspace: Workspace) -> CheckPins:
    allowed, settings = _allowed(spec.request.may_change), spec.loaded.settings
    leaves = spec.stage_plan.leaves.values() if spec.stage_plan else ()
    commands = [
        (leaf.verification.command, leaf.verification.folder)
        for leaf in leaves
        if isinstance(leaf.verification, ExternalVerification)
    ]
    commands += [(command, ".") for command in settings.setup]
    if not commands and not settings.protect_tests:
        return NoCheckPins()
    from ralphproof.evidence.pins import CheckPins

    unlike = tuple(dict.fromkeys(commands))
    return CheckPins(
        spec.project.root, unlike, spec.check_env, folder, workspace, allowed, settings.protect_tests
    )  # fmt: skip


def _allowed(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether the user lets the work change a path."""
    if not patterns:
        return lambda _: False
    from ralphproof.base.path_patterns import explain_bad_pattern, pattern_covers

    for pattern in patterns:
        problem = explain_bad_pattern(pattern)
        if problem and "would protect every file" not in problem:
            raise Refused(f"--may-change {pattern!r} {problem}")
    return lambda path: any(_means(pattern, path, pattern_covers) for pattern in patterns)


def _means(pattern: str, path: str, protects: Callable[[str, str], bool]) -> bool:
    return pattern.strip("/") in ("*", "**") or protects(pattern, path)


# What an earlier run was stopped for and is still in the files: the next run must not take it for the user's own.


RUNS = 20  # that are looked at


@value
class LeftWeak:
    """A file that a run was stopped for, and what it held when that run began; None where it was not there."""

    run: str
    path: str
    content: bytes | None


def weakened_before(ledger: SqliteLedger, workspace: Workspace, root: str, run: str) -> tuple[LeftWeak, ...]:
    """Files for which runs here were stopped since one was last completed."""
    found: list[LeftWeak] = []
    rows = [row for row in ledger.runs() if row.directory == root and row.id != run]
    for row in rows[:RUNS]:
        end = ledger.run_end(row.id)
        outcome = end.outcome if isinstance(end, RunEnded) else None
        if isinstance(outcome, Completed):
            break
        if isinstance(outcome, Aborted) and outcome.reason == CHECKS_WEAKENED:
            began = workspace.find_snapshot(row.id, "0-checked") or workspace.find_snapshot(row.id, "0")
            paths = outcome.breach.paths if began else ()
            found += (LeftWeak(row.id, path, workspace.content(began, path)) for path in paths if began)
    return tuple({one.path: one for one in found}.values())  # of each the first run: it knew the file before


class StillWeakened:
    """Pins that also tell of what earlier runs were stopped for, as long as it is so."""

    def __init__(
        self, pins: CheckPins, workspace: Workspace, before: tuple[LeftWeak, ...], allowed: Callable[[str], bool]
    ) -> None:
        self._pins, self._workspace, self._before, self._allowed = pins, workspace, before, allowed

    def begin(self) -> None:
        self._pins.begin()

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        self._pins.accept_user_changes(paths)

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """What is not as it was, in this run and in those that were stopped for it."""
        found = self._pins.find_altered(began, now, theirs)
        known = {one.path for one in found}
        still = (
            AlteredCheckInput(one.path, f"still as run {one.run} left it, which was stopped for that")
            for one in self._before
            if one.path not in known and not self._allowed(one.path)
            and self._workspace.content(now, one.path) != one.content
        )  # fmt: skip
        return (*found, *still)
