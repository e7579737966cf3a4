"""Where finished work waits to be landed while other work goes on: one thread, one batch after the other."""

from __future__ import annotations

import os
import threading

from ralphproof.cli.landing_call import project_checks
from ralphproof.cli.landing_drive import Lander
from ralphproof.cli.landing_examine import Examiner
from ralphproof.cli.signals import Present
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from ralphproof.cli.conductor import Conductor
    from ralphproof.landing import LandingEnd, Parcel, Target
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project

NAME = "landing"


class Dock:
    """Lands what it is sent on one target, all that waits at a time as one batch. Whatever happens is in `ended`."""

    def __init__(
        self, project: Project, target: Target, conductor: Conductor, told: Callable[[str], None], *,
        rebase: bool = False, unverified: bool = False, base: str = "",
    ) -> None:  # fmt: skip
        from queue import SimpleQueue

        self._project, self._target, self._conductor, self._told = project, target, conductor, told
        self._rebase, self._unverified, self._base = rebase, unverified, base
        self._sent: SimpleQueue[Parcel | None] = SimpleQueue()
        self._ended: SimpleQueue[LandingEnd | BaseException] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.waiting: set[str] = set()  # the runs whose work is on its way

    def send(self, parcel: Parcel) -> None:
        """Have it landed."""
        self.waiting.add(parcel.run)
        self._sent.put(parcel)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
            self._thread.start()

    def next(self) -> LandingEnd | None:
        """What became of a parcel; None where there is no news. Raises what went wrong with all of it."""
        if self._ended.empty():
            return None
        found = self._ended.get()
        if isinstance(found, BaseException):
            self.waiting.clear()
            self._thread = None
            raise found
        self.waiting.discard(found.parcel.run)
        return found

    def close(self) -> None:
        """Let the thread go when it has done what it is at."""
        if self._thread is not None:
            self._sent.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            self._landing()
        except BaseException as error:  # noqa: BLE001 (it is raised where somebody waits for it)
            self._ended.put(error)

    def _landing(self) -> None:
        present = Present()
        self._conductor.attend(NAME, present)
        ledger = self._project.ledger(read_only=False)
        try:
            while batch := self._batch():
                for end in self._land(batch, ledger, present):
                    self._ended.put(end)
        finally:
            ledger.close()
            self._conductor.leave(NAME)
            present.close()

    def _land(self, batch: list[Parcel], ledger: Sqlite, present: Present) -> tuple[LandingEnd, ...]:
        """Land a batch; its checks run in the kind of sandbox that its runs had."""
        kind = next((parcel.sandbox for parcel in batch if parcel.sandbox), None)
        with Examiner(self._project, os.environ, present, self._told, sandbox=kind) as examiner:
            lander = Lander(
                self._project, ledger, self._target, examiner, self._told, environ=os.environ, base=self._base,
                rebase=self._rebase, unverified=self._unverified, heed=examiner.heed,
                standing=project_checks(self._project, self._target, tuple(batch), os.environ),
            )  # fmt: skip
            return lander.land(batch)

    def _batch(self) -> list[Parcel]:
        """All that waits by now, once something does; nothing where no more will come."""
        batch: list[Parcel] = []
        while not batch or not self._sent.empty():
            parcel = self._sent.get()
            if parcel is None:
                if batch:
                    self._sent.put(None)  # to be heard once more when these have landed
                return batch
            batch.append(parcel)
        return batch
