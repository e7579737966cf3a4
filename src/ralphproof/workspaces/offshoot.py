"""Work trees that runs have for themselves, each on a branch of its own. The user's checkout is not touched."""

from __future__ import annotations

import fcntl
import json
import os
import shutil

from ralphproof.errors import DiskFull, HarnessFailed, RalphError, Refused, TaskWrong, from_system
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.clean_place import remove
from ralphproof.workspaces.gitcall import NOTHING_RUNS, call, plain_environment
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BRANCHES = "ralph/"
TIMEOUT_S = 900.0  # a large checkout, with filters
UNWRITTEN = (b"No space left on device", b"Disk quota exceeded", b"unable to write file")  # in git's own words
KEYS = ("branch", "base", "home")
NOTE, LOCK, MOST_NAMES = ".json", "lock", 1000
OURS = ".ralph"
BROUGHT = ("settings.json", "settings.local.json", "skills", "templates")  # what a run goes by, committed or not


@value
class Offshoot:
    """A work tree of its own. `base` is the commit that it began on, `branch` what is checked out in it.

    `home` is the work tree of the user's that it was made from.
    """

    name: str
    place: str
    branch: str
    base: str
    home: str


class Offshoots:
    """The offshoots of the repository at `root`; `folder` is ours, and holds them and a note for each.

    One without a note was never handed out, so nothing of anybody's is in it. Several processes may ask at once.
    """

    def __init__(self, root: str, folder: str, environ: Mapping[str, str]) -> None:
        """Raises Refused where there is no git repository at the project's top."""
        self._git, self._folder = UsersGit(root, environ), os.path.realpath(folder)
        self._env = plain_environment(environ)

    @property
    def root(self) -> str:
        """The top of the repository's files that it was asked for."""
        return self._git.root

    def known(self) -> tuple[Offshoot, ...]:
        """All that were made and not removed, by their names."""
        if not os.path.isdir(self._folder):
            return ()
        names = sorted(name.removesuffix(NOTE) for name in os.listdir(self._folder) if name.endswith(NOTE))
        return tuple(one for name in names if (one := self.named(name)) is not None)

    def named(self, name: str) -> Offshoot | None:
        """The offshoot of this name; None where there is none, or its folder is gone."""
        try:
            with open(self._note(name), encoding="utf-8") as file:
                told = json.loads(file.read(1 << 16))
            found = Offshoot(name, os.path.join(self._folder, name), *(str(told[key]) for key in KEYS))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if os.path.lexists(os.path.join(found.place, ".git")) else None

    def make(self, name: str, base: str) -> Offshoot:
        """A new one at this commit, whole or not at all; one of this name that is there is handed out as it is."""
        with self._alone():
            if known := self.named(name):
                return known
            commit = self._git.commit_of(base)
            if not commit:
                raise Refused(f"{base} is no commit, and a worktree needs one to begin on; commit something first")
            place, branch = os.path.join(self._folder, name), self._free_branch(name)
            if os.path.lexists(self._note(name)) and os.path.lexists(place):
                raise TaskWrong(f"{place} was a worktree, and has no .git any more; take what you need, remove it")
            self._clear(place)
            made = Offshoot(name, place, branch, commit, self._git.root)
            try:
                self._lay(made)
            except RalphError:
                self._clear(place)
                self._git.ask("update-ref", "-d", f"refs/heads/{branch}", commit, good=(0, 1, 128))
                raise
            return made

    def _lay(self, made: Offshoot) -> None:
        self._must("worktree", "add", "--quiet", "--no-track", "-b", made.branch, made.place, made.base)
        self._bring(made.place)
        self._write(made)

    def remove(self, offshoot: Offshoot, branch: bool = False) -> None:
        """Remove its files, and its branch too where the caller knows that what it names is elsewhere."""
        with self._alone():
            tip = self._git.branch(offshoot.branch) if branch else ""
            _unlink(self._note(offshoot.name))
            self._clear(offshoot.place)
            if tip:
                self._git.ask("update-ref", "-d", f"refs/heads/{offshoot.branch}", tip, good=(0, 1, 128))

    def _free_branch(self, name: str) -> str:
        """A branch that nobody has: one of that name may be the work of an earlier run, or the user's."""
        for number in range(1, MOST_NAMES):
            branch = f"{BRANCHES}{name}" if number == 1 else f"{BRANCHES}{name}-{number}"
            if not self._git.line("for-each-ref", "--count=1", f"refs/heads/{branch}"):  # nor one below it
                return branch
        raise Refused(f"there are {MOST_NAMES} branches {BRANCHES}{name}-…; delete those that you do not need")

    def _clear(self, place: str) -> None:
        """Have nothing at this place, and git know of nothing there."""
        forget = ("worktree", "remove", "--force", "--force", place)  # a prune would forget the user's own as well
        forgot = self._git.ask(*forget, good=tuple(range(256))).code == 0
        remove(place)
        if os.path.lexists(place):
            raise HarnessFailed(f"{place} could not be removed; remove it by hand")
        if not forgot:
            self._git.ask(*forget, good=tuple(range(256)))

    def _bring(self, place: str) -> None:
        """What a run goes by and nobody committed comes along: it is in no tree, and no work."""
        source, target = os.path.join(self._git.root, OURS), os.path.join(place, OURS)
        try:
            for name in BROUGHT:
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

    def _write(self, made: Offshoot) -> None:
        note = self._note(made.name)
        try:
            with open(f"{note}.tmp", "w", encoding="utf-8") as file:
                file.write(json.dumps({key: getattr(made, key) for key in KEYS}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{note}.tmp", note)
        except OSError as error:
            raise from_system(error) from error

    def _note(self, name: str) -> str:
        return os.path.join(self._folder, name + NOTE)

    def _must(self, *args: str) -> None:
        argv = (self._git.git, "-C", self._git.root, *NOTHING_RUNS, *args)
        reply = call(argv, self._env | {"LC_ALL": "C"}, timeout_s=TIMEOUT_S)
        if reply.code and any(words in reply.err for words in UNWRITTEN):
            where = f"no space is left in {self._folder} for a worktree, or it may not be written"
            raise DiskFull(f"{where}; make room, or set RALPH_STATE_DIR to another disk")
        if reply.code:
            raise Refused(f"git {' '.join(args[:2])}: {reply.said or reply.code}")

    def _alone(self) -> _Alone:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise from_system(error) from error
        return _Alone(os.path.join(self._folder, LOCK))


class _Alone:
    """Git's list of work trees is changed by one of us at a time, thread or process."""

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


def lone(offshoot: Offshoot, environ: Mapping[str, str], branch: bool) -> bool:
    """Whether commits would lose their last name with this work tree; with `branch`, with its branch as well."""
    home, there = UsersGit(offshoot.home, environ), UsersGit(offshoot.place, environ)
    tips = {there.commit_of("HEAD"), home.branch(offshoot.branch) if branch else ""} - {""}
    but = (f"--exclude=refs/heads/{offshoot.branch}",) if branch else ()
    others = ("--not", "--single-worktree", *but, "--all", "--")
    return bool(tips and home.line("rev-list", "--max-count=1", *sorted(tips), *others))


def unbrought(root: str, place: str) -> Iterator[str]:
    """Settings that are committed, and otherwise in the user's checkout: the offshoot has the committed ones."""
    for name in BROUGHT[:1]:
        mine, theirs = (os.path.join(folder, OURS, name) for folder in (root, place))
        if os.path.isfile(mine) and os.path.isfile(theirs) and _bytes(mine) != _bytes(theirs):
            yield f"{OURS}/{name}"


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 20)
