"""`ralph demo`: a whole loop in a throw-away repository with a scripted agent."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

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

ABOUT = "Run a whole loop in a throw-away repository, with a scripted agent that fails, lies, then does the work."


def build_parser() -> Parser:
    parser = Parser("demo", ABOUT, ["ralph demo", "ralph demo --keep"])
    parser.add_argument("--keep", action="store_true", help="keep the repository and print its path")
    return parser


def main(argv: list[str]) -> int:
    """Create the demo repository, run the program in it, and verify the result."""
    args = build_parser().parse(argv)
    folder = tempfile.mkdtemp(prefix="ralph-demo-")
    project, environ = os.path.join(folder, "project"), demo_environment(folder)
    try:
        create_demo_project(project, os.path.join(folder, "script.json"), environ)
        print(INTRODUCTION, file=sys.stderr)
        code = run_program(demo_command(project, os.path.join(folder, "script.json"), args.json), project, environ)
        verify_demo(load_demo_state(project, environ), code)
        if not args.json:
            print(EPILOGUE + (f"\nThe repository is in {project}." if args.keep else ""), file=sys.stderr)
        return code
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


EPILOGUE = """
What you saw: ralph ran the checks after every iteration. It refused the claim of iteration 2, put the failing test into
the next prompt, and ended the run when the tests passed and the agent claimed completion.
Now in your own project: ralph run -p 'make the tests pass'"""
