"""Branches that work lands on, of this repository or of a remote."""

from __future__ import annotations

import os
from collections.abc import Callable

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.value import Protocol
from ralphproof.store.landings import LandingItem
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, UserGit

RunGit = Callable[..., ProgramResult]


DURABLE_OPTIONS = ("-c", "core.fsync=committed,loose-object", "-c", "core.filesRefLockTimeout=2000")
# A remote's URL comes from the repository's config: ext:: URLs would start a program.
REMOTE_OPTIONS = ("-c", "protocol.ext.allow=never")
NETWORK_TIMEOUT_S = 600.0
REFLOG_MESSAGE = "ralph land"
REBASE_FOLDERS = ("rebase-merge", "rebase-apply")  # hold the branch that git rebases while HEAD is detached
MOVE_TRIES = 3


class LandingTarget(Protocol):
    """A branch that work lands on."""

    name: str

    def tip(self) -> str:
        """The commit that the branch names, fetched if it is remote; empty where there is no such branch."""

    def move(self, old: str, new: str) -> bool:
        """Atomically move the branch from `old` to `new`; False where it does not name `old`. Raises Refused where the
        branch may not be moved.
        """


class LocalBranch:
    """A branch of this repository that no worktree has checked out. Only the ref changes."""

    def __init__(self, user_git: UserGit, branch: str) -> None:
        user_git.check_branch_name(branch)
        self._user_git, self.name = user_git, branch

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def tip(self) -> str:
        return self._user_git.branch_commit(self.name)

    def move(self, old: str, new: str) -> bool:
        """Raises Refused where a worktree has the branch: its files and index would no longer match HEAD."""
        self.refuse_checked_out()
        if not self._swap(old, new):
            return False
        folder = self._place_in_use()
        if folder and self._index_matches(folder, old) and self._swap(new, old):
            raise Refused(_checked_out_message(self.name, folder))  # it was checked out during the move
        return True

    def refuse_checked_out(self) -> None:
        """Raise Refused where a worktree has checked the branch out."""
        if folder := self._place_in_use():
            raise Refused(_checked_out_message(self.name, folder))

    def _place_in_use(self) -> str:
        """The folder in which the branch is checked out or being rebased; empty if there is none."""
        common = self._user_git.folders.common
        above = os.path.join(common, "worktrees")
        others = [os.path.join(above, name) for name in (os.listdir(above) if os.path.isdir(above) else ())]
        rebasing = (git_dir for git_dir in (common, *others) if self._is_rebased(git_dir))
        return self._user_git.find_checkout(self.name) or next(rebasing, "")

    def _is_rebased(self, git_dir: str) -> bool:
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
        reply = self._user_git.run(*DURABLE_OPTIONS, *argv, good=(0, 1, 128))
        if reply.code == 0:
            return True
        if self.tip() == old:
            raise Refused(f"branch {self.name} cannot be moved: {reply.said}")
        return False

    def _index_matches(self, folder: str, commit: str) -> bool:
        """Whether the index of a worktree equals the tree of a commit."""
        argv = (self._user_git.git, "-C", folder, *NO_HOOKS_OPTIONS, "diff-index", "--cached", "--quiet", commit, "--")
        return run_program(argv, self._user_git.env).code == 0


def _checked_out_message(branch: str, folder: str) -> str:
    return (
        f"branch {branch} is checked out in {folder}, and a branch that somebody works on is not moved; "
        "check out another one there, or land on another: --onto BRANCH"
    )


