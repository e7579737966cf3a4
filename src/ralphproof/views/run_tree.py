"""Runs with the child runs that their agents started, as a tree."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.outcome import outcome_json
from ralphproof.engine.state import RunOver, State, build_state, count_begun_iterations
from ralphproof.store.run_state import run_state
from ralphproof.views.run_status import display_state, run_spend, spend_json, spend_with_children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


@value
class RunTree:
    """A run, how it stands, and the runs below it, oldest first. `together` is what all of them spent, if those did."""

    row: RunRow
    where: str
    state: State
    children: tuple[RunTree, ...]
    bill: Spend
    together: Spend | None = None


def load_run_tree(ledger: SqliteLedger, project: Project, row: RunRow) -> RunTree:
    """A run with all that is below it."""
    state = build_state(ledger.records(row.id))
    children = tuple(load_run_tree(ledger, project, child) for child in ledger.children(row.id))
    over = state.phase.outcome if isinstance(state.phase, RunOver) else None
    bill = run_spend(project, state)
    together = spend_with_children(ledger, project, row.id, bill, over)
    return RunTree(row, display_state(run_state(ledger, row, project), state), state, children, bill, together)


def print_run_tree(ledger: SqliteLedger, project: Project, row: RunRow, for_programs: bool) -> None:
    """One run as a tree."""
    _print_trees((load_run_tree(ledger, project, row),), project, for_programs)


def print_run_trees(ledger: SqliteLedger, project: Project, for_programs: bool) -> None:
    """All runs of a repository as trees, the newest first."""
    rows = ledger.runs()
    known = {row.id for row in rows}
    roots = (row for row in rows if row.parent not in known)
    _print_trees(tuple(load_run_tree(ledger, project, row) for row in roots), project, for_programs)


def _print_trees(trees: tuple[RunTree, ...], project: Project, for_programs: bool) -> None:
    if for_programs:
        listed: list[Json] = [run_tree_json(tree) for tree in trees]
        print_json("tree", {"project": project.root, "runs": listed})
    elif not trees:
        print_lines("no run yet")
    for tree in () if for_programs else trees:
        print_lines(*_tree_lines(tree, project.root))


def _tree_lines(branch: RunTree, root: str, depth: int = 0) -> Iterator[str]:
    row, state = branch.row, branch.state
    elsewhere = "" if row.directory in (root, "") else f"  in {row.directory}"
    count = phrases.format_count(_iteration_count(state), "iteration")
    below = f", with those below it {phrases.format_cost(branch.together)}" if branch.together else ""
    yield f"{'  ' * depth}{row.id}  {_status_text(branch)}  {count}  {phrases.format_cost(branch.bill)}{below}{elsewhere}"
    for child in branch.children:
        yield from _tree_lines(child, root, depth + 1)


def _iteration_count(state: State) -> int:
    return state.phase.outcome.iterations if isinstance(state.phase, RunOver) else count_begun_iterations(state)


def _status_text(branch: RunTree) -> str:
    """How it stands; of one that has ended, how it ended."""
    match branch.state.phase:
        case RunOver(outcome):
            return phrases.summarize_outcome(outcome)
        case _:
            return branch.where


def run_tree_json(branch: RunTree) -> dict[str, Json]:
    """The same for programs, children nested."""
    row, state = branch.row, branch.state
    over = outcome_json(state.phase.outcome) if isinstance(state.phase, RunOver) else None
    children: list[Json] = [run_tree_json(child) for child in branch.children]
    return {
        "run": row.id, "state": branch.where, "beganAt": row.began_at, "directory": row.directory,
        "iterations": _iteration_count(state), "spend": spend_json(branch.bill), "outcome": over, "children": children,
        "spendWithChildren": spend_json(branch.together) if branch.together else None,
    }  # fmt: skip
