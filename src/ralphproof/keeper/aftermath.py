"""What a harness does about a turn that is not its own: ask it to end, or clean up after a keeper that died."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ralphproof.errand import all_known, errands, is_errand
from ralphproof.keeper import journal
from ralphproof.keeper.stitch import close_abandoned
from ralphproof.keeper.tree import alive, below, children, end_all, marked, signal_each, signal_group, start_time, state
from ralphproof.sandbox import ACTIVE, GO_ON, SAID, STOP
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.keeper.journal import Past
    from ralphproof.sandbox import Command
else:
    import _signal

START_S = 5.0  # no program takes so long to be started
MAKING = allocate_lock()
KEEPERS: set[int] = set()  # keepers of this process: they and their trees are nobody's leftovers


def leftovers(mark_prefix: str) -> list[int]:
    """Processes of turns whose mark begins so, this process aside."""
    return marked(mark_prefix)


def end(mark_prefix: str) -> tuple[list[int], list[int]]:
    """End the processes of turns whose mark begins so, and what they start meanwhile.

    Those that were ended, and those that could not be.
    """
    seen: set[int] = set()

    def find() -> list[int]:
        found = leftovers(mark_prefix)
        seen.update(found)
        return found

    still = end_all(find)
    return sorted(seen.difference(still)), still


def own_children() -> set[int]:
    """Our children now: what comes to us later and is in a foreign session was a dead keeper's.

    Keepers aside, which are known as such anyway: hundreds of runs each remember this for as long as a turn lasts.
    """
    return set(children(os.getpid())) - KEEPERS


def kill_all(known: set[int]) -> list[int]:
    """KILL for our keepers and everything below them, and for what they left to us; who was there.

    Errands get TERM: git takes its lock files away. `known` are children of ours that we did not start.
    """
    for pid in errands():
        signal_group(pid, _signal.SIGTERM)
    ours = [pid for pid in children(os.getpid()) if pid not in known and not is_errand(pid)]
    found = [pid for pid in below(ours) if state(pid) != "Z"]
    signal_each(reversed(found), _signal.SIGKILL)
    return found


def settle(
    command: Command, lock: int, past: Past, known: set[int], sizes: tuple[int, int, int],
    why: str = "interrupted", error: str = "",
) -> Mapping[str, Any]:  # fmt: skip
    """End what an interrupted turn left, put its logs together, and write its result."""
    if past.agent[0] > 0 and start_time(past.agent[0]) == past.agent[1] != 0:
        signal_group(past.agent[0], _signal.SIGKILL)
    survivors = end_all(lambda: [*marked(command.mark, whole=True), *_orphans(known)])
    stored, evicted = close_abandoned(command.out, sizes)
    if command.err is not None:
        close_abandoned(command.err, sizes)
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
        journal.mend(lock)
        journal.append(lock, result)
        os.fsync(lock)
    except OSError as failed:
        result["error"] = f"{error} the result could not be recorded: {failed.strerror}".strip()
    return result


def _orphans(known: set[int]) -> list[int]:
    """What a dead keeper left to us, with all below it; what has ended of it is reaped."""
    ours = os.getsid(0)
    with MAKING:  # a keeper that is just being made is known as one when it is there
        came = [pid for pid in _settled_children() if pid not in known and pid not in KEEPERS]
    sessions = [(pid, _session(pid)) for pid in came if not is_errand(pid)]
    # An errand leads a session, and what it left to us is still in that.
    return below(pid for pid, its in sessions if its != ours and not is_errand(its) and not _reaped(pid))


def _settled_children() -> list[int]:
    """Our children at a moment at which every errand among them is known as one."""
    deadline = time.monotonic() + START_S
    while True:
        found = children(os.getpid())
        if all_known() or time.monotonic() > deadline:
            return found
        time.sleep(0.001)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def urge(past: Past, wanted: int) -> None:
    """Tell the living keeper of somebody else's turn what is wanted. To say it again changes nothing.

    TERM stops the turn, QUIT kills it, USR1 says that it should leave, USR2 that it is not idle.
    """
    if not alive(*past.keeper):
        return
    numbers = {SAID: _signal.SIGUSR1, ACTIVE: _signal.SIGUSR2, STOP: _signal.SIGTERM}
    signal_each([past.keeper[0]], numbers.get(wanted, _signal.SIGQUIT))
    if wanted > GO_ON:  # one that is suspended is woken so that it can obey
        signal_each([past.keeper[0]], _signal.SIGCONT)
