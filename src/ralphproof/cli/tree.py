"""Runs, and below each those that its agent began."""

from __future__ import annotations

from ralphproof.cli.out import put, put_json
from ralphproof.display import words
from ralphproof.ending import begun_iterations
from ralphproof.phase import Over
from ralphproof.state import State, state_of
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import result
from ralphproof.views.account import shown_state
from ralphproof.views.bills import bill_of, spend_json, with_children
from ralphproof.views.standing import standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.budget import Spend
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.views.project import Project


@value
class Branch:
    """A run, how it stands, and the runs below it, oldest first. `together` is what all of them spent, if those did."""

    row: RunRow
    where: str
    state: State
    children: tuple[Branch, ...]
    bill: Spend
    together: Spend | None = None


def branch_of(ledger: Sqlite, project: Project, row: RunRow) -> Branch:
    """A run with all that is below it."""
    state = state_of(ledger.records(row.id))
    children = tuple(branch_of(ledger, project, child) for child in ledger.children(row.id))
    over = state.phase.outcome if isinstance(state.phase, Over) else None
    bill = bill_of(project, state)
    together = with_children(ledger, project, row.id, bill, over)
    return Branch(row, shown_state(standing(ledger, row, project), state), state, children, bill, together)


def show_tree(ledger: Sqlite, project: Project, row: RunRow, for_programs: bool) -> None:
    """One run as a tree."""
    _show((branch_of(ledger, project, row),), project, for_programs)


def show_forest(ledger: Sqlite, project: Project, for_programs: bool) -> None:
    """All runs of a repository as trees, the newest first."""
    rows = ledger.runs()
    known = {row.id for row in rows}
    roots = (row for row in rows if row.parent not in known)
    _show(tuple(branch_of(ledger, project, row) for row in roots), project, for_programs)


def _show(trees: tuple[Branch, ...], project: Project, for_programs: bool) -> None:
    if for_programs:
        listed: list[Json] = [as_json(tree) for tree in trees]
        put_json("tree", {"project": project.root, "runs": listed})
    elif not trees:
        put("no run yet")
    for tree in () if for_programs else trees:
        put(*_lines(tree, project.root))


def _lines(branch: Branch, root: str, depth: int = 0) -> Iterator[str]:
    row, state = branch.row, branch.state
    elsewhere = "" if row.directory in (root, "") else f"  in {row.directory}"
    count = words.count(_iterations(state), "iteration")
    below = f", with those below it {words.cost(branch.together)}" if branch.together else ""
    yield f"{'  ' * depth}{row.id}  {_word(branch)}  {count}  {words.cost(branch.bill)}{below}{elsewhere}"
    for child in branch.children:
        yield from _lines(child, root, depth + 1)


def _iterations(state: State) -> int:
    return state.phase.outcome.iterations if isinstance(state.phase, Over) else begun_iterations(state)


def _word(branch: Branch) -> str:
    """How it stands; of one that has ended, how it ended."""
    match branch.state.phase:
        case Over(outcome):
            return words.in_short(outcome)
        case _:
            return branch.where


def as_json(branch: Branch) -> dict[str, Json]:
    """The same for programs, children nested."""
    row, state = branch.row, branch.state
    over = result(state.phase.outcome) if isinstance(state.phase, Over) else None
    children: list[Json] = [as_json(child) for child in branch.children]
    return {
        "run": row.id, "state": branch.where, "beganAt": row.began_at, "directory": row.directory,
        "iterations": _iterations(state), "spend": spend_json(branch.bill), "outcome": over, "children": children,
        "spendWithChildren": spend_json(branch.together) if branch.together else None,
    }  # fmt: skip
