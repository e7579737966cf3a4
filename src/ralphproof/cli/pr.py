"""`ralph pr`: a pull request with the evidence of a run."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.parser import Parser
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import RunEnded
from ralphproof.proof.saved_work import excluded_file_lines
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import load_saved_work
from ralphproof.store.project import Project
from ralphproof.views.run_list import find_named_run
from ralphproof.views.snapshots import snapshots_by_iteration

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.engine.records import Record
    from ralphproof.proof.pull_request import Forge, PullRequestBranch, PullRequestFacts, PullRequestTarget
    from ralphproof.proof.saved_work import SavedWork
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger
    from ralphproof.workspace.commit_builder import CommitBuilder
    from ralphproof.workspace.git_command import UserGit

ABOUT = """a pull request with the evidence of a run.

Title and body come from the proof of a completed run. Its commits are those that it made on a branch of their own, else
the branch ralph/RUN, made for this. With gh or glab installed, and a remote of that kind, exactly that branch is pushed
and the request is made; else both texts go to a file, with the command to push. Nothing that looks secret is pushed.
Where it has what you had not committed when the run began, you are asked first. What is done already is not done again.
Exit codes: 0 done, 1 git, gh or glab failed, 2 refused."""
EXAMPLES = ("ralph pr latest --dry-run", "ralph pr latest --draft", "ralph pr 20261115-21 --base develop -o request.md")

MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("pr", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("run", metavar="RUN", help="an id, its beginning, or latest")
    add("--base", metavar="B", default="", help="the branch that it is for (default: the remote's own)")
    add("--title", metavar="T", default="", help="another title than the task's")
    add("--draft", action="store_true", help="make it a draft")
    add("-o", "--output", metavar="FILE", help="write title and body to this file (default: ralph-pr-RUN.md)")
    add("--dry-run", action="store_true", help="only show the text, and what would be pushed")
    add("--yes", action="store_true", help="do not ask, though it has what you had not committed")
    return parser


@value
class PullRequest:
    """All that is needed to make it."""

    work: SavedWork
    way: PullRequestTarget
    offer: PullRequestBranch
    title: str
    body: str


@value
class PullRequestResult:
    """What came of it. `address` is empty where it is left to the user, `trouble` where nothing went wrong."""

    commit: str = ""
    address: str = ""
    file: str = ""
    pushed: bool = False
    trouble: str = ""


def main(argv: list[str]) -> int:
    from ralphproof.proof.pull_request import create_pull_request_branch, find_pull_request_branch, find_target
    from ralphproof.workspace.commit_builder import CommitBuilder

    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        work, records, proof = _load_completed_run(project, row, ledger)
    finally:
        ledger.close()
    with CommitBuilder(project.root, os.environ, store=not args.dry_run) as landable:
        git = landable.users
        to = find_target(git, args.base)
        offered = find_pull_request_branch(landable, work, records, to)
        if not _confirm_user_changes(args, offered):
            print_lines("Nothing was made or pushed.")
            return 0
        commit = "" if args.dry_run else create_pull_request_branch(git, offered, work)
        pulled = _build_description(landable, proof, to, offered, commit or offered.commit)
        request = _build_request(project, args, proof, work, to, offered, pulled)
        made = PullRequestResult(offered.commit) if args.dry_run else _submit(git, args, request, commit)
    _print_result(args, request, made)
    return 1 if made.trouble else 0


def _load_completed_run(
    project: Project, row: RunRow, ledger: SqliteLedger
) -> tuple[SavedWork, tuple[Record, ...], dict[str, Json]]:
    """What a completed run came to; raises Refused for any other."""
    from ralphproof.proof.builder import build_run_proof

    end, records = ledger.end_of(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so there is no evidence yet; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so there is no evidence to show; "
            f"its work can be had as a branch: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_by_iteration(records).items() if one.tree is not None), default=0)
    return load_saved_work(project, row, records, number), records, build_run_proof(project, row, ledger)


def _confirm_user_changes(args: Namespace, offer: PullRequestBranch) -> bool:
    """Whether what the user had not committed may go out with the rest. It is named before anything is made of it."""
    if not offer.theirs:
        return True
    named = _list_paths(offer.theirs)
    require_confirmation(
        args.yes or args.dry_run, args.json, f"it has what you had not committed when the run began ({named})"
    )
    if not args.json:
        print_lines(f"It also has what you had not committed when the run began: {named}")
    return args.yes or args.dry_run or confirm("Is it to go with the rest?")


def _list_paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:MAX_LISTED])}{more}"


def _build_description(
    landable: CommitBuilder, proof: dict[str, Json], way: PullRequestTarget, offer: PullRequestBranch, commit: str
) -> PullRequestFacts:
    from ralphproof.proof.pull_request import PullRequestFacts
    from ralphproof.proof.schema import get_object

    subject = get_object(proof, "subject")
    checked = str(subject["checked"] or subject["tree"] or "")
    differs = landable.differing(checked, offer.tree) if checked else None
    out = tuple((one.path, one.why) for one in offer.landing.withheld) if offer.landing else ()
    return PullRequestFacts(offer.branch, way.base, commit, offer.tree, offer.changes, out, differs)


def _build_request(
    project: Project,
    args: Namespace,
    proof: dict[str, Json],
    work: SavedWork,
    way: PullRequestTarget,
    offer: PullRequestBranch,
    pulled: PullRequestFacts,
) -> PullRequest:
    from ralphproof.proof.pull_request import pull_request_body, pull_request_title

    title, body = pull_request_title(proof, args.title), pull_request_body(proof, pulled)
    return PullRequest(work, way, offer, project.mask(title), project.mask(body))


def _submit(git: UserGit, args: Namespace, request: PullRequest, commit: str) -> PullRequestResult:
    """Push and make the request where somebody takes it; else leave the texts in a file."""
    from ralphproof.proof.pull_request import find_forge

    remote = request.way.remote
    desk = find_forge(git, remote, os.environ) if remote else None
    file = _write_to_file(git, args, request) if desk is None or args.output else ""
    return (
        PullRequestResult(commit, file=file)
        if desk is None
        else _submit_to_forge(git, args, request, commit, desk, file)
    )


def _submit_to_forge(
    git: UserGit, args: Namespace, request: PullRequest, commit: str, desk: Forge, file: str
) -> PullRequestResult:
    import tempfile

    from ralphproof.proof.pull_request import (
        create_command,
        find_open_pull_request,
        push_branch,
        run_forge_program,
        url_in_output,
    )

    branch, base, env = request.offer.branch, request.way.base, os.environ
    fresh, trouble = push_branch(git, request.way.remote, branch, commit, env)
    if trouble:
        return PullRequestResult(commit, file=file, trouble=f"git push was refused: {trouble}")
    if known := find_open_pull_request(desk, branch, git.root, env):
        return PullRequestResult(commit, known, file, fresh)
    with tempfile.TemporaryDirectory(prefix="ralph-pr-") as folder:
        body = os.path.join(folder, "body.md")
        with open(body, "w", encoding="utf-8") as out:
            out.write(request.body)
        argv = create_command(desk, (request.title, request.body, body), branch, base, args.draft)
        answer = run_forge_program(argv, git.root, env)
    if answer.code != 0:
        failed = f"the branch is pushed, and {os.path.basename(desk.program)} made no request: {answer.said}"
        return PullRequestResult(commit, file=file, pushed=fresh, trouble=failed)
    return PullRequestResult(commit, url_in_output(answer), file, fresh)


def _write_to_file(git: UserGit, args: Namespace, request: PullRequest) -> str:
    """The file with both texts. One that is there and says something else is not written over."""
    path = args.output or os.path.join(git.root, f"ralph-pr-{request.work.row.id}.md")
    text = f"{request.title}\n\n{request.body}".encode()
    try:
        if os.path.lexists(path):
            with open(path, "rb") as there:
                if there.read(len(text) + 1) == text:
                    return path
            raise Refused(f"{path} is there already; name another file with -o")
        with open(path, "xb") as out:
            out.write(text)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}; name another file with -o") from error
    return path


def _print_result(args: Namespace, request: PullRequest, made: PullRequestResult) -> None:
    offer, way = request.offer, request.way
    if args.json:
        out: list[Json] = [one.path for one in offer.landing.withheld] if offer.landing else []
        facts: dict[str, Json] = {"run": request.work.row.id, "branch": offer.branch, "commit": made.commit or None}
        facts |= {"base": way.base, "remote": way.remote or None, "title": request.title, "leftOut": out}
        theirs: list[Json] = [*offer.theirs]
        facts |= {
            "uncommitted": theirs,
            "address": made.address or None,
            "file": made.file or None,
            "pushed": made.pushed,
        }
        print_json("pr", facts | {"body": request.body, "error": made.trouble or None, "dryRun": args.dry_run})
        return
    print_lines(*(excluded_file_lines(offer.landing) if offer.landing else ()))
    if args.dry_run:
        state = "is there" if offer.there else "would be made"
        print_lines(f"Branch {offer.branch} {state}, for {way.base}; to be pushed to: {way.remote or 'no remote'}", "")
        print_lines(request.title, "", *request.body.splitlines())
    elif made.trouble:
        print_lines(made.trouble, "What is done stays done; when it is mended, say the same again.")
    elif made.address:
        print_lines(f"{'Pushed' if made.pushed else 'Was pushed before'}: {offer.branch} to {way.remote}", made.address)
    elif made.file:
        print_lines(f"Title and body are in {made.file}.", f"Push it: git push {way.remote or 'REMOTE'} {offer.branch}")
    else:
        print_lines(f"The request for {offer.branch} is made.")
