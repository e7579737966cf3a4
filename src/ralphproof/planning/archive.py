"""Archives of stories as whole operations: make one, undo one, finish one that was cut off."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.planning import archive_files
from ralphproof.planning.archive_draft import drafted
from ralphproof.planning.archive_files import AWAY, BACK, MOVED, UNWIND, Transit, digest, look
from ralphproof.planning.archive_record import archive_named, every_archive, record_of, safe_label
from ralphproof.planning.archive_summary import account_of, concerns_of
from ralphproof.stories import story_folder
from ralphproof.stories.story_folder import ARCHIVE_SUMMARY, ARCHIVES, TASKS, stories_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspace.path_commit import PathCommit

ARCHIVED, FINISHED, UNDONE = "archived", "finished", "undone"
AS_BEFORE = "everything is where it was"


@value
class Filed:
    """What became of stories."""

    action: str
    name: str
    folder: str
    commit: str | None
    completed: int
    total: int
    label: str
    concerns: tuple[str, ...]


class Archivist:
    """Works in one project, which nobody else may change meanwhile. `remarks` tells what else there is to know."""

    def __init__(self, root: str, environ: Mapping[str, str], commits: bool) -> None:
        self._root, self._environ = root, environ
        self.remarks: list[str] = []
        self._git = self._repository() if commits else None

    def _repository(self) -> PathCommit | None:
        from ralphproof.base.git_layout import enclosing_repository, git_folders
        from ralphproof.base.run_program import find_program
        from ralphproof.workspace.path_commit import PathCommit

        if git_folders(self._root) is None:
            if around := enclosing_repository(self._root):
                self.remarks.append(f"nothing was committed: the project is a folder of the repository at {around}")
            return None
        if find_program("git", self._environ.get("PATH", os.defpath), outside=self._root) is None:
            self.remarks.append("nothing was committed: git is not on PATH")
            return None
        return PathCommit(self._root, self._environ)

    # Away

    def archive(self, folder: str, label: str | None) -> Filed:
        """Put the stories in this folder away."""
        draft = drafted(self._root, folder, label, self._environ, self._git is not None)
        self._must_be_free()
        try:
            archive_files.begin(self._root, draft.name, draft.transit, draft.page)
        except BaseException:
            archive_files.sweep(self._root)
            raise
        return self._put_away(draft.name, draft.transit, ARCHIVED)

    def _put_away(self, name: str, transit: Transit, action: str) -> Filed:
        place = os.path.join(ARCHIVES, name)
        self._commits_nothing_yet()
        try:
            archive_files.put_away(self._root, name, transit)
            paths = [os.path.join(place, file) for file in (ARCHIVE_SUMMARY, *transit.files)]
            paths += self._saying(transit.folder, _digests(transit))
            commit = self._commit(paths, [], "archive ralph stories", transit)
        except BaseException as error:
            left = self._committed or action == FINISHED
            asides = [] if left else self._unwind(name, transit)
            if isinstance(error, Refused):
                raise Refused(f"{error}; {_stands(place, transit, asides, left)}") from error
            raise
        archive_files.unmark(self._root, name)
        return self._filed(action, name, transit, commit, place)

    def _unwind(self, name: str, transit: Transit) -> list[tuple[str, str]]:
        """Bring back what was moved a moment ago. Where this is cut off too, the mark says what is left to do."""
        unwinding, known = replace(transit, way=UNWIND, commits=False), _digests(transit)
        try:
            archive_files.mark(self._root, name, unwinding)
        except OSError:
            pass  # the disk is full; the way back needs no room on it
        asides: list[tuple[str, str]] = []
        archive_files.bring_back(self._root, name, unwinding, lambda _, data: digest(data) in known, asides)
        archive_files.drop(self._root, name)
        return asides

    # Back

    def undo(self, wanted: str, given: str | None, force: bool) -> Filed:
        """Bring an archive back into the folder that it came from, or into another."""
        found = archive_named(self._root, wanted)
        folder = stories_folder(self._root, given or found.folder or None)
        present = {file: data for file in MOVED if (data := look(self._root, folder, file)) is not None}
        fresh = {file: data for file, data in present.items() if self._pristine(found.name, file, data)}
        if (changed := [os.path.join(folder, file) for file in present if file not in fresh]) and not force:
            raise Refused(
                f"{', '.join(changed)} changed since {found.name} was archived; archive that first, or say --force: "
                "it is set aside then"
            )
        self._must_be_free()
        away = os.path.join(ARCHIVES, found.name)
        files = tuple(file for file in MOVED if look(self._root, away, file) is not None)
        said = tuple(digest(look(self._root, away, file) or b"") for file in files)
        transit = Transit(BACK, folder, files, fresh, self._git is not None, found.label, said)
        archive_files.mark(self._root, found.name, transit)
        return self._bring_back(found.name, transit)

    def _pristine(self, name: str, file: str, data: bytes) -> bool:
        """Whether a file is as an archive left it: nothing is lost with it."""
        known = {one for archived in every_archive(self._root) for one in archived.fresh}
        foreign = not record_of(self._root, name).folder
        return digest(data) in known or (foreign and story_folder.is_unedited_template(file, data))

    def _bring_back(self, name: str, transit: Transit, again: bool = False) -> Filed:
        place, asides, known = os.path.join(ARCHIVES, name), list[tuple[str, str]](), _digests(transit)
        ours = record_of(self._root, name).page_is_ours

        def pristine(file: str, data: bytes) -> bool:
            return digest(data) in known or self._pristine(name, file, data)

        self._commits_nothing_yet()
        try:
            archive_files.bring_back(self._root, name, transit, pristine, asides)
            gone = [os.path.join(place, file) for file in (*MOVED, *([ARCHIVE_SUMMARY] if ours else []))]
            gone += [os.path.join(transit.folder, file) for file in MOVED if not self._here(transit.folder, file)]
            commit = self._commit(
                self._saying(transit.folder, {*transit.said}), gone, "bring back ralph stories", transit
            )
        except BaseException as error:
            left = self._committed or again
            if not left:
                self._put_away_again(name, transit, asides)
            if isinstance(error, Refused):
                raise Refused(f"{error}; {_stands(place, transit, asides if left else [], left)}") from error
            raise
        self._tell_asides(transit.folder, asides)
        if not archive_files.drop(self._root, name, keep_summary=not ours):
            self.remarks.append(f"{place} stays: there is more in it than was archived")
        return self._filed(UNDONE, name, transit, commit, transit.folder)

    def _put_away_again(self, name: str, transit: Transit, asides: list[tuple[str, str]]) -> None:
        archive_files.put_away(self._root, name, replace(transit, fresh={}))
        archive_files.from_aside(self._root, transit, asides)
        archive_files.put_away(self._root, name, transit)
        archive_files.unmark(self._root, name)

    def _tell_asides(self, folder: str, asides: list[tuple[str, str]]) -> None:
        self.remarks += _asides_told(folder, asides)

    # What was cut off

    def end_unfinished(self) -> list[Filed]:
        """End what was cut off: where a part was moved, or nothing, it is as before; all else is finished.

        What somebody wrote since is no part of it, and is not committed.
        """
        archive_files.sweep(self._root)
        filed: list[Filed] = []
        for name, transit in archive_files.unfinished(self._root):
            moved = [file for file in transit.files if look(self._root, os.path.join(ARCHIVES, name), file) is not None]
            home = [file for file in moved if look(self._root, transit.folder, file) is not None]
            if transit.way == UNWIND or (transit.way == AWAY and len(moved) < len(transit.files) and not home):
                asides = self._unwind(name, transit)
                self.remarks.append(f"an archive that was cut off was undone: {name}")
                self._tell_asides(transit.folder, asides)
            elif transit.way == AWAY:
                filed.append(self._put_away(name, transit, FINISHED))
            elif len(moved) < len(transit.files):
                filed.append(self._bring_back(name, transit, again=True))
            else:
                archive_files.unmark(self._root, name)  # a return that had moved nothing
        return filed

    def _must_be_free(self) -> None:
        if self._git is not None:
            self._git.refuse_unfinished()

    @property
    def _committed(self) -> bool:
        """Whether there is a commit already, however the rest went: then the next call ends what is left to do."""
        return self._git is not None and bool(self._git.commit_id)

    def _commits_nothing_yet(self) -> None:
        if self._git is not None:
            self._git.commit_id = ""

    def _here(self, folder: str, file: str) -> bool:
        return os.path.lexists(os.path.join(self._root, folder, file))

    def _saying(self, folder: str, known: set[str]) -> list[str]:
        """The files of stories that say what is known: anything else in their place is somebody's new work."""
        found = ((file, look(self._root, folder, file)) for file in MOVED)
        return [os.path.join(folder, file) for file, data in found if data is not None and digest(data) in known]

    def _commit(self, add: list[str], remove: list[str], what: str, transit: Transit) -> str | None:
        if self._git is None or not transit.commits:
            return None
        here = [path for path in add if os.path.lexists(os.path.join(self._root, path))]
        gone = [*remove, *(path for path in add if path not in here)]
        kept = self._git.commit(here, gone, f"chore: {what} ({safe_label(transit.label) or 'stories'})")
        if kept.error:
            self.remarks.append(kept.error)
        elif kept.commit is None:
            self.remarks.append("git has nothing to commit of this: it ignores these paths, or has them already")
        else:
            self._tell_commit(self._git, kept.commit, here)
        return kept.commit

    def _tell_commit(self, git: PathCommit, commit: str, paths: list[str]) -> None:
        """What whoever looks for the stories in git should know."""
        if lost := [path for path in git.list_ignored(paths) if path.startswith(f"{ARCHIVES}/")]:
            self.remarks.append(f"git ignores {os.path.dirname(lost[0])}: it is on this disk alone")
        if git.is_detached():
            self.remarks.append(f"no branch is checked out: only HEAD leads to the commit {commit[:12]}")

    def _filed(self, action: str, name: str, transit: Transit, commit: str | None, where: str) -> Filed:
        account = account_of(look(self._root, where, TASKS))
        told = tuple(concerns_of(account))
        return Filed(action, name, transit.folder, commit, account.done, len(account.stories), transit.label, told)


def _asides_told(folder: str, asides: list[tuple[str, str]]) -> list[str]:
    return [f"{os.path.join(folder, file)} was set aside as {name}" for file, name in asides]


def _stands(place: str, transit: Transit, asides: list[tuple[str, str]], left: bool) -> str:
    """Where the stories are after a failure."""
    told = _asides_told(transit.folder, asides)
    if left:
        told.append(f"{place} stays unfinished, and the next ralph archive ends it; without a commit: --no-commit")
    return "; ".join(told or [AS_BEFORE])


def _digests(transit: Transit) -> set[str]:
    return {digest(data) for data in transit.fresh.values()}
