"""Tripwires of a run: changes of protected files found after a turn are kept as a patch and reverted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping

from ralphproof.base.errors import Refused, WorkspaceGone, wrap_os_error
from ralphproof.base.path_patterns import explain_bad_pattern
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.workspace import TouchedPath, TripwireReport
from ralphproof.workspace.files import file_patch, find_obstacles, restore_protected_files
from ralphproof.workspace.git_objects import MODE_LINK, decode_path
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.history_tripwires import PROJECT_FOLDER, is_ref_file
from ralphproof.workspace.protected_paths import (
    LARGE_PREFIX,
    NO_ACCESS,
    ProtectedCopies,
    ProtectedMatcher,
    ProtectedPattern,
    RepositoryBaseline,
    ReservedPath,
    TripwireBaseline,
    TripwireResult,
    WatchedFolder,
    differing_paths,
    write_private_file,
)
from ralphproof.workspace.repository_tripwires import CONFIG_FILES, RepositoryTripwires, repository_folders

if TYPE_CHECKING:
    from ralphproof.workspace.protected_paths import FileState, FileStates, RestorePlan


class ProtectedChanges:
    """Collects changes of watched files: the list, the patch, and the plan that reverts them.

    `read` returns the content of a digest from before the turn.
    """

    def __init__(self, read: Callable[[str], bytes], project: WatchedFolder) -> None:
        self._read, self._project, self.matcher = read, project, ProtectedMatcher(project)
        self._entries: list[TouchedPath] = []
        self.plan: RestorePlan = {}
        self.patch = b""

    def add_change(
        self, name: str, place: WatchedFolder, path: bytes, old: FileState | None, new: FileState | None
    ) -> None:
        """A file changed: it must be restored."""
        self.add_touched(place, path, place.pattern_for(path))
        self.plan_restore(name, place, path, old, new, old)

    def add_touched(self, place: WatchedFolder, path: bytes, pattern: ProtectedPattern) -> None:
        """A path was changed against the rule of this pattern."""
        self._entries.append(TouchedPath(place.prefix + decode_path(path), pattern.rule, pattern.stops))

    def add_commit(self, path: str, by: str, way_out: str) -> None:
        """A commit contains a change of a protected path, whatever the file is now; `way_out` is the command that
        removes it.
        """
        named = path.encode("utf-8", "surrogateescape")
        here = next((place for place, one in enumerate(self._entries) if one.path == path and one.stops), None)
        if here is None:
            self.add_touched(self._project, named, self._project.pattern_for(named))
            here = -1
        known = self._entries[here]
        ways = [*known.way_out.split("; "), way_out] if known.way_out else [way_out]
        held_by = f"{known.held_by}; {by}" if known.held_by else by
        self._entries[here] = replace(known, held_by=held_by, way_out="; ".join(dict.fromkeys(ways)))

    @property
    def protected_paths(self) -> list[str]:
        """The protected paths that were changed."""
        return [one.path for one in self._entries if one.stops]

    @property
    def touched(self) -> tuple[TouchedPath, ...]:
        """All changed paths, protected ones first."""
        return tuple(sorted(self._entries, key=lambda one: (not one.stops, one.path)))

    def plan_restore(
        self,
        name: str,
        place: WatchedFolder,
        path: bytes,
        old: FileState | None,
        new: FileState | None,
        wanted: FileState | None,
    ) -> None:
        """Add the difference to the patch, and the wanted state to the plan."""
        self.patch += self._file_patch(place, path, old, new)
        self.plan.setdefault(name, {})[path] = wanted

    def plan_obstacle_removal(self, name: str, place: WatchedFolder) -> None:
        """Plan the removal of files and links in the place of parent folders."""
        planned = self.plan.get(name, {})
        needed = sorted(path for path, wanted in planned.items() if wanted is not None)
        for path in sorted(find_obstacles(place.folder, needed) - planned.keys()):
            below = next(one for one in needed if one.startswith(path + b"/"))
            self.add_touched(place, path, place.pattern_for(below))
            self.plan_restore(name, place, path, None, place.read_state(path), None)

    def _file_patch(self, place: WatchedFolder, path: bytes, old: FileState | None, new: FileState | None) -> bytes:
        shown = place.prefix.encode() + path
        contents: dict[str, bytes] = {}
        try:
            if old is not None and old[0] != NO_ACCESS:
                contents[old[1]] = self._read(old[1])
            if new is not None and new[0] != NO_ACCESS:
                contents[new[1]] = place.read_content(path, new)
            before, after = old and old[:2], new and new[:2]
            if before and after and (before[0] == MODE_LINK) != (after[0] == MODE_LINK):  # as git shows it
                removal = file_patch(shown, before, None, contents.__getitem__)
                return removal + file_patch(shown, None, after, contents.__getitem__)
            return file_patch(shown, before, after, contents.__getitem__)
        except (OSError, KeyError):  # it cannot be read, or is too large: named all the same
            return b"diff --git a/%s b/%s\nBinary files a/%s and b/%s differ\n" % ((shown,) * 4)


BASELINE_GONE = "what is watched could not be compared with what it was: the record of that is gone"


class ProtectedFileTripwires:
    """The tripwires of one run in one project.

    A change of a path in `stops` ends the run, one in `own` is only reverted. `private` is a folder of this run outside
    the project. The patch of a turn is written to `patch_path(name)` + ".patch"; messages name `published_path(name)`.
    Without `git`, branches and the settings of the repository are not watched. `backup` is the folder for backups of
    the repository, shared by its runs; empty for none.
    """

    def __init__(
        self, root: str, private: str, run: str, stops: tuple[str, ...], own: tuple[ReservedPath, ...],
        git: GitWorkspace | None, patch_path: Callable[[str], str],
        published_path: Callable[[str], str] | None = None, backup: str = "",
    ) -> None:  # fmt: skip
        for path in stops:
            if problem := explain_bad_pattern(path):
                raise Refused(f"protectedPaths: {path!r} {problem}")
        self._root = os.path.realpath(root)
        self._patch_path, self._published_path = patch_path, published_path or patch_path
        self._copies = ProtectedCopies(private)
        self._baseline: TripwireBaseline | None = None
        self._uncopied: set[str] = set()  # what is too much to keep a copy of
        inside = tuple(one for one in own if one.path.startswith(".git/"))
        patterns = tuple(ProtectedPattern(path, f"protectedPaths: {path}", True) for path in stops)
        patterns += tuple(ProtectedPattern(one.path, one.rule) for one in own if one not in inside)
        git_places = repository_folders(self._root, inside, git, self._copies)
        project = WatchedFolder(self._root, patterns, self._copies.digest_or_store)
        self._watched = {PROJECT_FOLDER: project} | git_places
        self._repository = RepositoryTripwires(git, run, self._copies, git_places, backup) if git else None
        self._patterns = {name: place.patterns for name, place in self._watched.items()}
        self._turn_end_ns, self._ignored_changes = 0, False

    def ignore_changes_after(self, instant_ns: int) -> None:
        """The next turn to be checked ended at this instant: later changes of files are not its own."""
        self._turn_end_ns = instant_ns

    def changed_files(self, name: str, below: tuple[str, ...], read: Mapping[str, str]) -> tuple[str, ...]:
        """The watched files with these prefixes that a turn changed, until they are restored under its name.

        `read` maps paths to the digests with which they were read during the turn, in case they differed only then.
        """
        result = self._copies.load_result(name)
        baseline = None if result and result.restored else self._load_baseline()
        if baseline is None:
            return ()
        before, place = baseline.states.get(PROJECT_FOLDER, {}), self._watched[PROJECT_FOLDER]
        changed = {
            decode_path(path) for path in differing_paths(before, place.scan(before)) if not self._is_later(place, path)
        }
        for path, digest in read.items():
            seen = before.get(os.fsencode(path))
            linked = os.path.islink(os.path.join(self._root, os.path.dirname(path)))
            if _is_other_content(seen, digest, linked) and not self._is_later(place, os.fsencode(path)):
                changed.add(path)
        return tuple(sorted(path for path in changed if path.startswith(below)))

    def _is_later(self, place: WatchedFolder, path: bytes) -> bool:
        return bool(self._turn_end_ns) and place.changed_after(path, self._turn_end_ns)

    def start_watching(self) -> tuple[str, ...]:
        """Store the state of what is watched, durably. An unfinished restore is finished first."""
        try:
            if self._baseline is None:
                self._finish_pending()
            self._load_baseline()
            for name, patterns in self._patterns.items():
                if self._watched[name].patterns is not patterns:  # those of a turn that was taken up
                    self._watched[name].set_patterns(patterns)
            self._save_baseline({})
        except OSError as error:
            raise wrap_os_error(error) from error
        return self._repository.take_warnings() if self._repository else ()

    def history_backup(self) -> str:
        """Where the history of the run's start is, looked up now."""
        return self._repository.history_backup() if self._repository else ""

    def repository_damage(self) -> str:
        """Why no work counts in the present repository."""
        return self._repository.repository_damage() if self._repository else ""

    def final_warnings(self) -> tuple[str, ...]:
        """Warnings about the repository at the end of the run."""
        return self._repository.final_warnings() if self._repository else ()

    def check_and_restore(self, name: str) -> TripwireReport:
        """Detect and restore changes since `start_watching`; their patch gets this name."""
        if not os.path.isdir(self._root):
            raise WorkspaceGone(f"{self._root} is gone")
        try:
            result = self._copies.load_result(name) or self._compare_all(name)
            return result.report if result.restored else self._restore(name, result)
        except OSError as error:
            raise wrap_os_error(error) from error

    def discard(self) -> None:
        """The run is over: finish an unfinished restore, then delete the copies, since they may contain secrets.

        The backup of the repository is deleted only if the repository provably has everything that it had.
        """
        try:
            if os.path.isdir(self._root):
                self._finish_pending()
            self._baseline = None
            self._copies.clear()
            if self._repository:
                self._repository.discard()
        except OSError as error:
            raise wrap_os_error(error) from error

    def _finish_pending(self) -> None:
        for name in self._copies.unfinished_results():
            self.check_and_restore(name)

    def _load_baseline(self) -> TripwireBaseline | None:
        if self._baseline is None and (baseline := self._copies.load_baseline()):
            self._baseline = baseline
            for name, place in self._watched.items():
                patterns = baseline.patterns.get(name, place.patterns)  # a turn is judged by those that it began with
                roots = baseline.roots.get(name, ()) if patterns else ()
                place.set_patterns(patterns, tuple((path, min(number, len(patterns) - 1)) for path, number in roots))
        return self._baseline

    def _save_baseline(self, plan: RestorePlan, lost_work_reported: bool = False) -> None:
        self._copies.storing = True
        try:
            for place in self._watched.values():
                place.resolve_links()
            states = self._scan(None)
            if not self._baseline or states != self._baseline.states:
                self._copy_missing(states)
        finally:
            self._copies.storing = False
        repository = self._baseline.repository if self._baseline else RepositoryBaseline()
        if self._repository:
            known = replace(repository, uncommitted={}) if lost_work_reported else repository
            repository = self._repository.update_baseline(known, states)
        roots = {name: place.roots for name, place in self._watched.items()}
        patterns = {name: place.patterns for name, place in self._watched.items()}
        baseline = TripwireBaseline(states, roots, repository, patterns)
        if baseline != self._baseline:
            self._copies.save_baseline(baseline, plan)
            self._baseline = baseline

    def _scan(self, baseline: TripwireBaseline | None) -> dict[str, FileStates]:
        known = baseline.states if baseline else {}
        states = {name: place.scan(known.get(name)) for name, place in self._watched.items()}
        if self._repository:
            self._repository.history.add_ref_table(states)
        return states

    def _copy_missing(self, states: dict[str, FileStates]) -> None:
        """Store copies of files that were first seen after a turn, when nothing is stored."""
        for name, file_states in states.items():
            for path, seen in file_states.items():
                if self._copies.has(seen[1]) or seen[1] in self._uncopied:
                    continue
                if seen[0] == NO_ACCESS or seen[1].startswith(LARGE_PREFIX):
                    continue
                try:
                    content = self._watched[name].read_content(path, seen)
                except OSError:
                    continue  # it went away, or became something else
                if not self._copies.has(self._copies.store(content)):
                    self._uncopied.add(seen[1])

    def _compare_all(self, name: str) -> TripwireResult:
        """Compare everything with the baseline. A result that says anything is stored durably."""
        baseline = self._load_baseline()
        if baseline is None:
            self._save_baseline({})
            return TripwireResult(TripwireReport(remarks=(BASELINE_GONE,)), {}, restored=True)
        states = self._scan(baseline)
        changes = ProtectedChanges(self._copies.read, self._watched[PROJECT_FOLDER])
        for where, place in self._watched.items():
            if os.path.isdir(place.folder):
                self._compare(where, baseline, states[where], changes)
        self._turn_end_ns = 0  # of this turn alone
        remarks, lost_work = self._repository.compare(baseline, states, changes) if self._repository else ([], False)
        for where, place in self._watched.items():
            changes.plan_obstacle_removal(where, place)
        patch = f"{self._published_path(name)}.patch" if changes.patch else ""
        switched = self._repository.history.branch_switch(baseline, states) if self._repository else ()
        if switched:
            remarks.append(_describe_switch(*switched))
        report = TripwireReport(changes.touched, patch, tuple(remarks), switched)
        result = TripwireResult(report, changes.plan, lost_work)
        if result.report == TripwireReport():
            if self._ignored_changes:  # it is not asked about again
                self._save_baseline({})
            return replace(result, restored=True)
        if changes.patch:
            write_private_file(f"{self._patch_path(name)}.patch", changes.patch)
        self._copies.save_baseline(baseline, changes.plan)
        self._copies.save_result(name, result)
        return result

    def _describe_failure(
        self, name: str, wanted: Mapping[bytes, FileState | None], path: bytes, failed: dict[bytes, str]
    ) -> str:
        """Why a file could not be restored. Its earlier content is written beside the patch, if there is a copy."""
        seen = wanted[path]
        if seen is None or not self._copies.has(seen[1]):
            return failed[path]
        ending = f".{sorted(wanted).index(path)}.was"
        try:
            content = self._copies.read(seen[1])
        except OSError:
            return failed[path]
        write_private_file(self._patch_path(name) + ending, content)
        return f"{failed[path]}; what it was is kept in {self._published_path(name)}{ending}"

    def _compare(self, where: str, baseline: TripwireBaseline, now: FileStates, changes: ProtectedChanges) -> None:
        before, place = baseline.states.get(where, {}), self._watched[where]
        for path in differing_paths(before, now):
            if where != PROJECT_FOLDER and (path in CONFIG_FILES or is_ref_file(path)):
                continue
            if self._is_later(place, path):
                self._ignored_changes = True
            else:
                changes.add_change(where, place, path, before.get(path), now.get(path))

    def _restore(self, name: str, result: TripwireResult) -> TripwireReport:
        """Restore what was found; then the present state is the new baseline."""
        self._load_baseline()
        trouble: dict[str, str] = {}
        notes: list[str] = []
        for where, wanted in result.plan.items():
            place = self._watched.get(where)
            if place and os.path.isdir(place.folder):
                failed, moved = restore_protected_files(place.folder, wanted, self._copies.read)
                trouble |= {
                    place.prefix + decode_path(path): self._describe_failure(name, wanted, path, failed)
                    for path in failed
                }
                notes += moved
        self._save_baseline(result.plan, result.lost_work_reported)
        touched = tuple(replace(one, trouble=trouble.get(one.path, "")) for one in result.report.touched)
        report = replace(result.report, touched=touched, remarks=(*result.report.remarks, *notes))
        self._copies.save_result(name, replace(result, report=report, restored=True))
        return report


def _describe_switch(before: str, now: str) -> str:
    names = [f"branch {name}" if name else "no branch" for name in (before, now)]
    back = f"; back: git switch {shlex.quote(before)}" if before else ""
    return f"the agent switched from {names[0]} to {names[1]}: the run goes on there, and commits land there{back}"


def _is_other_content(seen: FileState | None, digest: str, linked: bool) -> bool:
    """Whether a file was read with another content than in the baseline. Not known where a link leads to it."""
    if seen is None:
        return bool(digest) and not linked
    return seen[0] not in (MODE_LINK, NO_ACCESS) and seen[1] != digest
