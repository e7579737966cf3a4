"""`ralph verify`: run a finished run's checks again on a clean checkout."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace
from ralphproof.cli.parser import Parser
from ralphproof.proof.verification import EXIT_CODES, print_answer, verify_case

ABOUT = """run a finished run's checks again on a clean checkout: does its proof hold?

RUN is a run of this repository: an id, its beginning, or latest. FILE is a proof that ralph proof export wrote; it
needs a clone of the repository, and no record of the run. First nothing may be altered: the file, its page, the
records that it rests on, for a run also the logs. Then the recorded tree is checked out into a throw-away folder, and
every required check runs there again, each in a fresh checkout, after the setup commands. Nothing is written here.

From a file only commands run that stand in the settings of that very commit (.ralph/settings.json, and verifyCommands
of ralph/tasks.json); others are shown, and run with --yes. What a model judged is not asked again.

Exit codes: 0 it holds, 1 it does not, 2 it cannot be checked (it says why)."""
EXAMPLES = (
    "ralph verify latest",
    "ralph verify 20261115-21 --json",
    "ralph verify proof.md",
    "ralph verify proof.md --yes",
    "git clone URL work && ralph verify -d work ralph-proof.md   # in CI: the repository and the file are enough",
)


def build_parser() -> Parser:
    parser = Parser("verify", ABOUT, EXAMPLES)
    parser.add_argument("what", metavar="RUN|FILE", help="a run, or an exported proof")
    parser.add_argument("--yes", action="store_true", help="run a file's commands also where no settings name them")
    kinds = "bubblewrap, container, landlock, sandbox-exec"
    parser.add_argument("--sandbox", metavar="[=KIND]", help=f"run them in a sandbox: the strongest, or {kinds}")
    return parser


def main(argv: list[str]) -> int:
    from ralphproof.proof.source import is_proof_file, load_proof_file, load_proof_of_run
    from ralphproof.runs.open_project import view_project

    args = build_parser().parse(argv)
    if not args.what:
        raise Refused("say what to verify: a run, latest, or the file of a proof")
    file, environ = is_proof_file(args.what), os.environ
    case = (
        load_proof_file(args.what, args.project_dir, environ)
        if file
        else load_proof_of_run(view_project(args.project_dir, environ), args)
    )
    answer = verify_case(case, args)
    print_answer(case, replace(answer, told=(*case.told, *answer.told)), args.json)
    return EXIT_CODES[answer.verdict]
