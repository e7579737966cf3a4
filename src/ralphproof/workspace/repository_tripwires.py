"""Tripwires inside `.git`: settings that execute programs, hooks, and damage to the repository."""

from __future__ import annotations

import os

from ralphproof.base.git_layout import find_blocking_files, git_folders, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.workspace.backup import BackupFailed, RepositoryBackup, describe_damage, describe_loss
from ralphproof.workspace.branches import REF_FILES, is_ref_file
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import MODE_LINK, ObjectMissing, TooManyCommits, run_ref_name
from ralphproof.workspace.history_tripwires import COMMON_FOLDER, START_NAME, HistoryTripwires, UncommittedWork
from ralphproof.workspace.protected_copies import RepositoryBaseline
from ralphproof.workspace.protected_paths import ProtectedPattern, WatchedFolder, differing_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.run_program import ProgramResult
    from ralphproof.workspace.backup import BackupState
    from ralphproof.workspace.git_workspace import GitWorkspace
    from ralphproof.workspace.history_tripwires import Sights
    from ralphproof.workspace.protected_copies import ProtectedCopies, TripwireBaseline
    from ralphproof.workspace.protected_paths import ReservedPath, Seen, Sight
    from ralphproof.workspace.tripwires import ProtectedChanges

    Ask = Callable[..., ProgramResult]
    Listed = list[tuple[str, str | None]]


# Settings of git that execute a program, or lead git to other files. The rest is the agent's to change.


# As git 2.54 and git-lfs 3.7 know them. `*` stands for whatever is between the first and the last dot, or for nothing.
EXECUTING_KEYS = frozenset((
    "core.alternaterefscommand", "core.askpass", "core.editor", "core.fsmonitor", "core.gitproxy", "core.hookspath",
    "core.pager", "core.sshcommand", "credential.*.helper", "diff.*.command", "diff.*.textconv", "diff.external",
    "filter.*.clean", "filter.*.process", "filter.*.smudge", "merge.*.driver", "sequence.editor",
    "browser.*.cmd", "browser.*.path", "difftool.*.cmd", "difftool.*.path", "guitool.*.cmd", "man.*.cmd", "man.*.path",
    "mergetool.*.cmd", "mergetool.*.path", "help.browser", "instaweb.browser", "instaweb.httpd", "web.browser",
    "gpg.*.program", "gpg.*.defaultkeycommand", "hook.*.command", "interactive.difffilter", "tar.*.command",
    "trailer.*.cmd", "trailer.*.command", "gc.recentobjectshook", "uploadpack.packobjectshook", "imap.tunnel",
    "remote.*.receivepack", "remote.*.uploadpack", "remote.*.vcs", "protocol.allow", "protocol.ext.allow",
    "sendemail.*.cccmd", "sendemail.*.headercmd", "sendemail.*.sendmailcmd", "sendemail.*.smtpserver",
    "sendemail.*.tocmd", "lfs.customtransfer.*.path", "lfs.extension.*.clean", "lfs.extension.*.smudge",
    "include.path", "includeif.*.path", "init.templatedir",
))  # fmt: skip
REDIRECTING_KEYS = (
    "core.bare",
    "core.worktree",
)  # with these `git clean` and the like work in another folder, or nowhere
MAX_KEYS = 20  # put back one by one; past this the whole file is
CONFIG_UNREADABLE = "git can no longer read it"


def is_executing_setting(key: str, text: str | None) -> bool:
    """Whether git runs a program because of this setting, or takes such settings from another file."""
    section, _, rest = key.partition(".")
    inner, _, name = rest.rpartition(".")
    marked = (text or "").lstrip().startswith("!")  # what follows is given to a shell
    if section == "alias" or (section == "submodule" and name == "update"):
        return marked
    if section == "lfs":
        return f"lfs.{inner.partition('.')[0]}.*.{name}" in EXECUTING_KEYS
    return section == "pager" or key in EXECUTING_KEYS or f"{section}.*.{name}" in EXECUTING_KEYS


