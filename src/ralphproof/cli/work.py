"""`ralph work`: take tasks through their stages, one run each."""

from __future__ import annotations

import os
from argparse import Namespace

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json, replace
from ralphproof.cli.parser import Parser, positive_int, positive_number
from ralphproof.cli.run_flags import add_loop_flags, bounded_settings, loop_request, progress_printer
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.outcome import Outcome
from ralphproof.landing.schedulers import ParallelOptions, ParallelScheduler, SequentialScheduler, WorkResult
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.displays import PoolDisplay, execute_observed, print_stages
from ralphproof.runs.execute import RunPool
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import RunRequest, RunTarget, TaskRequest
from ralphproof.runs.spec import RunSpec
from ralphproof.store.spend import InProcessSharedBudget

ABOUT = """Take tasks through coder, reviewer, tester and qa, one run each, until they are verified.

Tasks are ordered by priority (lower first) and come after their dependencies; without arguments, all tasks that are
open at the start. A stage that finds faults sends the task back to the coder. An interrupted task continues in its
stage. Exit codes: 0 all tasks are done or cancelled, 1 a task was stopped, had failed, was changed meanwhile or cannot
be worked on, 2 a task is invalid, 4 all remaining tasks wait.

With --parallel each task gets its own worktree and branch, based on what has landed so far. Finished work is merged
onto one branch, task by task: the checks run again on the merged files, and the branch moves only if they pass. Work
that does not merge or pass goes back to its agent for one more iteration. Your files and branch are not touched."""
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
    ("--detach", "--detach: ralph work cannot be detached in this version; use: nohup ralph work &"),
    (
        "--resume",
        "--resume: ralph work continues interrupted tasks by itself; name a waiting task to continue it",
    ),
)
SKIPPABLE_STAGES = ("coder", "reviewer", "tester", "qa")


def work_parser() -> Parser:
    parser = Parser("work", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    add = parser.add
    add("tasks", "task ids (default: all open tasks)", nargs="*", metavar="TASK")
    add("--skip STAGE", f"skip a stage: {', '.join(SKIPPABLE_STAGES)}", action="append", choices=SKIPPABLE_STAGES)
    add_loop_flags(parser)
    add("--parallel N", "work on N tasks at a time, each in its own worktree", type=positive_int)
    add("--onto BRANCH", "with --parallel: branch to land on (default ralph/ and the current branch)")
    add("--rebase", "with --parallel: replay commits instead of merging")
    add("--unverified", "with --parallel: also land work that no check verified")
    add("--total-cost-usd USD", "with --parallel: cost limit for all tasks together", type=positive_number)
    add("--dry-run", "print tasks and stages; start nothing")
    return parser


def work_main(argv: list[str]) -> int:
    args = work_parser().parse(argv)
    if args.skip and set(args.skip) == set(SKIPPABLE_STAGES):
        raise Refused("--skip leaves no stage; keep one")
    if args.parallel and not args.dry_run:
        return _print_result(_work_in_parallel(args), args)
    _refuse_parallel_flags(args)
    keeper = None if args.dry_run else KeeperClient()  # starts while the rest is loaded
    try:
        return _print_result(_work_in_sequence(args, keeper), args)
    finally:
        if keeper is not None:
            keeper.close()


def _work_in_sequence(args: Namespace, keeper: KeeperClient | None) -> WorkResult:
    def execute(spec: RunSpec, target: RunTarget) -> Outcome:
        assert keeper is not None
        return execute_observed(spec, keeper, DisplayFlags.of(args), target)

    def preview(spec: RunSpec) -> None:
        if not args.json:
            print_stages(spec)

    project = open_project(args.project_dir, os.environ)
    request = _preview_request if args.parallel else work_request
    scheduler = SequentialScheduler(
        project, args.tasks, lambda task: request(args, task), progress_printer(project, args.quiet),
        None if keeper is None else execute, preview,
    )  # fmt: skip
    return scheduler.work()


def _work_in_parallel(args: Namespace) -> WorkResult:
    project = open_project(args.project_dir, os.environ)
    total = None if args.total_cost_usd is None else round(args.total_cost_usd * 1_000_000)
    pool = RunPool(PoolDisplay(DisplayFlags.of(args)), SignalRouter(), InProcessSharedBudget(total))
    options = ParallelOptions(args.parallel, args.onto or "", args.rebase, args.unverified)
    scheduler = ParallelScheduler(
        project, args.tasks, lambda task: work_request(args, task), progress_printer(project, args.quiet), pool, options
    )
    return scheduler.work()


def _print_result(result: WorkResult, args: Namespace) -> int:
    """Print how every task ended; the exit code."""
    if args.json:
        print_json("work", _result_json(result, args.dry_run))
    elif not args.quiet:
        print_lines(*([result.idle] if result.idle else []))
        print_lines(*(f"{task}  {how}" for task, how in result.ends.items()))
        if result.landed:
            print_lines(f"All that landed is on branch {result.target}; take it: git merge {result.target}")
    return result.exit_code


def _result_json(result: WorkResult, dry_run: bool) -> dict[str, Json]:
    if dry_run:
        previews: list[Json] = [
            {"task": task, "title": result.titles[task], "stages": result.stages.get(task, []), "end": how}
            for task, how in result.ends.items()
        ]
        return {"dryRun": True, "tasks": previews, "exitCode": result.exit_code}
    tasks: list[Json] = [{"task": task, "end": how} for task, how in result.ends.items()]
    landed: dict[str, Json] = {"target": result.target, "tip": result.tip} if result.target else {}
    return {"tasks": tasks, "new": [*result.new], **landed, "exitCode": result.exit_code}


def _refuse_parallel_flags(args: Namespace) -> None:
    """Refuse flags that have no meaning without --parallel."""
    for name in ("onto", "rebase", "unverified", "total_cost_usd"):
        if getattr(args, name) and not args.parallel:
            raise Refused(f"--{name.replace('_', '-')} goes with --parallel; add --parallel N")


def _preview_request(args: Namespace, task: str) -> RunRequest:
    """The request that a dry run with --parallel shows."""
    return replace(work_request(args, task), in_worktree=True)


def work_request(args: Namespace, task: str) -> RunRequest:
    """The request for one task."""
    settings = {**bounded_settings(args), "preset": "pipeline"}
    return loop_request(args, ("", None), settings, task=TaskRequest(task, tuple(args.skip or ()), name=task))
