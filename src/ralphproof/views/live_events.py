"""What the agent of a run says and does, read from outside: live, or of a turn that has ended."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from ralphproof.agents.selection import transcript_reader
from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.ndjson import published_fields
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.sandbox import CONTINUE, STOP, Exit
from ralphproof.engine.state import State
from ralphproof.process import turn_journal
from ralphproof.process.observer import TurnFollower, TurnOutput
from ralphproof.process.output import LOG_SIZES
from ralphproof.process.tree import is_alive
from ralphproof.store.run_state import RUNNING, run_state, turn_file_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.events import Event
    from ralphproof.engine.sandbox import Command, CommandWatcher, Sandbox
    from ralphproof.store.project import Project
    from ralphproof.store.sqlite_ledger import SqliteLedger


# One look at a turn as it is now, as if it were a sandbox that runs it.


class TurnLogReader:
    """Runs nothing, and waits for nothing: hands on all that a turn has said so far.

    `unfinished` is called behind it where more may come: what is left of a line is none yet.
    """

    name = "glance"
    strength = "none"

    def __init__(self, unfinished: Callable[[], None]) -> None:
        self._unfinished = unfinished

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Read to the end of what there is."""
        past, view = turn_journal.read_turn_file(command.turn_file), TurnOutput(command, watch, LOG_SIZES)
        if past.result is not None:
            return view.finish(past.result)
        while past.began and view.pull():
            pass
        if is_alive(*past.keeper):
            self._unfinished()
        return Exit(None, why="stopped")


# What the agent of a run says and does, overheard from outside: live, and once more of a turn that has ended.


POLL_S = 0.2  # between two looks at the record
RETRY_S = 1.0  # before it is tried once more to read it
BATCH_S = 0.1  # so long events are gathered before they are told
MAX_EVENTS = 500  # events of a turn that somebody who comes late is told
MAX_TEXT_CHARS = 4000  # of one text


@value
class EventBatch:
    """Some events of one turn, in order. `first` is the number of the first of them, `dropped` how many went before."""

    turn: str
    first: int
    dropped: int
    events: tuple[dict[str, Json], ...]


class EventBatcher:
    """Gathers the events of one turn, numbers them, and tells them some times a second. The last ones are kept."""

    def __init__(self, turn: str, mask: Callable[[str], str], tell: Callable[[EventBatch], None]) -> None:
        self._turn, self._mask, self._tell = turn, mask, tell
        self._untold: deque[Event] = deque(maxlen=MAX_EVENTS)
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
        events, self._untold = self._untold, deque(maxlen=MAX_EVENTS)
        first = self._count - len(events)
        told = tuple(event_json(event, first + place, self._mask) for place, event in enumerate(events))
        self._tell(EventBatch(self._turn, first, first, told))


def event_json(event: Event, number: int, mask: Callable[[str], str]) -> dict[str, Json]:
    """One event as programs read it, its texts cut and masked."""
    fields = {name: _truncate(item, mask) for name, item in published_fields(event).items()}
    return {"n": number, "type": type(event).__name__.lower(), **fields}


def _truncate(item: Json, mask: Callable[[str], str]) -> Json:
    match item:
        case str():
            return mask(item[: 4 * MAX_TEXT_CHARS])[:MAX_TEXT_CHARS]  # a secret that is cut in two would not be known
        case list():
            return [_truncate(one, mask) for one in item[:MAX_EVENTS]]
        case dict():
            return {name: _truncate(one, mask) for name, one in item.items()}
        case _:
            return item


def replay_turn(
    project: Project, run: str, turn: str, agent: str, watch: TurnListener, through: Sandbox
) -> None:  # fmt: skip
    """Hand on what a turn says, as its agent's own adapter reads it; raises RalphError."""
    file = turn_file_path(project, run, turn)
    brief = TurnInput(
        "", os.devnull, os.path.dirname(file), (), file.removesuffix(".turn"), file, "", 0.0, taken_up=True
    )  # fmt: skip
    transcript_reader(agent).take_turn(brief, through, watch)


class TurnListener:
    """Looks on at one turn until somebody says that it is enough."""

    def __init__(self, batch: EventBatcher, enough: Callable[[], bool]) -> None:
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
        return STOP if self._enough() else CONTINUE


def turn_activity(project: Project, run: str, turn: str, agent: str, most: int = MAX_EVENTS) -> EventBatch:
    """What an agent said and did in a turn: the last of it, where it was much; of one that goes on, what is there."""
    kept: deque[dict[str, Json]] = deque(maxlen=min(most, MAX_EVENTS))
    batch = EventBatcher(turn, project.mask, lambda heard: kept.extend(heard.events))
    watching = TurnListener(batch, lambda: True)
    replay_turn(project, run, turn, agent, watching, TurnLogReader(watching.close))
    batch.flush()
    first = int(str(kept[0]["n"])) if kept else 0
    return EventBatch(turn, first, first, tuple(kept))


class LiveEvents:
    """Follows the agent of one run in a thread of its own, from turn to turn, while somebody wants to hear.

    Whatever happens here, nothing of it reaches the run: files are read, no lock is taken.
    """

    def __init__(self, project: Project, run: str, hear: Callable[[EventBatch], None]) -> None:
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
                self._stopped.wait(RETRY_S)

    def _from_turn_to_turn(self, ledger: SqliteLedger) -> None:
        state, seq, heard = State(), 0, (0, 0)
        while not self._stopped.is_set():
            records = ledger.look.since(self._run, seq)
            for number, _, record in records:
                seq, state = number, state.after(record)
            if state.turning and heard != (turn := (state.iteration, state.turn)):
                self._listen(ledger, state)
                heard = turn
            self._stopped.wait(0.0 if records else POLL_S)

    def _listen(self, ledger: SqliteLedger, state: State) -> None:
        name = turn_file_name(f"agent_{state.iteration:03d}", state.turn)
        batch = EventBatcher(name, self._project.mask, self._hear)
        try:
            replay_turn(
                self._project, self._run, name, state.agent, TurnListener(batch, self._stopped.is_set),
                TurnFollower(lambda: not self._stopped.is_set() and self._lives(ledger)),
            )  # fmt: skip
        except Exception:  # noqa: BLE001 (it looks on, and any agent may write anything: its log can be read as it is)
            return
        batch.flush()

    def _lives(self, ledger: SqliteLedger) -> bool:
        row = ledger.row(self._run)
        return row is not None and run_state(ledger, row, self._project) == RUNNING
