"""The branch that work of a branch lands on: one of its own, which the user merges when they like it."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.landing import Parcel
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.targets import LocalBranch

if TYPE_CHECKING:
    from ralphproof.workspaces.users_git import UsersGit

PREFIX = "ralph/"
TRIES = 5


def current_branch(users: UsersGit) -> str:
    """The branch that is checked out here; raises Refused where none is."""
    here = users.line("symbolic-ref", "-q", "HEAD")
    if not here.startswith("refs/heads/"):
        raise Refused("no branch is checked out here, so there is none that work could land for; say --onto BRANCH")
    return here.removeprefix("refs/heads/")


def target_for(users: UsersGit, onto: str = "") -> tuple[LocalBranch, Parcel | None]:
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
    if here.startswith(PREFIX):
        raise Refused(
            f"{here} is checked out, and work lands on such branches while nobody works on them; "
            "git switch to your own branch, or say --onto BRANCH"
        )
    return _followed(users, here)


def _followed(users: UsersGit, here: str) -> tuple[LocalBranch, Parcel | None]:
    target = LocalBranch(users, PREFIX + here)
    target.refuse_checked_out()
    for _ in range(TRIES):
        theirs, tip = users.branch(here), target.tip()
        if not theirs:
            raise Refused(f"branch {here} has no commit yet, so nothing can land on it; commit first")
        if tip == theirs or (tip and users.holds(tip, theirs)):
            return target, None
        if tip and not users.holds(theirs, tip):
            return target, Parcel("", theirs, f"Merge branch '{here}'")
        if target.move(tip, theirs):
            return target, None
    raise Refused(f"branch {target.name} is moved by somebody else again and again; try again")
