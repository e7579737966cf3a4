"""Standard input, never more of it than a verb can use."""

from __future__ import annotations

import sys

from ralphproof.errors import Refused

MOST_BYTES = 10 << 20  # as of a file


def read_bytes(flag: str, most_bytes: int = MOST_BYTES, too_much: str = "") -> bytes:
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


def read_text(flag: str, most_bytes: int = MOST_BYTES) -> str:
    """The same as text; bytes that are none survive."""
    return read_bytes(flag, most_bytes).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
