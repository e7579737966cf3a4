"""Tripwires: changes of protected files found after a turn, kept as a patch and reverted."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused, WorkspaceGone, wrap_os_error
from ralphproof.base.path_patterns import explain_bad_pattern
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.workspace import TouchedPath, TripwireReport
from ralphproof.workspace.branches import is_ref_file
from ralphproof.workspace.file_patch import file_patch
from ralphproof.workspace.git_objects import MODE_LINK, decode_path
from ralphproof.workspace.history_tripwires import PROJECT_FOLDER
from ralphproof.workspace.protected_copies import (
    ProtectedCopies,
    RepositoryBaseline,
    TripwireBaseline,
    TripwireResult,
    write_private_file,
)
from ralphproof.workspace.protected_paths import (
    LARGE_PREFIX,
    NO_ACCESS,
    ProtectedMatcher,
    ProtectedPattern,
    WatchedFolder,
    differing_paths,
)
from ralphproof.workspace.repository_tripwires import CONFIG_FILES, RepositoryTripwires, repository_folders
from ralphproof.workspace.restore_files import find_obstacles, restore_protected_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.workspace.git_workspace import GitWorkspace
    from ralphproof.workspace.protected_copies import Plan
    from ralphproof.workspace.protected_paths import ReservedPath, Seen, Sight


# What a turn did to watched files: the list of it, the patch that keeps it, and the plan that undoes it.


class ProtectedChanges:
    """Collects what was touched, place by place. `read` gives the content that a digest had before the turn."""

    def __init__(self, read: Callable[[str], bytes], project: WatchedFolder) -> None:
        self._read, self._project, self.guard = read, project, ProtectedMatcher(project)
        self._touched: list[TouchedPath] = []
        self.plan: Plan = {}
        self.patch = b""

    def add(self, name: str, place: WatchedFolder, path: bytes, old: Seen | None, new: Seen | None) -> None:
        """A file is not as it was: it must become that again."""
        self.tell(place, path, place.wire_of(path))
        self.undo(name, place, path, old, new, old)

    def tell(self, place: WatchedFolder, path: bytes, wire: ProtectedPattern) -> None:
        """A path was touched, against the rule of this wire."""
        self._touched.append(TouchedPath(place.prefix + decode_path(path), wire.rule, wire.stops))

    def held(self, path: str, by: str, way_out: str) -> None:
        """A commit holds a change of a protected path, whatever the file is now; how to take it out of there."""
        named = path.encode("utf-8", "surrogateescape")
        here = next((place for place, one in enumerate(self._touched) if one.path == path and one.stops), None)
        if here is None:
            self.tell(self._project, named, self._project.wire_of(named))
            here = -1
        known = self._touched[here]
        if way_out in known.way_out.split("; "):
            way_out = ""
        held_by, ways = (known.held_by, by), (known.way_out, way_out)
        self._touched[here] = replace(known, held_by=_join_path(held_by), way_out=_join_path(ways))

    @property
    def stopping(self) -> list[str]:
        """The protected paths that were touched."""
        return [one.path for one in self._touched if one.stops]

    @property
    def listed(self) -> tuple[TouchedPath, ...]:
        """What was touched, protected paths first."""
        return tuple(sorted(self._touched, key=lambda one: (not one.stops, one.path)))

    def undo(
        self, name: str, place: WatchedFolder, path: bytes, old: Seen | None, new: Seen | None, wanted: Seen | None
    ) -> None:
        """Keep the difference, and plan what the path must become."""
        self.patch += self._piece(place, path, old, new)
        self.plan.setdefault(name, {})[path] = wanted

    def clear_the_way(self, name: str, place: WatchedFolder) -> None:
        """Plan the removal of files and links that stand where folders must be again."""
        planned = self.plan.get(name, {})
        needed = sorted(path for path, wanted in planned.items() if wanted is not None)
        for path in sorted(find_obstacles(place.folder, needed) - planned.keys()):
            below = next(one for one in needed if one.startswith(path + b"/"))
            self.tell(place, path, place.wire_of(below))
            self.undo(name, place, path, None, place.at(path), None)

    def _piece(self, place: WatchedFolder, path: bytes, old: Seen | None, new: Seen | None) -> bytes:
        shown = place.prefix.encode() + path
        contents: dict[str, bytes] = {}
        try:
            if old is not None and old[0] != NO_ACCESS:
                contents[old[1]] = self._read(old[1])
            if new is not None and new[0] != NO_ACCESS:
                contents[new[1]] = place.content(path, new)
            return _change_patch(shown, old and old[:2], new and new[:2], contents)
        except (OSError, KeyError):  # it cannot be read, or is too large: named all the same
            return b"diff --git a/%s b/%s\nBinary files a/%s and b/%s differ\n" % ((shown,) * 4)


def _join_path(parts: tuple[str, str]) -> str:
    return "; ".join(filter(None, parts))


def _change_patch(
    path: bytes, old: tuple[bytes, str] | None, new: tuple[bytes, str] | None, contents: dict[str, bytes]
) -> bytes:
    """A link that became a file, or the reverse, is shown as git does: one went, another came."""
    if old and new and (old[0] == MODE_LINK) != (new[0] == MODE_LINK):
        return file_patch(path, old, None, contents.__getitem__) + file_patch(path, None, new, contents.__getitem__)
    return file_patch(path, old, new, contents.__getitem__)


# Tripwires: what no agent may change, watched by content from before a turn until after it, and put back.


BASELINE_GONE = "what is watched could not be compared with what it was: the record of that is gone"


class FileTripwires:
    """The tripwires of one run in one project.

    `stops` are protected paths, `own` what is put back without an end to the run. `vault` is a private folder of this
    run, outside the project. Attempts are written to `kept(name)` + ".patch"; answers call that `shown(name)`.
    Without `git` neither branches nor the repository's settings are watched. `backup` is the folder for copies of the
    repository, shared by its runs; none are made without it.
    """

    def __init__(
        self, root: str, vault: str, run: str, stops: tuple[str, ...], own: tuple[ReservedPath, ...], git: GitWorkspace | None,
        kept: Callable[[str], str], shown: Callable[[str], str] | None = None, backup: str = "",
    ) -> None:  # fmt: skip
        for path in stops:
            if problem := explain_bad_pattern(path):
                raise Refused(f"protectedPaths: {path!r} {problem}")
        self._root, self._kept, self._shown = os.path.realpath(root), kept, shown or kept
        self._vault = ProtectedCopies(vault)
        self._armed: TripwireBaseline | None = None
        self._unkept: set[str] = set()  # what is too much to keep a copy of
        inside = tuple(one for one in own if one.path.startswith(".git/"))
        wires = tuple(ProtectedPattern(path, f"protectedPaths: {path}", True) for path in stops)
        wires += tuple(ProtectedPattern(one.path, one.rule) for one in own if one not in inside)
        git_places = repository_folders(self._root, inside, git, self._vault)
        self._places = {PROJECT_FOLDER: WatchedFolder(self._root, wires, self._vault.contents.take)} | git_places
        self._repository = RepositoryTripwires(git, run, self._vault, git_places, backup) if git else None
        self._laid = {name: place.wires for name, place in self._places.items()}
        self._over_ns, self._spared = 0, False

    def spare(self, instant_ns: int) -> None:
        """The turn that is judged next was over at this instant: files that were touched later are not its doing."""
        self._over_ns = instant_ns

    def changed(self, name: str, below: tuple[str, ...], read: Mapping[str, str]) -> tuple[str, ...]:
        """The watched files with these beginnings that a turn changed, as long as they are not put back under its name.

        `read` holds digests of such files as somebody read them: they may have been others at that time alone.
        """
        answer = self._vault.answer(name)
        armed = None if answer and answer.done else self._load()
        if armed is None:
            return ()
        before, place = armed.sights.get(PROJECT_FOLDER, {}), self._places[PROJECT_FOLDER]
        found = {
            decode_path(path) for path in differing_paths(before, place.look(before)) if not self._is_later(place, path)
        }
        for path, digest in read.items():
            seen = before.get(os.fsencode(path))
            linked = os.path.islink(os.path.join(self._root, os.path.dirname(path)))
            if _is_other_content(seen, digest, linked) and not self._is_later(place, os.fsencode(path)):
                found.add(path)
        return tuple(sorted(path for path in found if path.startswith(below)))

    def _is_later(self, place: WatchedFolder, path: bytes) -> bool:
        return bool(self._over_ns) and place.later(path, self._over_ns)

    def arm(self) -> tuple[str, ...]:
        """An iteration begins: remember what is watched as it now is, durably. What was left unfinished is finished."""
        try:
            if self._armed is None:
                self._finish()
            self._load()
            for name, wires in self._laid.items():
                if self._places[name].wires is not wires:  # those of a turn that was taken up
                    self._places[name].lay(wires)
            self._arm({})
        except OSError as error:
            raise wrap_os_error(error) from error
        return self._repository.to_say() if self._repository else ()

    def kept(self) -> str:
        """Where the history that the run began on is, looked up now."""
        return self._repository.kept() if self._repository else ""

    def damage(self) -> str:
        """Why no work counts on the repository as it now is."""
        return self._repository.damage() if self._repository else ""

    def parting(self) -> tuple[str, ...]:
        """What there is to say of the repository at the end of the run."""
        return self._repository.parting() if self._repository else ()

    def sprung(self, name: str) -> TripwireReport:
        """What changed since. It is put back, and the attempt kept as a patch of this name."""
        if not os.path.isdir(self._root):
            raise WorkspaceGone(f"{self._root} is gone")
        try:
            answer = self._vault.answer(name) or self._judged(name)
            return answer.sprung if answer.done else self._finished(name, answer)
        except OSError as error:
            raise wrap_os_error(error) from error

    def discard(self) -> None:
        """The run is over: what was left unfinished is finished; then copies go, since they may hold secrets.

        The copy of the repository goes only where the repository provably has all that it had.
        """
        try:
            if os.path.isdir(self._root):
                self._finish()
            self._armed = None
            self._vault.clear()
            if self._repository:
                self._repository.discard()
        except OSError as error:
            raise wrap_os_error(error) from error

    def _finish(self) -> None:
        for name in self._vault.unfinished():
            self.sprung(name)

    def _load(self) -> TripwireBaseline | None:
        if self._armed is None and (armed := self._vault.load()):
            self._armed = armed
            for name, place in self._places.items():
                wires = armed.wires.get(name, place.wires)  # a turn is judged by the wires that it began with
                roots = armed.roots.get(name, ()) if wires else ()
                place.lay(wires, tuple((path, min(number, len(wires) - 1)) for path, number in roots))
        return self._armed

    def _arm(self, plan: Plan, told: bool = False) -> None:
        self._vault.contents.taking = True
        try:
            for place in self._places.values():
                place.arm()
            sights = self._look(None)
            if not self._armed or sights != self._armed.sights:
                self._hold(sights)
        finally:
            self._vault.contents.taking = False
        besides, laid = self._armed.besides if self._armed else RepositoryBaseline(), self._places.items()
        if self._repository:
            besides = self._repository.remember(replace(besides, work={}) if told else besides, sights)
        roots, wires = ({name: one.roots for name, one in laid}, {name: one.wires for name, one in laid})
        armed = TripwireBaseline(sights, roots, besides, wires)
        if armed != self._armed:
            self._vault.save(armed, plan)
            self._armed = armed

    def _look(self, armed: TripwireBaseline | None) -> dict[str, Sight]:
        known = armed.sights if armed else {}
        sights = {name: place.look(known.get(name)) for name, place in self._places.items()}
        if self._repository:
            self._repository.complete(sights)
        return sights

    def _hold(self, sights: dict[str, Sight]) -> None:
        """Keep copies of what was first seen after a turn, when nothing is kept."""
        missing = [
            (name, path, seen)
            for name, sight in sights.items()
            for path, seen in sight.items()
            if not self._vault.contents.holds(seen[1]) and seen[0] != NO_ACCESS and not seen[1].startswith(LARGE_PREFIX)
        ]
        for name, path, seen in missing:
            if seen[1] in self._unkept:
                continue
            try:
                content = self._places[name].content(path, seen)
            except OSError:
                continue  # it went away, or became something else
            if not self._vault.contents.holds(self._vault.contents.hold(content)):
                self._unkept.add(seen[1])

    def _judged(self, name: str) -> TripwireResult:
        """Compare everything with what it was. Unless there is nothing to tell, what was found is durable then."""
        armed = self._load()
        if armed is None:
            self._arm({})
            return TripwireResult(TripwireReport(remarks=(BASELINE_GONE,)), {}, done=True)
        sights, attempt = self._look(armed), ProtectedChanges(self._vault.contents.read, self._places[PROJECT_FOLDER])
        for where, place in self._places.items():
            if os.path.isdir(place.folder):
                self._compare(where, armed, sights[where], attempt)
        self._over_ns = 0  # of this turn alone
        remarks, told = self._repository.judge(armed, sights, attempt) if self._repository else ([], False)
        for where, place in self._places.items():
            attempt.clear_the_way(where, place)
        kept = f"{self._shown(name)}.patch" if attempt.patch else ""
        switched = self._repository.switched(armed, sights) if self._repository else ()
        remarks = [*remarks, *([_describe_switch(*switched)] if switched else [])]
        answer = TripwireResult(TripwireReport(attempt.listed, kept, tuple(remarks), switched), attempt.plan, told)
        if answer.sprung == TripwireReport():
            if self._spared:  # it is not asked about again
                self._arm({})
            return replace(answer, done=True)
        if attempt.patch:
            write_private_file(f"{self._kept(name)}.patch", attempt.patch)
        self._vault.save(armed, attempt.plan)
        self._vault.keep(name, answer)
        return answer

    def _kept_beside(
        self, name: str, wanted: Mapping[bytes, Seen | None], path: bytes, failed: dict[bytes, str]
    ) -> str:
        """Why a file could not be put back. What it was is written to where the patch is, if there is a copy."""
        seen = wanted[path]
        if seen is None or not self._vault.contents.holds(seen[1]):
            return failed[path]
        ending = f".{sorted(wanted).index(path)}.was"
        try:
            content = self._vault.contents.read(seen[1])
        except OSError:
            return failed[path]
        write_private_file(self._kept(name) + ending, content)
        return f"{failed[path]}; what it was is kept in {self._shown(name)}{ending}"

    def _compare(self, where: str, armed: TripwireBaseline, now: Sight, attempt: ProtectedChanges) -> None:
        before, place = armed.sights.get(where, {}), self._places[where]
        for path in differing_paths(before, now):
            if where != PROJECT_FOLDER and (path in CONFIG_FILES or is_ref_file(path)):
                continue
            if self._is_later(place, path):
                self._spared = True
            else:
                attempt.add(where, place, path, before.get(path), now.get(path))

    def _finished(self, name: str, answer: TripwireResult) -> TripwireReport:
        """Put back what was found; then what is watched is what is there now."""
        self._load()
        trouble: dict[str, str] = {}
        notes: list[str] = []
        for where, wanted in answer.plan.items():
            place = self._places.get(where)
            if place and os.path.isdir(place.folder):
                failed, moved = restore_protected_files(place.folder, wanted, self._vault.contents.read)
                trouble |= {
                    place.prefix + decode_path(path): self._kept_beside(name, wanted, path, failed) for path in failed
                }
                notes += moved
        self._arm(answer.plan, answer.told)
        touched = tuple(replace(one, trouble=trouble.get(one.path, "")) for one in answer.sprung.touched)
        sprung = replace(answer.sprung, touched=touched, remarks=(*answer.sprung.remarks, *notes))
        self._vault.keep(name, replace(answer, sprung=sprung, done=True))
        return sprung


def _describe_switch(before: str, now: str) -> str:
    import shlex

    names = [f"branch {name}" if name else "no branch" for name in (before, now)]
    back = f"; back: git switch {shlex.quote(before)}" if before else ""
    return f"the agent switched from {names[0]} to {names[1]}: the run goes on there, and commits land there{back}"


def _is_other_content(seen: Seen | None, digest: str, linked: bool) -> bool:
    """Whether a file was read that is not the one that was seen. Where links lead to it, this cannot be told."""
    if seen is None:
        return bool(digest) and not linked
    return seen[0] not in (MODE_LINK, NO_ACCESS) and seen[1] != digest
