"""`ralph supervise`: restart a program until the file DONE is there and the checks agree."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli import run
from ralphproof.cli.parser import Parser, positive_int, positive_number, seconds
from ralphproof.runs.request import resolve_task_folder

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.runs.request import RunRequest


# `ralph supervise`: start a program again and again until it leaves the file DONE, and the checks agree.


ABOUT = """start a program again and again until it leaves the file DONE, and the checks agree.

Whatever it exits with, it is started anew. Exit codes: 0 it is done, 1 it was restarted too often, or another limit
ended it, 2 it cannot be started or something is wrong with the settings, 4 it waits for somebody, 130 interrupted.
"""
EXAMPLES = (
    "ralph supervise -- ./agent.sh",
    'ralph supervise --check "make test" -m 10 --restart-delay 5 -- ./agent.sh --fast',
    "ralph supervise --task-folder /srv/tasks/17 --project shop --task 17 -- ./agent.sh",
    "ralph supervise -f prompt.md --timeout 600 -- claude --model opus",
    "ralph supervise --resume -m 200",
)
NO_COMMAND = "no command; put it behind --: ralph supervise -- CMD..."
NO_DASHES = "a command stands behind --: ralph supervise -- {}"
RESUME_KEEPS = "--resume goes on with the {} that the run has; leave it out"
# What `ralph run` is told by flags that make no sense here.
UNSET_FLAGS = {
    "words": None, "completion_response": None, "promise": None, "model": None, "preset": None, "skill": None,
    "type": None, "risk": None, "force": False, "explain": False, "begin": None, "worktree": False, "agent": None,
    "step": False, "skip_review": None, "review_cap": None, "ralph_dir": None,
}  # fmt: skip


def build_parser() -> Parser:
    parser = Parser("supervise", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("command", nargs="*", metavar="-- CMD", help="the program and its arguments, behind --")
    add("--task-folder", metavar="DIR", help="where it leaves DONE (default: a folder of the run's own)")
    add("--project", metavar="P", help="a name of the project, for the program and for who reads the bus")
    add("--task", metavar="T", help="a name of the task, in the same way")
    run.add_prompt_flags(parser)
    add(
        "-m",
        "--max-restarts",
        dest="maximum_iterations",
        type=positive_int,
        metavar="N",
        help="start it at most so often",
    )
    add(
        "--restart-delay",
        type=seconds,
        metavar="S",
        help="seconds before it starts anew (default 1, growing)",
    )
    add("--timeout", type=positive_number, metavar="S", help="end it after so many seconds, which counts as a failure")
    add(
        "--wait-timeout",
        type=positive_number,
        metavar="S",
        help="wait so long for runs that it began and that are not over",
    )
    add("--poll-interval", type=positive_number, metavar="S", help="look so often whether they are")
    add("--wait-exit-code", type=positive_int, metavar="N", help="the exit code that says that it waits for somebody")
    run.add_limit_flags(parser)
    run.add_start_flags(parser)
    parser.set_defaults(**UNSET_FLAGS)
    return parser


def main(argv: list[str]) -> int:
    return run.run_from_flags(_parse_arguments(argv), supervise_request)


def _parse_arguments(argv: list[str]) -> Namespace:
    """The arguments. What stands behind `--` is the command, whatever it looks like."""
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
    """Raise Refused where there is nothing to run, or two things are."""
    if args.resume is None and not args.command:
        raise Refused(NO_COMMAND)
    if args.resume is None:
        return
    given = {"command": args.command, "task folder": args.task_folder, "names": args.project or args.task}
    for what, new in given.items():
        if new:
            raise Refused(RESUME_KEEPS.format(what))


def supervise_request(args: Namespace) -> RunRequest:
    """What the command line asks for."""
    import shlex

    if args.command and not args.plain:
        args.agent = shlex.join(args.command)
    wish = run.request_from_flags(args)
    return replace(
        wish, flags=_settings_from_flags(args, wish.flags), plain=args.plain, project=args.project or "", task=args.task or "",
        task_folder=resolve_task_folder(args.task_folder) if args.task_folder is not None else "",
    )  # fmt: skip


def _settings_from_flags(args: Namespace, flags: dict[str, Any]) -> dict[str, Any]:
    """The same settings, with those of the restart manager. One that is resumed has its preset."""
    made = dict(flags) if args.resume is not None else {**flags, "preset": "supervise"}
    if group := supervise_settings(
        args.maximum_iterations, args.restart_delay, args.wait_timeout, args.poll_interval, args.wait_exit_code
    ):
        made["supervise"] = group
    if args.timeout is not None:
        made["agent"] = {**made.get("agent", {}), "timeoutSeconds": args.timeout}
    return made


def supervise_settings(
    max_restarts: int | None, restart_delay_s: float | None, wait_timeout_s: float | None,
    poll_interval_s: float | None, wait_exit_code: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The settings `supervise`, as far as they are given."""
    named = {
        "maxRestarts": max_restarts,
        "restartDelaySeconds": restart_delay_s,
        "waitTimeoutSeconds": wait_timeout_s,
        "pollIntervalSeconds": poll_interval_s,
        "waitExitCode": wait_exit_code,
    }
    return {name: given for name, given in named.items() if given is not None}
