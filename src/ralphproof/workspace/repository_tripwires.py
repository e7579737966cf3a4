"""Tripwires inside `.git`: settings that execute programs, hooks, and damage to the repository."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

from ralphproof.base.git_layout import find_blocking_files, git_folders, read_regular_file
from ralphproof.base.programs import ProgramResult
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import MODE_LINK, START_NAME, ObjectMissing, TooManyCommits, run_ref_name
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.history_tripwires import (
    COMMON_FOLDER,
    REF_FILES,
    HistoryTripwires,
    UncommittedWork,
    is_ref_file,
)
from ralphproof.workspace.protected_paths import (
    ProtectedCopies,
    ProtectedPattern,
    RepositoryBaseline,
    ReservedPath,
    TripwireBaseline,
    WatchedFolder,
    differing_paths,
)
from ralphproof.workspace.repository_backup import (
    BackupFailed,
    BackupState,
    RepositoryBackup,
    describe_damage,
    describe_loss,
)

RunGit = Callable[..., ProgramResult]
ConfigEntries = list[tuple[str, str | None]]

if TYPE_CHECKING:
    from ralphproof.workspace.history_tripwires import StatesByFolder
    from ralphproof.workspace.protected_paths import FileState, FileStates
    from ralphproof.workspace.tripwires import ProtectedChanges


# Settings of git that execute a program or redirect git to other files. An agent may change all others.


# As of git 2.54 and git-lfs 3.7. `*` stands for anything between the first and the last dot, or for nothing.
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
    """Whether git executes a program because of this setting, or reads such settings from another file."""
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
    """A configuration with reverted executing settings: the reasons, and its content."""

    rules: tuple[str, ...]
    content: bytes


class ConfigReverter:
    """Compares and edits copies of a configuration in a private file; git never writes the repository's own."""

    def __init__(self, ask: RunGit, scratch: str) -> None:
        self._run_git, self._scratch_file = ask, scratch

    def revert(self, before: bytes, now: bytes) -> RevertedConfig:
        """The present content with executing settings as before. One that git cannot read is reverted as a whole."""
        was, present = self._list(before), self._list(now)
        if present is None:
            return RevertedConfig((CONFIG_UNREADABLE,), before) if was is not None else RevertedConfig((), now)
        was = was or []
        old, new = _executing_settings(was), _executing_settings(present)
        keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        if not keys:
            return RevertedConfig((), now)
        content = before if len(keys) > MAX_KEYS else self._revert_keys(keys, was, now)
        if _executing_settings(self._list(content) or []) != old:
            content = before
        effects = {True: "would make git work elsewhere", False: "executes a program"}
        return RevertedConfig(tuple(f"{key} {effects[key in REDIRECTING_KEYS]}" for key in keys), content)

    def _revert_keys(self, keys: list[str], was: ConfigEntries, now: bytes) -> bytes:
        self._write(now)
        for key in keys:
            self._run_git("config", "--file", self._scratch_file, "--unset-all", key)
            for text in (text for name, text in was if name == key):
                self._run_git("config", "--file", self._scratch_file, "--add", key, "true" if text is None else text)
        return read_regular_file(os.fsencode(self._scratch_file))

    def _list(self, content: bytes) -> ConfigEntries | None:
        """Every setting in order; None where git cannot read them. A setting without a value is true."""
        self._write(content)
        reply = self._run_git("config", "--file", self._scratch_file, "-z", "--list")
        records = reply.out.decode("utf-8", "surrogateescape").split("\0")[:-1]
        pairs = [record.partition("\n") for record in records]
        return [(key, text if has else None) for key, has, text in pairs] if reply.code == 0 else None

    def _write(self, content: bytes) -> None:
        with open(self._scratch_file, "wb", opener=_open_private) as file:
            file.write(content)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _executing_settings(listed: ConfigEntries) -> dict[str, list[str | None]]:
    settings: dict[str, list[str | None]] = {}
    for key, text in listed:
        leads_elsewhere = key in REDIRECTING_KEYS and (key, text) != ("core.bare", "false")
        if leads_elsewhere or is_executing_setting(key, text):
            settings.setdefault(key, []).append(text)
    return settings


WORKTREE_FOLDER = "worktree"
CONFIG_FILES = (b"config", b"config.worktree")
COMMONDIR = "commondir"
COMMONDIR_RULE = "git reads its settings from it"
REPOSITORY_GONE = "the repository is gone: .git was deleted, with the history and all that was saved there"
BLOCKING_FILES_REMOVED = "FIFOs or devices stood in .git, which git would have waited for; they were removed: {}"
NO_BACKUP = "no copy of it was kept; look for it where you pushed to"


