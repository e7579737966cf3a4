"""`ralph land`: land completed runs on a branch."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import closing

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.cli.run_flags import progress_printer
from ralphproof.display.output import print_json, print_lines
from ralphproof.landing.landing_items import items_to_land, landing_result_json, landing_result_lines
from ralphproof.landing.merge_queue import LandingOptions, land_items
from ralphproof.landing.targets import LandingTarget, landing_target
from ralphproof.process.signals import RunClock
from ralphproof.runs.open_project import open_project
from ralphproof.sandbox.selection import HOST_TOOL_KIND_NAMES
from ralphproof.store.landings import LandingRejected, LandingResult
from ralphproof.store.project import Project
from ralphproof.workspace.git_command import UserGit

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


def land_parser() -> Parser:
    parser = Parser("land", ABOUT, EXAMPLES)
    add = parser.add
    runs = "run id, unique prefix, or latest (default: all rejected or interrupted ones)"
    add("runs", runs, nargs="*", metavar="RUN")
    add("--onto BRANCH", "branch to land on (default: ralph/ and the current branch)", default="")
    add("--rebase", "replay each commit instead of merging; keeps authors and messages")
    add("--unverified", "also land work that no check verified")
    sandbox = f"run checks in a sandbox: the strongest, or {HOST_TOOL_KIND_NAMES} (default: as the runs)"
    add("--sandbox [=KIND]", sandbox)
    return parser


def land_main(argv: list[str]) -> int:
    args = land_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    user_git = UserGit(project.root, os.environ)
    target, user_commits, base = landing_target(user_git, args.onto)
    options = LandingOptions(base, args.rebase, args.unverified, args.sandbox)
    with closing(project.ledger(read_only=False)) as ledger:
        runs = [find_named_run(ledger, name, args, shown=True).id for name in args.runs]
        if len(set(runs)) < len(runs):
            raise Refused("a run is named twice; name it once")
        items = items_to_land(project, ledger, user_git, target.name, runs)
        if not items:
            return _print_results(args, project, target, ())
        clock = RunClock(grace_s=0.0)
        clock.listen()
        items = (*((user_commits,) if user_commits else ()), *items)
        notify = progress_printer(project, args.quiet)
        results = land_items(project, ledger, target, items, clock, notify, os.environ, options)
    return _print_results(args, project, target, results)


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
