"""`ralph land`: land completed runs on a branch."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.landing.results import landing_result_json, landing_result_lines
from ralphproof.store.landings import LandingRejected

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.landing.batch import LandingTarget
    from ralphproof.store.landings import LandingItem, LandingResult, LandingRow
    from ralphproof.store.project import Project
    from ralphproof.store.sqlite_ledger import SqliteLedger
    from ralphproof.workspace.git_command import UserGit


def _print_results(args: Namespace, project: Project, target: LandingTarget, ends: tuple[LandingResult, ...]) -> int:
    """Say what became of each parcel; the exit code."""
    code = int(any(isinstance(end, LandingRejected) for end in ends))
    if args.json:
        tip: Json = target.tip() or None
        told: list[Json] = [landing_result_json(project, end) for end in ends]
        print_json("land", {"target": target.name, "tip": tip, "parcels": told, "exitCode": code})
        return code
    if not ends:
        print_lines(f"nothing to land on {target.name}: nothing is left over; name a run, or see: ralph runs")
    for end in ends:
        print_lines(*(project.mask(text) for text in landing_result_lines(end)))
    return code


# `ralph land`: completed runs onto a branch, merged and checked again, one queue for all of them.


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


def build_parser() -> Parser:
    parser = Parser("land", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="an id, its beginning, or latest (default: all that is left)")
    add("--onto", metavar="BRANCH", default="", help="the branch to land on (default: ralph/ and the current one)")
    add("--rebase", action="store_true", help="replay each commit instead of a merge; authors and messages stay")
    add("--unverified", action="store_true", help="land also what no check verified")
    kinds = "bubblewrap, container, landlock, sandbox-exec"
    add("--sandbox", metavar="[=KIND]", help=f"run checks in a sandbox: the strongest, or {kinds} (default: the runs')")
    return parser


def main(argv: list[str]) -> int:
    from ralphproof.landing.targets import landing_target
    from ralphproof.runs.open_project import open_project
    from ralphproof.workspace.git_command import UserGit

    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    users = UserGit(project.root, os.environ)
    target, _ = landing_target(users, args.onto)
    ledger = project.ledger(read_only=False)
    try:
        parcels = _select_items(args, project, ledger, users, target.name)
        ends = _land(args, project, ledger, parcels) if parcels else ()
    finally:
        ledger.close()
    return _print_results(args, project, target, ends)


def _select_items(
    args: Namespace, project: Project, ledger: SqliteLedger, users: UserGit, target: str
) -> tuple[LandingItem, ...]:
    """The parcels of the runs that were named; else of all that is left."""
    from ralphproof.views.run_list import find_named_run

    known = {row.parcel.run: row for row in ledger.landings.rows(target)}
    rows = [find_named_run(ledger, name, args, shown=True) for name in args.runs]
    wanted = dict.fromkeys(row.id for row in rows)
    if len(wanted) < len(rows):
        raise Refused("a run is named twice; name it once")
    left = [run for run, row in known.items() if row.left]
    return tuple(_item_of_run(project, ledger, users, run, known.get(run)) for run in (wanted if args.runs else left))


def _item_of_run(
    project: Project, ledger: SqliteLedger, users: UserGit, run: str, row: LandingRow | None
) -> LandingItem:
    from ralphproof.landing.merge_queue import build_landing_item

    if row is not None and users.commit_of(row.parcel.commit):
        return row.parcel
    found = ledger.row(run)
    if found is None:
        raise Refused(f"the work of run {run} is not in this repository any more, and the run was elsewhere")
    return build_landing_item(project, ledger, found, os.environ)


def _land(
    args: Namespace, project: Project, ledger: SqliteLedger, parcels: tuple[LandingItem, ...]
) -> tuple[LandingResult, ...]:
    from ralphproof.landing.merge_queue import land_items
    from ralphproof.process.signals import RunClock

    present = RunClock(grace_s=0.0)
    present.listen()

    def told(line: str) -> None:
        from ralphproof.base.escaping import collapse_lines, sanitize

        if not args.quiet:
            print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)

    return land_items(
        project, ledger, parcels, present, told, environ=os.environ, onto=args.onto, rebase=args.rebase,
        unverified=args.unverified, sandbox=args.sandbox,
    )  # fmt: skip
