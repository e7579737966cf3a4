"""Crash points: kills the program, as by `kill -9`, when it does something for the N-th time.

    ralph("run", "-p", "make it so", dies=(LOG, KINDS, N))

KINDS is `records`: right after each durable write of the ledger or of the spend store; or `steps`: right before
each call by which others could see what it does: files, folders, locks, programs, messages to its keeper. LOG gets
a line for each of them; with N = 0 the program is not killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ralphproof.store.landings import LandingTable
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.spend import SpendStore

STEPS = (
    "os.rename", "os.posix_spawn", "socket.sendmsg", "fcntl.flock", "os.mkdir", "os.remove", "os.rmdir", "os.link",
    "os.symlink", "os.truncate", "os.chmod", "os.utime", "os.kill", "os.killpg",
)  # fmt: skip
DURABLE: tuple[tuple[type, Callable[..., Any]], ...] = (
    (SqliteLedger, SqliteLedger.begin_run), (SqliteLedger, SqliteLedger.assign_process),
    (SqliteLedger, SqliteLedger.append), (SpendStore, SpendStore.book),
    (LandingTable, LandingTable.queue), (LandingTable, LandingTable.note),
)  # fmt: skip


class CrashPoint:
    """Counts what the process does, and kills it at the given number."""

    def __init__(self, log: str, number: int) -> None:
        self._log, self._left, self._busy = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number, False

    def count(self, what: str) -> None:
        self._busy = True
        os.write(self._log, what.encode("utf-8", "backslashreplace") + b"\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._busy = False

    def on_audit_event(self, event: str, about: tuple[Any, ...]) -> None:
        """For `sys.addaudithook`."""
        written = event == "open" and isinstance(about[2], int) and about[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not self._busy and (event in STEPS or written):
            self.count(f"{event} {about[0]!r}")

    def after(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, counted after it returns."""

        def called(*given: Any, **more: Any) -> Any:
            answer = call(*given, **more)
            kinds = [type(record).__name__ for record in given[2]] if name == "append" else []
            self.count(" ".join([name, *kinds]))
            return answer

        return called


def install_crash_point(log: str, kinds: str, number: str) -> None:
    """Make this process die at the given number."""
    crash = CrashPoint(log, int(number))
    if kinds == "steps":
        sys.addaudithook(crash.on_audit_event)
    else:
        for store, method in DURABLE:
            setattr(store, method.__name__, crash.after(method.__name__, method))
