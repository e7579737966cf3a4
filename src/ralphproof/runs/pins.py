"""Pins of a run: the files that decide its checks' results, and those that stopped earlier runs."""

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


def create_check_pins(
    spec: RunSpec, folder: RunFolder, workspace: Workspace, ledger: SqliteLedger | MemoryLedger
) -> CheckPins:
    """The pins of a run with this spec; raises Refused for a bad --may-change pattern."""
    pins = _build_pins(spec, folder, workspace)
    if isinstance(ledger, MemoryLedger):
        return pins

    before = find_weakened_files(ledger, workspace, spec.project.root, folder.run)
    return PinsWithWeakenedFiles(pins, workspace, before, _allowed_paths(spec.request.may_change)) if before else pins


def _build_pins(spec: RunSpec, folder: RunFolder, workspace: Workspace) -> CheckPins:
    allowed, settings = _allowed_paths(spec.request.may_change), spec.loaded.settings
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

    distinct = tuple(dict.fromkeys(commands))
    return CheckPins(
        spec.project.root, distinct, spec.check_env, folder, workspace, allowed, settings.protect_tests
    )  # fmt: skip


def _allowed_paths(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """A predicate: whether the user lets the work change a path."""
    if not patterns:
        return lambda _: False
    from ralphproof.base.path_patterns import explain_bad_pattern, pattern_covers

    for pattern in patterns:
        problem = explain_bad_pattern(pattern)
        if problem and "would protect every file" not in problem:
            raise Refused(f"--may-change {pattern!r} {problem}")
    return lambda path: any(_matches(pattern, path, pattern_covers) for pattern in patterns)


def _matches(pattern: str, path: str, protects: Callable[[str, str], bool]) -> bool:
    return pattern.strip("/") in ("*", "**") or protects(pattern, path)


# Files that an earlier run weakened and that are still so: the next run must not take them for the user's own.


MAX_RUNS = 20  # earlier runs that are searched


@value
class WeakenedFile:
    """A file that an earlier run was stopped for, with its content when that run began; None where it did not exist."""

    run: str
    path: str
    content: bytes | None


def find_weakened_files(ledger: SqliteLedger, workspace: Workspace, root: str, run: str) -> tuple[WeakenedFile, ...]:
    """Files for which runs in this directory were stopped since the last completed run."""
    weakened: list[WeakenedFile] = []
    rows = [row for row in ledger.runs() if row.directory == root and row.id != run]
    for row in rows[:MAX_RUNS]:
        end = ledger.run_end(row.id)
        outcome = end.outcome if isinstance(end, RunEnded) else None
        if isinstance(outcome, Completed):
            break
        if isinstance(outcome, Aborted) and outcome.reason == CHECKS_WEAKENED:
            start = workspace.find_snapshot(row.id, "0-checked") or workspace.find_snapshot(row.id, "0")
            paths = outcome.breach.paths if start else ()
            weakened += (WeakenedFile(row.id, path, workspace.content(start, path)) for path in paths if start)
    return tuple(
        {file.path: file for file in weakened}.values()
    )  # for each path the earliest run, which saw the original


class PinsWithWeakenedFiles:
    """Pins that also report the files that earlier runs were stopped for, until they are restored."""

    def __init__(
        self, pins: CheckPins, workspace: Workspace, before: tuple[WeakenedFile, ...], allowed: Callable[[str], bool]
    ) -> None:
        self._pins, self._workspace, self._weakened, self._allowed = pins, workspace, before, allowed

    def begin(self) -> None:
        self._pins.begin()

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        self._pins.accept_user_changes(paths)

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """What this run altered, and what earlier runs were stopped for and is still altered."""
        altered = self._pins.find_altered(began, now, theirs)
        reported = {file.path for file in altered}
        still_weakened = (
            AlteredCheckInput(file.path, f"still as run {file.run} left it, which was stopped for that")
            for file in self._weakened
            if file.path not in reported and not self._allowed(file.path)
            and self._workspace.content(now, file.path) != file.content
        )  # fmt: skip
        return (*altered, *still_weakened)
