"""One output of a program, from its pipe through the masker to its log."""

from __future__ import annotations

import os

from ralphproof.secret import Masker
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.keeper.log import Log

_MOST = 1 << 18


class Stream:
    """Reads without waiting. At most a segment at a time, so that a reader is never overrun."""

    def __init__(self, fd: int, log: Log, secrets: tuple[bytes, ...], segment: int) -> None:
        os.set_blocking(fd, False)
        self.log = log
        self._fd = fd
        self._most = min(_MOST, segment)
        self._masker = Masker(secrets)

    def pump(self) -> bytes | None:
        """Move what is there to the log and return it raw: empty at the end, None if there is nothing now."""
        try:
            data = os.read(self._fd, self._most)
        except BlockingIOError:
            return None
        if data:
            self.log.write(self._masker.feed(data))
        return data

    def close(self) -> None:
        """Log what was held back."""
        self.log.write(self._masker.flush())
