"""An agent takes a prompt and yields events; a Turn is the fold of one run of it."""

from __future__ import annotations

from ralphproof.event import Ended, Event, Limited, Said, Spent, Started, ToolStarted, Usage
from ralphproof.sandbox import Exit, Sandbox
from ralphproof.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_CHARS = 256 * 1024  # kept of what the agent said, half from its beginning and half from its end


@value
class Brief:
    """What an agent is handed for one turn. `base` is the path of its files without their endings."""

    prompt: str
    prompt_file: str
    cwd: str
    env: tuple[tuple[str, str], ...]
    base: str
    turn_file: str
    mark: str
    timeout_s: float
    idle_s: float | None = None
    stream: bool = True  # False: the reply is wanted as text, without a stream of events


@value
class Turn:
    """What came of one run of an agent."""

    exit: Exit
    text: str = ""
    error: str | None = None
    usage: Usage | None = None
    micro_usd: int | None = None
    limited: Limited | None = None
    session: str | None = None
    model: str | None = None
    tools: int = 0

    @property
    def errored(self) -> bool:
        """It ended badly, or said so itself. A claim made in such a turn does not count."""
        return self.error is not None or not self.exit.clean

    @property
    def empty(self) -> bool:
        """It ended well and said nothing."""
        return not self.errored and not self.text.strip() and self.limited is None


class TurnWatch(Protocol):
    """Looks on while an agent works."""

    def event(self, event: Event) -> None:
        """One more thing that the agent said or did."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Agent(Protocol):
    """Takes one turn at a time, each with a fresh context."""

    name: str
    reports_cost: bool

    def argv(self, brief: Brief) -> tuple[str, ...]:
        """The argument list that `take_turn` would run, for showing."""

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Run to the end; an agent that fails is a Turn that says so."""


def fold(events: Iterable[Event], exit: Exit) -> Turn:
    """The turn that these events and this end make. The last figure of cost, the last result and the last limit win."""
    said: list[str] = []
    facts: dict[str, object] = {}
    tools = 0
    for event in events:
        match event:
            case Said(text):
                said.append(text)
            case Started(session, model):
                facts |= {"session": session, "model": model}
            case ToolStarted():
                tools += 1
            case Spent(micro_usd, usage):
                facts |= {"micro_usd": micro_usd, "usage": usage}
            case Limited():
                facts["limited"] = event
            case Ended(ok, text, error):
                said = [text] if text else said[-1:]
                facts["error"] = None if ok else (error or "the agent reported an error")
            case _:
                pass
    return Turn(exit, text=bounded("".join(said)), tools=tools, **facts)  # type: ignore[arg-type]


def bounded(text: str, chars: int = TEXT_CHARS) -> str:
    """`text`, or its beginning and end where it is longer than `chars`."""
    if len(text) <= chars:
        return text
    return text[: chars // 2] + "\n... [truncated]\n" + text[-chars // 2 :]
