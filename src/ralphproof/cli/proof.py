"""Evidence of a run: `ralph proof`, `ralph verify` and `ralph pr`."""

from __future__ import annotations

import os
import stat
import sys
from argparse import Namespace
from collections.abc import Iterator

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import confirm, print_json, print_lines, print_result, require_confirmation
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import Record, RunEnded
from ralphproof.proof.builder import build_run_proof
from ralphproof.proof.page import page_lines, render_page
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
from ralphproof.proof.schema import EXIT_CODES, Proof, why_uncheckable
from ralphproof.proof.source import is_proof_file, load_proof_file, load_proof_of_run
from ralphproof.proof.verification import verification_json, verification_lines, verify_proof
from ralphproof.runs.open_project import view_project
from ralphproof.runs.saved_work import SavedWork, excluded_file_lines, load_saved_work
from ralphproof.sandbox.selection import HOST_TOOL_KIND_NAMES
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.views.snapshots import snapshots_by_iteration
from ralphproof.workspace.commits import CommitBuilder

# ralph proof


PROOF_ABOUT = """\
Show or export the evidence that a run's work is done: checks, results, commit, and who could have tampered.

show prints it. export writes one file, a page for people with the machine-readable proof at its end: with that file
and the repository anyone can check it again (ralph verify FILE). Only a completed run proves anything; for others show
prints what is known, and exits with 1."""
PROOF_EXAMPLES = (
    "ralph proof show",
    "ralph proof show latest --json",
    "ralph proof export 20261115-21",
    "ralph proof export latest -o proof.md --force",
    "ralph proof export latest -o - > proof.md",
)
STDOUT = "-"
FILE_MODE = 0o644


def proof_parser() -> Parser:
    parser = Parser("proof", PROOF_ABOUT, PROOF_EXAMPLES)
    parser.add("what", "print the proof, or write it to a file", choices=("show", "export"))
    parser.add_run()
    parser.add("-o, --output FILE", "with export: file (default: ralph-proof-RUN.md here)")
    parser.add("--force", "with export: overwrite an existing file")
    return parser


def proof_main(argv: list[str]) -> int:
    args = proof_parser().parse(argv)
    if args.what == "show" and (args.output is not None or args.force):
        raise Refused("ralph proof show writes no file; use: ralph proof export RUN -o FILE")
    if args.json and args.output == STDOUT:
        raise Refused("standard output takes either the page (-o -) or JSON (ralph proof show --json)")
    proof = _load_proof(args)
    return _export_proof(proof, args) if args.what == "export" else _print_proof(proof, args.json)


def _load_proof(args: Namespace) -> dict[str, Json]:
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args, shown=True)
        if not ledger.run_end(row.id):
            raise Refused(f"run {row.id} has not ended, so it has proved nothing yet")
        return build_run_proof(project, row, ledger)


def _unproved_note(proof: Proof) -> str:
    """A line saying that a run proved nothing; empty if it completed."""
    outcome = proof["outcome"]
    if not isinstance(outcome, dict) or outcome["status"] == "COMPLETED":
        return ""
    return f"run {proof['run']} proved nothing: {outcome['status']} {outcome.get('reason', '')}".rstrip()


def _print_proof(proof: Proof, for_programs: bool) -> int:
    unproved = _unproved_note(proof)
    print_result(for_programs, "proof", proof, *([unproved, ""] if unproved else []), *page_lines(proof))
    return 1 if unproved else 0


def _export_proof(proof: Proof, args: Namespace) -> int:
    if unproved := _unproved_note(proof):
        raise Refused(unproved)
    page = render_page(proof)
    if args.output == STDOUT:
        sys.stdout.write(page)
        return 0
    path = args.output or f"ralph-proof-{proof['run']}.md"
    _write_file(path, page.encode(), args.force)
    print_result(
        args.json,
        "proofFile",
        {"run": proof["run"], "file": os.path.abspath(path), "digest": proof["digest"]},
        f"The proof of run {proof['run']} is in {path}.",
        *_export_notes(proof, path),
    )
    return 0


def _export_notes(proof: Proof, path: str) -> Iterator[str]:
    """Notes about the exported file."""
    if why := why_uncheckable(proof):
        yield f"ralph verify cannot check it again: {why}"
    else:
        yield f"Anyone with the repository can check it: ralph verify {path}"
    if hidden := sum(check["hidden"] is True for check in proof["checks"]):
        yield f"It names {hidden} held-out check{'s' * (hidden > 1)}: keep it where no agent reads it."