@value
class RevertedConfig:
    """A configuration whose executing settings are as they were: why that took a change, and its content then."""

    rules: tuple[str, ...]
    content: bytes


class ConfigReverter:
    """Compares and mends copies of a configuration in a private file; git never writes the repository's own."""

    def __init__(self, ask: Ask, scratch: str) -> None:
        self._ask, self._scratch = ask, scratch

    def mend(self, before: bytes, now: bytes) -> RevertedConfig:
        """The present content with what executes put back. One that git cannot read is put back as a whole."""
        was, present = self._listed(before), self._listed(now)
        if present is None:
            return RevertedConfig((CONFIG_UNREADABLE,), before) if was is not None else RevertedConfig((), now)
        was = was or []
        old, new = _executing_settings(was), _executing_settings(present)
        keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        if not keys:
            return RevertedConfig((), now)
        content = before if len(keys) > MAX_KEYS else self._without(keys, was, now)
        if _executing_settings(self._listed(content) or []) != old:
            content = before
        said = {True: "would make git work elsewhere", False: "executes a program"}
        return RevertedConfig(tuple(f"{key} {said[key in REDIRECTING_KEYS]}" for key in keys), content)

    def _without(self, keys: list[str], was: Listed, now: bytes) -> bytes:
        self._write(now)
        for key in keys:
            self._ask("config", "--file", self._scratch, "--unset-all", key)
            for text in (text for name, text in was if name == key):
                self._ask("config", "--file", self._scratch, "--add", key, "true" if text is None else text)
        return read_regular_file(os.fsencode(self._scratch))

    def _listed(self, content: bytes) -> Listed | None:
        """Every setting in order; None where git cannot read them. A setting without a text is simply true."""
        self._write(content)
        reply = self._ask("config", "--file", self._scratch, "-z", "--list")
        records = reply.out.decode("utf-8", "surrogateescape").split("\0")[:-1]
        pairs = [record.partition("\n") for record in records]
        return [(key, text if has else None) for key, has, text in pairs] if reply.code == 0 else None

    def _write(self, content: bytes) -> None:
        with open(self._scratch, "wb", opener=_open_private) as file:
            file.write(content)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _executing_settings(listed: Listed) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for key, text in listed:
        leads_elsewhere = key in REDIRECTING_KEYS and (key, text) != ("core.bare", "false")
        if leads_elsewhere or is_executing_setting(key, text):
            found.setdefault(key, []).append(text)
    return found


# The tripwires inside `.git`: settings that execute something, branches, and the user's uncommitted work.


WORKTREE_FOLDER = "worktree"
CONFIG_FILES = (b"config", b"config.worktree")
COMMONDIR = "commondir"
COMMONDIR_RULE = "git reads its settings from it"
REPOSITORY_GONE = "the repository is gone: .git was deleted, with the history and all that was saved there"
BLOCKING_FILES_REMOVED = "FIFOs or devices stood in .git, which git would have waited for; they were removed: {}"
NO_BACKUP = "no copy of it was kept; look for it where you pushed to"


def repository_folders(
    root: str, own: tuple[ReservedPath, ...], git: GitWorkspace | None, vault: ProtectedCopies
) -> dict[str, WatchedFolder]:
    """Where wires lie in a project's repository: hooks alone where git is not there to ask about the rest."""
    folders = git.commits.folders if git else git_folders(root)
    if folders is None:
        return {}
    hooks = tuple(ProtectedPattern(one.path.removeprefix(".git/"), one.rule) for one in own)
    shared, single = _protected_patterns("config", *REF_FILES[1:]), _protected_patterns("config.worktree", REF_FILES[0])
    laid = {COMMON_FOLDER: (folders.common, hooks)}
    if git and folders.git_dir == folders.common:
        laid[COMMON_FOLDER] = (folders.common, (*hooks, *shared, *single))
    elif git:
        laid = {
            COMMON_FOLDER: (folders.common, (*hooks, *shared)),
            WORKTREE_FOLDER: (folders.git_dir, (*single, *_protected_patterns(COMMONDIR))),
        }
    return {
        name: WatchedFolder(os.path.realpath(folder), wires, vault.contents.take, ".git/", _is_inert)
        for name, (folder, wires) in laid.items()
    }


