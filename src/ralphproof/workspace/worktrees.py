"""Git worktrees of runs, each on a branch of its own, and repositories nested in them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil

from ralphproof.base.errors import DiskFull, HarnessFailed, RalphError, Refused, TaskWrong, wrap_os_error
from ralphproof.base.files import remove_tree
from ralphproof.base.git_layout import git_folders, is_object_id
from ralphproof.base.programs import run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, UserGit, user_git_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Repositories nested in a work tree, submodules and others, which would be removed with it.


MAX_NESTING, MAX_LISTED = 5, 10
SUBMODULE_MODE = b"160000 "
OFFLINE_OPTIONS = ("-c", "protocol.allow=never", "-c", "core.commitGraph=false")  # nothing is fetched that is not there
REV_LIST_COMMAND = ("rev-list", "--max-count=1", "--ignore-missing")


def find_unshared_repositories(place: str, base: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Repositories below a work tree with commits that neither a remote of theirs nor the commit `base` contains.

    Ignored ones are left out. One that cannot be read counts as having some.
    """
    top = os.path.realpath(place)
    names: list[str] = []
    for path in _nested_repositories(top, environ, MAX_NESTING):
        name = os.path.relpath(path, top)
        known = UserGit(top, environ).run_line("rev-parse", "-q", "--verify", "--end-of-options", f"{base}:{name}")
        if len(names) < MAX_LISTED and _has_own_commits(path, known, environ):
            names.append(name)
    return tuple(names)


def _nested_repositories(place: str, environ: Mapping[str, str], deepest: int) -> Iterator[str]:
    """The repositories in a work tree, recursively."""
    if not deepest or git_folders(place) is None:
        return
    git = UserGit(place, environ)
    linked = (row.partition(b"\t")[2] for row in _listed_rows(git, "-s") if row.startswith(SUBMODULE_MODE))
    others = (row.rstrip(b"/") for row in _listed_rows(git, "-o", "--exclude-standard") if row.endswith(b"/"))
    for name in sorted({*linked, *others}):
        path = os.path.join(place, os.fsdecode(name))
        if os.path.lexists(os.path.join(path, ".git")):
            yield path
            yield from _nested_repositories(path, environ, deepest - 1)


def _listed_rows(git: UserGit, *which: str) -> list[bytes]:
    return git.run("ls-files", "-z", *which, good=(0, 128)).out.split(b"\0")


def _has_own_commits(path: str, known: str, environ: Mapping[str, str]) -> bool:
    """Whether branches, HEAD or stashes contain more than remotes and a known commit."""
    but = ("--not", "--remotes", *([known] if is_object_id(known) else []), "--")
    tips = (("--branches", "--glob=refs/stas[h]"), ("HEAD",))
    try:
        git = UserGit(path, environ)
        return any(git.run(*OFFLINE_OPTIONS, *REV_LIST_COMMAND, *tip, *but, good=(0, 128)).out for tip in tips)
    except Refused:
        return True


# Worktrees of runs, each on a branch of its own. The user's checkout is not touched.


BRANCH_PREFIX = "ralph/"
WORKTREE_TIMEOUT_S = 900.0  # a large checkout, with filters
DISK_FULL_MESSAGES = (b"No space left on device", b"Disk quota exceeded", b"unable to write file")  # in git's own words
NOTE_KEYS = ("branch", "base", "source")
NOTE_SUFFIX, LOCK_FILE, MAX_NAMES = ".json", "lock", 1000
SETTINGS_FOLDER = ".ralph"
COPIED_SETTINGS = (
    "settings.json",
    "settings.local.json",
    "skills",
    "templates",
)  # what a run goes by, committed or not


@value
class RunWorktree:
    """A worktree of a run. `base` is its first commit, `branch` its branch, `source` the user's work tree."""

    name: str
    path: str
    branch: str
    base: str
    source: str


