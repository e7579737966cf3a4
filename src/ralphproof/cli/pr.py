"""`ralph pr`: a pull request with the evidence of a run."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import Record, RunEnded
from ralphproof.proof.builder import build_run_proof
from ralphproof.proof.pull_request import (
    PullRequest,
    PullRequestBranch,
    PullRequestResult,
    create_pull_request_branch,
    describe_pull_request,
    find_pull_request_branch,
    find_target,
    submit_pull_request,
)
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import SavedWork, excluded_file_lines, load_saved_work
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.views.snapshots import snapshots_by_iteration
from ralphproof.workspace.commits import CommitBuilder

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Open a pull request with the evidence of a run.

Title and body come from the proof of a completed run. Its commits are those that it made on its own branch, else a new
branch ralph/RUN. With gh or glab installed and a matching remote, exactly that branch is pushed and the request is
created; else both texts go to a file, with the push command. Nothing that looks like a secret is pushed. If the branch
contains changes that were uncommitted when the run began, you are asked first. Repeating the command repeats nothing.
Exit codes: 0 done, 1 git, gh or glab failed, 2 refused."""
EXAMPLES = ("ralph pr latest --dry-run", "ralph pr latest --draft", "ralph pr 20261115-21 --base develop -o request.md")

MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("pr", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("run", metavar="RUN", help="run id, unique prefix, or latest")
    add("--base", metavar="B", default="", help="base branch (default: the remote's default branch)")
    add("--title", metavar="T", default="", help="title (default: the task's)")
    add("--draft", action="store_true", help="create a draft")
    add("-o", "--output", metavar="FILE", help="write title and body to this file (default: ralph-pr-RUN.md)")
    add("--dry-run", action="store_true", help="only show the text and what would be pushed")
    add("--yes", action="store_true", help="do not ask about changes that you had not committed")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        work, records, proof = _load_completed_run(project, row, ledger)
    finally:
        ledger.close()
    with CommitBuilder(project.root, os.environ, store=not args.dry_run) as builder:
        git = builder.user_git
        target = find_target(git, args.base)
        branch = find_pull_request_branch(builder, row.id, work.snapshot, records, target)
        if not _confirm_user_changes(args, branch):
            print_lines("Nothing was created or pushed.")
            return 0
        commit = "" if args.dry_run else create_pull_request_branch(git, branch, work.message)
        request = describe_pull_request(
            builder, proof, target, branch, commit or branch.commit, args.title, project.mask
        )  # fmt: skip
        result = PullRequestResult(branch.commit)
        if not args.dry_run:
            file = args.output or os.path.join(git.root, f"ralph-pr-{row.id}.md")
            result = submit_pull_request(git, request, commit, args.draft, file, bool(args.output), os.environ)
    _print_result(args, row.id, request, result)
    return 1 if result.trouble else 0


def _load_completed_run(
    project: Project, row: RunRow, ledger: SqliteLedger
) -> tuple[SavedWork, tuple[Record, ...], dict[str, Json]]:
    """Work, records and proof of a completed run; refuses others."""
    end, records = ledger.run_end(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so there is no evidence yet; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so there is no evidence to show; "
            f"create a branch with its work: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_by_iteration(records).items() if one.tree is not None), default=0)
    return load_saved_work(project, row, records, number), records, build_run_proof(project, row, ledger)


def _confirm_user_changes(args: Namespace, offer: PullRequestBranch) -> bool:
    """Ask whether changes that the user had not committed may be published."""
    if not offer.theirs:
        return True
    named = _list_paths(offer.theirs)
    require_confirmation(
        args.yes or args.dry_run,
        args.json,
        f"it includes changes that you had not committed when the run began ({named})",
    )
    if not args.json:
        print_lines(f"It includes changes that you had not committed when the run began: {named}")
    return args.yes or args.dry_run or confirm("Include them?")


def _list_paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:MAX_LISTED])}{more}"


def _print_result(args: Namespace, run: str, request: PullRequest, result: PullRequestResult) -> None:
    offer, way = request.branch, request.target
    if args.json:
        out: list[Json] = [one.path for one in offer.landing.excluded] if offer.landing else []
        facts: dict[str, Json] = {"run": run, "branch": offer.branch, "commit": result.commit or None}
        facts |= {"base": way.base, "remote": way.remote or None, "title": request.title, "leftOut": out}
        theirs: list[Json] = [*offer.theirs]
        facts |= {
            "uncommitted": theirs,
            "address": result.address or None,
            "file": result.file or None,
            "pushed": result.pushed,
        }
        print_json("pr", facts | {"body": request.body, "error": result.trouble or None, "dryRun": args.dry_run})
        return
    print_lines(*(excluded_file_lines(offer.landing) if offer.landing else ()))
    if args.dry_run:
        state = "exists" if offer.there else "would be created"
        print_lines(f"Branch {offer.branch} {state}, for {way.base}; to be pushed to: {way.remote or 'no remote'}", "")
        print_lines(request.title, "", *request.body.splitlines())
    elif result.trouble:
        print_lines(result.trouble, "Fix the problem, then repeat the command: finished steps are not repeated.")
    elif result.address:
        print_lines(
            f"{'Pushed' if result.pushed else 'Was pushed before'}: {offer.branch} to {way.remote}", result.address
        )
    elif result.file:
        print_lines(
            f"Title and body are in {result.file}.", f"Push it: git push {way.remote or 'REMOTE'} {offer.branch}"
        )
    else:
        print_lines(f"The request for {offer.branch} is created.")
