"""Following a run from another process: its records as they are written, and what its agent says meanwhile."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.records import RunEnded, TurnBegan
from ralphproof.engine.sandbox import CONTINUE, STOP
from ralphproof.process.observer import TurnFollower
from ralphproof.process.output import LOG_SIZES
from ralphproof.runs.request import load_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import RUNNING, turn_file_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.agent import Agent
    from ralphproof.engine.environment import Observer
    from ralphproof.engine.events import Event
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.records import Record
    from ralphproof.engine.sandbox import Command, CommandWatcher, Exit
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project
    from ralphproof.views.run_records import RecordTail

POLL_S = 0.2
LIVENESS_CHECK_S = 0.5  # so often it is asked whether the harness of a turn that we follow lives
MAX_EARLIER_EVENTS = 50  # events of a turn that are shown of those before we came


def load_run_spec(project: Project, run: str, directory: str) -> RunSpec | None:
    """How a run was ordered, as far as its agents and its display go; None where that cannot be known any more.

    What only matters to a run that begins is left out, so that it cannot be refused.
    """
    kept = load_request(RunFolder(directory, run, project.store))
    if kept is None or kept[1]:
        return None
    text = "." if kept[0].verify_commands is None else ""  # stories have none
    request = replace(
        kept[0], prompt=(text, None), checks=("true",), skill="", task_type="", risk="", verbose=False, explain=False,
        allow_unknown_cost=True, project_dir=directory,
    )  # fmt: skip
    try:
        return prepare_spec(request)
    except RalphError:
        return None


class RunFollower:
    """Shows a run to observers until it ends. It only reads: whatever becomes of it, the run goes on."""

    def __init__(
        self, trail: RecordTail, project: Project, observers: tuple[Observer, ...], agents: tuple[Agent, ...],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._trail, self._project, self._observers, self._agents, self._say = trail, project, observers, agents, say
        self._told = False  # that words cannot be shown

    def to_the_end(self) -> Outcome | None:
        """How the run ended; None where it lost its harness."""
        state, last = self._trail.state, self._trail.last
        if isinstance(last, RunEnded):
            return last.outcome
        if state.turning:
            self._follow(state.iteration, state.turn, state.agent, True, self._at_it)
        while True:
            records = self._trail.more()
            for place, record in enumerate(records, 1):
                self._show(record, self._at_it if place == len(records) else _never)
                if isinstance(record, RunEnded):
                    return record.outcome
            if not records and not self._goes_on() and not self._trail.grown:
                return None
            self._tick()
            time.sleep(0.0 if records else POLL_S)

    def _show(self, record: Record, at_it: Callable[[], bool]) -> None:
        for observer in self._observers:
            observer.on_record(record)
        if isinstance(record, TurnBegan):
            self._follow(record.iteration, record.turn, record.agent, False, at_it)

    def _goes_on(self) -> bool:
        return self._trail.standing(self._project) == RUNNING

    def _at_it(self) -> bool:
        """Whether the turn that was recorded last may still begin."""
        return self._goes_on() and not self._trail.grown

    def _tick(self) -> None:
        for observer in self._observers:
            observer.tick()

    def _follow(self, iteration: int, turn: int, name: str, late: bool, at_it: Callable[[], bool]) -> None:
        """Show what an agent says until its turn is over, where somebody can read it."""
        agent = next((agent for agent in self._agents if agent.name == name), None)
        if agent is None:
            if not self._told:
                self._say(f"what {name or 'the agent'} says cannot be shown from here; ralph logs -f shows it raw")
            self._told = True
            return
        file = turn_file_path(self._project, self._trail.row.id, turn_file_name(f"agent_{iteration:03d}", turn))
        gaze, here = EventRelay(self._observers, self._goes_on, self._say, late), os.path.dirname(file)
        brief = TurnInput("", os.devnull, here, (), file.removesuffix(".turn"), file, "", 0.0, taken_up=True)
        agent.take_turn(brief, CatchUpFollowing(at_it, gaze), gaze)
        gaze.abreast()


def _never() -> bool:
    return False


class EventRelay:
    """Passes on what an agent says. Of what was said before anybody looked on, only the last."""

    def __init__(
        self, observers: tuple[Observer, ...], goes_on: Callable[[], bool], say: Callable[[str], None], late: bool
    ) -> None:
        self._observers, self._goes_on, self._say = observers, goes_on, say
        self._earlier: list[Event] | None = [] if late else None
        self._dropped = 0
        self._asked_s = time.monotonic()

    def events(self, events: list[Event]) -> None:
        if self._earlier is not None:
            held = [*self._earlier, *events]
            self._dropped += max(0, len(held) - MAX_EARLIER_EVENTS)
            self._earlier = held[-MAX_EARLIER_EVENTS:]
            return
        for observer in self._observers:
            observer.on_events(events)

    def abreast(self) -> None:
        """From here on everything is new."""
        earlier, self._earlier = self._earlier, None
        if self._dropped:
            self._say(f"{self._dropped} earlier things that the agent said and did are in ralph logs")
            self._dropped = 0
        if earlier:
            self.events(earlier)

    def tick(self) -> int:
        for observer in self._observers:
            observer.tick()
        if (now_s := time.monotonic()) - self._asked_s < LIVENESS_CHECK_S:
            return CONTINUE
        self._asked_s = now_s
        return CONTINUE if self._goes_on() else STOP


class CatchUpFollowing(TurnFollower):
    """Follows a turn, and says when all that was there before has been read."""

    def __init__(self, while_: Callable[[], bool], gaze: EventRelay) -> None:
        super().__init__(while_)
        self._gaze = gaze

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        return super().run(command, _ByteCounter(watch, self._gaze))


class _ByteCounter:
    """Counts bytes between ticks: less than a whole segment of a log is all that there is."""

    def __init__(self, watch: CommandWatcher, gaze: EventRelay) -> None:
        self._watch, self._gaze, self._bytes = watch, gaze, 0

    def output(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        self._watch.output(chunk)

    def tick(self) -> int:
        if self._bytes < LOG_SIZES[1]:
            self._gaze.abreast()
        self._bytes = 0
        return self._watch.tick()
