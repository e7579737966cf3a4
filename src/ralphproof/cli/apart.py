"""A run in a work tree of its own: laid before it begins, and cleared away when all of its work is on its branch."""

from __future__ import annotations

import os
import shutil
import sys
import time

from ralphproof.display.clean import clean, flat
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.ledgers.runs import LATEST
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Completed
from ralphproof.views.kept import kept_whole
from ralphproof.views.project import Project
from ralphproof.views.standing import row_of
from ralphproof.workspaces.inner import unshared
from ralphproof.workspaces.layout import OFFSHOOTS
from ralphproof.workspaces.offshoot import Offshoots, lone, unbrought
from ralphproof.workspaces.refs import ref_name
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.order import Order, Wish
    from ralphproof.cli.to_the_end import Which
    from ralphproof.keeper.client import Keeper
    from ralphproof.landing import Parcel
    from ralphproof.verdict import Outcome
    from ralphproof.workspaces.offshoot import Offshoot

INSIDE = "RALPH_RUN_ID"
ASIDE = "aside"  # the name of ours for what an agent left on its branch beside its work


def offshoots_of(project: Project) -> Offshoots:
    """The work trees that runs of this repository have for themselves; raises Refused where there is no git."""
    if not os.path.lexists(os.path.join(project.root, ".git")):
        raise Refused(f"{project.root} has no git repository at its top, and a worktree needs one; run git init")
    return Offshoots(project.root, os.path.join(project.store, OFFSHOOTS), os.environ)


def moved_apart(wish: Wish, project: Project, name: str, base: str = "HEAD") -> tuple[Wish, Offshoot, list[str]]:
    """The wish for a work tree of its own, which is made, and what there is to say of that."""
    if os.environ.get(INSIDE):
        raise Refused("--worktree is not for runs inside another one; leave it away")
    made = offshoots_of(project).make(name, base)
    git = UsersGit(project.root, os.environ)
    told = [f"{path} is not committed as it is here; the worktree has what is committed" for path in
            unbrought(project.root, made.place)]  # fmt: skip
    if base == "HEAD" and git.line("status", "--porcelain", "--untracked-files=no"):
        told.append("what is not committed here is not in the worktree")
    return replace(wish, folder=made.place, apart=True), made, told


def begun_apart(order: Order) -> tuple[Order, Which]:
    """The order of a new run, once more in a work tree of its own; and which run that is: the tree has its name."""
    from ralphproof.cli.order import prepare
    from ralphproof.cli.to_the_end import Which

    run = new_run_id(time.time(), os.urandom(3))
    wish, made, told = moved_apart(order.wish, order.project, run)
    try:
        there = prepare(wish)
    except BaseException:
        clear_away(order.project, made, (), branch=True)  # nothing was begun in it
        raise
    where = f"works in {made.place}, on branch {made.branch}"
    return replace(there, remarks=(where, *told, *there.remarks)), Which(run)


def forsaken(project: Project) -> None:
    """Nothing was begun in this work tree after all: it goes, unless somebody began something there."""
    offshoot = offshoot_at(project, project.root)
    ledger = project.ledger()
    try:
        begun = ledger.look.newest(project.root)
    finally:
        ledger.close()
    if offshoot is not None and begun is None:
        clear_away(replace(project, root=offshoot.home), offshoot, (), branch=True)


def offshoot_at(project: Project, place: str) -> Offshoot | None:
    """The offshoot whose files lie there; None where it is none of ours."""
    name = os.path.basename(place)
    found = offshoots_of(project).named(name)
    return found if found and os.path.realpath(found.place) == os.path.realpath(place) else None


def parcel_of_run(project: Project, run: str) -> Parcel:
    """What a completed run has to land; raises Refused for any other."""
    from ralphproof.cli.landing_parcel import parcel_of

    ledger = project.ledger()
    try:
        return parcel_of(project, ledger, row_of(ledger, run), os.environ)
    finally:
        ledger.close()


