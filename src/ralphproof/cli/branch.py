"""`ralph branch`: an iteration's work as a branch."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import format_count
from ralphproof.proof.saved_work import create_branch, excluded_file_lines
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import load_saved_work
from ralphproof.views.run_list import find_named_run
from ralphproof.workspace.secret_files import secret_reason

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.proof.saved_work import SavedWork
    from ralphproof.workspace.commit_builder import CommitPlan
    from ralphproof.workspace.git_command import UserGit


# `ralph branch`: an iteration's work as a branch.


ABOUT = """an iteration's work as a branch.

The branch has one commit of yours on top of the commit that the iteration stood on; 0 is the start of the run, with
what you had not committed then. Index, HEAD and files stay as they are, and no hook runs. Left out, and named, are
files that were too large to be saved, new ones that look like secrets, and those whose filter only .git/config names.
Exit codes: 0 done, 2 refused."""
EXAMPLES = (
    "ralph branch latest 2",
    "ralph branch 20261115-21 0 --name what-i-had",
    "ralph branch latest 3 --name login --force",
)


def build_parser() -> Parser:
    parser = Parser("branch", ABOUT, EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="an id, its beginning, or latest")
    parser.add_argument("number", metavar="N", help="an iteration; 0 is the start of the run")
    parser.add_argument("--name", metavar="BRANCH", help="how to call the branch (default: ralph/RUN-N)")
    parser.add_argument(
        "--force", action="store_true", help="move a branch that is there; never one that is checked out"
    )
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
    name = args.name if args.name is not None else f"ralph/{row.id}-{work.number}"
    from ralphproof.workspace.commit_builder import CommitBuilder

    with CommitBuilder(project.root, os.environ) as landable:
        refuse_used_branch(landable.users, name, args.force)
        landing = landable.landing(work.snapshot, secret_reason)
        commit = create_branch(landable.users, landing, work, name, args.force)
    _print_result(args, work, name, commit, landing)
    return 0


def refuse_used_branch(git: UserGit, name: str, force: bool) -> None:
    """Raise Refused where a branch of this name may not be made."""
    git.must_be_a_branch_name(name)
    if place := git.checked_out(name):
        raise Refused(f"branch {name} is checked out in {place}, and is not moved; say another one with --name")
    if git.branch(name) and not force:
        raise Refused(f"there is a branch {name}; say another one with --name, or move it with --force")


def _print_result(args: Namespace, work: SavedWork, name: str, commit: str, landing: CommitPlan) -> None:
    if args.json:
        out: list[Json] = [{"path": one.path, "why": one.why} for one in landing.withheld]
        facts: dict[str, Json] = {"run": work.row.id, "iteration": work.number, "branch": name, "commit": commit}
        paths: list[Json] = [path for _, path in landing.changes]
        print_json("branch", facts | {"parent": landing.parent, "paths": paths, "leftOut": out})
        return
    on = f"on top of {landing.parent[:12]}" if landing.parent else "where history begins"
    what = (
        "nothing differed from the commit it stood on" if landing.empty else format_count(len(landing.changes), "file")
    )
    print_lines(
        f"Branch {name} has {work.place}, {on}: {what}.", *excluded_file_lines(landing), f"Look: git log -p -1 {name}"
    )
