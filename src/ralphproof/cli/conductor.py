"""The signals of a process for all runs in it: each hears what the user wants of all."""

from __future__ import annotations

from _thread import allocate_lock

from ralphproof.cli.interrupts import take_over
from ralphproof.cli.signals import Present


class Conductor:
    """Passes Ctrl-C on to every run. One that begins after it hears of it at once. Only the main thread may listen."""

    def __init__(self) -> None:
        self.signals = 0
        self._lock = allocate_lock()
        self._presents: dict[str, Present] = {}
        self._cancelled: set[str] = set()

    def listen(self) -> None:
        """Take over the signals that end a run."""
        take_over(self._heard)

    def attend(self, name: str, present: Present) -> None:
        """Let the run of this name hear what is wanted."""
        with self._lock:
            self._presents[name] = present
            cancelled = name in self._cancelled
        heard = 0
        while heard != self.signals:  # one that comes meanwhile is told by its handler too, and counts once
            heard = self.signals
            present.heard(heard)
        if cancelled:
            present.cancel()

    def leave(self, name: str) -> None:
        """That run is over."""
        with self._lock:
            self._presents.pop(name, None)

    def cancel(self, name: str) -> None:
        """End one run, also where it only comes to be: it is told, and recorded, as cancelled."""
        with self._lock:
            self._cancelled.add(name)
            present = self._presents.get(name)
        if present is not None:
            present.cancel()

    def end_all(self) -> None:
        """End all runs as Ctrl-C does, also those that only come to be."""
        self._heard(self.signals + 1)

    def _heard(self, times: int) -> None:
        self.signals = max(self.signals, times)
        for present in list(self._presents.values()):  # no lock: the thread that holds it may be this one
            present.heard(self.signals)
