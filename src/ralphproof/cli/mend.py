"""Work that was finished and did not land: its agent gets one more iteration, on top of what came in its way."""

from __future__ import annotations

import os

from ralphproof.check import Report
from ralphproof.cli.landing_told import reason
from ralphproof.landing import Conflict, Red, Unshown
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from ralphproof.cli.order import Wish
    from ralphproof.landing import TurnedAway
    from ralphproof.workspaces.offshoot import Offshoot

STAGES = ("coder", "reviewer", "tester", "qa")
NAMED, TOLD_CHARS = 20, 4000
OPENS = "^(<<<<<<<|>>>>>>>) "  # a line of seven equal signs alone may be a headline


@value
class Mend:
    """What its agent is to mend: the target's commit that its work was merged onto, and the files that this makes.

    `paths` hold conflict markers.
    """

    onto: str
    tree: str
    commit: str
    why: str
    told: str
    paths: tuple[str, ...] = ()

    @staticmethod
    def of(end: TurnedAway, target: str) -> Mend | None:
        """What there is to mend; None where nothing can be made of it."""
        why = end.why
        if isinstance(why, Unshown) or not why.tree:
            return None
        first = (
            f"Your work on this task was finished, and then it could not be put onto the branch {target}, which has "
            f"moved on since. The files here are now those of {target} with your work merged into them. "
        )
        paths = why.paths if isinstance(why, Conflict) else ()
        return Mend(why.onto, why.tree, end.parcel.commit, reason(why), first + _asked(why), paths)


def _asked(why: Conflict | Red) -> str:
    if isinstance(why, Conflict):
        named = "\n".join(f"- {path}" for path in why.paths[:NAMED])
        return (
            f"Both changed the same places, and these files hold conflict markers:\n\n{named}\n\nResolve every "
            "conflict so that both changes keep their meaning, and leave no marker behind."
        )
    shown = Report(why.findings).shown.failed  # what is held out is told nobody
    failed = "\n\n".join(f"{one.check}: {one.why}\n{one.output[-TOLD_CHARS:]}" for one in shown[:NAMED])
    return (
        "Each passes its checks alone, and together they fail. Mend that without undoing what the other did. "
        f"What failed:\n\n{failed}"
    )


def mended(wish: Wish, offshoot: Offshoot, mend: Mend) -> Wish:
    """The wish for that iteration, with the files of the work tree as it is to find them.

    The work as it was stays in the refs of its run. The branch names the target's commit from now on, so all that
    differs from it is this task's.
    """
    there = UsersGit(offshoot.place, os.environ)
    there.ask("read-tree", "--reset", "-u", mend.tree)
    there.ask("update-ref", "-m", "ralph: on top of what landed", f"refs/heads/{offshoot.branch}", mend.onto)
    there.ask("symbolic-ref", "HEAD", f"refs/heads/{offshoot.branch}")  # its agent may have gone to another one
    there.ask("read-tree", "--reset", "-i", mend.onto)
    left = [stage for stage in STAGES if stage not in wish.skip]
    flags = {**wish.flags, "maximumIterations": 1}
    return replace(wish, folder=offshoot.place, apart=True, words=mend.told, flags=flags, skip=(*wish.skip, *left[1:]))


def marked(users: UsersGit, commit: str, base: str) -> list[str]:
    """The files that hold conflict markers here and not in `base`: a check that does not read them is blind to that."""

    def found(revision: str) -> set[str]:
        asked = ("grep", "-l", "-z", "-I", "-E", "--full-name", "-e", OPENS, revision, "--")
        names = users.ask(*asked, good=(0, 1)).out.split(b"\0")
        return {name.partition(b":")[2].decode("utf-8", "replace") for name in names if name}

    return sorted(found(commit) - found(base))
