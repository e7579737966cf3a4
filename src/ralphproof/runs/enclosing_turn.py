"""Commands that are refused inside a turn, and the run whose turn this process is part of.

Agents, checks and all that they start run below a keeper, which is a subreaper: a double fork does not leave it. So
ancestry decides, and not the environment, which an agent can clear. Only keepers with records in the present state
directory count: tests of this program inside a turn use another one.
"""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.store.ledger import RunRow, SqliteLedger

# Commands for the user only: they speak for the user, decide about finished work, or change what it is measured by.
# Every process of a turn is refused: the agent, checks, and all that they start.
USER_ONLY_COMMANDS = frozenset((
    "accept", "archive", "cancel TASK", "fleet cancel", "fleet submit", "fleet worker", "gc", "land", "plan",
    "plugin install", "plugin uninstall", "pr", "restore", "rewind", "say", "serve --control", "task edit",
    "task import --update", "work",
))  # fmt: skip
# Also refused, except for runs that the turn's own run began.
CHILD_RUN_COMMANDS = frozenset(("cancel", "pause", "resume", "run --resume"))


# Turn files of the user's own commands around a run, which may call these commands.
HOOK_FILE_PREFIX = "hook_"


def refuse_in_turn(what: str) -> None:
    """Raise Refused inside a turn for a command of `USER_ONLY_COMMANDS`."""
    assert what in USER_ONLY_COMMANDS, what
    if run := _find_enclosing_run():
        raise Refused(f"ralph {what} is not for agents: {run} is at work, and this is part of its turn")


def refuse_unrelated_run_in_turn(what: str, ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused inside a turn for a command of `CHILD_RUN_COMMANDS`, unless the turn's own run began this one."""
    assert what in CHILD_RUN_COMMANDS or what in USER_ONLY_COMMANDS, what
    run = _find_enclosing_run()
    if not run or (
        what in CHILD_RUN_COMMANDS and any(run == _run_label(above) for above in _ancestor_runs(ledger, row))
    ):
        return
    only = ", except for runs that the agent began" if what in CHILD_RUN_COMMANDS else ""
    raise Refused(f"ralph {what} is not for agents{only}: {run} is at work, and this is part of its turn")


def _run_label(run: str) -> str:
    return f"run {run}"


def _ancestor_runs(ledger: SqliteLedger, row: RunRow) -> list[str]:
    """The ancestors of a run, the nearest first."""
    ancestors: list[str] = []
    while row.parent and row.parent not in ancestors:
        ancestors.append(row.parent)
        parent = ledger.row(row.parent)
        if parent is None:
            break
        row = parent
    return ancestors


def _find_enclosing_run() -> str:
    """The name of the run whose turn this process is part of; empty where there is none."""
    from ralphproof.process.tree import LINUX, TURN_VARIABLE, enclosing_turn_files

    if not LINUX:  # there are no ancestors to be seen, and no subreaper
        mark = os.environ.get(TURN_VARIABLE, "")
        return _run_label(mark.partition("/")[0]) if mark else ""
    state = _real_state_dir()
    for path in enclosing_turn_files():
        if not path:
            return "a run"
        if path.startswith(state) and not os.path.basename(path).startswith(HOOK_FILE_PREFIX):
            return _run_label(os.path.basename(os.path.dirname(path)))
    return ""


def _real_state_dir() -> str:
    """The state directory without links; a string that matches nothing where there is none."""
    from ralphproof.store.project import find_state_dir

    try:
        return os.path.join(os.path.realpath(find_state_dir(os.environ)), "")
    except RalphError:
        return "\0"
