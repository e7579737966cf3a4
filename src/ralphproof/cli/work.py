"""`ralph work`: take tasks through coder, reviewer, tester and qa, one run each, until they are verified."""

from __future__ import annotations

from ralphproof.cli.parser import Parser, positive
from ralphproof.cli.run import AGENT, add_bounds, add_stream, given, guarded
from ralphproof.errors import Refused
from ralphproof.keeper.client import Keeper
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.cli.order import Wish

ABOUT = """take tasks through coder, reviewer, tester and qa, one run each, until they are verified.

Tasks come by priority (a lower number first), after those that they depend on; without names, all that are open when
it begins. Each is a run of its own, and a stage that finds faults sends it back to the coder. A task that was cut off
goes on in the stage where it was. Exit codes: 0 every one of them is done (those that were cancelled aside), 1 one was
stopped, failed before, was changed meanwhile or cannot be worked on, 2 one is not valid, 4 all that is left waits."""
EXAMPLES = (
    "ralph work",
    "ralph work TASK-001 TASK-002",
    "ralph work TASK-001 --agent claude --max-cost-usd 5",
    "ralph work --skip qa",
    "ralph work --dry-run",
    "ralph work --json",
)
ABSENT = (
    ("--parallel", "--parallel: tasks are worked on one after the other in this version"),
    ("--detach", "--detach: ralph work cannot be detached in this version; nohup ralph work & does it"),
    (
        "--resume",
        "--resume: ralph work goes on by itself with what was cut off; name the task to go on with one that waits",
    ),
)
STAGES = ("coder", "reviewer", "tester", "qa")


def parser() -> Parser:
    made = Parser("work", ABOUT, EXAMPLES, ABSENT)
    add = made.add_argument
    add("tasks", nargs="*", metavar="TASK", help="tasks by their ids (default: all that are open)")
    add(
        "-m", "--maximum-iterations", "-n", "--max-iterations", type=positive, metavar="N", help="most for a whole task"
    )
    add("--agent", metavar="CMD", help=AGENT)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--skip", action="append", choices=STAGES, metavar="STAGE", help=f"leave a stage out: {', '.join(STAGES)}")
    add_bounds(made)
    add_stream(made)
    add("--dry-run", action="store_true", help="say which tasks would be worked on, in which stages; start nothing")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.skip and set(args.skip) == set(STAGES):
        raise Refused("--skip leaves no stage; keep one")
    keeper = None if args.dry_run else Keeper()
    try:
        from ralphproof.cli.shift import Shift

        return Shift(args, keeper, wish_of).work()
    finally:
        if keeper is not None:
            keeper.close()


def wish_of(args: Namespace, task: str) -> Wish:
    """What the command line asks of one task."""
    from ralphproof.cli.order import Wish

    flags: dict[str, Any] = {
        "preset": "pipeline",
        "maximumIterations": args.maximum_iterations,
        "streamAgentOutput": args.stream_agent_output,
        "agent": {"command": args.agent, "model": args.model},
        "limits": {"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return Wish(
        ("", None), given(flags), args.project_dir, tuple(args.check or ()), tuple(args.protect or ()),
        guarded=guarded(args), allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        task=task, work=task, skip=tuple(args.skip or ()), judge=tuple(args.judge or ()),
        hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()),
    )  # fmt: skip
