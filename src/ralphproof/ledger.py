"""The durable record that everything can be rebuilt from, those who look on, and a run's files."""

from __future__ import annotations

from ralphproof.event import Event
from ralphproof.record import Record
from ralphproof.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ralphproof.value import Json


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

    def turn_file(self, name: str) -> str:
        """Where a turn's lock and result lie, out of the agent's reach."""

    def outcome(self, result: dict[str, Json]) -> None:
        """Write how the run ended."""
