"""Branches that finished work lands on: of this repository, or of a remote. They move in one step, or not at all."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.gitcall import NOTHING_RUNS, call
from ralphproof.workspaces.layout import is_id, read_small

if TYPE_CHECKING:
    from ralphproof.workspaces.users_git import UsersGit

DURABLE = ("-c", "core.fsync=committed,loose-object", "-c", "core.filesRefLockTimeout=2000")
# A remote's address is a setting of the repository: one that would start a program is not followed.
REACHED = ("-c", "protocol.ext.allow=never")
NETWORK_S = 600.0
NOTE = "ralph land"
REBASES = ("rebase-merge", "rebase-apply")  # where git notes whose branch it rebases, with HEAD on none
TRIES = 3


class LocalBranch:
    """A branch of this repository that nobody has checked out. Nothing but the branch changes."""

    def __init__(self, users: UsersGit, branch: str) -> None:
        users.must_be_a_branch_name(branch)
        self._users, self.name = users, branch

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def tip(self) -> str:
        return self._users.branch(self.name)

    def move(self, old: str, new: str) -> bool:
        """Raises Refused where a work tree has the branch: its files and its index would no longer be those of HEAD."""
        self.refuse_checked_out()
        if not self._swap(old, new):
            return False
        place = self._in_use()
        if place and self._shows(place, old) and self._swap(new, old):
            raise Refused(_held(self.name, place))  # it was checked out at this very moment
        return True

    def refuse_checked_out(self) -> None:
        """Raise Refused where a work tree has the branch."""
        if place := self._in_use():
            raise Refused(_held(self.name, place))

    def _in_use(self) -> str:
        """Where somebody works on it: it is checked out there, or is being rebased."""
        common = self._users.folders.common
        above = os.path.join(common, "worktrees")
        others = [os.path.join(above, name) for name in (os.listdir(above) if os.path.isdir(above) else ())]
        found = (one for one in (common, *others) if self._rebased(one))
        return self._users.checked_out(self.name) or next(found, "")

    def _rebased(self, git_dir: str) -> bool:
        for kind in REBASES:
            try:
                if read_small(os.fsencode(os.path.join(git_dir, kind, "head-name"))).strip() == self._ref.encode():
                    return True
            except OSError:
                continue
        return False

    def _swap(self, old: str, new: str) -> bool:
        before = old or "0" * len(new)
        argv = ("update-ref", "-m", NOTE, "--create-reflog", self._ref, new, before)
        reply = self._users.ask(*DURABLE, *argv, good=(0, 1, 128))
        if reply.code == 0:
            return True
        if self.tip() == old:
            raise Refused(f"branch {self.name} cannot be moved: {reply.said}")
        return False

    def _shows(self, place: str, commit: str) -> bool:
        """Whether the index of a work tree is that of a commit."""
        argv = (self._users.git, "-C", place, *NOTHING_RUNS, "diff-index", "--cached", "--quiet", commit, "--")
        return call(argv, self._users.env).code == 0


def _held(branch: str, place: str) -> str:
    return (
        f"branch {branch} is checked out in {place}, and a branch that somebody works on is not moved; "
        "check out another one there, or land on another: --onto BRANCH"
    )


class RemoteBranch:
    """A branch of a remote. What it names is fetched, and no ref of this repository changes."""

    def __init__(self, users: UsersGit, remote: str, branch: str) -> None:
        users.must_be_a_branch_name(branch)
        if remote.startswith("-") or "\0" in remote or not remote:
            raise Refused(f"{remote!r} cannot be the name of a remote")
        self._users, self._remote, self._branch = users, remote, branch
        self.name = f"{remote}:{branch}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self._branch}"

    def tip(self) -> str:
        for _ in range(TRIES):
            found = self._named()
            if not found or self._users.commit_of(found):
                return found
            quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
            self._ask("fetch", *quiet, self._remote, self._ref)
        raise Refused(f"{self.name} is moved by somebody else again and again; try again")

    def _named(self) -> str:
        told = self._ask("ls-remote", "--quiet", self._remote, self._ref).decode("utf-8", "replace")
        rows = (line.split("\t") for line in told.splitlines())
        return next((id for id, *ref in rows if ref == [self._ref] and is_id(id)), "")

    def _ask(self, *args: str) -> bytes:
        return self._users.ask(*REACHED, *args, timeout_s=NETWORK_S).out

    def move(self, old: str, new: str) -> bool:
        """The remote itself compares: what others pushed meanwhile stays."""
        lease = f"--force-with-lease={self._ref}:{old}"
        argv = ("push", "--quiet", "--no-verify", "--atomic", lease, self._remote, f"{new}:{self._ref}")
        reply = self._users.ask(*REACHED, *argv, good=(0, 1, 128), timeout_s=NETWORK_S)
        if reply.code == 0:
            return True
        now = self._named()  # an answer that was lost on its way tells nothing of what was done
        if now == old:
            raise Refused(f"{self._remote} does not take {self._branch}: {reply.said}")
        return now == new