def repository_folders(
    root: str, own: tuple[ReservedPath, ...], git: GitWorkspace | None, copies: ProtectedCopies
) -> dict[str, WatchedFolder]:
    """The watched folders in a project's repository; only hooks are watched where git is not available."""
    folders = git.commits.folders if git else git_folders(root)
    if folders is None:
        return {}
    hooks = tuple(ProtectedPattern(one.path.removeprefix(".git/"), one.rule) for one in own)
    shared, single = ("config", *REF_FILES[1:]), ("config.worktree", REF_FILES[0])
    watched: dict[str, tuple[str, tuple[str, ...]]] = {COMMON_FOLDER: (folders.common, ())}
    if git and folders.git_dir == folders.common:
        watched[COMMON_FOLDER] = (folders.common, shared + single)
    elif git:
        watched[COMMON_FOLDER] = (folders.common, shared)
        watched[WORKTREE_FOLDER] = (folders.git_dir, (*single, COMMONDIR))
    places: dict[str, WatchedFolder] = {}
    for name, (folder, paths) in watched.items():
        patterns = tuple(ProtectedPattern(path, COMMONDIR_RULE) for path in paths)
        patterns = hooks + patterns if name == COMMON_FOLDER else patterns
        places[name] = WatchedFolder(os.path.realpath(folder), patterns, copies.digest_or_store, ".git/", _is_inert)
    return places


def _is_inert(path: bytes) -> bool:
    """A sample hook, which git does not run, or a lock."""
    return path.endswith((b".sample", b".lock"))


