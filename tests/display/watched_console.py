"""A console observer with a clock that tests move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

import pytest

from ralphproof.display.console import ConsoleObserver
from ralphproof.display.terminal import Style
from ralphproof.engine import records as told
from ralphproof.engine.agent import Event

WIPE = "\r\x1b[K"


class Counted(StringIO):
    """Counts how often it is written to."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


class WatchedConsole:
    """`now_s` is both clocks."""

    def __init__(self, style: Style | None = None, mask: Callable[[str], str] = str, now_s: float = 1000.0) -> None:
        self.out, self.now_s = Counted(), now_s
        self.people = ConsoleObserver(
            self.out, style or Style(), mask, epoch=lambda: self.now_s, monotonic=lambda: self.now_s
        )  # fmt: skip

    @property
    def shown(self) -> str:
        """All that was written."""
        return self.out.getvalue()

    @property
    def live(self) -> str:
        """What the line that is rewritten says now; all else is before it."""
        return self.shown.rpartition(WIPE)[2]

    def saw(self, *records: told.Record) -> str:
        for record in records:
            self.people.on_record(record)
        return self.shown

    def heard(self, *events: Event) -> str:
        for event in events:
            self.people.on_events([event])
        return self.shown

    def after(self, seconds: float) -> str:
        """What is shown when so much time has passed."""
        self.now_s += seconds
        self.people.tick()
        return self.shown


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Local time is that of this zone, in the form of TZ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            yield
        finally:
            patch.undo()
            time.tzset()
