"""A recorded stream, played to an adapter as its program would have spoken it.

`tests/agents/recorded/<agent>-<version>/<case>.ndjson` is what a real program printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ralphproof.agents.adapter import AgentAdapter
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.engine.agent import Event, Fault, Spent, Turn, TurnInput, Usage, classify_fault
from ralphproof.engine.sandbox import CONTINUE, RESULT_SAID, Command, CommandWatcher, Exit

RECORDED = Path(__file__).parent / "recorded"
NOW_S = 1_794_780_000.0  # 2026-11-15 22:00 UTC: some time before the resets that the recordings name


def recorded(agent: str) -> dict[str, Path]:
    """All recordings of an agent, by case; the folder's name begins with the agent's."""
    return {path.stem: path for path in sorted(RECORDED.glob(f"{agent}-*/*.ndjson"))}


@dataclass
class Played:
    """What came of it."""

    turn: Turn
    events: list[Event]
    command: Command
    said_result: bool  # the keeper was told that the program said its result

    @property
    def fault(self) -> Fault | None:
        return classify_fault(self.turn)

    @property
    def ok(self) -> bool:
        """A success: by its exit, its own word, and a message."""
        return self.fault is None and not self.turn.empty


@dataclass
class Recording:
    """A sandbox in which the program is a recording: it prints these bytes, in chunks, and ends so."""

    out: bytes
    end: Exit = field(default_factory=lambda: Exit(0))
    err: str = ""
    chunk: int = 1 << 16
    name: str = "direct"
    strength: str = "none"
    commands: list[Command] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        self.commands.append(command)
        if command.err is not None:
            Path(command.err).write_text(self.err, encoding="utf-8")
        for at in range(0, len(self.out), self.chunk):
            watch.output(self.out[at : at + self.chunk])
            self.wanted.append(watch.tick())
        return self.end


class Looker:
    """Looks on and keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def events(self, events: list[Event]) -> None:
        self.seen += events

    def tick(self) -> int:
        return CONTINUE


def brief_in(folder: Path, **more: object) -> TurnInput:
    """A brief whose files are in `folder`."""
    prompt = folder / "prompt.txt"
    prompt.write_text("make it so", encoding="utf-8")
    fields: dict[str, object] = {
        "prompt": "make it so", "prompt_file": str(prompt), "cwd": str(folder), "env": (("PATH", "/usr/bin:/bin"),),
        "log_base": str(folder / "agent_001"), "turn_file": str(folder / "agent_001.turn"), "call_id": "test/1",
        "timeout_s": 60.0,
    }  # fmt: skip
    return TurnInput(**{**fields, **more})  # type: ignore[arg-type]


def play(
    dialect: AgentAdapter, recording: Recording, folder: Path, *,
    cost: Callable[[str | None, Usage], int | None] = lambda *_: None,
    billed: Spent | None = None, session: str | None = None, model: str | None = None,
) -> Played:  # fmt: skip
    """Take a turn with this recording for a program."""
    looker = Looker()
    speaker = CliAgent(dialect, "/bin/program", model=model, cost=cost, now=lambda: NOW_S)
    turn = speaker.take_turn(brief_in(folder, session=session, session_spent=billed), recording, looker)
    return Played(turn, looker.seen, recording.commands[0], RESULT_SAID in recording.wanted)


def cuts(out: bytes, exit: Exit, err: str = "") -> Iterator[Recording]:
    """The same stream in chunks of many sizes: nothing may depend on where it is cut."""
    for chunk in (1, 7, 64, 4096, 1 << 20):
        yield Recording(out, exit, err, chunk)