class RepositoryTripwires:
    """Checks the files in which git stores settings and refs."""

    def __init__(
        self, git: GitWorkspace, run: str, copies: ProtectedCopies, watched: dict[str, WatchedFolder], backup: str
    ) -> None:
        """`backup` is the folder for backups of the repository; empty for none."""
        self._copies, self._watched, self._folders = copies, watched, git.commits.folders
        self._run, self._root, self._commits, self._git = run, git.root, git.commits, git
        common = self._folders.common
        home = os.path.dirname(common) if os.path.basename(common) == ".git" else git.root
        self._backup = RepositoryBackup(backup, home, git.commits) if backup else None
        self._backed_up_refs: FileStates | None = None  # the ref files when the repository was last copied
        self._warnings: list[str] = []
        self._backup_mentioned = False  # that the copy is kept
        self.history = HistoryTripwires(git.commits, run, copies, watched)
        self._uncommitted = UncommittedWork(git.commits, git.root, run)
        self._configuration = ConfigReverter(git.commits.run, copies.scratch_file)

    def update_baseline(self, known: RepositoryBaseline, states: StatesByFolder) -> RepositoryBaseline:
        """The baseline for the next turn. In the run's first turn, the tips of all branches are kept reachable."""
        if self.history.repository_missing:
            return replace(known, missing=True)
        work = known.uncommitted
        try:
            if work is None:
                self.history.keep_tips_reachable(states)
                work = self._uncommitted.list_at_start()
                self._back_up(states, first=True)
            else:
                work = self._uncommitted.drop_lost(work) if work else work
                self._back_up(states, first=False)
        except (GitFailed, ObjectMissing):
            work = known.uncommitted  # it is tried again before the next turn
        return RepositoryBaseline(False, tuple(self.history.other_worktrees().items()), work)

    def compare(
        self, baseline: TripwireBaseline, states: StatesByFolder, changes: ProtectedChanges
    ) -> tuple[list[str], bool]:
        """Add changes to `changes`; return remarks, and whether one is about lost uncommitted work."""
        removed = self._git.take_removed_files()
        remarks = [BLOCKING_FILES_REMOVED.format(", ".join(removed))] if removed else []
        if self.history.repository_missing or baseline.repository.missing:
            if not baseline.repository.missing:
                remarks.append(f"{REPOSITORY_GONE}; {self.history_backup() or NO_BACKUP}")
            return remarks, False
        moved = False
        for name in self._watched:
            before, now = baseline.states.get(name, {}), states[name]
            for path in differing_paths(before, now):
                if path in CONFIG_FILES:
                    self._compare_config(changes, name, path, before.get(path), now.get(path))
                moved = moved or is_ref_file(path)
        try:
            self.history.compare_index(baseline, states, changes)
            if moved:
                remarks += self.history.compare(baseline, states, changes)
        except TooManyCommits:  # whoever wants to hide a commit could make so many
            raise
        except (GitFailed, ObjectMissing) as error:
            remarks.append(f"the history could not be compared with what it was: {error}")
        lost = self._uncommitted.find_lost(baseline.repository.uncommitted or {})
        if lost:
            remarks.append(self._uncommitted.describe_lost(lost))
        return remarks, bool(lost)

    def _back_up(self, states: StatesByFolder, first: bool) -> None:
        """Back up the repository at the start of the run, and before each turn if refs moved."""
        refs = {path: seen for path, seen in states.get(COMMON_FOLDER, {}).items() if is_ref_file(path)}
        if self._backup is None or refs == self._backed_up_refs:
            return
        if first:
            self._warnings += self._earlier_loss(self._backup)
        try:
            if warning := self._backup.back_up(self._run):
                self._warnings.append(warning)
        except BackupFailed as error:
            if first:
                self._warnings.append(f"no copy of .git is kept, so one that an agent deletes is gone: {error}")
        self._backed_up_refs = refs

    def _earlier_loss(self, backup: RepositoryBackup) -> list[str]:
        """A warning that the repository lacks what was lost in an earlier run, if it does."""
        for state in backup.of_other_runs(self._run):
            if lost := describe_loss(state, self._commits.run, self._commits.list_all_refs):
                command = self._restore_command(state)
                return [f"the repository is not whole since run {state.run}: {lost}; put it back: {command}"]
        return []

    def take_warnings(self) -> tuple[str, ...]:
        """Warnings about backups since the last call."""
        warnings, self._warnings = tuple(self._warnings), []
        return warnings

    def history_backup(self) -> str:
        """Where the history of the run's start is, and the command to get it; empty where there is none."""
        start = self._backup.find_start(self._run) if self._backup else None
        planted = start and not start.git_is_link and os.path.islink(os.path.join(self._root, ".git"))
        folders = None if planted else git_folders(self._root)
        if folders is not None and not any(find_blocking_files(folders.common)) and self._start_exists():
            return f"it is kept, with the files of the start: git log refs/ralph/{self._run}/{START_NAME}"
        if start is None:
            return ""
        self._backup_mentioned = True
        if os.path.isdir(start.root):
            return f"put the repository back as it was: {self._restore_command(start)}"
        return f"its history can be put back: mkdir {shlex.quote(start.root)} && {self._restore_command(start)}"

    def _restore_command(self, state: BackupState) -> str:
        """The restore command. The repository of a linked worktree is elsewhere."""
        there = os.path.realpath(state.root) == os.path.realpath(self._root) and os.path.isdir(state.root)
        return f"ralph restore {state.run}" + ("" if there else f" -d {shlex.quote(state.root)}")

    def _start_exists(self) -> bool:
        self._commits.clear_cache()
        try:
            saved = self._commits.find_saved_commit(self._run, START_NAME)
            if saved is None or not all(map(self._commits.has, self._commits.header(saved, b"parent "))):
                return False
            named = f"{saved} {run_ref_name(self._run, START_NAME)}".encode()
            return named in self._commits.list_all_refs().splitlines()  # else git itself cannot read the repository
        except (OSError, GitFailed, ObjectMissing):
            return False

    def repository_damage(self) -> str:
        """Why no work counts in the present repository; empty also where no backup can tell."""
        return self._describe(describe_damage)

    def final_warnings(self) -> tuple[str, ...]:
        """What the repository lost during the run, unless that was reported before."""
        return () if self._backup_mentioned or not (lost := self._describe(describe_loss)) else (lost,)

    def discard(self) -> None:
        """Delete the backup if the repository provably has everything that it had at the start of the run."""
        if self._backup and not self._describe(describe_loss):
            self._backup.delete(self._run)

    def _describe(self, describe: Callable[[BackupState, RunGit, Callable[[], bytes]], str]) -> str:
        if self._backup is None or (start := self._backup.find_start(self._run)) is None:
            return ""
        self._commits.clear_cache()
        lost = describe(start, self._commits.run, self._commits.list_all_refs)
        if not lost:
            return ""
        self._backup_mentioned = True
        return f"{lost}; a copy of .git as it was is kept: {self._restore_command(start)}"

    def _compare_config(
        self, changes: ProtectedChanges, name: str, path: bytes, old: FileState | None, new: FileState | None
    ) -> None:
        """Revert executing settings, or the whole file where git would read another one."""
        folder = self._watched[name]
        if new is None or (new[0] == MODE_LINK and (old is None or old[0] != MODE_LINK)):
            changes.add_change(name, folder, path, old, new)
            return
        try:
            before, now = self._copies.read(old[1]) if old else b"", folder.read_content(path, new)
        except OSError:
            changes.add_change(name, folder, path, old, new)
            return
        reverted = self._configuration.revert(before, now)
        for rule in reverted.rules:
            changes.add_touched(folder, path, ProtectedPattern("", rule))
        if reverted.rules:
            wanted = (new[0], self._copies.store(reverted.content), new[2])
            changes.plan_restore(
                name, folder, path, old, new, None if old is None and CONFIG_UNREADABLE in reverted.rules else wanted
            )
