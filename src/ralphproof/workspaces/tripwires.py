"""Tripwires: what no agent may change, watched by content from before a turn until after it, and put back."""

from __future__ import annotations

import os

from ralphproof.errors import Refused, WorkspaceGone, from_system
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspace import Sprung
from ralphproof.workspaces.attempt import Attempt
from ralphproof.workspaces.branches import is_ref_file
from ralphproof.workspaces.contents import put_whole
from ralphproof.workspaces.history import PROJECT
from ralphproof.workspaces.mending import mend
from ralphproof.workspaces.protected import bad_pattern
from ralphproof.workspaces.repository import CONFIGS, Repository, places_of
from ralphproof.workspaces.trees import LINK, decode
from ralphproof.workspaces.vault import Answer, Armed, Besides, Vault
from ralphproof.workspaces.watched import LARGE, NO_ACCESS, Place, differing
from ralphproof.workspaces.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.workspaces.git import Git
    from ralphproof.workspaces.own import Own
    from ralphproof.workspaces.vault import Plan
    from ralphproof.workspaces.watched import Seen, Sight

UNARMED = "what is watched could not be compared with what it was: the record of that is gone"


class Wires:
    """The tripwires of one run in one project.

    `stops` are protected paths, `own` what is put back without an end to the run. `vault` is a private folder of this
    run, outside the project. Attempts are written to `kept(name)` + ".patch"; answers call that `shown(name)`.
    Without `git` neither branches nor the repository's settings are watched. `backup` is the folder for copies of the
    repository, shared by its runs; none are made without it.
    """

    def __init__(
        self, root: str, vault: str, run: str, stops: tuple[str, ...], own: tuple[Own, ...], git: Git | None,
        kept: Callable[[str], str], shown: Callable[[str], str] | None = None, backup: str = "",
    ) -> None:  # fmt: skip
        for path in stops:
            if problem := bad_pattern(path):
                raise Refused(f"protectedPaths: {path!r} {problem}")
        self._root, self._kept, self._shown = os.path.realpath(root), kept, shown or kept
        self._vault = Vault(vault)
        self._armed: Armed | None = None
        self._unkept: set[str] = set()  # what is too much to keep a copy of
        inside = tuple(one for one in own if one.path.startswith(".git/"))
        wires = tuple(Wire(path, f"protectedPaths: {path}", True) for path in stops)
        wires += tuple(Wire(one.path, one.rule) for one in own if one not in inside)
        git_places = places_of(self._root, inside, git, self._vault)
        self._places = {PROJECT: Place(self._root, wires, self._vault.contents.take)} | git_places
        self._repository = Repository(git, run, self._vault, git_places, backup) if git else None
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
        before, place = armed.sights.get(PROJECT, {}), self._places[PROJECT]
        found = {decode(path) for path in differing(before, place.look(before)) if not self._is_later(place, path)}
        for path, digest in read.items():
            seen = before.get(os.fsencode(path))
            linked = os.path.islink(os.path.join(self._root, os.path.dirname(path)))
            if _other(seen, digest, linked) and not self._is_later(place, os.fsencode(path)):
                found.add(path)
        return tuple(sorted(path for path in found if path.startswith(below)))

    def _is_later(self, place: Place, path: bytes) -> bool:
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
            raise from_system(error) from error
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

    def sprung(self, name: str) -> Sprung:
        """What changed since. It is put back, and the attempt kept as a patch of this name."""
        if not os.path.isdir(self._root):
            raise WorkspaceGone(f"{self._root} is gone")
        try:
            answer = self._vault.answer(name) or self._judged(name)
            return answer.sprung if answer.done else self._finished(name, answer)
        except OSError as error:
            raise from_system(error) from error

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
            raise from_system(error) from error

    def _finish(self) -> None:
        for name in self._vault.unfinished():
            self.sprung(name)

    def _load(self) -> Armed | None:
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
        besides, laid = self._armed.besides if self._armed else Besides(), self._places.items()
        if self._repository:
            besides = self._repository.remember(replace(besides, work={}) if told else besides, sights)
        roots, wires = ({name: one.roots for name, one in laid}, {name: one.wires for name, one in laid})
        armed = Armed(sights, roots, besides, wires)
        if armed != self._armed:
            self._vault.save(armed, plan)
            self._armed = armed

    def _look(self, armed: Armed | None) -> dict[str, Sight]:
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
            if not self._vault.contents.holds(seen[1]) and seen[0] != NO_ACCESS and not seen[1].startswith(LARGE)
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

    def _judged(self, name: str) -> Answer:
        """Compare everything with what it was. Unless there is nothing to tell, what was found is durable then."""
        armed = self._load()
        if armed is None:
            self._arm({})
            return Answer(Sprung(remarks=(UNARMED,)), {}, done=True)
        sights, attempt = self._look(armed), Attempt(self._vault.contents.read, self._places[PROJECT])
        for where, place in self._places.items():
            if os.path.isdir(place.folder):
                self._compare(where, armed, sights[where], attempt)
        self._over_ns = 0  # of this turn alone
        remarks, told = self._repository.judge(armed, sights, attempt) if self._repository else ([], False)
        for where, place in self._places.items():
            attempt.clear_the_way(where, place)
        kept = f"{self._shown(name)}.patch" if attempt.patch else ""
        switched = self._repository.switched(armed, sights) if self._repository else ()
        remarks = [*remarks, *([_switch_told(*switched)] if switched else [])]
        answer = Answer(Sprung(attempt.listed, kept, tuple(remarks), switched), attempt.plan, told)
        if answer.sprung == Sprung():
            if self._spared:  # it is not asked about again
                self._arm({})
            return replace(answer, done=True)
        if attempt.patch:
            put_whole(f"{self._kept(name)}.patch", attempt.patch)
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
        put_whole(self._kept(name) + ending, content)
        return f"{failed[path]}; what it was is kept in {self._shown(name)}{ending}"

    def _compare(self, where: str, armed: Armed, now: Sight, attempt: Attempt) -> None:
        before, place = armed.sights.get(where, {}), self._places[where]
        for path in differing(before, now):
            if where != PROJECT and (path in CONFIGS or is_ref_file(path)):
                continue
            if self._is_later(place, path):
                self._spared = True
            else:
                attempt.add(where, place, path, before.get(path), now.get(path))

    def _finished(self, name: str, answer: Answer) -> Sprung:
        """Put back what was found; then what is watched is what is there now."""
        self._load()
        trouble: dict[str, str] = {}
        notes: list[str] = []
        for where, wanted in answer.plan.items():
            place = self._places.get(where)
            if place and os.path.isdir(place.folder):
                failed, moved = mend(place.folder, wanted, self._vault.contents.read)
                trouble |= {
                    place.prefix + decode(path): self._kept_beside(name, wanted, path, failed) for path in failed
                }
                notes += moved
        self._arm(answer.plan, answer.told)
        touched = tuple(replace(one, trouble=trouble.get(one.path, "")) for one in answer.sprung.touched)
        sprung = replace(answer.sprung, touched=touched, remarks=(*answer.sprung.remarks, *notes))
        self._vault.keep(name, replace(answer, sprung=sprung, done=True))
        return sprung


def _switch_told(before: str, now: str) -> str:
    import shlex

    names = [f"branch {name}" if name else "no branch" for name in (before, now)]
    back = f"; back: git switch {shlex.quote(before)}" if before else ""
    return f"the agent switched from {names[0]} to {names[1]}: the run goes on there, and commits land there{back}"


def _other(seen: Seen | None, digest: str, linked: bool) -> bool:
    """Whether a file was read that is not the one that was seen. Where links lead to it, this cannot be told."""
    if seen is None:
        return bool(digest) and not linked
    return seen[0] not in (LINK, NO_ACCESS) and seen[1] != digest