def deliver(offshoot: Offshoot, parcel: Parcel) -> None:
    """Let the branch of a work tree name the commit of its run's work. Its files are as they were.

    An agent may have worked on another branch at last: what it left on this one keeps a name among the run's refs.
    """
    there = UsersGit(offshoot.place, os.environ)
    old = there.branch(offshoot.branch)
    if old == parcel.commit:
        return
    if old and not there.holds(parcel.commit, old):
        there.ask("update-ref", ref_name(parcel.run, ASIDE), old)
    there.ask("update-ref", "-m", f"ralph: the work of run {parcel.run}", f"refs/heads/{offshoot.branch}",
              parcel.commit, *([old] if old else []))  # fmt: skip
    there.ask("read-tree", "--reset", "-i", parcel.commit)  # what a sparse checkout leaves out stays marked as such


def clear_away(project: Project, offshoot: Offshoot, runs: tuple[str, ...], branch: bool = False) -> None:
    """Remove a work tree whose work is elsewhere. What its runs left for people goes to the user's own checkout."""
    for run in runs:
        _bring_home(offshoot, run, project)
    Offshoots(offshoot.home, os.path.join(project.store, OFFSHOOTS), os.environ).remove(offshoot, branch)


def must_stay(project: Project, offshoot: Offshoot, run: str, branch: bool = False) -> str:
    """Why the work tree of a run that is over has to stay: something in it is nowhere else; empty where nothing is.

    With `branch` its branch is to go too.
    """
    if not kept_whole(project, run):
        return "not all of it could be saved"
    if lone(offshoot, os.environ, branch):
        return "it has commits that nothing else names"
    if inner := unshared(offshoot.place, offshoot.base, os.environ):
        return f"repositories in it have commits that are nowhere else ({', '.join(inner)})"
    return ""


def _bring_home(offshoot: Offshoot, run: str, project: Project) -> None:
    source = os.path.join(offshoot.place, ".ralph", "runs", run)
    target = os.path.join(offshoot.home, ".ralph", "runs", run)
    if not os.path.isdir(source) or os.path.islink(source) or not os.path.isdir(offshoot.home):
        return
    ledger = project.ledger()
    try:
        latest = ledger.find(LATEST) == run
    finally:
        ledger.close()
    RunFolder(offshoot.home, run, project.store, project.mask, latest=latest).begin()
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_odd)
    except shutil.Error:
        return  # what can be read is there; the whole lies in the state folder
    except OSError as error:
        raise from_system(error) from error


def _odd(folder: str, names: list[str]) -> set[str]:
    """What is neither a file, a folder nor a link: an agent may leave pipes and sockets in its task folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name for name, path in paths.items() if not (os.path.islink(path) or os.path.isfile(path) or
                                                         os.path.isdir(path))}  # fmt: skip


def looped_apart(order: Order, keeper: Keeper, args: Namespace, which: Which) -> Outcome:
    """Run it to its end in a work tree of its own, and see to that."""
    from ralphproof.cli.run import looped

    try:
        outcome = looped(order, keeper, args, which)
    except RalphError:
        forsaken(order.project)
        raise
    run = which.row.id if which.row else which.run
    for line in ended_apart(order.project, run, isinstance(outcome, Completed)):
        if not args.quiet:
            print(flat(clean(order.project.mask(line))), file=sys.stderr)
    return outcome


def ended_apart(project: Project, run: str, completed: bool) -> list[str]:
    """See to the work tree of a run that has ended; what there is to say of it.

    A completed run's work goes to its branch, and if all of it is there the tree is cleared away. Any other run is
    taken up there, so it stays.
    """
    if not os.path.lexists(os.path.join(project.root, ".git")):
        there = f"{project.root} has no .git any more, so no branch has the work of run {run}; its refs have it: "
        return [there + (f"ralph land {run}" if completed else f"ralph branch {run}")]
    offshoot = offshoot_at(project, project.root)
    if offshoot is None:
        return []
    if not completed:
        return [f"its work tree stays: {offshoot.place} (branch {offshoot.branch})"]
    parcel = parcel_of_run(project, run)
    deliver(offshoot, parcel)
    take = f"git merge {offshoot.branch}, or with its checks once more: ralph land {run}"
    told = [*parcel.remarks, f"the work is on branch {offshoot.branch}; take it: {take}"]
    if why := must_stay(project, offshoot, run):
        return [*told, f"its work tree stays, {why}: {offshoot.place}"]
    clear_away(replace(project, root=offshoot.home), offshoot, (run,))
    return told
