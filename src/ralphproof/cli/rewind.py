"""`ralph rewind`: restore the files as an iteration left them."""

from __future__ import annotations

import os

from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.display.phrases import format_count
from ralphproof.runs.open_project import open_project
from ralphproof.runs.saved_work import RewindTarget, parse_rewind_target, rewind_files

ABOUT = """Restore the files as an iteration of a run left them; 0 is the start of the run.

The present files are saved first, so this can be undone: the name to go back to is printed. Only files change: index,
HEAD, branches and ignored files stay. Refused while a run works here."""
EXAMPLES = (
    "ralph rewind latest 2",
    "ralph rewind 20261115-21 0 --yes",
    "ralph rewind latest before-rewind-20261115-213000",
)
MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("rewind", ABOUT, EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or latest")
    parser.add_argument("where", metavar="N", help="an iteration, 0, or the name that an earlier rewind printed")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    where = parse_rewind_target(args.where)
    require_confirmation(args.yes, args.json, "rewind changes files")
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args)
        target = RewindTarget(row, ledger.records(row.id), where)

        def accept(paths: tuple[str, ...]) -> bool:
            if not args.json:
                print_lines(f"{format_count(len(paths), 'file')} would change:", *_path_lines(paths))
            return args.yes or confirm(f"Restore the files of {target.place}?")

        result = rewind_files(project, ledger, target, accept)
    finally:
        ledger.close()
    if result is None:
        print_lines("Nothing was changed.")
    elif args.json:
        print_json("rewind", {"run": row.id, "to": where, "saved": result.saved, "paths": [*result.paths]})
    elif not result.paths:
        print_lines(f"The files are already those of {target.place}.")
    else:
        print_lines(
            f"The files are those of {target.place}; {format_count(len(result.paths), 'file')} changed.",
            f"Undo: ralph rewind {row.id} {result.saved}",
        )
    return 0


def _path_lines(paths: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(paths) - MAX_LISTED} more"] if len(paths) > MAX_LISTED else []
    return [*(f"  {path}" for path in paths[:MAX_LISTED]), *more]