def _refuse_existing(path: str, force: bool) -> None:
    """Refuse an existing path. With --force only a regular file is overwritten, no link, pipe or device."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path):
        raise Refused(f"{path} is a folder; name a file with -o")
    if not stat.S_ISREG(os.lstat(path).st_mode):
        kind = "a symbolic link" if os.path.islink(path) else "no regular file"
        raise Refused(f"{path} is {kind}, which is never overwritten; name a file with -o (-o - is standard output)")
    if not force:
        raise Refused(f"{path} exists; name another file with -o, or use --force")


def _write_file(path: str, data: bytes, force: bool) -> None:
    """Write the file atomically; an existing one stays unless `force` is set."""
    new = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        _refuse_existing(path, force)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(file, "wb") as out:
                os.fchmod(file, FILE_MODE)  # whatever the umask
                out.write(data)
            os.replace(new, path)
        except OSError:
            os.unlink(new)
            raise
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}; name another file with -o") from error


# ralph verify


VERIFY_ABOUT = """Run a finished run's checks again on a clean checkout.

RUN is a run of this repository: id, unique prefix, or latest. FILE is a proof written by ralph proof export; it needs
a clone of the repository and no record of the run. First everything is checked for changes: the file, its page, the
records behind it, and for a run also the logs. Then the recorded tree is checked out into a temporary folder, and
every required check runs there again, each in a fresh checkout, after the setup commands. Nothing is written here.

From a file only commands run that are in the settings of that commit (.ralph/settings.json, and verifyCommands of
ralph/tasks.json); others are shown, and run with --yes. Judgements of models are not repeated.

Exit codes: 0 the proof holds, 1 it does not, 2 it cannot be checked (the reason is printed)."""
VERIFY_EXAMPLES = (
    "ralph verify latest",
    "ralph verify 20261115-21 --json",
    "ralph verify proof.md",
    "ralph verify proof.md --yes",
    "git clone URL work && ralph verify -d work ralph-proof.md   # in CI: the repository and the file are enough",
)


def verify_parser() -> Parser:
    parser = Parser("verify", VERIFY_ABOUT, VERIFY_EXAMPLES)
    parser.add("what", "run, or exported proof", metavar="RUN|FILE")
    parser.add("--yes", "also run a file's commands that no settings contain")
    parser.add("--sandbox [=KIND]", f"run checks in a sandbox: the strongest, or {HOST_TOOL_KIND_NAMES}")
    return parser


def verify_main(argv: list[str]) -> int:
    args = verify_parser().parse(argv)
    if not args.what:
        raise Refused("name a run, latest, or the file of a proof")
    if is_proof_file(args.what):
        source = load_proof_file(args.what, args.project_dir, os.environ)
    else:
        source = load_proof_of_run(view_project(args.project_dir, os.environ), args.what)

    def say(line: str) -> None:
        if not args.quiet:
            print(collapse_lines(sanitize(line)), file=sys.stderr, flush=True)

    result = verify_proof(source, lambda commands: _confirm(commands, args), say, args.sandbox)
    print_result(args.json, "verification", verification_json(source, result), *verification_lines(source, result))
    return EXIT_CODES[result.verdict]


def _confirm(commands: tuple[str, ...], args: Namespace) -> bool:
    """Whether the user wants commands run that the settings do not name."""
    if args.yes or args.json or sys.stdin is None or not sys.stdin.isatty():
        return bool(args.yes)
    print_lines("Not in the settings of that commit:", *(f"  {line}" for line in commands))
    return confirm("Run these commands?")


# ralph pr


PR_ABOUT = """Open a pull request with the evidence of a run.

Title and body come from the proof of a completed run. Its commits are those that it made on its own branch, else a new
branch ralph/RUN. With gh or glab installed and a matching remote, exactly that branch is pushed and the request is
created; else both texts go to a file, with the push command. Nothing that looks like a secret is pushed. If the branch
contains changes that were uncommitted when the run began, you are asked first. Repeating the command repeats nothing.
Exit codes: 0 done, 1 git, gh or glab failed, 2 refused."""
PR_EXAMPLES = (
    "ralph pr latest --dry-run",
    "ralph pr latest --draft",
    "ralph pr 20261115-21 --base develop -o request.md",
)

MAX_LISTED = 20


def pr_parser() -> Parser:
    parser = Parser("pr", PR_ABOUT, PR_EXAMPLES)
    add = parser.add
    add("run", "run id, unique prefix, or latest", metavar="RUN")
    add("--base B", "base branch (default: the remote's default branch)", default="")
    add("--title T", "title (default: the task's)", default="")
    add("--draft", "create a draft")
    add("-o, --output FILE", "write title and body to this file (default: ralph-pr-RUN.md)")
    add("--dry-run", "only show the text and what would be pushed")
    add("--yes", "do not ask about changes that you had not committed")
    return parser


def pr_main(argv: list[str]) -> int:
    args = pr_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args, shown=True)
        work, records, proof = _load_completed_run(project, row, ledger)
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
