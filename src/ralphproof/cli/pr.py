"""`ralph pr`: a pull request with the evidence of a run."""

from __future__ import annotations

import os

from ralphproof.cli.branch import left_out, work_of
from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import answered_yes, must_ask, put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Completed
from ralphproof.views.kept import snapshots_of
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.branch import SavedWork
    from ralphproof.cli.pr_forge import Desk
    from ralphproof.cli.pr_source import Offer, Route
    from ralphproof.cli.pr_text import Pulled
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.workspaces.landable import Landable
    from ralphproof.workspaces.users_git import UsersGit

ABOUT = """a pull request with the evidence of a run.

Title and body come from the proof of a completed run. Its commits are those that it made on a branch of their own, else
the branch ralph/RUN, made for this. With gh or glab installed, and a remote of that kind, exactly that branch is pushed
and the request is made; else both texts go to a file, with the command to push. Nothing that looks secret is pushed.
Where it has what you had not committed when the run began, you are asked first. What is done already is not done again.
Exit codes: 0 done, 1 git, gh or glab failed, 2 refused."""
EXAMPLES = ("ralph pr latest --dry-run", "ralph pr latest --draft", "ralph pr 20261115-21 --base develop -o request.md")

NAMED = 20


def parser() -> Parser:
    made = Parser("pr", ABOUT, EXAMPLES)
    add = made.add_argument
    add("run", metavar="RUN", help="an id, its beginning, or latest")
    add("--base", metavar="B", default="", help="the branch that it is for (default: the remote's own)")
    add("--title", metavar="T", default="", help="another title than the task's")
    add("--draft", action="store_true", help="make it a draft")
    add("-o", "--output", metavar="FILE", help="write title and body to this file (default: ralph-pr-RUN.md)")
    add("--dry-run", action="store_true", help="only show the text, and what would be pushed")
    add("--yes", action="store_true", help="do not ask, though it has what you had not committed")
    return made


@value
class Request:
    """All that is needed to make it."""

    work: SavedWork
    way: Route
    offer: Offer
    title: str
    body: str


@value
class Made:
    """What came of it. `address` is empty where it is left to the user, `trouble` where nothing went wrong."""

    commit: str = ""
    address: str = ""
    file: str = ""
    pushed: bool = False
    trouble: str = ""


def main(argv: list[str]) -> int:
    from ralphproof.cli.pr_source import carry_out, offer, way
    from ralphproof.workspaces.landable import Landable

    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args, shown=True)
        work, records, proof = _completed(project, row, ledger)
    finally:
        ledger.close()
    with Landable(project.root, os.environ, store=not args.dry_run) as landable:
        git = landable.users
        to = way(git, args.base)
        offered = offer(landable, work, records, to)
        if not _agreed(args, offered):
            put("Nothing was made or pushed.")
            return 0
        commit = "" if args.dry_run else carry_out(git, offered, work)
        pulled = _pulled(landable, proof, to, offered, commit or offered.commit)
        request = _request(project, args, proof, work, to, offered, pulled)
        made = Made(offered.commit) if args.dry_run else _hand_in(git, args, request, commit)
    _tell(args, request, made)
    return 1 if made.trouble else 0


def _completed(project: Project, row: RunRow, ledger: Sqlite) -> tuple[SavedWork, tuple[Record, ...], dict[str, Json]]:
    """What a completed run came to; raises Refused for any other."""
    from ralphproof.views.proof_of_run import proof_of_run

    end, records = ledger.end_of(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so there is no evidence yet; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so there is no evidence to show; "
            f"its work can be had as a branch: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_of(records).items() if one.tree is not None), default=0)
    return work_of(project, row, records, number), records, proof_of_run(project, row, ledger)


def _agreed(args: Namespace, offer: Offer) -> bool:
    """Whether what the user had not committed may go out with the rest. It is named before anything is made of it."""
    if not offer.theirs:
        return True
    named = _named(offer.theirs)
    must_ask(args.yes or args.dry_run, args.json, f"it has what you had not committed when the run began ({named})")
    if not args.json:
        put(f"It also has what you had not committed when the run began: {named}")
    return args.yes or args.dry_run or answered_yes("Is it to go with the rest?")


def _named(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:NAMED])}{more}"


