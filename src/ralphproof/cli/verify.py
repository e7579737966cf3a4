"""`ralph verify`: run a finished run's checks again on a clean checkout."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import confirm, print_json, print_lines
from ralphproof.proof.schema import EXIT_CODES
from ralphproof.proof.source import is_proof_file, load_proof_file, load_proof_of_run
from ralphproof.proof.verification import verification_json, verification_lines, verify_proof
from ralphproof.runs.open_project import view_project
from ralphproof.sandbox.selection import HOST_TOOL_KIND_NAMES

if TYPE_CHECKING:
    from argparse import Namespace

ABOUT = """Run a finished run's checks again on a clean checkout.

RUN is a run of this repository: id, unique prefix, or latest. FILE is a proof written by ralph proof export; it needs
a clone of the repository and no record of the run. First everything is checked for changes: the file, its page, the
records behind it, and for a run also the logs. Then the recorded tree is checked out into a temporary folder, and
every required check runs there again, each in a fresh checkout, after the setup commands. Nothing is written here.

From a file only commands run that are in the settings of that commit (.ralph/settings.json, and verifyCommands of
ralph/tasks.json); others are shown, and run with --yes. Judgements of models are not repeated.

Exit codes: 0 the proof holds, 1 it does not, 2 it cannot be checked (the reason is printed)."""
EXAMPLES = (
    "ralph verify latest",
    "ralph verify 20261115-21 --json",
    "ralph verify proof.md",
    "ralph verify proof.md --yes",
    "git clone URL work && ralph verify -d work ralph-proof.md   # in CI: the repository and the file are enough",
)


def build_parser() -> Parser:
    parser = Parser("verify", ABOUT, EXAMPLES)
    parser.add_argument("what", metavar="RUN|FILE", help="run, or exported proof")
    parser.add_argument("--yes", action="store_true", help="also run a file's commands that no settings contain")
    parser.add_argument(
        "--sandbox", metavar="[=KIND]", help=f"run checks in a sandbox: the strongest, or {HOST_TOOL_KIND_NAMES}"
    )
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
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
    if args.json:
        print_json("verification", verification_json(source, result))
    else:
        print_lines(*verification_lines(source, result))
    return EXIT_CODES[result.verdict]


def _confirm(commands: tuple[str, ...], args: Namespace) -> bool:
    """Whether the user wants commands run that the settings do not name."""
    if args.yes or args.json or sys.stdin is None or not sys.stdin.isatty():
        return bool(args.yes)
    print_lines("Not in the settings of that commit:", *(f"  {line}" for line in commands))
    return confirm("Run these commands?")
