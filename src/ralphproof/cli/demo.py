"""`ralph demo`: a whole loop in a throw-away repository."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.parser import Parser
from ralphproof.setup.demo import (
    INTRODUCTION,
    create_demo_project,
    demo_command,
    demo_environment,
    load_demo_state,
    run_program,
    verify_demo,
)

ABOUT = "a whole loop in a throw-away repository, with a scripted agent that fails, lies, then does the work."


def build_parser() -> Parser:
    parser = Parser("demo", ABOUT, ["ralph demo", "ralph demo --keep"])
    parser.add_argument("--keep", action="store_true", help="leave the repository, and say where it is")
    return parser


def main(argv: list[str]) -> int:
    """Set the stage, run the shipped program on it, and look whether it did what it promises."""
    import shutil
    import tempfile

    args = build_parser().parse(argv)
    stage = tempfile.mkdtemp(prefix="ralph-demo-")
    project, environ = os.path.join(stage, "project"), demo_environment(stage)
    try:
        create_demo_project(project, os.path.join(stage, "script.json"), environ)
        print(INTRODUCTION, file=sys.stderr)
        code = run_program(demo_command(project, os.path.join(stage, "script.json"), args.json), project, environ)
        verify_demo(load_demo_state(project, environ), code)
        if not args.json:
            print(EPILOGUE + (f"\nThe repository is in {project}." if args.keep else ""), file=sys.stderr)
        return code
    finally:
        if not args.keep:
            shutil.rmtree(stage, ignore_errors=True)


EPILOGUE = """
What you saw: after every iteration the checks ran, by the harness. The claim of iteration 2 was refused, its failing
test went into the next prompt, and the run ended when the tests passed and the agent said so.
Now in a project of yours: ralph run -p 'make the tests pass'"""
