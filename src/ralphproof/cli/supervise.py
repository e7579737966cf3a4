"""`ralph supervise`: restart a command until its DONE file and the checks agree."""

from __future__ import annotations

import shlex
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli import run
from ralphproof.cli.parser import Parser
from ralphproof.runs.request import RunRequest, TaskRequest, resolve_task_folder

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Restart a command until its DONE file and the checks agree.

The command is restarted whatever its exit code. Exit codes: 0 done, 1 restarted too often or stopped by another limit,
2 the command cannot be started or the settings are wrong, 4 waiting for a person, 130 interrupted.
"""
EXAMPLES = (
    "ralph supervise -- ./agent.sh",
    'ralph supervise --check "make test" -m 10 --restart-delay 5 -- ./agent.sh --fast',
    "ralph supervise --task-folder /srv/tasks/17 --project shop --task 17 -- ./agent.sh",
    "ralph supervise -f prompt.md --timeout 600 -- claude --model opus",
    "ralph supervise --resume -m 200",
)
NO_COMMAND = "no command; put it after --: ralph supervise -- CMD..."
NO_DASHES = "put the command after --: ralph supervise -- {}"
RESUME_KEEPS = "--resume uses the {} of the run; leave it out"
# Values of the `ralph run` flags that do not exist here.
UNSET_FLAGS = {
    "words": None, "skill": None, "type": None, "risk": None, "force": False, "explain": False, "begin": None,
    "worktree": False, "step": False, "ralph_dir": None,
}  # fmt: skip


def build_parser() -> Parser:
    parser = Parser("supervise", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("command", nargs="*", metavar="-- CMD", help="command and arguments, after --")
    add("--task-folder", metavar="DIR", help="folder for the DONE file (default: a folder of the run)")
    add("--project", metavar="P", help="project name in RALPH_PROJECT and in bus messages")
    add("--task", metavar="T", help="task name in RALPH_TASK and in bus messages")
    run.add_prompt_flags(parser)
    run.add_loop_flags(parser)
    run.add_start_flags(parser)
    parser.set_defaults(**UNSET_FLAGS)
    return parser


def main(argv: list[str]) -> int:
    return run.run_from_flags(_parse_arguments(argv), supervise_request)


def _parse_arguments(argv: list[str]) -> Namespace:
    """Parse the arguments; everything after `--` is the command."""
    at = argv.index("--") if "--" in argv else len(argv)
    args = run.parse_with_prompt(argv[:at], build_parser())
    if args.command:
        raise Refused(NO_DASHES.format(" ".join(args.command)))
    args.command = argv[at + 1 :]
    _refuse_bad_command(args)
    if args.resume is None and args.prompt is None and args.prompt_file is None:
        args.prompt, args.plain = "", tuple(args.command)
    else:
        args.plain = ()
    return args


def _refuse_bad_command(args: Namespace) -> None:
    """Refuse a missing command, and flags that a resumed run already has."""
    if args.resume is None and not args.command:
        raise Refused(NO_COMMAND)
    if args.resume is None:
        return
    values = {"command": args.command, "task folder": args.task_folder, "names": args.project or args.task}
    for name, value in values.items():
        if value:
            raise Refused(RESUME_KEEPS.format(name))


def supervise_request(args: Namespace) -> RunRequest:
    """The request of a command line."""
    request = run.request_from_flags(args)
    folder = resolve_task_folder(args.task_folder) if args.task_folder is not None else ""
    task = TaskRequest(folder=folder, project=args.project or "", name=args.task or "")
    return replace(request, flags=_supervise_settings(args, request.flags), program=args.plain, task=task)


def _supervise_settings(args: Namespace, flags: dict[str, Any]) -> dict[str, Any]:
    """The settings of the flags, with the agent. A resumed run has its preset already; one limit has two names."""
    settings = dict(flags) if args.resume is not None else {**flags, "preset": "supervise"}
    if args.max_restarts is not None:
        settings["maximumIterations"] = args.max_restarts
    if args.command and not args.plain:
        settings["agent"] = {**settings.get("agent", {}), "command": shlex.join(args.command)}
    return settings
