"""An agent takes a prompt and yields events; a Turn is the fold of one run of it."""

from __future__ import annotations

from ralphproof.event import (
    Asked,
    Denied,
    Ended,
    Event,
    Limited,
    Said,
    Spent,
    Started,
    ToolEnded,
    ToolStarted,
    Unparsed,
    Usage,
)
from ralphproof.sandbox import Exit, Sandbox
from ralphproof.value import TYPE_CHECKING, Protocol, replace, value

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_CHARS = 256 * 1024  # kept of what the agent said, half from its beginning and half from its end
DENIALS = 20  # named in a turn; there may be thousands
DENIAL_CHARS = 500
NAME_CHARS = 200


@value
class Brief:
    """What an agent is handed for one turn. `base` is the path of its files without their endings.

    `session` is one of its own that it should go on with, and `billed` what that one has cost until now. Where there
    is a `schema`, an answer in this JSON Schema is all that is wanted: no tool, no file, no session that stays, and no
    more than `most_micro_usd` spent. `hooks` are commands to call at events of its own, in this turn alone, and
    `may_run` commands that it may run although it is guarded; a pattern ends with `:*`.
    """

    prompt: str
    prompt_file: str
    cwd: str
    env: tuple[tuple[str, str], ...]
    base: str
    turn_file: str
    mark: str
    timeout_s: float
    idle_s: float | None = None
    stream: bool = True  # False: only the reply is wanted, nobody looks on
    session: str | None = None
    billed: Spent | None = None
    taken_up: bool = False  # it may have been begun by another process, with flags of then
    schema: str = ""
    most_micro_usd: int | None = None
    hooks: tuple[tuple[str, str], ...] = ()
    may_run: tuple[str, ...] = ()


@value
class Turn:
    """What came of one run of an agent.

    Cost and usage, `at_least` and `notional` are as in `Spent`, `blame` as in `Ended`. `errors` counts tools that
    failed, `unparsed` lines that were not understood. One that was not `taken` asked nobody: a file had claimed before.
    `window` is how many tokens its context holds, where it said so.
    """

    exit: Exit
    text: str = ""
    error: str | None = None
    usage: Usage | None = None
    micro_usd: int | None = None
    limited: Limited | None = None
    session: str | None = None
    model: str | None = None
    tools: int = 0
    blame: str = ""
    at_least: bool = False
    notional: bool = False
    errors: int = 0
    denied: tuple[str, ...] = ()
    asked: str = ""
    version: str | None = None
    unparsed: int = 0
    taken: bool = True
    window: int | None = None

    @property
    def errored(self) -> bool:
        """It ended badly, or said so itself. A claim made in such a turn does not count."""
        return self.error is not None or not self.exit.clean

    @property
    def empty(self) -> bool:
        """It ended well and said nothing."""
        return not self.errored and not self.text.strip() and self.limited is None

    @property
    def spent(self) -> Spent:
        """What it cost."""
        return Spent(self.micro_usd, self.usage, self.at_least, self.notional)


class TurnWatch(Protocol):
    """Looks on while an agent works."""

    def events(self, events: list[Event]) -> None:
        """More of what the agent said and did, in order, as it came."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Agent(Protocol):
    """Takes one turn at a time, each with a fresh context."""

    name: str

    @property
    def reports_cost(self) -> bool:
        """Whether a limit on cost can be held."""

    def argv(self, brief: Brief) -> tuple[str, ...]:
        """The argument list that `take_turn` would run, for showing."""

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Run to the end; an agent that fails is a Turn that says so."""


class Fold:
    """A turn in the making, in bounded memory. The last figure of cost, the last result and the last limit win.

    `joint` stands between what was said by an agent that was ended before it had a result: each is a message of its
    own, unless the agent says pieces of one.
    """

    def __init__(self, joint: str = "\n\n") -> None:
        self._joint = joint
        self._turn = Turn(Exit(None))
        self._said: list[str] = []
        self._chars = 0
        self._final: str | None = None
        self._tools = self._errors = self._unparsed = 0

    def add(self, events: Iterable[Event]) -> None:
        """More of what the agent said and did."""
        for event in events:
            self._add(event)

    def _add(self, event: Event) -> None:
        if isinstance(event, Said):  # a stream may hold a million of these: plain questions, no patterns
            self._say(event.text)
        elif isinstance(event, ToolStarted):
            self._tools += 1
            if self._turn.limited is not None:  # it got through after all
                self._turn = replace(self._turn, limited=None)
        elif isinstance(event, ToolEnded):
            self._errors += not event.ok
        elif isinstance(event, Unparsed):
            self._unparsed += 1
        else:
            self._turn = _with(self._turn, event)
            if isinstance(event, Ended):
                self._final = "".join(self._said[-1:]) if event.text is None else event.text

    def turn(self, exit: Exit) -> Turn:
        """The turn that all this and this end make."""
        text = self._joint.join(self._said) if self._final is None else self._final
        return replace(
            self._turn, exit=exit, text=bounded(text), tools=self._tools, errors=self._errors,
            unparsed=self._unparsed,
        )  # fmt: skip

    def _say(self, text: str) -> None:
        if not text:
            return
        self._said.append(text)
        self._chars += len(text)
        if self._chars > 4 * TEXT_CHARS:  # still more than is kept: the cut itself is made and marked once, at the end
            whole = self._joint.join(self._said)
            self._said = [whole[:TEXT_CHARS], whole[-TEXT_CHARS:]]
            self._chars = 2 * TEXT_CHARS


def _with(turn: Turn, event: Event) -> Turn:
    match event:
        case Started(session, model, version):
            return replace(turn, session=_sound(session), model=_sound(model), version=_sound(version))
        case Spent(micro_usd, usage, at_least, notional):
            return replace(turn, micro_usd=micro_usd, usage=usage, at_least=at_least, notional=notional)
        case Limited():
            return replace(turn, limited=event)
        case Denied(tool, why) if len(turn.denied) < DENIALS:
            return replace(turn, denied=(*turn.denied, bounded(f"{tool}: {why}" if why else tool, DENIAL_CHARS)))
        case Asked(question):
            return replace(turn, asked=question)
        case Ended(ok, _, error, blame, window):
            wrong = None if ok else (error or "the agent reported an error")
            return replace(turn, error=wrong, blame=blame, window=window)
        case _:
            return turn


def _sound(name: str | None) -> str | None:
    """A name that an agent gives to something of its own; a session's may become an argument, and no flag."""
    if name is None or len(name) > NAME_CHARS or not name.isprintable() or name.startswith("-"):
        return None
    return name


def fold(events: Iterable[Event], exit: Exit) -> Turn:
    """The turn that these events and this end make."""
    made = Fold()
    made.add(events)
    return made.turn(exit)


def bounded(text: str, chars: int = TEXT_CHARS) -> str:
    """`text`, or its beginning and end where it is longer than `chars`."""
    if len(text) <= chars:
        return text
    return text[: chars // 2] + "\n... [truncated]\n" + text[-chars // 2 :]