def _pulled(landable: Landable, proof: dict[str, Json], way: Route, offer: Offer, commit: str) -> Pulled:
    from ralphproof.cli.pr_text import Pulled
    from ralphproof.proof_shape import object_in

    subject = object_in(proof, "subject")
    checked = str(subject["checked"] or subject["tree"] or "")
    differs = landable.differing(checked, offer.tree) if checked else None
    out = tuple((one.path, one.why) for one in offer.landing.withheld) if offer.landing else ()
    return Pulled(offer.branch, way.base, commit, offer.tree, offer.changes, out, differs)


def _request(
    project: Project, args: Namespace, proof: dict[str, Json], work: SavedWork, way: Route, offer: Offer, pulled: Pulled
) -> Request:
    from ralphproof.cli.pr_text import body_for, title_for

    title, body = title_for(proof, args.title), body_for(proof, pulled)
    return Request(work, way, offer, project.mask(title), project.mask(body))


def _hand_in(git: UsersGit, args: Namespace, request: Request, commit: str) -> Made:
    """Push and make the request where somebody takes it; else leave the texts in a file."""
    from ralphproof.cli.pr_forge import desk_of

    remote = request.way.remote
    desk = desk_of(git, remote, os.environ) if remote else None
    file = _written(git, args, request) if desk is None or args.output else ""
    return Made(commit, file=file) if desk is None else _handed_in(git, args, request, commit, desk, file)


def _handed_in(git: UsersGit, args: Namespace, request: Request, commit: str, desk: Desk, file: str) -> Made:
    import tempfile

    from ralphproof.cli.pr_forge import address_in, create_argv, pushed, run, there

    branch, base, env = request.offer.branch, request.way.base, os.environ
    fresh, trouble = pushed(git, request.way.remote, branch, commit, env)
    if trouble:
        return Made(commit, file=file, trouble=f"git push was refused: {trouble}")
    if known := there(desk, branch, git.root, env):
        return Made(commit, known, file, fresh)
    with tempfile.TemporaryDirectory(prefix="ralph-pr-") as folder:
        body = os.path.join(folder, "body.md")
        with open(body, "w", encoding="utf-8") as out:
            out.write(request.body)
        argv = create_argv(desk, (request.title, request.body, body), branch, base, args.draft)
        answer = run(argv, git.root, env)
    if answer.code != 0:
        failed = f"the branch is pushed, and {os.path.basename(desk.program)} made no request: {answer.said}"
        return Made(commit, file=file, pushed=fresh, trouble=failed)
    return Made(commit, address_in(answer), file, fresh)


def _written(git: UsersGit, args: Namespace, request: Request) -> str:
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


def _tell(args: Namespace, request: Request, made: Made) -> None:
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
        put_json("pr", facts | {"body": request.body, "error": made.trouble or None, "dryRun": args.dry_run})
        return
    put(*(left_out(offer.landing) if offer.landing else ()))
    if args.dry_run:
        state = "is there" if offer.there else "would be made"
        put(f"Branch {offer.branch} {state}, for {way.base}; to be pushed to: {way.remote or 'no remote'}", "")
        put(request.title, "", *request.body.splitlines())
    elif made.trouble:
        put(made.trouble, "What is done stays done; when it is mended, say the same again.")
    elif made.address:
        put(f"{'Pushed' if made.pushed else 'Was pushed before'}: {offer.branch} to {way.remote}", made.address)
    elif made.file:
        put(f"Title and body are in {made.file}.", f"Push it: git push {way.remote or 'REMOTE'} {offer.branch}")
    else:
        put(f"The request for {offer.branch} is made.")