class RunWorktrees:
    """The run worktrees of the repository at `root`, in the private `folder`, with a note file for each.

    A worktree without a note was never returned to a caller, so it contains no work. Several processes may use this at
    once.
    """

    def __init__(self, root: str, folder: str, environ: Mapping[str, str]) -> None:
        """Raises Refused where `root` is not the top of a git repository."""
        self._git, self._folder = UserGit(root, environ), os.path.realpath(folder)
        self._env = user_git_environment(environ)

    @property
    def root(self) -> str:
        """The user's work tree."""
        return self._git.root

    def list_all(self) -> tuple[RunWorktree, ...]:
        """All existing run worktrees, by name."""
        if not os.path.isdir(self._folder):
            return ()
        names = sorted(
            name.removesuffix(NOTE_SUFFIX) for name in os.listdir(self._folder) if name.endswith(NOTE_SUFFIX)
        )
        return tuple(one for name in names if (one := self.find(name)) is not None)

    def find(self, name: str) -> RunWorktree | None:
        """The worktree with this name; None where there is none, or its folder is gone."""
        try:
            with open(self._note_path(name), encoding="utf-8") as file:
                note = json.loads(file.read(1 << 16))
            worktree = RunWorktree(name, os.path.join(self._folder, name), *(str(note[key]) for key in NOTE_KEYS))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return worktree if os.path.lexists(os.path.join(worktree.path, ".git")) else None

    def create(self, name: str, base: str) -> RunWorktree:
        """Create a worktree at this commit, or nothing on failure; an existing one of this name is returned."""
        with self._lock():
            if known := self.find(name):
                return known
            commit = self._git.resolve_commit(base)
            if not commit:
                raise Refused(f"{base} is no commit, and a worktree needs one to begin on; commit something first")
            place, branch = os.path.join(self._folder, name), self._free_branch(name)
            if os.path.lexists(self._note_path(name)) and os.path.lexists(place):
                raise TaskWrong(f"{place} was a worktree, and has no .git any more; take what you need, remove it")
            self._clear(place)
            worktree = RunWorktree(name, place, branch, commit, self._git.root)
            try:
                self._add(worktree)
            except RalphError:
                self._clear(place)
                self._git.run("update-ref", "-d", f"refs/heads/{branch}", commit, good=(0, 1, 128))
                raise
            return worktree

    def _add(self, worktree: RunWorktree) -> None:
        self._run_git("worktree", "add", "--quiet", "--no-track", "-b", worktree.branch, worktree.path, worktree.base)
        self._copy_settings(worktree.path)
        self._write_note(worktree)

    def remove(self, worktree: RunWorktree, branch: bool = False) -> None:
        """Remove its files; with `branch` its branch too: the caller knows that its commits are elsewhere."""
        with self._lock():
            tip = self._git.branch_commit(worktree.branch) if branch else ""
            _unlink(self._note_path(worktree.name))
            self._clear(worktree.path)
            if tip:
                self._git.run("update-ref", "-d", f"refs/heads/{worktree.branch}", tip, good=(0, 1, 128))

    def _free_branch(self, name: str) -> str:
        """An unused branch name: the plain one may be the work of an earlier run, or the user's."""
        for number in range(1, MAX_NAMES):
            branch = f"{BRANCH_PREFIX}{name}" if number == 1 else f"{BRANCH_PREFIX}{name}-{number}"
            if not self._git.run_line("for-each-ref", "--count=1", f"refs/heads/{branch}"):  # nor one below it
                return branch
        raise Refused(f"there are {MAX_NAMES} branches {BRANCH_PREFIX}{name}-…; delete those that you do not need")

    def _clear(self, place: str) -> None:
        """Remove the worktree at this path, from disk and from git's list."""
        forget = ("worktree", "remove", "--force", "--force", place)  # a prune would forget the user's own as well
        forgot = self._git.run(*forget, good=tuple(range(256))).code == 0
        remove_tree(place)
        if os.path.lexists(place):
            raise HarnessFailed(f"{place} could not be removed; remove it by hand")
        if not forgot:
            self._git.run(*forget, good=tuple(range(256)))

    def _copy_settings(self, place: str) -> None:
        """Copy settings that are not committed: they are not part of the tree, nor of the work."""
        source, target = os.path.join(self._git.root, SETTINGS_FOLDER), os.path.join(place, SETTINGS_FOLDER)
        try:
            for name in COPIED_SETTINGS:
                mine, theirs = os.path.join(source, name), os.path.join(target, name)
                if os.path.lexists(theirs) or os.path.islink(mine):
                    continue
                if os.path.isdir(mine):
                    shutil.copytree(mine, theirs, symlinks=True)
                elif os.path.isfile(mine):
                    os.makedirs(target, exist_ok=True)
                    shutil.copy2(mine, theirs)
        except (OSError, shutil.Error) as error:
            raise HarnessFailed(f"{source} could not be copied to {target}: {error}") from error

    def _write_note(self, worktree: RunWorktree) -> None:
        note = self._note_path(worktree.name)
        try:
            with open(f"{note}.tmp", "w", encoding="utf-8") as file:
                file.write(json.dumps({key: getattr(worktree, key) for key in NOTE_KEYS}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{note}.tmp", note)
        except OSError as error:
            raise wrap_os_error(error) from error

    def _note_path(self, name: str) -> str:
        return os.path.join(self._folder, name + NOTE_SUFFIX)

    def _run_git(self, *args: str) -> None:
        argv = (self._git.git, "-C", self._git.root, *NO_HOOKS_OPTIONS, *args)
        reply = run_program(argv, self._env | {"LC_ALL": "C"}, timeout_s=WORKTREE_TIMEOUT_S)
        if reply.code and any(words in reply.err for words in DISK_FULL_MESSAGES):
            where = f"no space is left in {self._folder} for a worktree, or it may not be written"
            raise DiskFull(f"{where}; make room, or set RALPH_STATE_DIR to another disk")
        if reply.code:
            raise Refused(f"git {' '.join(args[:2])}: {reply.said or reply.code}")

    def _lock(self) -> _WorktreeLock:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise wrap_os_error(error) from error
        return _WorktreeLock(os.path.join(self._folder, LOCK_FILE))


class _WorktreeLock:
    """Only one thread or process at a time changes git's list of worktrees."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def has_unshared_commits(worktree: RunWorktree, environ: Mapping[str, str], branch: bool) -> bool:
    """Whether commits would become unreachable with this worktree; with `branch`, with its branch as well."""
    home, there = UserGit(worktree.source, environ), UserGit(worktree.path, environ)
    tips = {there.resolve_commit("HEAD"), home.branch_commit(worktree.branch) if branch else ""} - {""}
    but = (f"--exclude=refs/heads/{worktree.branch}",) if branch else ()
    others = ("--not", "--single-worktree", *but, "--all", "--")
    return bool(tips and home.run_line("rev-list", "--max-count=1", *sorted(tips), *others))


def differing_settings(root: str, place: str) -> Iterator[str]:
    """Committed settings files that differ in the user's checkout: the worktree has the committed version."""
    for name in COPIED_SETTINGS[:1]:
        mine, theirs = (os.path.join(folder, SETTINGS_FOLDER, name) for folder in (root, place))
        if os.path.isfile(mine) and os.path.isfile(theirs) and _read_bytes(mine) != _read_bytes(theirs):
            yield f"{SETTINGS_FOLDER}/{name}"


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 20)
