"""`ralph work`: take tasks through coder, reviewer, tester and qa, one run each, until they are verified."""

from __future__ import annotations

import os
import sys

from ralphproof.backlog import DONE, WORKING, next_task
from ralphproof.cli.parser import Parser, nearest, positive
from ralphproof.cli.run import AGENT, add_bounds, add_stream, given, looped
from ralphproof.errors import Refused, TaskWrong
from ralphproof.keeper.client import Keeper
from ralphproof.limit import DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE
from ralphproof.stage import AllDone, Blocked
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted, Completed

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.cli.order import Order, Wish
    from ralphproof.cli.task_view import TaskView
    from ralphproof.cli.to_the_end import Which
    from ralphproof.plan import Task
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome

ABOUT = """take tasks through coder, reviewer, tester and qa, one run each, until they are verified.

Tasks come by priority (a lower number first), after those that they depend on; without names, all that are open. Each
is a run of its own, and a stage that finds faults sends it back to the coder. A task that was cut off goes on in the
stage where it was. Exit codes: 0 all are done, 1 one was stopped or nothing can be worked on, 2 one is not valid."""
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
# Ends of one run that would be those of the next one too.
COMMON = (DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE)


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
        return Shift(args, keeper).work()
    finally:
        if keeper is not None:
            keeper.close()


class Shift:
    """One call of `ralph work`: task after task, until none is left that can be worked on."""

    def __init__(self, args: Namespace, keeper: Keeper | None) -> None:
        from ralphproof.cli.project import Project

        self._args, self._keeper = args, keeper
        self._project = Project.at(args.project_dir, os.environ)
        self._wanted = frozenset(args.tasks)
        self._ends: dict[str, str] = {}  # of each task that had its turn, in words
        self._codes: list[int] = []

    def work(self) -> int:
        """Take up what can be taken up; the exit code."""
        self._refuse_unknown()
        while not isinstance(task := self._next(), AllDone | Blocked):
            if not self._one(task):
                break
        else:
            self._tell_left(task)
        return self._summed_up()

    def _views(self) -> tuple[TaskView, ...]:
        from ralphproof.cli.task_view import views_of

        return views_of(self._project)

    def _refuse_unknown(self) -> None:
        views = {view.id: view for view in self._views()}
        if not views:
            raise Refused("there is no task yet; write one: ralph task create, or ralph task import FILE")
        for name in self._args.tasks:
            if name not in views:
                raise Refused(f"there is no task {name}{nearest(name, views)} (see ralph task list)")
            if views[name].status == WORKING and not views[name].goes_on:
                raise Refused(
                    f"task {name} is being worked on by run {views[name].run}; ralph attach {views[name].run}"
                )

    def _next(self) -> Task | AllDone | Blocked:
        return next_task(tuple(view.item for view in self._views()), self._wanted, frozenset(self._ends))

    def _one(self, task: Task) -> bool:
        """Work on one task; whether the next one may follow."""
        view = next(view for view in self._views() if view.id == task.id)
        self._begin(view)
        try:
            order, which = self._order(view)
        except TaskWrong as error:
            self._ended(task.id, f"not valid: {error}", error.exit_code)
            self._say(f"task {task.id} is left out: {error}")
            return True
        if self._keeper is None:
            return self._show(order, task)
        outcome = looped(order, self._keeper, self._args, which)
        self._ended(task.id, _words(outcome), outcome.exit_code)
        return outcome.exit_code in (0, 1, 4) and not (isinstance(outcome, Aborted) and outcome.reason in COMMON)

    def _order(self, view: TaskView) -> tuple[Order, Which]:
        from ralphproof.cli.order import prepare
        from ralphproof.cli.resume_run import wanted
        from ralphproof.cli.to_the_end import ANEW, Which

        wish = wish_of(self._args, view.id)
        if not view.goes_on or self._keeper is None:
            return prepare(wish), ANEW
        row, kept = wanted(self._project, view.run, wish)
        return prepare(kept), Which(row=row)

    def _show(self, order: Order, task: Task) -> bool:
        from ralphproof.cli.dry import show_stages

        show_stages(order, self._args.json)
        self._ended(task.id, "would be worked on", 0)
        return True

    def _begin(self, view: TaskView) -> None:
        onward = f", goes on with run {view.run}" if view.goes_on else ""
        self._say(f"Task {view.id}{onward}: {view.title}")

    def _ended(self, task: str, how: str, code: int) -> None:
        self._ends[task] = how
        self._codes.append(code)

    def _tell_left(self, left: AllDone | Blocked) -> None:
        if isinstance(left, Blocked):
            self._codes.append(1)
            self._ends |= dict.fromkeys(left.tasks, "BLOCKED")
            self._say(f"nothing more can be worked on: {left.why}")

    def _summed_up(self) -> int:
        """Say how all of it ended. A signal beats a fault, a fault a stop, a stop a wait."""
        code = next((code for code in (130, 3, 2, 1, 4) if code in self._codes), 0)
        if self._args.json:
            from ralphproof.cli.out import put_json

            tasks: list[Json] = [{"task": task, "end": how} for task, how in self._ends.items()]
            put_json("work", {"tasks": tasks, "exitCode": code})
        elif not self._args.quiet:
            self._put_summary()
        return code

    def _put_summary(self) -> None:
        from ralphproof.cli.out import put

        if not self._ends:
            done = all(view.status == DONE for view in self._views() if not self._wanted or view.id in self._wanted)
            put("nothing to do: every task is done" if done else "nothing to do: no task is open (see ralph task list)")
        put(*(f"{task}  {how}" for task, how in self._ends.items()))

    def _say(self, line: str) -> None:
        from ralphproof.display.clean import clean, flat

        if not self._args.quiet:
            print(flat(clean(self._project.mask(line))), file=sys.stderr)


def _words(outcome: Outcome) -> str:
    match outcome:
        case Completed():
            return f"done, {outcome.proof}"
        case Aborted():
            return f"{outcome.reason}: {outcome.breach.message}"
        case _:
            return f"ERROR: {outcome.error}"


def wish_of(args: Namespace, task: str) -> Wish:
    """What the command line asks of one task."""
    from ralphproof.cli.order import Wish

    flags: dict[str, Any] = {
        "preset": "pipeline",
        "maximumIterations": args.maximum_iterations,
        "streamAgentOutput": args.stream_agent_output,
        "agent": {"command": args.agent, "model": args.model},
        "limits": {"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
    }
    return Wish(
        ("", None), given(flags), args.project_dir, tuple(args.check or ()), tuple(args.protect or ()),
        guarded=not args.no_sandbox, allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose,
        task=task, work=task, skip=tuple(args.skip or ()), judge=tuple(args.judge or ()),
    )  # fmt: skip
