"""Commands that an agent may not call from inside its own turn."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


# What only the user may do: it speaks with the user's word, decides over finished work, or changes what work is
# measured by. Whatever is part of a run's turn is refused (`in_turn`): an agent, a check, and all that they start.
USER_ONLY_COMMANDS = frozenset((
    "accept", "archive", "cancel TASK", "fleet cancel", "fleet submit", "fleet worker", "gc", "land", "plan",
    "plugin install", "plugin uninstall", "pr", "restore", "rewind", "say", "serve --control", "task edit",
    "task import --update", "work",
))  # fmt: skip
# And this, except of runs that the turn's own run began.
CHILD_RUN_COMMANDS = frozenset(("cancel", "pause", "resume", "run --resume"))


# Whether this process is part of a run's turn, and what such a process may not do.
#
# Agents, checks and all that they start run below a keeper, which is a subreaper: a double fork does not leave it. So
# ancestry tells, and not the environment, which an agent can clear. A keeper counts where its records lie in the state
# directory that this command uses: whoever tests this program inside a turn has another one.


HOOK_FILE_PREFIX = (
    "hook_"  # how the files of commands are called that the user wants run around a run: they are the user's word
)


def refuse_in_turn(what: str) -> None:
    """Raise Refused inside a turn for something of `USERS_OWN`."""
    assert what in USER_ONLY_COMMANDS, what
    if run := _find_enclosing_run():
        raise Refused(f"ralph {what} is not for agents: {run} is at work, and this is part of its turn")


def refuse_unrelated_run_in_turn(what: str, ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused inside a turn for something of `OWN_CHILDREN`, unless the turn's own run began this one."""
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
    """The runs that a run belongs to, the nearest first."""
    found: list[str] = []
    while row.parent and row.parent not in found:
        found.append(row.parent)
        parent = ledger.row(row.parent)
        if parent is None:
            break
        row = parent
    return found


def _find_enclosing_run() -> str:
    """What to call the run whose turn we are part of; empty where there is none."""
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
    """The state directory as the kernel names it; impossible to match where there is none."""
    from ralphproof.store.state_dir import find_state_dir

    try:
        return os.path.join(os.path.realpath(find_state_dir(os.environ)), "")
    except RalphError:
        return "\0"
