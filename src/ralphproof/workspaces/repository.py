"""The tripwires inside `.git`: settings that execute something, branches, and the user's uncommitted work."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspaces.backup import Backup, NoCopy, damage_to, lost_from
from ralphproof.workspaces.branches import REF_FILES, is_ref_file
from ralphproof.workspaces.commits import TooMany
from ralphproof.workspaces.executing import UNREADABLE, Configuration
from ralphproof.workspaces.history import COMMON, HistoryWires
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.layout import blocking_in, git_folders
from ralphproof.workspaces.lost import START, Uncommitted
from ralphproof.workspaces.objects import ObjectMissing
from ralphproof.workspaces.refs import ref_name
from ralphproof.workspaces.trees import LINK
from ralphproof.workspaces.vault import Besides
from ralphproof.workspaces.watched import Place, differing
from ralphproof.workspaces.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspaces.attempt import Attempt
    from ralphproof.workspaces.backup import Ask, Kept
    from ralphproof.workspaces.git import Git
    from ralphproof.workspaces.history import Sights
    from ralphproof.workspaces.own import Own
    from ralphproof.workspaces.vault import Armed, Vault
    from ralphproof.workspaces.watched import Seen, Sight

WORKTREE = "worktree"
CONFIGS = (b"config", b"config.worktree")
COMMONDIR = "commondir"
REPLACED = "git reads its settings from it"
GONE = "the repository is gone: .git was deleted, with the history and all that was saved there"
BLOCKED = "FIFOs or devices stood in .git, which git would have waited for; they were removed: {}"
LOST = "no copy of it was kept; look for it where you pushed to"


def places_of(root: str, own: tuple[Own, ...], git: Git | None, vault: Vault) -> dict[str, Place]:
    """Where wires lie in a project's repository: hooks alone where git is not there to ask about the rest."""
    folders = git.commits.folders if git else git_folders(root)
    if folders is None:
        return {}
    hooks = tuple(Wire(one.path.removeprefix(".git/"), one.rule) for one in own)
    shared, single = _wires("config", *REF_FILES[1:]), _wires("config.worktree", REF_FILES[0])
    laid = {COMMON: (folders.common, hooks)}
    if git and folders.git_dir == folders.common:
        laid[COMMON] = (folders.common, (*hooks, *shared, *single))
    elif git:
        laid = {COMMON: (folders.common, (*hooks, *shared)), WORKTREE: (folders.git_dir, (*single, *_wires(COMMONDIR)))}
    return {
        name: Place(os.path.realpath(folder), wires, vault.contents.take, ".git/", _is_no_use)
        for name, (folder, wires) in laid.items()
    }


def _wires(*paths: str) -> tuple[Wire, ...]:
    return tuple(Wire(path, REPLACED) for path in paths)


def _is_no_use(path: bytes) -> bool:
    """An example of a hook, which git does not run; or a lock, which comes and goes."""
    return path.endswith((b".sample", b".lock"))


