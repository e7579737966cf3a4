"""Run control from outside: pause, resume, cancel, and messages to a run."""

from __future__ import annotations

import sys
import time

from ralphproof.base.errors import Busy, Refused
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace
from ralphproof.display import phrases
from ralphproof.engine.records import RunEnded
from ralphproof.engine.state import build_state
from ralphproof.runs.agent_restrictions import refuse_unrelated_run_in_turn
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, RUNNING, run_state
from ralphproof.store.runs import CANCEL, PAUSE, RESUME
from ralphproof.views.run_records import RecordTail
from ralphproof.views.run_status import refuse_without_harness, resume_hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.state import State
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


CANCEL_TIMEOUT_S = 20.0
CANCEL_POLL_S = 0.05
KILL_AFTER_S = 10.0  # after so long a turn that was asked to end is killed


class Cancellation:
    """A run and those that its agent began, as far as they had not ended when they were first looked at."""

    def __init__(self, ledger: SqliteLedger, project: Project, row: RunRow) -> None:
        """Whoever is not over is asked to end: the run first, then those below it."""
        self._ledger, self._project, self.run = ledger, project, row.id
        self.asked: dict[str, RunRow] = {}
        self.ask()

    def ask(self) -> None:
        """Ask those too that began meanwhile."""
        for row in (self._ledger.row(self.run), *self._ledger.descendants(self.run)):
            if row is not None and row.id not in self.asked and self._ledger.run_end(row.id) is None:
                self._ledger.request_control(row.id, CANCEL)
                self.asked[row.id] = row

    def left(self) -> list[RunRow]:
        """Those whose record does not say how they ended."""
        return [row for run, row in self.asked.items() if self._ledger.run_end(run) is None]

    def close_lost(self) -> None:
        """Close those whose harness died, the innermost first: a run is over when those below it are."""
        for asked in reversed(self.left()):
            row = self._ledger.row(asked.id) or asked  # somebody may have taken it up
            if not row.process.alive and self._ledger.run_end(row.id) is None:  # it may have ended just before it died
                _close_cancelled_run(self._ledger, row, self._project)

    def wait(self) -> None:
        """Wait until all have ended, in good order or not; not for long."""
        deadline = time.monotonic() + CANCEL_TIMEOUT_S
        while self.left() and time.monotonic() < deadline:
            time.sleep(CANCEL_POLL_S)
            self.ask()
            self.close_lost()


def _close_cancelled_run(ledger: SqliteLedger, row: RunRow, project: Project) -> None:
    """End what a dead harness left, and write down that the run is over.

    The lock keeps a new run from doing the same at this moment. Whoever has it closes this run, or takes it up and then
    hears that it is to end.
    """
    lock = DirectoryLock(project.state_dir, row.directory, row.id, row.parent)
    try:
        lock.take()
    except Busy:
        return
    try:
        if ledger.run_end(row.id) is not None:
            return  # a new run was first
        end_live_turn(row.id, project)
        from ralphproof.base.escaping import collapse_lines, sanitize
        from ralphproof.runs.recovery import close_dead_run

        there = replace(project, root=row.directory) if row.directory else project
        for remark in close_dead_run(ledger, there, row, _cancelled_outcome):
            print(collapse_lines(sanitize(project.mask(f"note: {remark}"))), file=sys.stderr)
    finally:
        lock.release()


def end_live_turn(run: str, project: Project) -> None:
    """Ask the keeper of a turn that still goes on to end it, and wait until it has."""
    from ralphproof.engine.sandbox import CONTINUE, KILL, STOP
    from ralphproof.process.cleanup import signal_keeper
    from ralphproof.runs.recovery import find_live_turn

    began, urged = time.monotonic(), CONTINUE
    while past := find_live_turn(project, run):
        waited_s = time.monotonic() - began
        wanted = KILL if waited_s > KILL_AFTER_S else STOP
        if wanted > urged:
            signal_keeper(past, wanted)
            urged = wanted
        if waited_s > CANCEL_TIMEOUT_S:
            raise Refused(f"what run {run} started does not end; its keeper has pid {past.keeper[0]}")
        time.sleep(CANCEL_POLL_S)


def _cancelled_outcome(state: State) -> Outcome:
    from ralphproof.engine.actions import RunConditions
    from ralphproof.engine.limits import CANCELLED, Breach
    from ralphproof.engine.next_action import aborted_outcome

    why = Breach(CANCELLED, "cancelled; its harness had died")
    return aborted_outcome(state, RunConditions(state.elapsed_s), why)


def recorded_outcome(ledger: SqliteLedger, run: str) -> Outcome:
    """How a run ended."""
    end = ledger.run_end(run)
    assert isinstance(end, RunEnded), "the run is over"
    return end.outcome


def request_pause(trail: RecordTail, ledger: SqliteLedger, project: Project) -> bool:
    """Want a run to rest; whether somebody did already. Raises Refused where there is nobody who could."""
    run = trail.row.id
    refuse_without_harness(project, trail.row, trail.state, trail.standing(project))
    if ledger.requested_control(run) == CANCEL:
        raise Refused(f"run {run} is asked to end; ralph status {run} says whether it has")
    already = ledger.requested_control(run) == PAUSE
    if not already:
        ledger.request_control(run, PAUSE)
    return already


