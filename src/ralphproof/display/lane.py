"""Several runs on one terminal: whole lines, each with the name of whose it is."""

from __future__ import annotations

import io
from _thread import allocate_lock

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

MOST = 1 << 16  # characters of a line that are waited for

_ONE_AT_A_TIME = allocate_lock()


class Lane(io.TextIOBase):
    """A stream that hands on whole lines with a name before each, from any thread."""

    def __init__(self, out: TextIO, name: str) -> None:
        self._out, self._start, self._rest = out, f"{name}  ", ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._out.encoding or "utf-8"

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > MOST:
            lines, self._rest = [*lines, self._rest], ""
        if told := "".join(f"{self._start}{line}\n" for line in lines if line.strip()):
            with _ONE_AT_A_TIME:
                self._out.write(told)
        return len(text)

    def flush(self) -> None:
        if self._out and not self._out.closed:
            self._out.flush()
