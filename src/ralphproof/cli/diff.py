"""`ralph diff`: what a run or an iteration changed, as a patch."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import format_diffstat, parse_diffstat
from ralphproof.display.terminal import DIM, GREEN, PLAIN, RED, use_color
from ralphproof.runs.open_project import view_project
from ralphproof.views.snapshots import diff_summary_json, run_patch

if TYPE_CHECKING:
    from argparse import Namespace

ABOUT = """Show what a run or one of its iterations changed, as a patch.

Without N: everything from the start of the run to its last snapshot. With N: the changes of that iteration. A single
number of up to three digits is an iteration of the latest run."""
EXAMPLES = ("ralph diff", "ralph diff --stat", "ralph diff 2", "ralph diff 20261115-21 3 --raw | git apply --check -R")


def build_parser() -> Parser:
    parser = Parser("diff", ABOUT, EXAMPLES)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    parser.add_argument("number", nargs="?", metavar="N", help="iteration (default: the whole run)")
    parser.add_argument("--stat", action="store_true", help="print only the changed lines per file")
    parser.add_argument("--raw", action="store_true", help="print the unescaped bytes, for git apply")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    name, number = parse_target(args.run, args.number)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, name, args)
        records = ledger.records(row.id)
    finally:
        ledger.close()
    print_patch(run_patch(project, row, records, number), row.id, number, args)
    return 0


def parse_target(run: str | None, number: str | None) -> tuple[str | None, int | None]:
    """The run and iteration that the arguments name."""
    if number is None and run is not None and run.isascii() and run.isdigit() and len(run) <= 3:
        run, number = None, run
    if number is None:
        return run, None
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise Refused(f"{number!r} is not an iteration; they are counted from 1")
    return run, int(number)


def print_patch(patch: bytes, run: str, number: int | None, args: Namespace) -> None:
    """Print the patch or its statistics."""
    if args.json:
        data = diff_summary_json(run, number, patch)
        print_json("diff", data if args.stat else data | {"patch": patch.decode("utf-8", "surrogateescape")})
    elif args.stat:
        print_lines(*format_diffstat(parse_diffstat(patch)))
    elif args.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
    else:
        _print_patch_lines(patch, args.no_color)


def _print_patch_lines(patch: bytes, no_color: bool) -> None:
    coloured = use_color(no_color, "auto", sys.stdout.isatty())
    for line in patch.decode("utf-8", "replace").split("\n")[:-1]:
        tint = {"+": GREEN, "-": RED, "@": DIM}.get(line[:1], "") if coloured else ""
        print(f"{tint}{sanitize(line)}{PLAIN if tint else ''}")