def _protected_patterns(*paths: str) -> tuple[ProtectedPattern, ...]:
    return tuple(ProtectedPattern(path, COMMONDIR_RULE) for path in paths)


def _is_inert(path: bytes) -> bool:
    """An example of a hook, which git does not run; or a lock, which comes and goes."""
    return path.endswith((b".sample", b".lock"))


class RepositoryTripwires:
    """Judges what became of the files in these places, in which git keeps settings and refs."""

    def __init__(
        self, git: GitWorkspace, run: str, vault: ProtectedCopies, places: dict[str, WatchedFolder], backup: str
    ) -> None:
        """`backup` is the folder for copies of the repository; empty where none is wanted."""
        self._vault, self._places, self._folders = vault, places, git.commits.folders
        self._run, self._root, self._commits, self._git = run, git.root, git.commits, git
        common = self._folders.common
        home = os.path.dirname(common) if os.path.basename(common) == ".git" else git.root
        self._backup = RepositoryBackup(backup, home, self._folders) if backup else None
        self._copied: Sight | None = None  # the ref files that were there when the repository was last copied
        self._to_say: list[str] = []
        self._said = False  # that the copy is kept
        self._history = HistoryTripwires(git.commits, run, vault, places)
        self._uncommitted = UncommittedWork(git.commits, git.root, run)
        self._configuration = ConfigReverter(git.commits.ask, vault.scratch)

    def complete(self, sights: Sights) -> None:
        """Add what is not told by files."""
        self._history.complete(sights)

    def remember(self, known: RepositoryBaseline, sights: Sights) -> RepositoryBaseline:
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
        return RepositoryBaseline(False, self._history.elsewhere(), work)

    def judge(self, armed: TripwireBaseline, sights: Sights, attempt: ProtectedChanges) -> tuple[list[str], bool]:
        """Add to the attempt what was changed here; return what else to tell, and whether that is of swept work."""
        odd = [BLOCKING_FILES_REMOVED.format(", ".join(taken))] if (taken := self._git.unblocked()) else []
        if self._history.gone or armed.besides.gone:
            return [*odd, *([] if armed.besides.gone else [f"{REPOSITORY_GONE}; {self.kept() or NO_BACKUP}"])], False
        moved = False
        for name in self._places:
            before, now = armed.sights.get(name, {}), sights[name]
            for path in differing_paths(before, now):
                if path in CONFIG_FILES:
                    self._settings(attempt, name, path, before.get(path), now.get(path))
                moved = moved or is_ref_file(path)
        remarks = odd
        try:
            self._history.staged(armed, sights, attempt)
            if moved:
                remarks += self._history.judge(armed, sights, attempt)
        except TooManyCommits:  # whoever wants to hide a commit could make so many
            raise
        except (GitFailed, ObjectMissing) as error:
            remarks.append(f"the history could not be compared with what it was: {error}")
        swept = self._uncommitted.swept(armed.besides.work or {})
        return [*remarks, *([self._uncommitted.remark(swept)] if swept else [])], bool(swept)

    def switched(self, armed: TripwireBaseline, sights: Sights) -> tuple[str, ...]:
        """The branch that was checked out, and the one that is now, where they differ."""
        return () if self._history.gone or armed.besides.gone else self._history.switched(armed, sights)

    def _copy(self, sights: Sights, first: bool) -> None:
        """Copy the repository at the start of the run, and again before a turn when refs have moved."""
        refs = {path: seen for path, seen in sights.get(COMMON_FOLDER, {}).items() if is_ref_file(path)}
        if self._backup is None or refs == self._copied:
            return
        if first:
            self._to_say += self._lost_before(self._backup)
        try:
            if told := self._backup.take(self._run, self._commits.refs):
                self._to_say.append(told)
        except BackupFailed as error:
            if first:
                self._to_say.append(f"no copy of .git is kept, so one that an agent deletes is gone: {error}")
        self._copied = refs

    def _lost_before(self, backup: RepositoryBackup) -> list[str]:
        """That the repository is not whole when the run begins: nobody has put back what was lost in an earlier run."""
        for kept in backup.others(self._run):
            if lost := describe_loss(kept, self._commits.ask, self._commits.all_refs):
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
        if folders is not None and not any(find_blocking_files(folders.common)) and self._start_is_there():
            return f"it is kept, with the files of the start: git log refs/ralph/{self._run}/{START_NAME}"
        if kept is None:
            return ""
        self._said = True
        if os.path.isdir(kept.root):
            return f"put the repository back as it was: {self._command(kept)}"
        import shlex

        return f"its history can be put back: mkdir {shlex.quote(kept.root)} && {self._command(kept)}"

    def _command(self, kept: BackupState) -> str:
        """What puts it back. The repository of a linked worktree is elsewhere."""
        import shlex

        there = os.path.realpath(kept.root) == os.path.realpath(self._root) and os.path.isdir(kept.root)
        return f"ralph restore {kept.run}" + ("" if there else f" -d {shlex.quote(kept.root)}")

    def _start_is_there(self) -> bool:
        self._commits.forget()
        try:
            saved = self._commits.named(self._run, START_NAME)
            if saved is None or not all(map(self._commits.has, self._commits.header(saved, b"parent "))):
                return False
            named = f"{saved} {run_ref_name(self._run, START_NAME)}".encode()
            return named in self._commits.all_refs().splitlines()  # else git itself cannot read the repository
        except (OSError, GitFailed, ObjectMissing):
            return False

    def damage(self) -> str:
        """Why no work counts on the repository as it now is; empty also where no copy can tell."""
        return self._found(describe_damage)

    def parting(self) -> tuple[str, ...]:
        """What the repository lacks at the end of the run of what it had at its start, if it was not said before."""
        return () if self._said or not (lost := self._found(describe_loss)) else (lost,)

    def discard(self) -> None:
        """Drop the copy if the repository provably has all that it had when the run began."""
        if self._backup and not self._found(describe_loss):
            self._backup.drop(self._run)

    def _found(self, look: Callable[[BackupState, Ask, Callable[[], bytes]], str]) -> str:
        if self._backup is None or (kept := self._backup.start(self._run)) is None:
            return ""
        self._commits.forget()
        lost = look(kept, self._commits.ask, self._commits.all_refs)
        if not lost:
            return ""
        self._said = True
        return f"{lost}; a copy of .git as it was is kept: {self._command(kept)}"

    def _settings(self, attempt: ProtectedChanges, name: str, path: bytes, old: Seen | None, new: Seen | None) -> None:
        """Put back the settings that execute something, or the whole file where git would read another."""
        place = self._places[name]
        if new is None or (new[0] == MODE_LINK and (old is None or old[0] != MODE_LINK)):
            attempt.add(name, place, path, old, new)
            return
        try:
            before, now = self._vault.contents.read(old[1]) if old else b"", place.content(path, new)
        except OSError:
            attempt.add(name, place, path, old, new)
            return
        mended = self._configuration.mend(before, now)
        for rule in mended.rules:
            attempt.tell(place, path, ProtectedPattern("", rule))
        if mended.rules:
            wanted = (new[0], self._vault.contents.hold(mended.content), new[2])
            attempt.undo(
                name, place, path, old, new, None if old is None and CONFIG_UNREADABLE in mended.rules else wanted
            )
