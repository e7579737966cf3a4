"""The durable record that everything can be rebuilt from, those who look on, and a run's files."""

from __future__ import annotations

from ralphproof.event import Event
from ralphproof.record import (
    CheckBegan,
    CheckEnded,
    CheckStopped,
    Escalated,
    Grounded,
    HookBegan,
    HookEnded,
    Judged,
    Noticed,
    Paused,
    Picked,
    Record,
    Regained,
    Resumed,
    RunBegan,
    RunEnded,
    ScmBegan,
    ScmEnded,
    Told,
    Warned,
)
from ralphproof.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ralphproof.value import Json


def key_of(record: Record) -> tuple[int, int, str]:
    """(iteration, turn, step): what may happen once in a run. A second record of one key is a fault of ours."""
    step = type(record).__name__
    match record:
        case RunBegan() | Grounded():
            return 0, 0, step
        case Resumed(session) | RunEnded(session=session):
            return 0, 0, _again(step, session)
        case Regained(_, number) | Paused(_, number) | Told(_, number):
            return 0, 0, f"{step} {number}"
        case Warned(_, what):
            return 0, 0, f"{step} {what}"
        case CheckBegan(iteration, turn, check, round):
            return iteration, turn, f"{_round(step, round)} {check}"
        case CheckEnded(iteration, turn, finding, round):
            return iteration, turn, f"{_round(step, round)} {finding.check}"
        case CheckStopped(iteration, turn, check, session=session):
            return iteration, turn, f"{step} {check} {session}"
        case Noticed(iteration, number) | HookBegan(iteration, number=number) | HookEnded(iteration, number=number):
            return iteration, 0, f"{step} {number}"
        case Judged(iteration, turn, session=session):
            return iteration, turn, _again(step, session)
        case Picked(iteration, round=round):
            return iteration, 0, _round(step, round)
        case Escalated() | ScmBegan() | ScmEnded():
            return record.iteration, 0, step
        case _:
            return record.iteration, record.turn, step


def _round(step: str, round: int) -> str:
    return step if round == 1 else f"{step}#{round}"


def _again(step: str, session: int) -> str:
    return step if session == 1 else f"{step} {session}"


class Ledger(Protocol):
    """Keeps records. What `append` was given is on disk when it returns, all of it or nothing."""

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        """Add records in one transaction."""

    def records(self, run: str) -> tuple[Record, ...]:
        """All records of a run, oldest first."""

    def wish(self, run: str) -> str:
        """What somebody wants of this run: "", "pause" or "cancel"."""

    def words(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        """What the user said to this run after the words of this number, each with its own."""


class Observer(Protocol):
    """Looks on. Whatever it does, the loop goes on."""

    def saw(self, record: Record) -> None:
        """A record that is now durable."""

    def heard(self, events: list[Event]) -> None:
        """What the agent said and did, in order, as it happens."""

    def tick(self) -> None:
        """Time passes while an agent or a check runs."""


class Folder(Protocol):
    """The run's files for people: prompts, logs, the outcome."""

    run: str

    def prompt(self, name: str, text: str) -> str:
        """Write a prompt; return its path."""

    def prompted(self, name: str) -> str | None:
        """The prompt that was written under this name, whatever became of its file since."""

    def base(self, name: str) -> str:
        """The path of a log without its ending, out of the agent's reach."""

    def publish(self, name: str) -> None:
        """Copy the logs of this name to where people look."""

    def shown(self, name: str) -> str:
        """The path of such a copy without its ending."""

    def patch(self, name: str, data: bytes) -> str:
        """Keep a patch under this name; where people find it, from the project's root."""

    def turn_file(self, name: str) -> str:
        """Where a turn's lock and result lie, out of the agent's reach."""

    def ending(self) -> None:
        """The end of the run will be on record next: whatever dies from now on, its outcome gets written."""

    def outcome(self, result: dict[str, Json]) -> None:
        """Write how the run ended, the last thing that is published of it."""