class RemoteBranch:
    """A branch of a remote. Its commits are fetched; no ref of this repository changes."""

    def __init__(self, user_git: UserGit, remote: str, branch: str, run_remote: RunGit | None = None) -> None:
        """`run_remote` runs the git commands that talk to the remote; by default in the repository itself."""
        user_git.check_branch_name(branch)
        if remote.startswith("-") or "\0" in remote or not remote:
            raise Refused(f"{remote!r} cannot be the name of a remote")
        self._user_git, self._run_remote = user_git, run_remote or user_git.run
        self._remote, self._branch = remote, branch
        self.name = f"{remote}:{branch}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self._branch}"

    def tip(self) -> str:
        for _ in range(MOVE_TRIES):
            commit = self._remote_commit()
            if not commit or self._user_git.resolve_commit(commit):
                return commit
            quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
            self._run("fetch", *quiet, self._remote, self._ref)
        raise Refused(f"{self.name} is moved by somebody else again and again; try again")

    def _remote_commit(self) -> str:
        output = self._run("ls-remote", "--quiet", self._remote, self._ref).decode("utf-8", "replace")
        rows = (line.split("\t") for line in output.splitlines())
        return next((id for id, *ref in rows if ref == [self._ref] and is_object_id(id)), "")

    def _run(self, *args: str) -> bytes:
        return self._run_remote(*REMOTE_OPTIONS, *args, timeout_s=NETWORK_TIMEOUT_S).out

    def move(self, old: str, new: str) -> bool:
        """The remote compares and swaps (--force-with-lease), so commits that others pushed meanwhile are not lost."""
        lease = f"--force-with-lease={self._ref}:{old}"
        argv = ("push", "--quiet", "--no-verify", "--atomic", lease, self._remote, f"{new}:{self._ref}")
        reply = self._run_remote(*REMOTE_OPTIONS, *argv, good=(0, 1, 128), timeout_s=NETWORK_TIMEOUT_S)
        if reply.code == 0:
            return True
        now = self._remote_commit()  # the push may have succeeded although its answer was lost
        if now == old:
            raise Refused(f"{self._remote} does not take {self._branch}: {reply.said}")
        return now == new


# The landing branch of a user's branch, which the user merges when they like it


LANDING_BRANCH_PREFIX = "ralph/"
FOLLOW_TRIES = 5


def current_branch(user_git: UserGit) -> str:
    """The branch that is checked out; raises Refused on a detached HEAD."""
    branch = user_git.run_line("symbolic-ref", "-q", "HEAD")
    if not branch.startswith("refs/heads/"):
        raise Refused("no branch is checked out here, so there is none that work could land for; say --onto BRANCH")
    return branch.removeprefix("refs/heads/")


def landing_target(user_git: UserGit, onto: str = "") -> tuple[LocalBranch, LandingItem | None, str]:
    """The branch to land on, commits on the user's branch that it lacks and that have to land first, and the tip of
    that branch.

    By default it is `ralph/BRANCH` for the current BRANCH, created at its tip if missing, and fast-forwarded where the
    user has merged it. A branch named by `onto` must exist, and no commits of the user are added to it. Raises Refused
    where a worktree has it checked out.
    """
    if onto := onto.removeprefix("refs/heads/"):
        target = LocalBranch(user_git, onto)
        target.refuse_checked_out()
        if not target.tip():
            raise Refused(f"there is no branch {onto}; make it: git branch {onto}")
        return target, None, ""
    branch = current_branch(user_git)
    if branch.startswith(LANDING_BRANCH_PREFIX):
        raise Refused(
            f"{branch} is checked out, and work lands on such branches while nobody works on them; "
            "git switch to your own branch, or say --onto BRANCH"
        )
    return _follow_current_branch(user_git, branch)


def _follow_current_branch(user_git: UserGit, branch: str) -> tuple[LocalBranch, LandingItem | None, str]:
    target = LocalBranch(user_git, LANDING_BRANCH_PREFIX + branch)
    target.refuse_checked_out()
    for _ in range(FOLLOW_TRIES):
        user_commit, tip = user_git.branch_commit(branch), target.tip()
        if not user_commit:
            raise Refused(f"branch {branch} has no commit yet, so nothing can land on it; commit first")
        if tip == user_commit or (tip and user_git.contains(tip, user_commit)):
            return target, None, user_commit
        if tip and not user_git.contains(user_commit, tip):
            return target, LandingItem("", user_commit, f"Merge branch '{branch}'"), user_commit
        if target.move(tip, user_commit):
            return target, None, user_commit
    raise Refused(f"branch {target.name} is moved by somebody else again and again; try again")
