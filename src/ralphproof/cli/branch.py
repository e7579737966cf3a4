"""`ralph branch`: a branch with an iteration's work."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import format_count
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import SavedWork, branch_saved_work, excluded_file_lines, load_saved_work
from ralphproof.workspace.commits import CommitPlan

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Create a branch with an iteration's work.

The branch has one commit of yours on top of the commit that the iteration was based on; 0 is the start of the run, with
your uncommitted changes of that time. Index, HEAD and files stay, and no hook runs. Left out and listed are files too
large to be saved, new files that look like secrets, and files whose filter only .git/config defines.
Exit codes: 0 done, 2 refused."""
EXAMPLES = (
    "ralph branch latest 2",
    "ralph branch 20261115-21 0 --name what-i-had",
    "ralph branch latest 3 --name login --force",
)


def build_parser() -> Parser:
    parser = Parser("branch", ABOUT, EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or latest")
    parser.add_argument("number", metavar="N", help="iteration; 0 is the start of the run")
    parser.add_argument("--name", metavar="BRANCH", help="branch name (default: ralph/RUN-N)")
    parser.add_argument("--force", action="store_true", help="move an existing branch, unless it is checked out")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if not (args.number.isascii() and args.number.isdigit() and len(args.number) < 10):
        raise Refused(f"{args.number!r} is not an iteration; they are counted from 1, and 0 is the start")
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        records = ledger.records(row.id)
    finally:
        ledger.close()
    work = load_saved_work(project, row, records, int(args.number))
    name, commit, plan = branch_saved_work(project, work, args.name, force=args.force)
    _print_result(args, work, name, commit, plan)
    return 0


def _print_result(args: Namespace, work: SavedWork, name: str, commit: str, plan: CommitPlan) -> None:
    if args.json:
        excluded: list[Json] = [{"path": one.path, "why": one.reason} for one in plan.excluded]
        facts: dict[str, Json] = {"run": work.row.id, "iteration": work.number, "branch": name, "commit": commit}
        paths: list[Json] = [path for _, path in plan.changes]
        print_json("branch", facts | {"parent": plan.parent, "paths": paths, "leftOut": excluded})
        return
    base = f"on top of {plan.parent[:12]}" if plan.parent else "without a parent"
    summary = "no change to its base commit" if plan.empty else format_count(len(plan.changes), "file")
    print_lines(
        f"Branch {name} has {work.place}, {base}: {summary}.",
        *excluded_file_lines(plan),
        f"Show it: git log -p -1 {name}",
    )
