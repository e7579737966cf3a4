"""Run control from outside: pause, resume, cancel, and messages to a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from ralphproof.base.errors import Refused
from ralphproof.display import phrases
from ralphproof.engine.outcome import Outcome
from ralphproof.engine.records import RunEnded
from ralphproof.engine.state import build_state
from ralphproof.runs.open_project import refuse_unrelated_run_in_turn
from ralphproof.runs.recovery import close_cancelled_run, end_live_turn
from ralphproof.store.ledger import CANCEL, PAUSE, RESUME, RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, RUNNING, run_state
from ralphproof.views.run_status import refuse_finished_run, refuse_without_harness, resume_hint
from ralphproof.views.timeline import RecordTail

CANCEL_TIMEOUT_S = 20.0
CANCEL_POLL_S = 0.05


class Cancellation:
    """Cancels a run and its descendants that have not ended. `remarks` tell what was cleaned up for dead harnesses."""

    def __init__(self, ledger: SqliteLedger, project: Project, row: RunRow) -> None:
        """Requests the cancellation: of the run first, then of its descendants."""
        self._ledger, self._project, self.run = ledger, project, row.id
        self.had_ended = run_state(ledger, row, project) == ENDED
        self.requested: dict[str, RunRow] = {}
        self.remarks: list[str] = []
        self._request_all()

    def end(self, wait: bool) -> None:
        """Close the runs whose harness died; with `wait`, wait for the others for a limited time."""
        if self.had_ended:
            end_live_turn(self.run, self._project)  # its harness may have died and left it
        self._close_dead()
        deadline = time.monotonic() + CANCEL_TIMEOUT_S
        while wait and self.unfinished() and time.monotonic() < deadline:
            time.sleep(CANCEL_POLL_S)
            self._request_all()
            self._close_dead()

    def unfinished(self) -> list[RunRow]:
        """The requested runs whose end is not recorded."""
        return [row for run, row in self.requested.items() if self._ledger.run_end(run) is None]

    def _request_all(self) -> None:
        """Request the cancellation of every run that has not been requested yet, such as one that began meanwhile."""
        for row in (self._ledger.row(self.run), *self._ledger.descendants(self.run)):
            if row is not None and row.id not in self.requested and self._ledger.run_end(row.id) is None:
                self._ledger.request_control(row.id, CANCEL)
                self.requested[row.id] = row

    def _close_dead(self) -> None:
        """Close the runs whose harness died, the innermost first: a run ends after its descendants."""
        for requested in reversed(self.unfinished()):
            row = self._ledger.row(requested.id) or requested  # it may have been resumed
            if not row.process.alive and self._ledger.run_end(row.id) is None:  # it may have ended just before it died
                self.remarks += close_cancelled_run(self._ledger, self._project, row)


def recorded_outcome(ledger: SqliteLedger, run: str) -> Outcome:
    """The outcome of a run that has ended."""
    end = ledger.run_end(run)
    assert isinstance(end, RunEnded), "the run is over"
    return end.outcome


def request_pause(tail: RecordTail, ledger: SqliteLedger, project: Project) -> bool:
    """Request that a run pauses; whether that was requested already. Raises Refused where no harness could do it."""
    run = tail.row.id
    refuse_without_harness(project, tail.row, tail.state, tail.standing(project))
    if ledger.requested_control(run) == CANCEL:
        raise Refused(f"run {run} is asked to end; ralph status {run} says whether it has")
    already = ledger.requested_control(run) == PAUSE
    if not already:
        ledger.request_control(run, PAUSE)
    return already


def unpause_run(ledger: SqliteLedger, row: RunRow) -> tuple[bool, bool, str]:
    """Resume a paused run whose harness lives: whether a pause was requested, whether it had paused, and a message."""
    was_requested, was_paused = (
        ledger.requested_control(row.id) == PAUSE,
        build_state(ledger.records(row.id)).user.paused,
    )
    if not was_requested:
        return was_requested, was_paused, f"run {row.id} was not paused; it is at work, ralph attach {row.id} looks on"
    ledger.request_control(row.id, RESUME)
    return was_requested, was_paused, f"run {row.id} goes on" + ("" if was_paused else "; it had not rested yet")


MAX_MESSAGE_BYTES = 64 * 1024
MESSAGE_TOO_LONG = f"that is more than {MAX_MESSAGE_BYTES // 1024} KiB; put it into a file of the project, and name it"


def leave_message(ledger: SqliteLedger, row: RunRow, text: str, project: Project) -> tuple[int, str, str]:
    """Store a message for a run: its number, the state of the run, and a sentence about its delivery.

    Raises Refused where the run can never be resumed.
    """
    refuse_final_run(ledger, row)
    number = ledger.add_user_message(row.id, text)
    row = ledger.row(row.id) or row
    refuse_final_run(ledger, row)  # it may have ended meanwhile
    run_status = run_state(ledger, row, project)
    return number, run_status, _describe_delivery(row.id, run_status)


def refuse_final_run(ledger: SqliteLedger, row: RunRow) -> None:
    """Raise Refused where a run has ended and cannot be resumed: no prompt would carry the message."""
    if row.ended:
        refuse_finished_run(
            build_state(ledger.records(row.id)), row.id, "it has no next prompt that could carry your words"
        )


def parse_message(data: bytes) -> str:
    """The message in these bytes; raises Refused where it is empty, too long, or holds a NUL."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise Refused(MESSAGE_TOO_LONG)
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if not text:
        raise Refused("there is nothing to say; give a text, or - and standard input")
    if "\0" in text:
        raise Refused("the text holds a NUL byte, which no prompt may; take it out")
    return text


