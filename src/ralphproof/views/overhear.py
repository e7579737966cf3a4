"""What the agent of a run says and does, overheard from outside: live, and once more of a turn that has ended."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from ralphproof.agent import Brief
from ralphproof.config.agents import reader_of
from ralphproof.display.ndjson import fields_of
from ralphproof.errors import RalphError
from ralphproof.keeper.follow import Following
from ralphproof.sandbox import GO_ON, STOP
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.glance import Glance
from ralphproof.views.standing import RUNNING, standing, turn_file
from ralphproof.world import numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.event import Event
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.sandbox import Sandbox
    from ralphproof.value import Json
    from ralphproof.views.project import Project

LOOK_S = 0.2  # between two looks at the record
AGAIN_S = 1.0  # before it is tried once more to read it
BATCH_S = 0.1  # so long events are gathered before they are told
KEPT = 500  # events of a turn that somebody who comes late is told
CHARS = 4000  # of one text


@value
class Overheard:
    """Some events of one turn, in order. `first` is the number of the first of them, `dropped` how many went before."""

    turn: str
    first: int
    dropped: int
    events: tuple[dict[str, Json], ...]


class Batch:
    """Gathers the events of one turn, numbers them, and tells them some times a second. The last ones are kept."""

    def __init__(self, turn: str, mask: Callable[[str], str], tell: Callable[[Overheard], None]) -> None:
        self._turn, self._mask, self._tell = turn, mask, tell
        self._untold: deque[Event] = deque(maxlen=KEPT)
        self._count = 0
        self._told_s = 0.0

    def add(self, events: list[Event]) -> None:
        """More of them; in a flood only the last are kept, and the rest is counted."""
        self._untold.extend(events)
        self._count += len(events)
        if time.monotonic() - self._told_s >= BATCH_S:
            self.flush()

    def flush(self) -> None:
        """Tell what has gathered."""
        self._told_s = time.monotonic()
        if not self._untold:
            return
        events, self._untold = self._untold, deque(maxlen=KEPT)
        first = self._count - len(events)
        told = tuple(event_json(event, first + place, self._mask) for place, event in enumerate(events))
        self._tell(Overheard(self._turn, first, first, told))


def event_json(event: Event, number: int, mask: Callable[[str], str]) -> dict[str, Json]:
    """One event as programs read it, its texts cut and masked."""
    fields = {name: _cut(item, mask) for name, item in fields_of(event).items()}
    return {"n": number, "type": type(event).__name__.lower(), **fields}


def _cut(item: Json, mask: Callable[[str], str]) -> Json:
    match item:
        case str():
            return mask(item[: 4 * CHARS])[:CHARS]  # a secret that is cut in two would not be known
        case list():
            return [_cut(one, mask) for one in item[:KEPT]]
        case dict():
            return {name: _cut(one, mask) for name, one in item.items()}
        case _:
            return item


def read_turn(
    project: Project, run: str, turn: str, agent: str, watch: Watching, through: Sandbox
) -> None:  # fmt: skip
    """Hand on what a turn says, as its agent's own adapter reads it; raises RalphError."""
    file = turn_file(project, run, turn)
    brief = Brief(
        "", os.devnull, os.path.dirname(file), (), file.removesuffix(".turn"), file, "", 0.0, taken_up=True
    )  # fmt: skip
    reader_of(agent).take_turn(brief, through, watch)


class Watching:
    """Looks on at one turn until somebody says that it is enough."""

    def __init__(self, batch: Batch, enough: Callable[[], bool]) -> None:
        self._batch, self._enough = batch, enough
        self._closed = False

    def events(self, events: list[Event]) -> None:
        if not self._closed:
            self._batch.add(events)

    def close(self) -> None:
        """Hear nothing of what comes now."""
        self._closed = True

    def tick(self) -> int:
        self._batch.flush()
        return STOP if self._enough() else GO_ON


def activity(project: Project, run: str, turn: str, agent: str, most: int = KEPT) -> Overheard:
    """What an agent said and did in a turn: the last of it, where it was much; of one that goes on, what is there."""
    kept: deque[dict[str, Json]] = deque(maxlen=min(most, KEPT))
    batch = Batch(turn, project.mask, lambda heard: kept.extend(heard.events))
    watching = Watching(batch, lambda: True)
    read_turn(project, run, turn, agent, watching, Glance(watching.close))
    batch.flush()
    first = int(str(kept[0]["n"])) if kept else 0
    return Overheard(turn, first, first, tuple(kept))


class Overhearing:
    """Follows the agent of one run in a thread of its own, from turn to turn, while somebody wants to hear.

    Whatever happens here, nothing of it reaches the run: files are read, no lock is taken.
    """

    def __init__(self, project: Project, run: str, hear: Callable[[Overheard], None]) -> None:
        self._project, self._run, self._hear = project, run, hear
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"overhears {run}", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Hear no more; the thread ends by itself within a moment."""
        self._stopped.set()

    def _follow(self) -> None:
        """Where the record cannot be read, begin anew a moment later: what was heard has its number, and is known."""
        while not self._stopped.is_set():
            try:
                ledger = self._project.ledger()
                try:
                    self._from_turn_to_turn(ledger)
                finally:
                    ledger.close()
            except RalphError:  # who shows the run tells what is wrong with its record
                self._stopped.wait(AGAIN_S)

    def _from_turn_to_turn(self, ledger: Sqlite) -> None:
        state, seq, heard = State(), 0, (0, 0)
        while not self._stopped.is_set():
            records = ledger.look.since(self._run, seq)
            for number, _, record in records:
                seq, state = number, state.after(record)
            if state.turning and heard != (turn := (state.iteration, state.turn)):
                self._listen(ledger, state)
                heard = turn
            self._stopped.wait(0.0 if records else LOOK_S)

    def _listen(self, ledger: Sqlite, state: State) -> None:
        name = numbered(f"agent_{state.iteration:03d}", state.turn)
        batch = Batch(name, self._project.mask, self._hear)
        try:
            read_turn(
                self._project, self._run, name, state.agent, Watching(batch, self._stopped.is_set),
                Following(lambda: not self._stopped.is_set() and self._lives(ledger)),
            )  # fmt: skip
        except Exception:  # noqa: BLE001 (it looks on, and any agent may write anything: its log can be read as it is)
            return
        batch.flush()

    def _lives(self, ledger: Sqlite) -> bool:
        row = ledger.row(self._run)
        return row is not None and standing(ledger, row, self._project) == RUNNING