def unpause_run(ledger: SqliteLedger, row: RunRow) -> tuple[bool, bool, str]:
    """Un-pause a run whose harness lives: whether it was asked to rest, whether it rested, and what to say of it."""
    asked, rested = ledger.requested_control(row.id) == PAUSE, build_state(ledger.records(row.id)).paused
    if not asked:
        return asked, rested, f"run {row.id} was not paused; it is at work, ralph attach {row.id} looks on"
    ledger.request_control(row.id, RESUME)
    return asked, rested, f"run {row.id} goes on" + ("" if rested else "; it had not rested yet")


MAX_MESSAGE_BYTES = 64 * 1024
MESSAGE_TOO_LONG = f"that is more than {MAX_MESSAGE_BYTES // 1024} KiB; put it into a file of the project, and name it"


def leave_message(ledger: SqliteLedger, row: RunRow, text: str, project: Project) -> tuple[int, str, str]:
    """Keep what is said to a run: its number, how the run stands, and what becomes of it in a sentence.

    Raises Refused where the run is over for good.
    """
    refuse_final_run(ledger, row)
    number = ledger.add_user_message(row.id, text)
    row = ledger.row(row.id) or row
    refuse_final_run(ledger, row)  # it may have ended meanwhile
    where = run_state(ledger, row, project)
    return number, where, _describe_delivery(row.id, where)


def refuse_final_run(ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused where a run is over for good: nobody would ever read it."""
    from ralphproof.views.run_status import refuse_finished_run

    if row.ended:
        refuse_finished_run(
            build_state(ledger.records(row.id)), row.id, "it has no next prompt that could carry your words"
        )


def parse_message(data: bytes) -> str:
    """The same for text that came in any other way."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise Refused(MESSAGE_TOO_LONG)
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if not text:
        raise Refused("there is nothing to say; give a text, or - and standard input")
    if "\0" in text:
        raise Refused("the text holds a NUL byte, which no prompt may; take it out")
    return text


def _describe_delivery(run: str, where: str) -> str:
    if where == RUNNING:
        return f"run {run} reads it in its next prompt"
    if where == ENDED:
        return f"kept; run {run} reads it when it goes on: ralph run --resume {run}"
    return f"kept; run {run} lost its harness, and reads it when it is taken up; {resume_hint(run)}"


# Steering runs through another door than the verbs: the same wishes, under the same rules.


class LedgerRunControl:
    """Writes wishes into the ledger. Any thread may call it."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def pause(self, run: str) -> str:
        return self._with(run, "pause", self._pause)

    def resume(self, run: str) -> str:
        return self._with(run, "resume", self._resume)

    def cancel(self, run: str) -> str:
        return self._with(run, "cancel", self._cancel)

    def say(self, run: str, text: str) -> str:
        said = parse_message(text.encode("utf-8", "replace"))
        return self._with(run, "say", lambda ledger, row: leave_message(ledger, row, said, self._project)[2])

    def _pause(self, ledger: SqliteLedger, row: RunRow) -> str:
        trail = RecordTail(ledger, row)
        request_pause(trail, ledger, self._project)
        return f"run {row.id} " + ("rests" if trail.state.paused else "will rest before its next turn")

    def _resume(self, ledger: SqliteLedger, row: RunRow) -> str:
        if run_state(ledger, row, self._project) != RUNNING:
            raise Refused(f"run {row.id} is not at work; take it up in a terminal: ralph run --resume {row.id}")
        return unpause_run(ledger, row)[2]

    def _cancel(self, ledger: SqliteLedger, row: RunRow) -> str:
        if run_state(ledger, row, self._project) == ENDED:
            raise Refused(
                f"run {row.id} has ended already: {phrases.describe_outcome(recorded_outcome(ledger, row.id))[-1]}"
            )
        family = Cancellation(ledger, self._project, row)
        family.close_lost()
        return f"run {row.id} is over" if ledger.run_end(row.id) else f"run {row.id} is asked to end"

    def _with(self, run: str, verb: str, work: Callable[[SqliteLedger, RunRow], str]) -> str:
        ledger = self._project.ledger(read_only=False)
        try:
            row = ledger.row(run)
            if row is None:
                raise Refused("there is no such run")
            refuse_unrelated_run_in_turn(verb, ledger, row)
            return work(ledger, row)
        finally:
            ledger.close()


# What an onlooker may ask of a run, whatever door they look through.


class RunControl(Protocol):
    """Steers runs. Each method returns one sentence for people, or raises Refused with why not and the way on."""

    def pause(self, run: str) -> str:
        """Let it rest before its next turn."""

    def resume(self, run: str) -> str:
        """Let one that rests go on."""

    def cancel(self, run: str) -> str:
        """End it in good order, and the runs that it began; does not wait until they have."""

    def say(self, run: str, text: str) -> str:
        """Leave words for its next prompt."""
