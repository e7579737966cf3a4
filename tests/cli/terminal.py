"""A person at a terminal: a pseudo-terminal, what it shows, and keys that are pressed."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.ralph import PROGRAM, Ralph

# A session leader that opens a terminal gets it as its own, so that Ctrl-C reaches it.
OWN = 'exec "$@" 0<>"$TTY" 1>&0 2>&0'


def _heard() -> None:
    """A session at a terminal hears all signals, also where the tests run under nohup."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """`ralph ARGV` at a terminal of its own. `shown` is all that the terminal has shown, answers included.

    `via` is a command that starts another one, such as a shell.
    """

    def __init__(self, ralph: Ralph, *argv: str, env: Mapping[str, str] | None = None, via: Sequence[str] = ()) -> None:
        self.shown = ""
        self._ours, theirs = pty.openpty()
        tty = os.ttyname(theirs)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", OWN, "sh", *via, *PROGRAM, *argv], cwd=ralph.root,
            env=ralph.env | dict(env or {}) | {"TTY": tty}, start_new_session=True, preexec_fn=_heard,
        )  # fmt: skip
        self.expect("")
        self._theirs = theirs  # open until the end: else a slow start would be read as an end of output

    def expect(self, text: str, timeout_s: float = 20.0) -> None:
        """Wait until the terminal shows this after what was last expected."""
        deadline = time.monotonic() + timeout_s
        start = getattr(self, "_seen", 0)
        while (at := self.shown.find(text, start)) < 0:
            assert time.monotonic() < deadline, f"waited for {text!r}; the terminal shows:\n{self.shown}"
            self._pull(0.05)
        self._seen = at + len(text)

    def type(self, keys: str) -> None:
        """Press these keys; a newline is Enter, \\x03 is Ctrl-C, \\x04 at the beginning of a line is the end."""
        os.write(self._ours, keys.encode("utf-8", "surrogateescape"))

    def answer(self, *exchanges: tuple[str, str]) -> None:
        """For each prompt its answer, with Enter."""
        for prompt, answer in exchanges:
            self.expect(prompt)
            self.type(answer + "\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def modes(self) -> list[Any]:
        """How the terminal is set: whether it echoes, edits lines, turns keys into signals."""
        return termios.tcgetattr(self._ours)

    def end(self, timeout_s: float = 20.0) -> int:
        """Wait until it is over; its exit code."""
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; the terminal shows:\n{self.shown}"
            self._pull(0.02)
        self._pull(0)
        os.close(self._theirs)
        os.close(self._ours)
        return self._process.returncode

    def hang_up(self, timeout_s: float = 20.0) -> int:
        """Take the terminal away, as a window that is closed does; the exit code."""
        os.close(self._theirs)
        os.close(self._ours)
        return self._process.wait(timeout_s)

    def _pull(self, wait_s: float) -> None:
        while select.select([self._ours], [], [], wait_s)[0]:
            data = os.read(self._ours, 65536)
            self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
            wait_s = 0
