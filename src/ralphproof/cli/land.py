"""`ralph land`: completed runs onto a branch, merged and checked again, one queue for all of them."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.landing import LandingEnd, Parcel
    from ralphproof.ledgers.landings import LandingRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project
    from ralphproof.workspaces.users_git import UsersGit

ABOUT = """completed runs onto a branch, merged and checked again.

The branch is ralph/BRANCH for the one that you are on, or --onto; it must not be checked out. Runs are merged onto its
tip one after the other, without any work tree: index, HEAD and files stay as they are. Then the checks of all of them,
and of what landed before, run again on the merged tree in fresh checkouts. Only where all pass does the branch move, in
one step. Where they fail, halves are tried: the good ones land, and each bad one is turned away with what failed. What
conflicts is turned away with the paths. Its work stays as it is, and nothing is ever lost; ralph land without a name
tries again what was turned away, or cut off. Where you committed on your branch meanwhile, that is merged first.

Exit codes: 0 all landed, 1 one was turned away, 2 refused, 130 interrupted (nothing moved; it goes on next time)."""
EXAMPLES = (
    "ralph land latest",
    "ralph land 20261115-21 20261115-22",
    "ralph land",
    "ralph land latest --onto develop --rebase",
    "git merge ralph/main   # when you like what landed",
)


def parser() -> Parser:
    made = Parser("land", ABOUT, EXAMPLES)
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help="an id, its beginning, or latest (default: all that is left)")
    add("--onto", metavar="BRANCH", default="", help="the branch to land on (default: ralph/ and the current one)")
    add("--rebase", action="store_true", help="replay each commit instead of a merge; authors and messages stay")
    add("--unverified", action="store_true", help="land also what no check verified")
    kinds = "bubblewrap, container, landlock, sandbox-exec"
    add("--sandbox", metavar="[=KIND]", help=f"run checks in a sandbox: the strongest, or {kinds} (default: the runs')")
    return made


def main(argv: list[str]) -> int:
    from ralphproof.cli.landing_told import tell
    from ralphproof.views.project import Project
    from ralphproof.workspaces.landing_branch import target_for
    from ralphproof.workspaces.users_git import UsersGit

    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    users = UsersGit(project.root, os.environ)
    target, _ = target_for(users, args.onto)
    ledger = project.ledger(read_only=False)
    try:
        parcels = _wanted(args, project, ledger, users, target.name)
        ends = _landed(args, project, ledger, parcels) if parcels else ()
    finally:
        ledger.close()
    return tell(args, project, target, ends)


def _wanted(args: Namespace, project: Project, ledger: Sqlite, users: UsersGit, target: str) -> tuple[Parcel, ...]:
    """The parcels of the runs that were named; else of all that is left."""
    from ralphproof.cli.named_run import named_run

    known = {row.parcel.run: row for row in ledger.landings.rows(target)}
    rows = [named_run(ledger, name, args, shown=True) for name in args.runs]
    wanted = dict.fromkeys(row.id for row in rows)
    if len(wanted) < len(rows):
        raise Refused("a run is named twice; name it once")
    left = [run for run, row in known.items() if row.left]
    return tuple(_parcel(project, ledger, users, run, known.get(run)) for run in (wanted if args.runs else left))


def _parcel(project: Project, ledger: Sqlite, users: UsersGit, run: str, row: LandingRow | None) -> Parcel:
    from ralphproof.cli.landing_parcel import parcel_of

    if row is not None and users.commit_of(row.parcel.commit):
        return row.parcel
    found = ledger.row(run)
    if found is None:
        raise Refused(f"the work of run {run} is not in this repository any more, and the run was elsewhere")
    return parcel_of(project, ledger, found, os.environ)


def _landed(args: Namespace, project: Project, ledger: Sqlite, parcels: tuple[Parcel, ...]) -> tuple[LandingEnd, ...]:
    from ralphproof.cli.landing_call import land_parcels
    from ralphproof.cli.signals import Present

    present = Present(grace_s=0.0)
    present.listen()

    def told(line: str) -> None:
        from ralphproof.display.clean import clean, flat

        if not args.quiet:
            print(flat(clean(project.mask(line))), file=sys.stderr, flush=True)

    return land_parcels(
        project, ledger, parcels, present, told, environ=os.environ, onto=args.onto, rebase=args.rebase,
        unverified=args.unverified, sandbox=args.sandbox,
    )  # fmt: skip
