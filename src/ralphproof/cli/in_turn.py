"""Whether this process is part of a run's turn, and what such a process may not do.

Agents, checks and all that they start run below a keeper, which is a subreaper: a double fork does not leave it. So
ancestry tells, and not the environment, which an agent can clear. A keeper counts where its records lie in the state
directory that this command uses: whoever tests this program inside a turn has another one.
"""

from __future__ import annotations

import os

from ralphproof.cli.verbs import OWN_CHILDREN, USERS_OWN
from ralphproof.errors import RalphError, Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite


HOOK = "hook_"  # how the files of commands are called that the user wants run around a run: they are the user's word


def refuse_in_turn(what: str) -> None:
    """Raise Refused inside a turn for something of `USERS_OWN`."""
    assert what in USERS_OWN, what
    if run := _run_around():
        raise Refused(f"ralph {what} is not for agents: {run} is at work, and this is part of its turn")


def refuse_foreign_in_turn(what: str, ledger: Sqlite, row: RunRow) -> None:
    """Raise Refused inside a turn for something of `OWN_CHILDREN`, unless the turn's own run began this one."""
    assert what in OWN_CHILDREN or what in USERS_OWN, what
    run = _run_around()
    if not run or (what in OWN_CHILDREN and any(run == _called(above) for above in _above(ledger, row))):
        return
    only = ", except for runs that the agent began" if what in OWN_CHILDREN else ""
    raise Refused(f"ralph {what} is not for agents{only}: {run} is at work, and this is part of its turn")


def _called(run: str) -> str:
    return f"run {run}"


def _above(ledger: Sqlite, row: RunRow) -> list[str]:
    """The runs that a run belongs to, the nearest first."""
    found: list[str] = []
    while row.parent and row.parent not in found:
        found.append(row.parent)
        parent = ledger.row(row.parent)
        if parent is None:
            break
        row = parent
    return found


def _run_around() -> str:
    """What to call the run whose turn we are part of; empty where there is none."""
    from ralphproof.keeper.tree import LINUX, MARK, turns_above

    if not LINUX:  # there are no ancestors to be seen, and no subreaper
        mark = os.environ.get(MARK, "")
        return _called(mark.partition("/")[0]) if mark else ""
    state = _state()
    for path in turns_above():
        if not path:
            return "a run"
        if path.startswith(state) and not os.path.basename(path).startswith(HOOK):
            return _called(os.path.basename(os.path.dirname(path)))
    return ""


def _state() -> str:
    """The state directory as the kernel names it; impossible to match where there is none."""
    from ralphproof.ledgers.place import state_place

    try:
        return os.path.join(os.path.realpath(state_place(os.environ)), "")
    except RalphError:
        return "\0"