class Repository:
    """Judges what became of the files in these places, in which git keeps settings and refs."""

    def __init__(self, git: Git, run: str, vault: Vault, places: dict[str, Place], backup: str) -> None:
        """`backup` is the folder for copies of the repository; empty where none is wanted."""
        self._vault, self._places, self._folders = vault, places, git.commits.folders
        self._run, self._root, self._commits, self._git = run, git.root, git.commits, git
        common = self._folders.common
        home = os.path.dirname(common) if os.path.basename(common) == ".git" else git.root
        self._backup = Backup(backup, home, self._folders) if backup else None
        self._copied: Sight | None = None  # the ref files that were there when the repository was last copied
        self._to_say: list[str] = []
        self._said = False  # that the copy is kept
        self._history = HistoryWires(git.commits, run, vault, places)
        self._uncommitted = Uncommitted(git.commits, git.root, run)
        self._configuration = Configuration(git.commits.ask, vault.scratch)

    def complete(self, sights: Sights) -> None:
        """Add what is not told by files."""
        self._history.complete(sights)

    def remember(self, known: Besides, sights: Sights) -> Besides:
        """What else must be known after the turn. At the run's first time the tips of all branches are kept."""
        if self._history.gone:
            return replace(known, gone=True)
        work = known.work
        try:
            if work is None:
                self._history.tie(sights)
                work = self._uncommitted.at_start()
                self._copy(sights, first=True)
            else:
                work = self._uncommitted.still(work) if work else work
                self._copy(sights, first=False)
        except (GitFailed, ObjectMissing):
            work = known.work  # it is tried again before the next turn
        return Besides(False, self._history.elsewhere(), work)

    def judge(self, armed: Armed, sights: Sights, attempt: Attempt) -> tuple[list[str], bool]:
        """Add to the attempt what was changed here; return what else to tell, and whether that is of swept work."""
        odd = [BLOCKED.format(", ".join(taken))] if (taken := self._git.unblocked()) else []
        if self._history.gone or armed.besides.gone:
            return [*odd, *([] if armed.besides.gone else [f"{GONE}; {self.kept() or LOST}"])], False
        moved = False
        for name in self._places:
            before, now = armed.sights.get(name, {}), sights[name]
            for path in differing(before, now):
                if path in CONFIGS:
                    self._settings(attempt, name, path, before.get(path), now.get(path))
                moved = moved or is_ref_file(path)
        remarks = odd
        try:
            self._history.staged(armed, sights, attempt)
            if moved:
                remarks += self._history.judge(armed, sights, attempt)
        except TooMany:  # whoever wants to hide a commit could make so many
            raise
        except (GitFailed, ObjectMissing) as error:
            remarks.append(f"the history could not be compared with what it was: {error}")
        swept = self._uncommitted.swept(armed.besides.work or {})
        return [*remarks, *([self._uncommitted.remark(swept)] if swept else [])], bool(swept)

    def switched(self, armed: Armed, sights: Sights) -> tuple[str, ...]:
        """The branch that was checked out, and the one that is now, where they differ."""
        return () if self._history.gone or armed.besides.gone else self._history.switched(armed, sights)

    def _copy(self, sights: Sights, first: bool) -> None:
        """Copy the repository at the start of the run, and again before a turn when refs have moved."""
        refs = {path: seen for path, seen in sights.get(COMMON, {}).items() if is_ref_file(path)}
        if self._backup is None or refs == self._copied:
            return
        if first:
            self._to_say += self._lost_before(self._backup)
        try:
            if told := self._backup.take(self._run, self._commits.refs):
                self._to_say.append(told)
        except NoCopy as error:
            if first:
                self._to_say.append(f"no copy of .git is kept, so one that an agent deletes is gone: {error}")
        self._copied = refs

    def _lost_before(self, backup: Backup) -> list[str]:
        """That the repository is not whole when the run begins: nobody has put back what was lost in an earlier run."""
        for kept in backup.others(self._run):
            if lost := lost_from(kept, self._commits.ask, self._commits.all_refs):
                return [f"the repository is not whole since run {kept.run}: {lost}; put it back: {self._command(kept)}"]
        return []

    def to_say(self) -> tuple[str, ...]:
        """What there is to say of copies, once."""
        told, self._to_say = tuple(self._to_say), []
        return told

    def kept(self) -> str:
        """Where the history that the run began on is, looked up now, and how to have it; empty where it is nowhere."""
        kept = self._backup.start(self._run) if self._backup else None
        planted = kept and not kept.linked and os.path.islink(os.path.join(self._root, ".git"))
        folders = None if planted else git_folders(self._root)
        if folders is not None and not any(blocking_in(folders.common)) and self._start_is_there():
            return f"it is kept, with the files of the start: git log refs/ralph/{self._run}/{START}"
        if kept is None:
            return ""
        self._said = True
        if os.path.isdir(kept.root):
            return f"put the repository back as it was: {self._command(kept)}"
        import shlex

        return f"its history can be put back: mkdir {shlex.quote(kept.root)} && {self._command(kept)}"

    def _command(self, kept: Kept) -> str:
        """What puts it back. The repository of a linked worktree is elsewhere."""
        import shlex

        there = os.path.realpath(kept.root) == os.path.realpath(self._root) and os.path.isdir(kept.root)
        return f"ralph restore {kept.run}" + ("" if there else f" -d {shlex.quote(kept.root)}")

    def _start_is_there(self) -> bool:
        self._commits.forget()
        try:
            saved = self._commits.named(self._run, START)
            if saved is None or not all(map(self._commits.has, self._commits.header(saved, b"parent "))):
                return False
            named = f"{saved} {ref_name(self._run, START)}".encode()
            return named in self._commits.all_refs().splitlines()  # else git itself cannot read the repository
        except (OSError, GitFailed, ObjectMissing):
            return False

    def damage(self) -> str:
        """Why no work counts on the repository as it now is; empty also where no copy can tell."""
        return self._found(damage_to)

    def parting(self) -> tuple[str, ...]:
        """What the repository lacks at the end of the run of what it had at its start, if it was not said before."""
        return () if self._said or not (lost := self._found(lost_from)) else (lost,)

    def discard(self) -> None:
        """Drop the copy if the repository provably has all that it had when the run began."""
        if self._backup and not self._found(lost_from):
            self._backup.drop(self._run)

    def _found(self, look: Callable[[Kept, Ask, Callable[[], bytes]], str]) -> str:
        if self._backup is None or (kept := self._backup.start(self._run)) is None:
            return ""
        self._commits.forget()
        lost = look(kept, self._commits.ask, self._commits.all_refs)
        if not lost:
            return ""
        self._said = True
        return f"{lost}; a copy of .git as it was is kept: {self._command(kept)}"

    def _settings(self, attempt: Attempt, name: str, path: bytes, old: Seen | None, new: Seen | None) -> None:
        """Put back the settings that execute something, or the whole file where git would read another."""
        place = self._places[name]
        if new is None or (new[0] == LINK and (old is None or old[0] != LINK)):
            attempt.add(name, place, path, old, new)
            return
        try:
            before, now = self._vault.contents.read(old[1]) if old else b"", place.content(path, new)
        except OSError:
            attempt.add(name, place, path, old, new)
            return
        mended = self._configuration.mend(before, now)
        for rule in mended.rules:
            attempt.tell(place, path, Wire("", rule))
        if mended.rules:
            wanted = (new[0], self._vault.contents.hold(mended.content), new[2])
            attempt.undo(name, place, path, old, new, None if old is None and UNREADABLE in mended.rules else wanted)
