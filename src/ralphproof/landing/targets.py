"""Branches that work lands on, of this repository or of a remote."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.run_program import run_program
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store.landings import LandingItem
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.run_program import ProgramResult
    from ralphproof.workspace.git_command import UserGit

    RunGit = Callable[..., ProgramResult]


# Branches that finished work lands on: of this repository, or of a remote. They move in one step, or not at all.


DURABLE_OPTIONS = ("-c", "core.fsync=committed,loose-object", "-c", "core.filesRefLockTimeout=2000")
# A remote's address is a setting of the repository: one that would start a program is not followed.
REMOTE_OPTIONS = ("-c", "protocol.ext.allow=never")
NETWORK_TIMEOUT_S = 600.0
REFLOG_MESSAGE = "ralph land"
REBASE_FOLDERS = ("rebase-merge", "rebase-apply")  # where git notes whose branch it rebases, with HEAD on none
MOVE_TRIES = 3


class LocalBranch:
    """A branch of this repository that nobody has checked out. Nothing but the branch changes."""

    def __init__(self, users: UserGit, branch: str) -> None:
        users.check_branch_name(branch)
        self._users, self.name = users, branch

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def tip(self) -> str:
        return self._users.branch_commit(self.name)

    def move(self, old: str, new: str) -> bool:
        """Raises Refused where a work tree has the branch: its files and its index would no longer be those of HEAD."""
        self.refuse_checked_out()
        if not self._swap(old, new):
            return False
        place = self._in_use()
        if place and self._shows(place, old) and self._swap(new, old):
            raise Refused(_checked_out_message(self.name, place))  # it was checked out at this very moment
        return True

    def refuse_checked_out(self) -> None:
        """Raise Refused where a work tree has the branch."""
        if place := self._in_use():
            raise Refused(_checked_out_message(self.name, place))

    def _in_use(self) -> str:
        """Where somebody works on it: it is checked out there, or is being rebased."""
        common = self._users.folders.common
        above = os.path.join(common, "worktrees")
        others = [os.path.join(above, name) for name in (os.listdir(above) if os.path.isdir(above) else ())]
        found = (one for one in (common, *others) if self._rebased(one))
        return self._users.find_checkout(self.name) or next(found, "")

    def _rebased(self, git_dir: str) -> bool:
        for kind in REBASE_FOLDERS:
            try:
                if (
                    read_regular_file(os.fsencode(os.path.join(git_dir, kind, "head-name"))).strip()
                    == self._ref.encode()
                ):
                    return True
            except OSError:
                continue
        return False

    def _swap(self, old: str, new: str) -> bool:
        before = old or "0" * len(new)
        argv = ("update-ref", "-m", REFLOG_MESSAGE, "--create-reflog", self._ref, new, before)
        reply = self._users.run(*DURABLE_OPTIONS, *argv, good=(0, 1, 128))
        if reply.code == 0:
            return True
        if self.tip() == old:
            raise Refused(f"branch {self.name} cannot be moved: {reply.said}")
        return False

    def _shows(self, place: str, commit: str) -> bool:
        """Whether the index of a work tree is that of a commit."""
        argv = (self._users.git, "-C", place, *NO_HOOKS_OPTIONS, "diff-index", "--cached", "--quiet", commit, "--")
        return run_program(argv, self._users.env).code == 0


def _checked_out_message(branch: str, place: str) -> str:
    return (
        f"branch {branch} is checked out in {place}, and a branch that somebody works on is not moved; "
        "check out another one there, or land on another: --onto BRANCH"
    )


class RemoteBranch:
    """A branch of a remote. What it names is fetched, and no ref of this repository changes."""

    def __init__(self, users: UserGit, remote: str, branch: str, run_remote: RunGit | None = None) -> None:
        """`run_remote` runs the git commands that talk to the remote; by default in the repository itself."""
        users.check_branch_name(branch)
        if remote.startswith("-") or "\0" in remote or not remote:
            raise Refused(f"{remote!r} cannot be the name of a remote")
        self._users, self._remote, self._branch, self._run_remote = users, remote, branch, run_remote or users.run
        self.name = f"{remote}:{branch}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self._branch}"

    def tip(self) -> str:
        for _ in range(MOVE_TRIES):
            found = self._named()
            if not found or self._users.resolve_commit(found):
                return found
            quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
            self._ask("fetch", *quiet, self._remote, self._ref)
        raise Refused(f"{self.name} is moved by somebody else again and again; try again")

    def _named(self) -> str:
        told = self._ask("ls-remote", "--quiet", self._remote, self._ref).decode("utf-8", "replace")
        rows = (line.split("\t") for line in told.splitlines())
        return next((id for id, *ref in rows if ref == [self._ref] and is_object_id(id)), "")

    def _ask(self, *args: str) -> bytes:
        return self._run_remote(*REMOTE_OPTIONS, *args, timeout_s=NETWORK_TIMEOUT_S).out

    def move(self, old: str, new: str) -> bool:
        """The remote itself compares: what others pushed meanwhile stays."""
        lease = f"--force-with-lease={self._ref}:{old}"
        argv = ("push", "--quiet", "--no-verify", "--atomic", lease, self._remote, f"{new}:{self._ref}")
        reply = self._run_remote(*REMOTE_OPTIONS, *argv, good=(0, 1, 128), timeout_s=NETWORK_TIMEOUT_S)
        if reply.code == 0:
            return True
        now = self._named()  # an answer that was lost on its way tells nothing of what was done
        if now == old:
            raise Refused(f"{self._remote} does not take {self._branch}: {reply.said}")
        return now == new


# The branch that work of a branch lands on: one of its own, which the user merges when they like it.


LANDING_BRANCH_PREFIX = "ralph/"
FOLLOW_TRIES = 5


def current_branch(users: UserGit) -> str:
    """The branch that is checked out here; raises Refused where none is."""
    here = users.run_line("symbolic-ref", "-q", "HEAD")
    if not here.startswith("refs/heads/"):
        raise Refused("no branch is checked out here, so there is none that work could land for; say --onto BRANCH")
    return here.removeprefix("refs/heads/")


def landing_target(users: UserGit, onto: str = "") -> tuple[LocalBranch, LandingItem | None]:
    """The branch to land on, and what the user committed on theirs since: it has to land first.

    Without a name it is `ralph/BRANCH` for the current one, made at its tip where it is not there. Where the user has
    merged it, it is moved up to theirs. A branch that is named must be there, and nobody's commits are brought to it.
    Raises Refused where a work tree has it.
    """
    if onto := onto.removeprefix("refs/heads/"):
        target = LocalBranch(users, onto)
        target.refuse_checked_out()
        if not target.tip():
            raise Refused(f"there is no branch {onto}; make it: git branch {onto}")
        return target, None
    here = current_branch(users)
    if here.startswith(LANDING_BRANCH_PREFIX):
        raise Refused(
            f"{here} is checked out, and work lands on such branches while nobody works on them; "
            "git switch to your own branch, or say --onto BRANCH"
        )
    return _follow_current_branch(users, here)


def _follow_current_branch(users: UserGit, here: str) -> tuple[LocalBranch, LandingItem | None]:
    target = LocalBranch(users, LANDING_BRANCH_PREFIX + here)
    target.refuse_checked_out()
    for _ in range(FOLLOW_TRIES):
        theirs, tip = users.branch_commit(here), target.tip()
        if not theirs:
            raise Refused(f"branch {here} has no commit yet, so nothing can land on it; commit first")
        if tip == theirs or (tip and users.contains(tip, theirs)):
            return target, None
        if tip and not users.contains(theirs, tip):
            return target, LandingItem("", theirs, f"Merge branch '{here}'")
        if target.move(tip, theirs):
            return target, None
    raise Refused(f"branch {target.name} is moved by somebody else again and again; try again")
