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
    from ralphproof.store.ledger import SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.workspace.git_command import UserGit


def _print_results(args: Namespace, project: Project, target: LandingTarget, results: tuple[LandingResult, ...]) -> int:
    """Print the result of each run; the exit code."""
    code = int(any(isinstance(result, LandingRejected) for result in results))
    if args.json:
        tip: Json = target.tip() or None
        items: list[Json] = [landing_result_json(project, result) for result in results]
        print_json("land", {"target": target.name, "tip": tip, "parcels": items, "exitCode": code})
        return code
    if not results:
        print_lines(f"nothing to land on {target.name}: no run is waiting; name a run, or see: ralph runs")
    for result in results:
        print_lines(*(project.mask(text) for text in landing_result_lines(result)))
    return code


ABOUT = """Merge completed runs onto a branch, with their checks run again.

The branch is ralph/BRANCH for your current branch, or --onto; it must not be checked out. Runs are merged onto its tip
one after the other without a worktree: index, HEAD and files stay. Then the checks of all of them, and of what landed
before, run on the merged tree in fresh checkouts. The branch moves only if all pass, in one step. If they fail, halves
are tried: the good ones land, each bad one is rejected with what failed. Conflicting runs are rejected with the
conflicting paths. Rejected work is kept; ralph land without a run tries rejected and interrupted ones again. New
commits on your branch are merged first.

Exit codes: 0 all landed, 1 one was rejected, 2 refused, 130 interrupted (nothing moved; it continues next time)."""
EXAMPLES = (
    "ralph land latest",
    "ralph land 20261115-21 20261115-22",
    "ralph land",
    "ralph land latest --onto develop --rebase",
    "git merge ralph/main   # take over what landed",
)


def build_parser() -> Parser:
    parser = Parser("land", ABOUT, EXAMPLES)
    add = parser.add_argument
    add(
        "runs",
        nargs="*",
        metavar="RUN",
        help="run id, unique prefix, or latest (default: all rejected or interrupted ones)",
    )
    add("--onto", metavar="BRANCH", default="", help="branch to land on (default: ralph/ and the current branch)")
    add("--rebase", action="store_true", help="replay each commit instead of merging; keeps authors and messages")
    add("--unverified", action="store_true", help="also land work that no check verified")
    kinds = "bubblewrap, container, landlock, sandbox-exec"
    add(
        "--sandbox",
        metavar="[=KIND]",
        help=f"run checks in a sandbox: the strongest, or {kinds} (default: as the runs)",
    )
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
        items = _select_items(args, project, ledger, users, target.name)
        results = _land(args, project, ledger, items) if items else ()
    finally:
        ledger.close()
    return _print_results(args, project, target, results)


def _select_items(
    args: Namespace, project: Project, ledger: SqliteLedger, users: UserGit, target: str
) -> tuple[LandingItem, ...]:
    """The landing items of the named runs; else of all rejected or interrupted ones."""
    from ralphproof.cli.parser import find_named_run

    known = {row.item.run: row for row in ledger.landings.rows(target)}
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

    if row is not None and users.resolve_commit(row.item.commit):
        return row.item
    run_row = ledger.row(run)
    if run_row is None:
        raise Refused(f"the work of run {run} is no longer in this repository, and the run is not recorded here")
    return build_landing_item(project, ledger, run_row, os.environ)


def _land(
    args: Namespace, project: Project, ledger: SqliteLedger, items: tuple[LandingItem, ...]
) -> tuple[LandingResult, ...]:
    from ralphproof.landing.merge_queue import land_items
    from ralphproof.process.signals import RunClock

    clock = RunClock(grace_s=0.0)
    clock.listen()

    def print_progress(line: str) -> None:
        from ralphproof.base.escaping import collapse_lines, sanitize

        if not args.quiet:
            print(collapse_lines(sanitize(project.mask(line))), file=sys.stderr, flush=True)

    return land_items(
        project, ledger, items, clock, print_progress, environ=os.environ, onto=args.onto, rebase=args.rebase,
        unverified=args.unverified, sandbox=args.sandbox,
    )  # fmt: skip
