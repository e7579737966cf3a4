"""Cleaning up after interrupted turns and dead keepers, and signals to keepers of other harnesses."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ralphproof.base.programs import all_children_registered, is_registered_child, registered_children
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, RESULT_SAID, STOP
from ralphproof.process import turn_journal
from ralphproof.process.output import assemble_abandoned_log
from ralphproof.process.tree import (
    child_pids,
    find_marked_processes,
    is_alive,
    kill_until_gone,
    process_state,
    signal_each,
    signal_group,
    start_time,
    with_descendants,
)

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.engine.sandbox import Command
    from ralphproof.process.turn_journal import TurnHistory
else:
    import _signal

CHILD_START_TIMEOUT_S = 5.0  # no program takes so long to be started
KEEPER_SPAWN_LOCK = allocate_lock()
KEEPER_PIDS: set[int] = set()  # keepers of this process: they and their trees are not orphans


def end_turn_processes(mark_prefix: str) -> tuple[list[int], list[int]]:
    """Kill the processes of turns whose mark starts with this, and what they start meanwhile.

    Returns those that were killed, and those that could not be.
    """
    seen: set[int] = set()

    def find() -> list[int]:
        found = find_marked_processes(mark_prefix)
        seen.update(found)
        return found

    still = kill_until_gone(find)
    return sorted(seen.difference(still)), still


def own_children() -> set[int]:
    """The children of this process now, without keepers. Later ones in a foreign session are from a dead keeper.

    Keepers are known anyway, and hundreds of runs each remember this set for as long as a turn lasts.
    """
    return set(child_pids(os.getpid())) - KEEPER_PIDS


def kill_all(known: set[int]) -> list[int]:
    """Kill our keepers with everything below them, and orphans that we inherited; the processes that were there.

    Registered child processes get TERM, since git removes its lock files then. `known` are children that we did not
    start.
    """
    for pid in registered_children():
        signal_group(pid, _signal.SIGTERM)
    ours = [pid for pid in child_pids(os.getpid()) if pid not in known and not is_registered_child(pid)]
    found = [pid for pid in with_descendants(ours) if process_state(pid) != "Z"]
    signal_each(reversed(found), _signal.SIGKILL)
    return found


def finish_interrupted_turn(
    command: Command, lock: int, history: TurnHistory, known: set[int], sizes: tuple[int, int, int],
    why: str = "interrupted", error: str = "",
) -> Mapping[str, Any]:  # fmt: skip
    """Kill what an interrupted turn left, assemble its logs, and write its result."""
    if history.agent[0] > 0 and start_time(history.agent[0]) == history.agent[1] != 0:
        signal_group(history.agent[0], _signal.SIGKILL)
    survivors = kill_until_gone(lambda: [*find_marked_processes(command.mark, whole=True), *_find_orphans(known)])
    stored, evicted = assemble_abandoned_log(command.out, sizes)
    if command.err is not None:
        assemble_abandoned_log(command.err, sizes)
    result = {
        "result": True,
        "code": None,
        "why": why,
        "out_bytes": stored,
        "dropped_bytes": evicted,
        "survivors": survivors,
        "error": error,
    }
    try:
        turn_journal.end_torn_line(lock)
        turn_journal.append_entry(lock, result)
        os.fsync(lock)
    except OSError as failed:
        result["error"] = f"{error} the result could not be recorded: {failed.strerror}".strip()
    return result


def _find_orphans(known: set[int]) -> list[int]:
    """Processes that a dead keeper left to us, with all below them; those that have ended are reaped."""
    ours = os.getsid(0)
    with KEEPER_SPAWN_LOCK:  # a keeper that is just being made is known as one when it is there
        new = [pid for pid in _settled_children() if pid not in known and pid not in KEEPER_PIDS]
    sessions = [(pid, _session_id(pid)) for pid in new if not is_registered_child(pid)]
    # A registered child leads a session of its own, and orphans that it left are still in that session.
    return with_descendants(
        pid for pid, session in sessions if session != ours and not is_registered_child(session) and not _reap(pid)
    )


def _settled_children() -> list[int]:
    """Our children at a moment at which every child process that we started ourselves is registered."""
    deadline = time.monotonic() + CHILD_START_TIMEOUT_S
    while True:
        found = child_pids(os.getpid())
        if all_children_registered() or time.monotonic() > deadline:
            return found
        time.sleep(0.001)


def _session_id(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def signal_keeper(history: TurnHistory, request: int) -> None:
    """Send a request to the keeper of a turn that another process started, if it is alive. Repeating it changes
    nothing.

    TERM stops the turn, QUIT kills it, USR1 says that the agent has said its result, USR2 that it is not idle.
    """
    if not is_alive(*history.keeper):
        return
    numbers = {RESULT_SAID: _signal.SIGUSR1, ACTIVE: _signal.SIGUSR2, STOP: _signal.SIGTERM}
    signal_each([history.keeper[0]], numbers.get(request, _signal.SIGQUIT))
    if request > CONTINUE:  # one that is suspended is woken so that it can obey
        signal_each([history.keeper[0]], _signal.SIGCONT)
