"""`ralph work`: take tasks through their stages, one run each."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, positive_int, positive_number
from ralphproof.cli.run import AGENT_HELP, add_limit_flags, add_stream_flags
from ralphproof.process.client import Keeper
from ralphproof.runs.request_flags import check_settings_from_flags, drop_unset, is_guarded

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.runs.request import RunRequest

ABOUT = """take tasks through coder, reviewer, tester and qa, one run each, until they are verified.

Tasks come by priority (a lower number first), after those that they depend on; without names, all that are open when
it begins. Each is a run of its own, and a stage that finds faults sends it back to the coder. A task that was cut off
goes on in the stage where it was. Exit codes: 0 every one of them is done (those that were cancelled aside), 1 one was
stopped, failed before, was changed meanwhile or cannot be worked on, 2 one is not valid, 4 all that is left waits.

With --parallel each task has a worktree and a branch of its own, begun on what has landed so far. Finished work is
merged onto one branch, task after task: the checks run again on the merged files, and only if they pass the branch
moves. What does not fit goes back to its agent for one more iteration. Your own files and branch are not touched."""
EXAMPLES = (
    "ralph work",
    "ralph work TASK-001 TASK-002",
    "ralph work TASK-001 --agent claude --max-cost-usd 5",
    "ralph work --skip qa",
    "ralph work --parallel 4 --total-cost-usd 20",
    "ralph work --dry-run",
    "ralph work --json",
)
UNAVAILABLE_FLAGS = (
    ("--detach", "--detach: ralph work cannot be detached in this version; nohup ralph work & does it"),
    (
        "--resume",
        "--resume: ralph work goes on by itself with what was cut off; name the task to go on with one that waits",
    ),
)
SKIPPABLE_STAGES = ("coder", "reviewer", "tester", "qa")


def build_parser() -> Parser:
    parser = Parser("work", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help="tasks by their ids (default: all that are open)")
    add(
        "-m",
        "--maximum-iterations",
        "-n",
        "--max-iterations",
        type=positive_int,
        metavar="N",
        help="most for a whole task",
    )
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add(
        "--skip",
        action="append",
        choices=SKIPPABLE_STAGES,
        metavar="STAGE",
        help=f"leave a stage out: {', '.join(SKIPPABLE_STAGES)}",
    )
    add_limit_flags(parser)
    add("--parallel", type=positive_int, metavar="N", help="so many tasks at a time, each in a worktree of its own")
    add("--onto", metavar="BRANCH", help="with --parallel: the branch that work lands on (default ralph/YOURS)")
    add("--rebase", action="store_true", help="with --parallel: land by replaying commits instead of merging")
    add("--unverified", action="store_true", help="with --parallel: land also what no check of a machine shows")
    add(
        "--total-cost-usd",
        type=positive_number,
        metavar="USD",
        help="with --parallel: most that all tasks may spend together",
    )
    add_stream_flags(parser)
    add("--dry-run", action="store_true", help="say which tasks would be worked on, in which stages; start nothing")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.skip and set(args.skip) == set(SKIPPABLE_STAGES):
        raise Refused("--skip leaves no stage; keep one")
    if args.parallel and not args.dry_run:
        from ralphproof.landing.parallel_scheduler import ParallelScheduler

        return ParallelScheduler(args, work_request).work()
    _refuse_parallel_flags(args)
    keeper = None if args.dry_run else Keeper()
    try:
        from ralphproof.landing.sequential_scheduler import SequentialScheduler

        return SequentialScheduler(args, keeper, _preview_request if args.parallel else work_request).work()
    finally:
        if keeper is not None:
            keeper.close()


def _refuse_parallel_flags(args: Namespace) -> None:
    """Flags that say nothing where tasks are worked on one after the other, in the user's own files."""
    for name in ("onto", "rebase", "unverified", "total_cost_usd"):
        if getattr(args, name) and not args.parallel:
            raise Refused(f"--{name.replace('_', '-')} goes with --parallel; add --parallel N")


def _preview_request(args: Namespace, task: str) -> RunRequest:
    """The wish for a task that would have a worktree of its own; nothing is begun by it."""
    from ralphproof.base.value import replace

    return replace(work_request(args, task), apart=True)


def work_request(args: Namespace, task: str) -> RunRequest:
    """What the command line asks of one task."""
    from ralphproof.runs.request import RunRequest

    most = [limit for limit in (args.max_cost_usd, args.total_cost_usd) if limit is not None]
    flags: dict[str, Any] = {
        "preset": "pipeline",
        "maximumIterations": args.maximum_iterations,
        "streamAgentOutput": args.stream_agent_output,
        "agent": {"command": args.agent, "model": args.model},
        "limits": {"maxCostUsd": min(most, default=None), "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return RunRequest(
        ("", None), drop_unset(flags) | check_settings_from_flags(args), args.project_dir, tuple(args.check or ()),
        tuple(args.protect or ()), find_checks=True, allow_missing_check=args.allow_missing_check,
        guarded=is_guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        task=task, work=task, skip=tuple(args.skip or ()), judge=tuple(args.judge or ()),
        hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()),
    )  # fmt: skip
