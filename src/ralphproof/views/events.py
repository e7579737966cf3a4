"""A run as JSON lines, and what its agent says and does, read from outside: live, or of a turn that has ended."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from ralphproof.agents.selection import transcript_reader
from ralphproof.base.errors import RalphError
from ralphproof.base.value import Json, value
from ralphproof.display import phrases
from ralphproof.engine import records
from ralphproof.engine.agent import Event, TurnInput
from ralphproof.engine.outcome import outcome_json, published
from ralphproof.engine.plan import AllDone, Blocked, Job, turn_file_name
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import CONTINUE, STOP, Command, CommandWatcher, Exit, Sandbox
from ralphproof.engine.state import State, count_begun_iterations
from ralphproof.process import turn_journal
from ralphproof.process.keeper_client import TurnFollower, TurnOutput
from ralphproof.process.output import LOG_SIZES
from ralphproof.process.tree import is_alive
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import RUNNING, run_state, turn_file_path
from ralphproof.views.published_json import time_json, to_json
from ralphproof.views.run_status import RunView
from ralphproof.views.timeline import BASELINE_NUMBER, IterationView, RunHistory, describe_note

# Every record of a run as a JSON line.


RECORD_TYPES: dict[type, str] = {
    records.RunBegan: "run.started",
    records.Resumed: "run.resumed",
    records.UserChangesSaved: "changes.saved",
    records.Paused: "run.paused",
    records.UserMessageAdded: "message.added",
    records.ClaimFound: "claim.found",
    records.ChildRunsAwaited: "children.awaited",
    records.ChildWorkJoined: "children.joined",
    records.BaselineSaved: "baseline.saved",
    records.Warned: "warning",
    records.Escalated: "run.escalated",
    records.Picked: "iteration.picked",
    records.TurnBegan: "turn.started",
    records.TurnEnded: "turn.ended",
    records.Saved: "work.saved",
    records.TurnRetried: "turn.retried",
    records.CheckBegan: "check.started",
    records.CheckEnded: "check.ended",
    records.CheckStopped: "check.stopped",
    records.Judged: "iteration.ended",
    records.ScmBegan: "commit.started",
    records.ScmEnded: "commit.ended",
    records.Noticed: "notice",
    records.HookBegan: "hook.started",
    records.HookEnded: "hook.ended",
    records.RunEnded: "run.ended",
}


class NdjsonObserver:
    """Every record as a line, once it is durable; with `events` also what the agent says and does as it happens."""

    def __init__(self, out: TextIO, run: str, events: bool = False, mask: Callable[[str], str] = str) -> None:
        self._out, self._run, self._events, self._mask = out, run, events, mask
        self._history = RunHistory(run)
        self._unsent = False
        self._event_count = 0

    def catch_up(self, earlier: tuple[Record, ...], at_s: float = 0.0) -> None:
        """Take records from before, without a line. `at_s` is when the last of them was written."""
        for record in earlier:
            self._history.take(self._history.seq + 1, at_s, record)

    def on_record(self, record: Record) -> None:
        self._history.take(self._history.seq + 1, time.time(), record)
        if isinstance(record, records.TurnBegan):
            self._event_count = 0
        kind, data = self._describe(record)
        self._put(kind, getattr(record, "iteration", None), data)
        self._send()

    def on_events(self, events: list[Event]) -> None:
        for event in events if self._events else ():
            data = to_json("agentEvent", (self._event_count, event))
            self._event_count += 1
            self._put(f"agent.{data['kind']}", self._history.state.iteration or None, data)

    def put_view(self, kind: str, view: RunView) -> None:
        """A line about the run itself."""
        self._put(kind, None, to_json("run", view))
        self._send()

    def tick(self) -> None:
        """Programs have clocks of their own; what was said since the last tick reaches them now."""
        if self._unsent:
            self._send()

    def _describe(self, record: Record) -> tuple[str, dict[str, Json]]:
        """The type of a record's line, and its object: the same as in every other output."""
        kind = RECORD_TYPES[type(record)]
        match record:
            case records.RunBegan() | records.Resumed():
                return kind, to_json("run", self._run_view())
            case records.Picked(iteration, Job() as job):
                return kind, to_json("iteration", IterationView(self._run, iteration, time.time(), job))
            case records.Picked(choice=AllDone() | Blocked() as choice):
                message = choice.why if isinstance(choice, Blocked) else "everything is done"
                return "plan.finished", notice_json(message)
            case records.TurnBegan() | records.TurnEnded() | records.TurnRetried():
                turns = self._iteration(record.iteration).turns
                return kind, to_json("turn", next(one for one in turns if one.turn == record.turn))
            case records.CheckBegan() | records.CheckEnded() | records.CheckStopped():
                name = record.finding.check if isinstance(record, records.CheckEnded) else record.check
                checks = self._iteration(record.iteration).checks
                return kind, to_json("check", next(one for one in checks if one.name == name))
            case records.Saved() | records.ChildWorkJoined() | records.Judged():
                return kind, to_json("iteration", self._iteration(record.iteration))
            case records.ScmEnded():
                return kind, to_json("scm", record)
            case records.HookBegan():
                return kind, to_json("hook", StartedHook(record.hook, record.iteration, record.command))
            case records.HookEnded():
                return kind, to_json("hook", record)
            case records.RunEnded(outcome, metrics):
                return kind, outcome_json(outcome, self._run, metrics)
            case records.ClaimFound():
                return kind, notice_json("a file claims that the work is done, before any agent was asked")
            case records.ChildRunsAwaited(children=children):
                return kind, notice_json(phrases.describe_awaited_children(children))
            case records.BaselineSaved(written=written):
                return kind, notice_json("the checks were run before the first turn", written)
            case records.ScmBegan():
                return kind, notice_json("the work is being committed")
            case records.UserChangesSaved(paths=paths):
                return kind, notice_json(describe_note(record), paths)
            case records.Picked():
                return kind, notice_json("the next job was picked")
            case _:
                return kind, notice_json(describe_note(record))

    def _iteration(self, number: int) -> IterationView:
        known = self._history.timeline.iterations
        return known.get(number) or known[max(known, default=BASELINE_NUMBER)]

    def _run_view(self) -> RunView:
        """The run at its beginning, or when it was resumed."""
        history, now = self._history, time.time()
        row = RunRow(
            self._run, history.state.run.began_s or now, str(history.facts.get("directory") or ""), os.getpid(), "", "",
            ended=False, parent=str(history.facts.get("parent") or ""),
        )  # fmt: skip
        begun = count_begun_iterations(history.state)
        return RunView(row, RUNNING, history.facts, history.title, now, begun, history.state.bill, None)

    def _put(self, kind: str, iteration: int | None, data: dict[str, Json]) -> None:
        line = published(kind, {"run": self._run, "time": time_json(time.time()), "iteration": iteration, "data": data})
        self._out.write(self._mask(json.dumps(line)) + "\n")
        self._unsent = True

    def _send(self) -> None:
        self._unsent = False
        self._out.flush()


@value
class StartedHook:
    """A hook that has no result yet."""

    hook: str
    iteration: int
    command: str
    result: None = None
    paths: tuple[str, ...] = ()


def notice_json(message: str, files: tuple[str, ...] = ()) -> dict[str, Json]:
    """Something to know about a run."""
    return published("notice", {"message": message, "files": [*files]})


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
    sent. `log` is the name of the turn's log.
    """

    log: str
    first: int
    dropped: int
    events: tuple[dict[str, Json], ...]

    def to_json(self) -> dict[str, Json]:
        """For programs."""
        return published("agentEvents", {
            "log": self.log, "first": self.first, "dropped": self.dropped, "events": [*self.events],
        })  # fmt: skip


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
    return {name: _truncate(item, mask) for name, item in to_json("agentEvent", (number, event)).items()}


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
    first = int(str(last[0]["number"])) if last else 0
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
