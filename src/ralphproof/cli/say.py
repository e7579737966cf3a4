"""`ralph say`: a message for the next prompt of a run."""

from __future__ import annotations

import os

from ralphproof.base.standard_streams import read_stdin_bytes
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.control import MAX_MESSAGE_BYTES, MESSAGE_TOO_LONG, leave_message, parse_message, refuse_final_run
from ralphproof.runs.open_project import open_project
from ralphproof.store.run_state import RUNNING

ABOUT = """Add a message to the next prompt of a run; its agent reads it once.

The message is kept in the run's record, and the prompt marks it as yours. A running turn does not get it. A run that
waits or was cut off reads it when it is resumed. Agents and checks are refused: see docs/steering.md.
Exit codes: 0 kept, 2 the run is finished, the message is empty, or an agent sent it."""
EXAMPLES = (
    'ralph say latest "leave the public interface as it is"',
    "ralph say 20261115-21 - < remarks.md",
)


def build_parser() -> Parser:
    parser = Parser("say", ABOUT, EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or latest")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="message; - is standard input")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_final_run(ledger, row)
        number, state, confirmation = leave_message(ledger, row, text_of(args.text), project)
    finally:
        ledger.close()
    if args.json:
        print_json("say", {"run": row.id, "number": number, "state": state, "kept": state != RUNNING})
    else:
        print_lines(confirmation)
    return 0


def text_of(words: list[str]) -> str:
    """The message; refuses an empty or too long one."""
    return parse_message(
        read_stdin_bytes("-", MAX_MESSAGE_BYTES, MESSAGE_TOO_LONG)
        if words == ["-"]
        else " ".join(words).encode("utf-8", "surrogateescape")
    )