def _describe_delivery(run: str, run_status: str) -> str:
    if run_status == RUNNING:
        return f"run {run} reads it in its next prompt"
    if run_status == ENDED:
        return f"kept; run {run} reads it when it goes on: ralph run --resume {run}"
    return f"kept; run {run} lost its harness, and reads it when it is taken up; {resume_hint(run)}"


class RunControl:
    """Run control for the web page and the terminal board: the same requests under the same rules as the commands.

    Each method returns one sentence for people, or raises Refused with the reason and what to do instead. Any thread
    may call it.
    """

    def __init__(self, project: Project) -> None:
        self._project = project

    def pause(self, run: str) -> str:
        return self._with_run(run, "pause", self._pause)

    def resume(self, run: str) -> str:
        return self._with_run(run, "resume", self._resume)

    def cancel(self, run: str) -> str:
        return self._with_run(run, "cancel", self._cancel)

    def say(self, run: str, text: str) -> str:
        message = parse_message(text.encode("utf-8", "replace"))
        return self._with_run(run, "say", lambda ledger, row: leave_message(ledger, row, message, self._project)[2])

    def _pause(self, ledger: SqliteLedger, row: RunRow) -> str:
        tail = RecordTail(ledger, row)
        request_pause(tail, ledger, self._project)
        return f"run {row.id} " + ("rests" if tail.state.user.paused else "will rest before its next turn")

    def _resume(self, ledger: SqliteLedger, row: RunRow) -> str:
        if run_state(ledger, row, self._project) != RUNNING:
            raise Refused(f"run {row.id} is not at work; take it up in a terminal: ralph run --resume {row.id}")
        return unpause_run(ledger, row)[2]

    def _cancel(self, ledger: SqliteLedger, row: RunRow) -> str:
        if run_state(ledger, row, self._project) == ENDED:
            raise Refused(
                f"run {row.id} has ended already: {phrases.describe_outcome(recorded_outcome(ledger, row.id))[-1]}"
            )
        Cancellation(ledger, self._project, row).end(wait=False)
        return f"run {row.id} is over" if ledger.run_end(row.id) else f"run {row.id} is asked to end"

    def _with_run(self, run: str, verb: str, work: Callable[[SqliteLedger, RunRow], str]) -> str:
        ledger = self._project.ledger(read_only=False)
        try:
            row = ledger.row(run)
            if row is None:
                raise Refused("there is no such run")
            refuse_unrelated_run_in_turn(verb, ledger, row)
            return work(ledger, row)
        finally:
            ledger.close()
