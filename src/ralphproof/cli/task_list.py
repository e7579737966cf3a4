"""`ralph task list`: every task, one line each, and the same in short for `ralph status`."""

from __future__ import annotations

import os

from ralphproof.backlog import STATUSES
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.display.clean import clean, fitted, flat
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project
from ralphproof.views.task_view import StageCount, TaskView, views_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json

ABOUT = """every task, one line each: its id, how it stands, its stage and how often that was tried, priority, title.

A task is todo, working, waiting (for somebody), failed, done or cancelled: by your own word, or, where a run has worked
on it since, by how that run stands."""
EXAMPLES = ("ralph task list", "ralph task list --status failed", "ralph task list --spec auth-feature --json")
NONE = "no task yet; make one: ralph task create, or ralph task import"
SHOWN = 20  # in ralph status
COLUMNS = 200  # of a title; ralph task show has all of it


def parser() -> Parser:
    made = Parser("task list", ABOUT, EXAMPLES)
    made.add_argument("--status", choices=STATUSES, metavar="S", help=f"those alone that are so: {', '.join(STATUSES)}")
    made.add_argument("--spec", metavar="SPEC", help="those alone that belong to this spec")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    every = views_of(Project.seen(args.project_dir, os.environ))
    of_status = [view for view in every if args.status in (None, view.status)]
    wanted = [view for view in of_status if args.spec in (None, view.spec_id)]
    if args.json:
        put_json("tasks", {"tasks": published(wanted)})
    elif not every:
        put(NONE)
    else:
        put(*_table(wanted))
    return 0


def published(tasks: Iterable[TaskView]) -> list[Json]:
    """What a list tells programs of each task."""
    return [view.published() for view in tasks]


def _table(tasks: Iterable[TaskView]) -> list[str]:
    heading = ("id", "status", "stage", "priority", "title")
    lines = [(view.id, view.standing, str(view.count), str(view.priority), view.title) for view in tasks]
    return aligned([heading, *lines])


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Cells in columns, clean and each in one line; the last column is as long as it may be."""
    cells = [[fitted(flat(clean(cell)).strip(), COLUMNS) for cell in row] for row in rows]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    padded = ((cell + " " * (wide - _columns(cell)) for cell, wide in zip(row, widths, strict=True)) for row in cells)
    return ["  ".join(row).rstrip() for row in padded]


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def section(tasks: Sequence[TaskView]) -> list[str]:
    """Some lines for `ralph status`: where there are too many, those first that are not over."""
    shown = tasks if len(tasks) <= SHOWN else sorted(tasks, key=lambda view: view.over)[:SHOWN]
    lines = aligned([(view.id, view.standing, str(view.count), view.title) for view in shown])
    more = [f"  and {len(tasks) - SHOWN} more: ralph task list"] if len(tasks) > SHOWN else []
    return ["tasks", *(f"  {line}" for line in lines), *more]


def of_run(ledger: Sqlite, run: str) -> tuple[str, StageCount] | None:
    """The task that a run works on, and where it stands in that; None for most runs."""
    task = ledger.tasks.task_of_run(run)
    return (task, StageCount.of(ledger, run)) if task is not None else None


def line_of_run(task: str, count: StageCount) -> str:
    """The same as a sentence."""
    if not count.stage:
        return f"task {task}: about to begin"
    of = f" of {count.most}" if count.most is not None else ""
    return f"task {task}: stage {count.stage}, iteration {count.iteration}{of}"
