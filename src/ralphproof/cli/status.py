"""`ralph status`: state and iterations of a run."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display import phrases
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import describe_iteration
from ralphproof.engine.metrics import story_reviews_json
from ralphproof.engine.outcome import outcome_json
from ralphproof.engine.records import Resumed, RunBegan, RunEnded
from ralphproof.engine.state import RunOver, State, build_state
from ralphproof.runs.open_project import view_project
from ralphproof.store.project import Project
from ralphproof.store.run_state import RUNNING, describe_gc, run_state
from ralphproof.views.run_status import (
    RunStatus,
    RunSummary,
    display_state,
    format_date,
    iteration_table,
    run_row_json,
    run_summary_json,
    violation_lines,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.engine.metrics import StoryReview
    from ralphproof.engine.outcome import Outcome
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.views.run_tree import RunTree

ABOUT = "Show the state of a run: what it is doing or how it ended, and the result of each iteration."
EXAMPLES = ("ralph status", "ralph status --all", "ralph status --tree", "ralph status 20261115-21 --json")


def build_parser() -> Parser:
    parser = Parser("status", ABOUT, EXAMPLES)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    parser.add_argument("--all", action="store_true", help="list all runs of this repository, like ralph runs")
    parser.add_argument(
        "--tree", action="store_true", help="show the run and, below it, the runs that its agent started"
    )
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        if args.run is None and not args.all and not ledger.runs(1):
            print_no_runs(ledger, project, args.json)
        elif args.tree:
            _print_tree(ledger, project, args)
        elif args.all:
            print_all_runs(ledger, project, args.json)
        else:
            print_run(ledger, find_named_run(ledger, args.run, args, shown=True), project, args.json)
    finally:
        ledger.close()
    return 0


def _print_tree(ledger: SqliteLedger, project: Project, args: Namespace) -> None:
    from ralphproof.views.run_tree import load_run_tree, load_run_trees

    if args.all:
        print_run_trees(load_run_trees(ledger, project), project, args.json)
    else:
        row = find_named_run(ledger, args.run, args, shown=True)
        print_run_trees((load_run_tree(ledger, project, row),), project, args.json)


def print_run_trees(trees: tuple[RunTree, ...], project: Project, for_programs: bool) -> None:
    """Print runs with the runs below them."""
    from ralphproof.views.run_tree import run_tree_json, run_tree_lines

    if for_programs:
        print_json("tree", {"project": project.root, "runs": [run_tree_json(tree) for tree in trees]})
    elif not trees:
        print_lines("no run yet")
    else:
        print_lines(*(line for tree in trees for line in run_tree_lines(tree, project.root)))


def print_no_runs(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """Print the state of a project without runs."""
    if for_programs:
        print_json("status", {"run": None, "tasks": _tasks_json(ledger, project)})
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


def _tasks_json(ledger: SqliteLedger, project: Project) -> list[Json]:
    if not ledger.has_tasks():
        return []
    from ralphproof.views.tasks import list_task_views, tasks_json

    return tasks_json(list_task_views(ledger, project))


def _task_of_run(ledger: SqliteLedger, run: str) -> tuple[str, Json] | None:
    """The task of a run, as a line and as JSON."""
    if not ledger.has_tasks():
        return None
    from ralphproof.views.tasks import task_of_run, task_progress_line

    if (found := task_of_run(ledger, run)) is None:
        return None
    return task_progress_line(*found), {"id": found[0], "stage": found[1].published()}


def print_all_runs(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """Print one line per run, newest first."""
    rows = [(row, _run_state(ledger, row, project), _outcome_of_run(ledger, row.id)) for row in ledger.runs()]
    if for_programs:
        runs: list[Json] = [
            run_row_json(row, state)
            | {"sandbox": _sandbox_of_run(ledger, row.id), "outcome": outcome_json(outcome) if outcome else None}
            for row, state, outcome in rows
        ]
        print_json("runs", {"project": project.root, "runs": runs})
        return
    if not rows:
        print_lines("no run yet")
    for row, state, outcome in rows:
        end = phrases.summarize_outcome(outcome) if outcome else state
        elsewhere = "" if row.directory in (project.root, "") else f"  in {row.directory}"
        count = f"  {phrases.format_count(outcome.iterations, 'iteration')}" if outcome else ""
        sandbox = phrases.describe_sandbox(_sandbox_of_run(ledger, row.id))
        print_lines(f"{row.id}  {format_date(row.began_at)}  {end}{count}  sandbox {sandbox}{elsewhere}")


def _run_state(ledger: SqliteLedger, row: RunRow, project: Project) -> str:
    """The state of a run: for most from the processes alone, for live or just ended runs from the records."""
    state, end = run_state(ledger, row, project), ledger.run_end(row.id)
    if state == RUNNING:
        return display_state(state, build_state(ledger.records(row.id)))
    return display_state(state, State().after(end)) if end else state


def _sandbox_of_run(ledger: SqliteLedger, run: str) -> dict[str, Json] | None:
    """Name and strength of a run's sandbox; None if not recorded."""
    sandboxes = [
        one.facts.get("sandbox") for one in ledger.records_of_kind(run, "RunBegan") if isinstance(one, RunBegan)
    ]
    sandboxes += [one.sandbox for one in ledger.records_of_kind(run, "Resumed") if isinstance(one, Resumed)]
    latest = next((one for one in reversed(sandboxes) if one), None)
    return {name: latest.get(name) for name in ("name", "strength")} if isinstance(latest, dict) else None


def _outcome_of_run(ledger: SqliteLedger, run: str) -> Outcome | None:
    end = ledger.run_end(run)
    return end.outcome if isinstance(end, RunEnded) else None


def print_run(ledger: SqliteLedger, row: RunRow, project: Project, for_programs: bool) -> None:
    """Print the details of one run."""
    status, task = RunStatus.read(ledger, row, project), _task_of_run(ledger, row.id)
    summary = status.summary
    stories = _reviewed_stories(summary, row, project)
    if for_programs:
        tasks: dict[str, Json] = {"task": task[1] if task else None, "tasks": _tasks_json(ledger, project)}
        print_json(
            "status", status.to_json() | run_summary_json(summary) | {"stories": story_reviews_json(stories)} | tasks
        )
        return
    print_lines(status.first_line(), *([task[0]] if task else []))
    if isinstance(summary.state.phase, RunOver):
        print_lines(*phrases.describe_outcome(summary.state.phase.outcome))
    if summary.passes or summary.hooks:
        print_lines("", *(iteration_table(summary) if summary.passes else ()), *violation_lines(summary))
    if stories:
        from ralphproof.display.console import story_table as reviews

        print_lines("", *(line for line, _ in reviews(stories, project.mask, found=True)))
    deleted = describe_gc(project, row.id)
    print_lines(
        "",
        *_condition_lines(summary, row),
        *([deleted] if deleted else []),
        *status.detail_lines(),
        *_task_lines(ledger, project),
    )


def _reviewed_stories(summary: RunSummary, row: RunRow, project: Project) -> tuple[StoryReview, ...]:
    """The reviews of a run's stories: final if it ended, else so far."""
    if isinstance(summary.last, RunEnded):
        return summary.last.metrics.reviewed if summary.last.metrics else ()
    if "stories" not in summary.facts:
        return ()
    from ralphproof.stories.workflow import story_reviews

    return story_reviews(project, row, summary.facts)


def _condition_lines(summary: RunSummary, row: RunRow) -> list[str]:
    facts = summary.facts
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
    if summary.state.baseline.report.findings:
        lines.append(f"{describe_iteration(0)}: {phrases.describe_report(summary.state.baseline.report)}")
    return lines
