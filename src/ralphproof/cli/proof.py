"""`ralph proof`: what shows that a run's work is done, to be read, or as one file for anybody to check again."""

from __future__ import annotations

import os
import stat
import sys

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.proof_shape import objects_in
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ralphproof.value import Json

ABOUT = """what shows that a run's work is done: checks and their answers, the commit, and who could have tampered.

show prints it. export writes one file, a page for people with the whole proof for programs at its end: whoever has
that file and the repository can check it again (ralph verify FILE). Only a completed run proves anything; of another
one show says what is known, and exits with 1."""
EXAMPLES = (
    "ralph proof show",
    "ralph proof show latest --json",
    "ralph proof export 20261115-21",
    "ralph proof export latest -o proof.md --force",
    "ralph proof export latest -o - > proof.md",
)
STDOUT = "-"
MODE = 0o644


def parser() -> Parser:
    made = Parser("proof", ABOUT, EXAMPLES)
    made.add_argument("what", choices=("show", "export"), help="print it, or write it to a file")
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    made.add_argument("-o", "--output", metavar="FILE", help="with export: the file (default: ralph-proof-RUN.md here)")
    made.add_argument("--force", action="store_true", help="with export: write over a file that is there")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.what == "show" and (args.output is not None or args.force):
        raise Refused("ralph proof show writes no file; to have one: ralph proof export RUN -o FILE")
    if args.json and args.output == STDOUT:
        raise Refused("standard output takes one of both: the page (-o -), or JSON (ralph proof show --json)")
    proof = _proof(args)
    return _export(proof, args) if args.what == "export" else _show(proof, args.json)


def _proof(args: Namespace) -> dict[str, Json]:
    from ralphproof.views.proof_of_run import proof_of_run

    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.run, args, shown=True)
        if not ledger.end_of(row.id):
            raise Refused(f"run {row.id} has not ended, so it has proved nothing yet")
        return proof_of_run(project, row, ledger)
    finally:
        ledger.close()


def _unproved(proof: dict[str, Json]) -> str:
    """That a run proved nothing, in a line; empty where it was completed."""
    outcome = proof["outcome"]
    if not isinstance(outcome, dict) or outcome["status"] == "COMPLETED":
        return ""
    return f"run {proof['run']} proved nothing: {outcome['status']} {outcome.get('reason', '')}".rstrip()


def _show(proof: dict[str, Json], for_programs: bool) -> int:
    from ralphproof.proof_page import lines

    unproved = _unproved(proof)
    if for_programs:
        put_json("proof", proof)
    else:
        put(*([unproved, ""] if unproved else []), *lines(proof))
    return 1 if unproved else 0


def _export(proof: dict[str, Json], args: Namespace) -> int:
    from ralphproof.proof_page import render

    if unproved := _unproved(proof):
        raise Refused(unproved)
    page = render(proof)
    if args.output == STDOUT:
        sys.stdout.write(page)
        return 0
    path = args.output or f"ralph-proof-{proof['run']}.md"
    _write(path, page.encode(), args.force)
    if args.json:
        put_json("proofFile", {"run": proof["run"], "file": os.path.abspath(path), "digest": proof["digest"]})
    else:
        put(f"The proof of run {proof['run']} is in {path}.", *_advice(proof, path))
    return 0


def _advice(proof: dict[str, Json], path: str) -> Iterator[str]:
    """What somebody who has the file should know."""
    from ralphproof.proof_words import uncheckable

    if why := uncheckable(proof):
        yield f"ralph verify cannot check it again: {why}"
    else:
        yield f"Anybody with the repository can check it: ralph verify {path}"
    if held := sum(check["hidden"] is True for check in objects_in(proof["checks"])):
        yield f"It names {held} held-out check{'s' * (held > 1)}: keep it where no agent reads it."


def _make_way(path: str, force: bool) -> None:
    """Refuse a place that is taken. Only a file is written over: a link, a pipe or a device is somebody else's."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path):
        raise Refused(f"{path} is a folder; name a file with -o")
    if not stat.S_ISREG(os.lstat(path).st_mode):
        kind = "a symbolic link" if os.path.islink(path) else "no regular file"
        raise Refused(f"{path} is {kind}, which is not written over; name a file with -o (-o - is standard output)")
    if not force:
        raise Refused(f"{path} is there already; name another file with -o, or say --force")


def _write(path: str, data: bytes, force: bool) -> None:
    """The file, whole or not at all. What stands there stays, unless somebody said that it may go."""
    new = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        _make_way(path, force)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        try:
            with open(file, "wb") as out:
                os.fchmod(file, MODE)  # whatever the umask
                out.write(data)
            os.replace(new, path)
        except OSError:
            os.unlink(new)
            raise
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}; name another file with -o") from error
