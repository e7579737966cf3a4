"""`ralph proof`: show or export the proof of a run."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import print_json, print_lines
from ralphproof.proof.builder import build_run_proof
from ralphproof.proof.page import page_lines, render_page
from ralphproof.proof.schema import Proof, why_uncheckable
from ralphproof.runs.open_project import view_project

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Show or export the evidence that a run's work is done: checks, results, commit, and who could have tampered.

show prints it. export writes one file, a page for people with the machine-readable proof at its end: with that file
and the repository anyone can check it again (ralph verify FILE). Only a completed run proves anything; for others show
prints what is known, and exits with 1."""
EXAMPLES = (
    "ralph proof show",
    "ralph proof show latest --json",
    "ralph proof export 20261115-21",
    "ralph proof export latest -o proof.md --force",
    "ralph proof export latest -o - > proof.md",
)
STDOUT = "-"
FILE_MODE = 0o644


def build_parser() -> Parser:
    parser = Parser("proof", ABOUT, EXAMPLES)
    parser.add_argument("what", choices=("show", "export"), help="print the proof, or write it to a file")
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    parser.add_argument("-o", "--output", metavar="FILE", help="with export: file (default: ralph-proof-RUN.md here)")
    parser.add_argument("--force", action="store_true", help="with export: overwrite an existing file")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.what == "show" and (args.output is not None or args.force):
        raise Refused("ralph proof show writes no file; use: ralph proof export RUN -o FILE")
    if args.json and args.output == STDOUT:
        raise Refused("standard output takes either the page (-o -) or JSON (ralph proof show --json)")
    proof = _load_proof(args)
    return _export_proof(proof, args) if args.what == "export" else _print_proof(proof, args.json)


def _load_proof(args: Namespace) -> dict[str, Json]:
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        if not ledger.run_end(row.id):
            raise Refused(f"run {row.id} has not ended, so it has proved nothing yet")
        return build_run_proof(project, row, ledger)
    finally:
        ledger.close()


def _unproved_note(proof: Proof) -> str:
    """A line saying that a run proved nothing; empty if it completed."""
    outcome = proof["outcome"]
    if not isinstance(outcome, dict) or outcome["status"] == "COMPLETED":
        return ""
    return f"run {proof['run']} proved nothing: {outcome['status']} {outcome.get('reason', '')}".rstrip()


def _print_proof(proof: Proof, for_programs: bool) -> int:
    unproved = _unproved_note(proof)
    if for_programs:
        print_json("proof", proof)
    else:
        print_lines(*([unproved, ""] if unproved else []), *page_lines(proof))
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
    if args.json:
        print_json("proofFile", {"run": proof["run"], "file": os.path.abspath(path), "digest": proof["digest"]})
    else:
        print_lines(f"The proof of run {proof['run']} is in {path}.", *_export_notes(proof, path))
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
