"""Programs that an SCM runs for the user: each is a turn, owned, timed, and ended with its whole tree."""

from __future__ import annotations

import os

from ralphproof.sandbox import Command
from ralphproof.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.ledger import Folder
    from ralphproof.sandbox import Exit, Sandbox, Watch

TIMEOUT_S = 600.0
SAID_BYTES = 4096  # of the end of its output are looked at
SAID_CHARS = 500  # of it are told


class Programs(Protocol):
    """Runs what may run the user's hooks."""

    def began(self, name: str) -> bool:
        """Whether a program of this name was started before. Then `run` starts none: it tells how that one ended."""

    def run(self, name: str, argv: tuple[str, ...], env: Mapping[str, str], watch: Watch) -> str:
        """Run to the end; what went wrong, in words that follow the program's name, or nothing."""


class Turns:
    """Runs programs in the project. Turn file, mark and log have the name that it is given."""

    def __init__(self, sandbox: Sandbox, folder: Folder, root: str, timeout_s: float = TIMEOUT_S) -> None:
        self._sandbox, self._folder, self._root, self._timeout_s = sandbox, folder, root, timeout_s

    def began(self, name: str) -> bool:
        """Whether a program of this name was started before."""
        turn_file = self._folder.turn_file(name)
        return os.path.exists(turn_file) and os.path.getsize(turn_file) > 0

    def run(self, name: str, argv: tuple[str, ...], env: Mapping[str, str], watch: Watch) -> str:
        """Run to the end, or tell how the one of this name ended."""
        ear = _Ear(watch)
        command = Command(
            argv, self._root, tuple(env.items()), out=self._folder.base(name) + ".log",
            turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=self._timeout_s,
        )  # fmt: skip
        end = self._sandbox.run(command, ear)
        self._folder.publish(name)
        left = f"; processes of it could not be ended ({', '.join(map(str, end.survivors))})" if end.survivors else ""
        return self._trouble(end, _one_line(ear.said)) + left

    def _trouble(self, end: Exit, said: str) -> str:
        match end.why:
            case "exit" if end.code == 0:
                return ""
            case "exit":
                return f": {said}" if said else f" ended with {_status(end)}"
            case "timeout":
                how = f" did not finish in time ({self._timeout_s:g} s)"
            case "stopped" | "killed":
                how = " was stopped"
            case "interrupted":
                how = f" was cut off, {end.error or 'its keeper died'}"
            case _:
                return f": {end.error or end.why}"
        return f"{how}; it said: {said}" if said else how


class _Ear:
    """Keeps the end of what a program prints."""

    def __init__(self, watch: Watch) -> None:
        self.said = b""
        self._watch = watch

    def output(self, chunk: bytes) -> None:
        self.said = (self.said + chunk)[-SAID_BYTES:]
        self._watch.output(chunk)

    def tick(self) -> int:
        return self._watch.tick()


def _one_line(said: bytes) -> str:
    """The output's end in one line: what went wrong is mostly said last."""
    lines = said.decode("utf-8", "replace").splitlines()
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= SAID_CHARS else "... " + text[-SAID_CHARS:]


def _status(end: Exit) -> str:
    return f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
