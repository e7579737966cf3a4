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
from ralphproof.process.keeper_client import TurnFollower, TurnOutput
from ralphproof.process.output import LOG_SIZES
from ralphproof.process.tree import is_alive
from ralphproof.store.run_state import RUNNING, run_state, turn_file_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.events import Event
    from ralphproof.engine.sandbox import Command, CommandWatcher, Sandbox
    from ralphproof.store.ledger import SqliteLedger
    from ralphproof.store.project import Project


# Reading a turn's log without following it.


class TurnLogReader:
    """A sandbox that runs nothing: it hands on all output of a turn so far, and does not wait.

    `unfinished` is called at the end where more may come: the rest of a line is no line yet.
    """

    name = "glance"
    strength = "none"

    def __init__(self, unfinished: Callable[[], None]) -> None:
        self._unfinished = unfinished

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Read all output that is there."""
        past, view = turn_journal.read_turn_file(command.turn_file), TurnOutput(command, watch, LOG_SIZES)
        if past.result is not None:
            return view.finish(past.result)
        while past.began and view.pull():
            pass
        if is_alive(*past.keeper):
            self._unfinished()
        return Exit(None, why="stopped")


# Events, live and of finished turns.


POLL_S = 0.2  # between two looks at the record
RETRY_S = 1.0  # before it is tried once more to read it
BATCH_S = 0.1  # so long events are gathered before they are told
MAX_EVENTS = 500  # events of a turn that somebody who comes late is told
MAX_TEXT_CHARS = 4000  # of one text


@value
class EventBatch:
    """Events of one turn, in order. `first` is the number of the first, `dropped` how many came before and are not
    sent.
    """

    turn: str
    first: int
    dropped: int
    events: tuple[dict[str, Json], ...]


class EventBatcher:
    """Collects the events of one turn, numbers them, and sends them a few times a second. It watches a turn.

    Of a flood only the last events are sent; `dropped` counts the others. The turn is let go once `stopped` says so.
    """

    def __init__(
        self, turn: str, mask: Callable[[str], str], send: Callable[[EventBatch], None], stopped: Callable[[], bool]
    ) -> None:
        self._turn, self._mask, self._send, self._stopped = turn, mask, send, stopped
        self._unsent: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._count = 0
        self._sent_s = 0.0
        self._closed = False

    def events(self, events: list[Event]) -> None:
        if self._closed:
            return
        self._unsent.extend(events)
        self._count += len(events)
        if time.monotonic() - self._sent_s >= BATCH_S:
            self.flush()

    def tick(self) -> int:
        self.flush()
        return STOP if self._stopped() else CONTINUE

    def close(self) -> None:
        """Take no more events."""
        self._closed = True

    def flush(self) -> None:
        """Send what was collected."""
        self._sent_s = time.monotonic()
        if not self._unsent:
            return
        events, self._unsent = self._unsent, deque(maxlen=MAX_EVENTS)
        first = self._count - len(events)
        published = tuple(event_json(event, first + place, self._mask) for place, event in enumerate(events))
        self._send(EventBatch(self._turn, first, first, published))


def event_json(event: Event, number: int, mask: Callable[[str], str]) -> dict[str, Json]:
    """One event for programs, its texts truncated and masked."""
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


def replay_turn(project: Project, run: str, turn: str, agent: str, batcher: EventBatcher, through: Sandbox) -> None:
    """Hand the output of a turn to a batcher, as the agent's own adapter reads it; raises RalphError."""
    file = turn_file_path(project, run, turn)
    turn_input = TurnInput(
        "", os.devnull, os.path.dirname(file), (), file.removesuffix(".turn"), file, "", 0.0, adopt=True
    )  # fmt: skip
    transcript_reader(agent).take_turn(turn_input, through, batcher)


def turn_activity(project: Project, run: str, turn: str, agent: str, most: int = MAX_EVENTS) -> EventBatch:
    """The last events of a turn, finished or not."""
    last: deque[dict[str, Json]] = deque(maxlen=min(most, MAX_EVENTS))
    batcher = EventBatcher(turn, project.mask, lambda batch: last.extend(batch.events), lambda: True)
    replay_turn(project, run, turn, agent, batcher, TurnLogReader(batcher.close))
    batcher.flush()
    first = int(str(last[0]["n"])) if last else 0
    return EventBatch(turn, first, first, tuple(last))


class LiveEvents:
    """Follows the agent of one run from turn to turn, in its own thread.

    It only reads files and takes no lock: nothing that happens here reaches the run.
    """

    def __init__(self, project: Project, run: str, send: Callable[[EventBatch], None]) -> None:
        self._project, self._run, self._send = project, run, send
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"overhears {run}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; the thread ends within a moment."""
        self._stopped.set()

    def _follow(self) -> None:
        """Where the records cannot be read, start again a moment later. Events have numbers: receivers know repeated
        ones.
        """
        while not self._stopped.is_set():
            try:
                ledger = self._project.ledger()
                try:
                    self._follow_turns(ledger)
                finally:
                    ledger.close()
            except RalphError:  # who shows the run tells what is wrong with its record
                self._stopped.wait(RETRY_S)

    def _follow_turns(self, ledger: SqliteLedger) -> None:
        state, seq, followed = State(), 0, (0, 0)
        while not self._stopped.is_set():
            records = ledger.queries.records_since(self._run, seq)
            for number, _, record in records:
                seq, state = number, state.after(record)
            if state.turn_running and followed != (turn := (state.iteration, state.turn)):
                self._follow_turn(ledger, state)
                followed = turn
            self._stopped.wait(0.0 if records else POLL_S)

    def _follow_turn(self, ledger: SqliteLedger, state: State) -> None:
        name = turn_file_name(f"agent_{state.iteration:03d}", state.turn)
        batcher = EventBatcher(name, self._project.mask, self._send, self._stopped.is_set)
        follower = TurnFollower(lambda: not self._stopped.is_set() and self._is_running(ledger))
        try:
            replay_turn(self._project, self._run, name, state.agent.name, batcher, follower)
        except Exception:  # noqa: BLE001 (it looks on, and any agent may write anything: its log can be read as it is)
            return
        batcher.flush()

    def _is_running(self, ledger: SqliteLedger) -> bool:
        row = ledger.row(self._run)
        return row is not None and run_state(ledger, row, self._project) == RUNNING
