"""`ralph status`: where a run stands: how it ended or what it is doing, and what each iteration came to."""

from __future__ import annotations

import os

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.display import words
from ralphproof.metric import listed
from ralphproof.phase import Over
from ralphproof.record import Resumed, RunBegan, RunEnded
from ralphproof.state import State, state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import result
from ralphproof.views.account import Account, as_json, shown_state, table, troubles
from ralphproof.views.gc_note import swept
from ralphproof.views.project import Project
from ralphproof.views.stance import Stance, date, facts_of
from ralphproof.views.standing import RUNNING, standing, when

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.metric import Reviewed
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome

ABOUT = "where a run stands: how it ended or what it is doing, and what each iteration came to."
EXAMPLES = ("ralph status", "ralph status --all", "ralph status --tree", "ralph status 20261115-21 --json")


def parser() -> Parser:
    made = Parser("status", ABOUT, EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    made.add_argument("--all", action="store_true", help="every run of this repository, one line each; ralph runs")
    made.add_argument("--tree", action="store_true", help="the run, and below it those that its agent began")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        if args.run is None and not args.all and not ledger.runs(1):
            show_none(ledger, project, args.json)
        elif args.tree:
            _show_tree(ledger, project, args)
        elif args.all:
            show_all(ledger, project, args.json)
        else:
            show_one(ledger, named_run(ledger, args.run, args, shown=True), project, args.json)
    finally:
        ledger.close()
    return 0


def _show_tree(ledger: Sqlite, project: Project, args: Namespace) -> None:
    from ralphproof.cli.tree import show_forest, show_tree

    if args.all:
        show_forest(ledger, project, args.json)
    else:
        show_tree(ledger, project, named_run(ledger, args.run, args, shown=True), args.json)


def show_none(ledger: Sqlite, project: Project, for_programs: bool) -> None:
    """A project in which nothing ever ran."""
    if for_programs:
        put_json("status", {"run": None, "tasks": _tasks_json(ledger, project)})
    else:
        put(f"no run yet; begin one: {_first_run(project)}", *_tasks(ledger, project))


def _first_run(project: Project) -> str:
    """The command that begins a run here: stories are their own prompt."""
    from ralphproof.cli.init import STORIES, preset_in_force

    stories = preset_in_force(project.root) == STORIES
    return "ralph run" if stories else 'ralph run -p "make the tests pass"'


def _tasks(ledger: Sqlite, project: Project) -> list[str]:
    """Where there are tasks, a paragraph about them."""
    if not ledger.any_task():
        return []
    from ralphproof.cli.task_list import section
    from ralphproof.views.task_view import views

    return ["", *section(views(ledger, project))]


def _tasks_json(ledger: Sqlite, project: Project) -> list[Json]:
    if not ledger.any_task():
        return []
    from ralphproof.cli.task_list import published
    from ralphproof.views.task_view import views

    return published(views(ledger, project))


def _task_of(ledger: Sqlite, run: str) -> tuple[str, Json] | None:
    """What to say of the task that a run works on, for people and for programs."""
    if not ledger.any_task():
        return None
    from ralphproof.cli.task_list import line_of_run, of_run

    if (found := of_run(ledger, run)) is None:
        return None
    return line_of_run(*found), {"id": found[0], "stage": found[1].published()}


def show_all(ledger: Sqlite, project: Project, for_programs: bool) -> None:
    """One line a run, the newest first."""
    rows = [(row, _state_of(ledger, row, project), _outcome(ledger, row.id)) for row in ledger.runs()]
    if for_programs:
        listed: list[Json] = [
            facts_of(row, where)
            | {"sandbox": _sandbox(ledger, row.id), "outcome": result(outcome) if outcome else None}
            for row, where, outcome in rows
        ]
        put_json("runs", {"project": project.root, "runs": listed})
        return
    if not rows:
        put("no run yet")
    for row, where, outcome in rows:
        end = words.in_short(outcome) if outcome else where
        elsewhere = "" if row.directory in (project.root, "") else f"  in {row.directory}"
        count = f"  {words.count(outcome.iterations, 'iteration')}" if outcome else ""
        held = words.held_by(_sandbox(ledger, row.id))
        put(f"{row.id}  {date(row.began_at)}  {end}{count}  sandbox {held}{elsewhere}")


def _state_of(ledger: Sqlite, row: RunRow, project: Project) -> str:
    """How a run stands. Of most the processes tell it; only of those that live, or have just ended, the records."""
    where, end = standing(ledger, row, project), ledger.end_of(row.id)
    if where == RUNNING:
        return shown_state(where, state_of(ledger.records(row.id)))
    return shown_state(where, State().after(end)) if end else where


def _sandbox(ledger: Sqlite, run: str) -> dict[str, Json] | None:
    """What holds a run, or held it: name and strength; None where that is not on record."""
    said = [one.facts.get("sandbox") for one in ledger.of_kind(run, "RunBegan") if isinstance(one, RunBegan)]
    said += [one.sandbox for one in ledger.of_kind(run, "Resumed") if isinstance(one, Resumed)]
    found = next((one for one in reversed(said) if one), None)
    return {name: found.get(name) for name in ("name", "strength")} if isinstance(found, dict) else None


def _outcome(ledger: Sqlite, run: str) -> Outcome | None:
    end = ledger.end_of(run)
    return end.outcome if isinstance(end, RunEnded) else None


def show_one(ledger: Sqlite, row: RunRow, project: Project, for_programs: bool) -> None:
    """All about one run."""
    stance, task = Stance.of(ledger, row, project), _task_of(ledger, row.id)
    account = stance.account
    stories = _stories(account, row, project)
    if for_programs:
        tasks: dict[str, Json] = {"task": task[1] if task else None, "tasks": _tasks_json(ledger, project)}
        put_json("status", stance.facts() | as_json(account) | {"stories": listed(stories)} | tasks)
        return
    put(stance.first_line(), *([task[0]] if task else []))
    if isinstance(account.state.phase, Over):
        put(*words.outcome(account.state.phase.outcome))
    if account.passes or account.hooks:
        put("", *(table(account) if account.passes else ()), *troubles(account))
    if stories:
        from ralphproof.display.reviews import table as reviews

        put("", *(line for line, _ in reviews(stories, project.mask, found=True)))
    gone = swept(project, row.id)
    put("", *_conditions(account, row), *([gone] if gone else []), *stance.rest(), *_tasks(ledger, project))


def _stories(account: Account, row: RunRow, project: Project) -> tuple[Reviewed, ...]:
    """What became of the stories of a run that goes by them: when it ended, else so far."""
    if isinstance(account.last, RunEnded):
        return account.last.metrics.reviewed if account.last.metrics else ()
    if "stories" not in account.facts:
        return ()
    from ralphproof.views.stories import reviewed_in

    return reviewed_in(project, row, account.facts)


def _conditions(account: Account, row: RunRow) -> list[str]:
    facts = account.facts
    sandbox = facts.get("sandbox")
    checks = facts.get("checks")
    lines = [f"began {date(row.began_at)} in {row.directory}"]
    if isinstance(sandbox, dict):
        most = facts.get("maximumIterations")
        limit = f", at most {words.count(most, 'iteration')}" if isinstance(most, int) else ""
        lines.append(f"agent {facts.get('agent')}, sandbox {words.held_by(sandbox)}{limit}")
        lines += [line for line in (*words.weak_points(sandbox), words.limited_by(sandbox)) if line]
    lines.append("checks: " + (", ".join(map(str, checks)) if isinstance(checks, list | tuple) and checks else "none"))
    if account.state.baseline.findings:
        lines.append(f"{when(0)}: {words.report(account.state.baseline)}")
    return lines
