"""Standard input, output and error of this process."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused


def flush_streams() -> None:
    """Write what both streams still hold. Where nobody reads it, nothing is said any more, not even at exit."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), number)


# Standard input, never more of it than a verb can use.


MAX_STDIN_BYTES = 10 << 20  # as of a file


def read_stdin_bytes(flag: str, most_bytes: int = MAX_STDIN_BYTES, too_much: str = "") -> bytes:
    """All of it; raises Refused for a terminal, and for more than this. `flag` is what asked for it."""
    if sys.stdin is None or sys.stdin.isatty():
        raise Refused(f"{flag} reads standard input, and that is a terminal; pipe something in")
    try:
        data = sys.stdin.buffer.read(most_bytes + 1)
    except OSError as error:
        raise Refused(f"cannot read standard input: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise Refused(too_much or f"standard input has more than {most_bytes >> 20} MiB; pipe less in")
    return data


def read_stdin_text(flag: str, most_bytes: int = MAX_STDIN_BYTES) -> str:
    """The same as text; bytes that are none survive."""
    return read_stdin_bytes(flag, most_bytes).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def reopen_closed_streams() -> None:
    """Let output go nowhere where it was closed: else the next file that is opened, the ledger say, would get it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (it stays open)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # LC_ALL=C has no words for some letters
