"""Runs with the child runs that their agents started, as a tree."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.engine.outcome import outcome_json
from ralphproof.engine.state import RunOver, State, build_state, count_begun_iterations
from ralphproof.store.run_state import run_state
from ralphproof.views.run_status import display_state, run_spend, spend_json, spend_with_children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


@value
class RunTree:
    """A run, its state, and its child runs, oldest first. `total_spend` is with theirs, if they spent anything."""

    row: RunRow
    run_state: str
    state: State
    children: tuple[RunTree, ...]
    spend: Spend
    total_spend: Spend | None = None


def load_run_tree(ledger: SqliteLedger, project: Project, row: RunRow) -> RunTree:
    """A run with all runs below it."""
    state = build_state(ledger.records(row.id))
    children = tuple(load_run_tree(ledger, project, child) for child in ledger.children(row.id))
    over = state.phase.outcome if isinstance(state.phase, RunOver) else None
    spend = run_spend(project, state)
    total = spend_with_children(ledger, project, row.id, spend, over)
    return RunTree(row, display_state(run_state(ledger, row, project), state), state, children, spend, total)


def load_run_trees(ledger: SqliteLedger, project: Project) -> tuple[RunTree, ...]:
    """All runs of a repository as trees, the newest first."""
    rows = ledger.runs()
    known = {row.id for row in rows}
    return tuple(load_run_tree(ledger, project, row) for row in rows if row.parent not in known)


def run_tree_lines(tree: RunTree, root: str, depth: int = 0) -> Iterator[str]:
    """A tree for people. `root` is the folder of the project: runs elsewhere name theirs."""
    row, state = tree.row, tree.state
    elsewhere = "" if row.directory in (root, "") else f"  in {row.directory}"
    count = phrases.format_count(_iteration_count(state), "iteration")
    cost = phrases.format_cost(tree.spend)
    below = f", with those below it {phrases.format_cost(tree.total_spend)}" if tree.total_spend else ""
    yield f"{'  ' * depth}{row.id}  {_status_text(tree)}  {count}  {cost}{below}{elsewhere}"
    for child in tree.children:
        yield from run_tree_lines(child, root, depth + 1)


def _iteration_count(state: State) -> int:
    return state.phase.outcome.iterations if isinstance(state.phase, RunOver) else count_begun_iterations(state)


def _status_text(tree: RunTree) -> str:
    """The state of a run, or how it ended."""
    match tree.state.phase:
        case RunOver(outcome):
            return phrases.summarize_outcome(outcome)
        case _:
            return tree.run_state


def run_tree_json(tree: RunTree) -> dict[str, Json]:
    """A tree for programs, children nested."""
    row, state = tree.row, tree.state
    over = outcome_json(state.phase.outcome) if isinstance(state.phase, RunOver) else None
    children: list[Json] = [run_tree_json(child) for child in tree.children]
    return {
        "run": row.id, "state": tree.run_state, "beganAt": row.began_at, "directory": row.directory,
        "iterations": _iteration_count(state), "spend": spend_json(tree.spend), "outcome": over, "children": children,
        "spendWithChildren": spend_json(tree.total_spend) if tree.total_spend else None,
    }  # fmt: skip
