"""State of runs: `ralph status` and `ralph runs`."""

from __future__ import annotations

import os
from argparse import Namespace

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display import phrases
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import describe_iteration
from ralphproof.runs.open_project import view_project
from ralphproof.store.project import Project
from ralphproof.store.run_state import describe_gc
from ralphproof.views.published_json import list_json, to_json
from ralphproof.views.run_status import (
    detail_lines,
    format_date,
    iteration_table,
    load_run,
    load_run_line,
    load_run_tree,
    load_run_trees,
    run_tree_lines,
    violation_lines,
)

if TYPE_CHECKING:
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.views.run_status import RunDetail, RunView


# ralph status


STATUS_ABOUT = "Show the state of a run: what it is doing or how it ended, and the result of each iteration."
STATUS_EXAMPLES = ("ralph status", "ralph status --all", "ralph status --tree", "ralph status 20261115-21 --json")


def status_parser() -> Parser:
    parser = Parser("status", STATUS_ABOUT, STATUS_EXAMPLES)
    parser.add_run()
    parser.add("--all", "list all runs of this repository, like ralph runs")
    parser.add("--tree", "show the run and, below it, the runs that its agent started")
    return parser


def status_main(argv: list[str]) -> int:
    args = status_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        if args.run is None and not args.all and not ledger.runs(1):
            print_no_runs(ledger, project, args.json)
        elif args.tree:
            _print_tree(ledger, project, args)
        elif args.all:
            print_all_runs(ledger, project, args.json)
        else:
            print_run(ledger, find_named_run(ledger, args.run, args, shown=True), project, args.json)
    return 0


def _print_tree(ledger: SqliteLedger, project: Project, args: Namespace) -> None:
    if args.all:
        print_run_trees(ledger, project, args.json)
    else:
        row = find_named_run(ledger, args.run, args, shown=True)
        _print_trees(ledger, (load_run_tree(ledger, row, project),), project, args.json)


def print_run_trees(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """Print all runs with the runs below them."""
    _print_trees(ledger, load_run_trees(ledger, project), project, for_programs)


def _print_trees(ledger: SqliteLedger, trees: tuple[RunView, ...], project: Project, for_programs: bool) -> None:
    if for_programs:
        _print_runs_json(ledger, project, trees)
    elif not trees:
        print_lines("no run yet")
    else:
        print_lines(*(line for tree in trees for line in run_tree_lines(tree, project.root)))


def _print_runs_json(ledger: SqliteLedger, project: Project, views: tuple[RunView, ...]) -> None:
    total = ledger.queries.run_count()
    print_json("runs", {"project": project.root, "total": total, "runs": list_json("run", views)})


def print_no_runs(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """Print the state of a project without runs."""
    if for_programs:
        _print_runs_json(ledger, project, ())
    else:
        print_lines(f"no run yet; start one: {_first_run_command(project)}", *_task_lines(ledger, project))


def _first_run_command(project: Project) -> str:
    """The command that starts a run here; stories need no prompt."""
    from ralphproof.setup.init import STORIES_PRESET, configured_preset

    stories = configured_preset(project.root) == STORIES_PRESET
    return "ralph run" if stories else 'ralph run -p "make the tests pass"'


def _task_lines(ledger: SqliteLedger, project: Project) -> list[str]:
    """A paragraph about the tasks, if there are any."""
    if not ledger.has_tasks():
        return []
    from ralphproof.views.tasks import list_task_views, task_summary_lines

    return ["", *task_summary_lines(list_task_views(ledger, project))]


def _task_line(ledger: SqliteLedger, run: str) -> list[str]:
    """The task of a run, if it has one."""
    if not ledger.has_tasks():
        return []
    from ralphproof.views.tasks import task_of_run, task_progress_line

    found = task_of_run(ledger, run)
    return [task_progress_line(*found)] if found else []


def print_all_runs(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """Print one line per run, newest first."""
    views = tuple(load_run_line(ledger, row, project) for row in ledger.runs())
    if for_programs:
        _print_runs_json(ledger, project, views)
        return
    if not views:
        print_lines("no run yet")
    for view in views:
        end = phrases.summarize_outcome(view.outcome) if view.outcome else view.state
        elsewhere = "" if view.row.directory in (project.root, "") else f"  in {view.row.directory}"
        count = f"  {phrases.format_count(view.iterations, 'iteration')}" if view.outcome else ""
        sandbox = view.facts.get("sandbox")
        named = phrases.describe_sandbox(sandbox if isinstance(sandbox, dict) else None)
        print_lines(f"{view.row.id}  {format_date(view.row.began_at)}  {end}{count}  sandbox {named}{elsewhere}")


def print_run(ledger: SqliteLedger, row: RunRow, project: Project, for_programs: bool) -> None:
    """Print the details of one run."""
    view = load_run(ledger, row, project)
    detail = view.detail
    assert detail is not None
    if for_programs:
        print_json("run", to_json("run", view))
        return
    print_lines(detail.headline, *_task_line(ledger, row.id))
    if detail.outcome:
        print_lines(*phrases.describe_outcome(detail.outcome))
    judged = [iteration for iteration in detail.timeline if iteration.verdict]
    if judged or detail.history.hooks:
        print_lines("", *(iteration_table(judged) if judged else ()), *violation_lines(detail, judged))
    if detail.stories:
        from ralphproof.display.console import story_table as reviews

        print_lines("", *(line for line, _ in reviews(detail.stories, project.mask, found=True)))
    deleted = describe_gc(project, row.id)
    print_lines(
        "", *_condition_lines(detail), *([deleted] if deleted else []), *detail_lines(view),
        *_task_lines(ledger, project),
    )  # fmt: skip


def _condition_lines(detail: RunDetail) -> list[str]:
    row, facts = detail.row, detail.facts
    sandbox = facts.get("sandbox")
    checks = facts.get("checks")
    lines = [f"began {format_date(row.began_at)} in {row.directory}"]
    if isinstance(sandbox, dict):
        maximum = facts.get("maximumIterations")
        limit = f", at most {phrases.format_count(maximum, 'iteration')}" if isinstance(maximum, int) else ""
        lines.append(f"agent {facts.get('agent')}, sandbox {phrases.describe_sandbox(sandbox)}{limit}")
        lines += [
            line for line in (*phrases.sandbox_weaknesses(sandbox), phrases.describe_resource_limits(sandbox)) if line
        ]
    lines.append("checks: " + (", ".join(map(str, checks)) if isinstance(checks, list | tuple) and checks else "none"))
    if detail.history.state.baseline.report.findings:
        lines.append(f"{describe_iteration(0)}: {phrases.describe_report(detail.history.state.baseline.report)}")
    return lines


# ralph runs


RUNS_ABOUT = "List all runs of this repository, newest first; the same as ralph status --all."
RUNS_EXAMPLES = ("ralph runs", "ralph runs --tree", "ralph runs --json")


def runs_parser() -> Parser:
    parser = Parser("runs", RUNS_ABOUT, RUNS_EXAMPLES)
    parser.add("--tree", "show runs that an agent started below the run of that agent")
    return parser


def runs_main(argv: list[str]) -> int:
    args = runs_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        if args.tree:
            print_run_trees(ledger, project, args.json)
        else:
            print_all_runs(ledger, project, args.json)
    return 0
