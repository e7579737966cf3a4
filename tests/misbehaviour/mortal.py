"""The program, until it does something for the N-th time: then it dies, as by `kill -9`.

    ralph("run", "-p", "make it so", dies=(LOG, KINDS, N))

KINDS is `records`: right after each durable write of the ledger or of the user's book; or `steps`: right before
each call by which others could see what it does: files, folders, locks, programs, messages to its keeper. What was done
so far stands in LOG, a line each; with N = 0 all of it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ralphproof.store.landings import LandingTable
from ralphproof.store.spend import SpendStore
from ralphproof.store.sqlite_ledger import SqliteLedger

STEPS = (
    "os.rename", "os.posix_spawn", "socket.sendmsg", "fcntl.flock", "os.mkdir", "os.remove", "os.rmdir", "os.link",
    "os.symlink", "os.truncate", "os.chmod", "os.utime", "os.kill", "os.killpg",
)  # fmt: skip
DURABLE = (
    (SqliteLedger, "begin_run"), (SqliteLedger, "take_up"), (SqliteLedger, "append"), (SpendStore, "book"),
    (LandingTable, "queue"), (LandingTable, "note"),
)  # fmt: skip


class Mortal:
    """Counts, and dies in time."""

    def __init__(self, log: str, most: int) -> None:
        self._log, self._left, self._busy = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), most, False

    def does(self, what: str) -> None:
        """One more."""
        self._busy = True
        os.write(self._log, what.encode("utf-8", "backslashreplace") + b"\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._busy = False

    def step(self, event: str, about: tuple[Any, ...]) -> None:
        """For `sys.addaudithook`."""
        written = event == "open" and isinstance(about[2], int) and about[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not self._busy and (event in STEPS or written):
            self.does(f"{event} {about[0]!r}")

    def after(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, and then one more was done."""

        def called(*given: Any, **more: Any) -> Any:
            answer = call(*given, **more)
            kinds = [type(record).__name__ for record in given[2]] if name == "append" else []
            self.does(" ".join([name, *kinds]))
            return answer

        return called


def be_mortal(log: str, kinds: str, number: str) -> None:
    """Of this process, from now on."""
    mortal = Mortal(log, int(number))
    if kinds == "steps":
        sys.addaudithook(mortal.step)
    else:
        for kept, name in DURABLE:
            setattr(kept, name, mortal.after(name, getattr(kept, name)))
