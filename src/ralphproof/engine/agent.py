"""The agent protocol, turns built from agent events, and the classification of failed turns."""

from __future__ import annotations

from ralphproof.base.text import MAX_TEXT_CHARS, truncate_middle
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.events import (
    THE_CONFIGURATION,
    THE_SERVICE,
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
from ralphproof.engine.sandbox import Exit, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_DENIALS_KEPT = 20  # per turn; there may be thousands
MAX_DENIAL_CHARS = 500
MAX_NAME_CHARS = 200


@value
class TurnInput:
    """Input of one turn. `log_base` is the path of the turn's logs without their suffixes.

    `session` is an agent session to continue, and `session_spent` what that session has cost so far. With a `schema`,
    only an answer in this JSON Schema is wanted: no tools, no files, no persistent session, and at most `max_micro_usd`
    spent. `hooks` are commands that the agent calls at its own events, in this turn only. `allowed_commands` may be run
    by a guarded agent; a pattern ends with `:*`.
    """

    prompt: str
    prompt_file: str
    cwd: str
    env: tuple[tuple[str, str], ...]
    log_base: str
    turn_file: str
    call_id: str
    timeout_s: float
    idle_s: float | None = None
    stream: bool = True  # False: only the reply is needed, without live events
    session: str | None = None
    session_spent: Spent | None = None
    adopt: bool = False  # the turn may have been started by another process, with other flags
    schema: str = ""
    max_micro_usd: int | None = None
    hooks: tuple[tuple[str, str], ...] = ()
    allowed_commands: tuple[str, ...] = ()


@value
class Turn:
    """Result of one run of an agent.

    Cost and usage, `at_least` and `notional` are as in `Spent`, `blame` as in `Ended`. `errors` counts tools that
    failed, `unparsed` lines that were not understood. If not `taken`, no agent was called: a file already held a claim.
    `window` is the size of the agent's context in tokens, where the agent reported it.
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
        """It ended with an error, or reported one. A claim made in such a turn does not count."""
        return self.error is not None or not self.exit.clean

    @property
    def empty(self) -> bool:
        """It ended without an error and without a message."""
        return not self.errored and not self.text.strip() and self.limited is None

    @property
    def spent(self) -> Spent:
        """What it cost."""
        return Spent(self.micro_usd, self.usage, self.at_least, self.notional)


class TurnWatcher(Protocol):
    """Receives an agent's events while it runs."""

    def events(self, events: list[Event]) -> None:
        """Handle further events, in order, as they arrive."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Agent(Protocol):
    """Takes one turn at a time, each with a fresh context."""

    name: str

    @property
    def reports_cost(self) -> bool:
        """Whether a cost limit can be enforced."""

    def argv(self, turn_input: TurnInput) -> tuple[str, ...]:
        """The argument list that `take_turn` would run, for display."""

    def take_turn(self, turn_input: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Run the agent to its end; a failure of the agent is reported in the Turn."""


class TurnBuilder:
    """Builds a turn from events in bounded memory. The last cost, the last result and the last limit win.

    `separator` joins the texts of an agent that was ended before its result: each is a separate message, unless the
    agent streams parts of one message.
    """

    def __init__(self, separator: str = "\n\n") -> None:
        self._separator = separator
        self._turn = Turn(Exit(None))
        self._texts: list[str] = []
        self._chars = 0
        self._final_text: str | None = None
        self._tools = self._errors = self._unparsed = 0

    def add(self, events: Iterable[Event]) -> None:
        """Add further events."""
        for event in events:
            self._add(event)

    def _add(self, event: Event) -> None:
        if isinstance(event, Said):  # there may be a million of these: isinstance is faster than match
            self._add_text(event.text)
        elif isinstance(event, ToolStarted):
            self._tools += 1
            if self._turn.limited is not None:  # the service answered after all
                self._turn = replace(self._turn, limited=None)
        elif isinstance(event, ToolEnded):
            self._errors += not event.ok
        elif isinstance(event, Unparsed):
            self._unparsed += 1
        else:
            self._turn = _apply_event(self._turn, event)
            if isinstance(event, Ended):
                self._final_text = "".join(self._texts[-1:]) if event.text is None else event.text

    def turn(self, exit: Exit) -> Turn:
        """The turn that results from the events and this exit."""
        text = self._separator.join(self._texts) if self._final_text is None else self._final_text
        return replace(
            self._turn, exit=exit, text=truncate_middle(text), tools=self._tools, errors=self._errors,
            unparsed=self._unparsed,
        )  # fmt: skip

    def _add_text(self, text: str) -> None:
        if not text:
            return
        self._texts.append(text)
        self._chars += len(text)
        if self._chars > 4 * MAX_TEXT_CHARS:  # bounds memory only: `turn` truncates and marks the cut
            whole = self._separator.join(self._texts)
            self._texts = [whole[:MAX_TEXT_CHARS], whole[-MAX_TEXT_CHARS:]]
            self._chars = 2 * MAX_TEXT_CHARS


def _apply_event(turn: Turn, event: Event) -> Turn:
    match event:
        case Started(session, model, version):
            return replace(turn, session=_safe_name(session), model=_safe_name(model), version=_safe_name(version))
        case Spent(micro_usd, usage, at_least, notional):
            return replace(turn, micro_usd=micro_usd, usage=usage, at_least=at_least, notional=notional)
        case Limited():
            return replace(turn, limited=event)
        case Denied(tool, why) if len(turn.denied) < MAX_DENIALS_KEPT:
            return replace(
                turn, denied=(*turn.denied, truncate_middle(f"{tool}: {why}" if why else tool, MAX_DENIAL_CHARS))
            )
        case Asked(question):
            return replace(turn, asked=question)
        case Ended(ok, _, error, blame, window):
            message = None if ok else (error or "the agent reported an error")
            return replace(turn, error=message, blame=blame, window=window)
        case _:
            return turn


def _safe_name(name: str | None) -> str | None:
    """A name chosen by the agent; a session name may become an argument, so it must not look like a flag."""
    if name is None or len(name) > MAX_NAME_CHARS or not name.isprintable() or name.startswith("-"):
        return None
    return name


def build_turn(events: Iterable[Event], exit: Exit) -> Turn:
    """The turn that results from these events and this exit."""
    builder = TurnBuilder()
    builder.add(events)
    return builder.turn(exit)


# The class of a fault decides what follows: another iteration, a wait, or a stop with an explanation.


@value
class AgentFault:
    """The agent's own work failed: feedback goes into the next iteration."""

    message: str


@value
class ServiceFault:
    """The model's service is rate-limited or down: wait, then repeat the iteration. It uses no iteration budget."""

    message: str
    resets_at: float | None = None


@value
class ConfigFault:
    """The agent cannot start, or not with these settings: stop at once, exit 2."""

    message: str


@value
class SignalFault:
    """The harness ended the agent because a stop was requested."""

    message: str


@value
class HarnessFault:
    """The agent's keeper died, so how the agent ended is unknown. Its work is judged all the same."""

    message: str


Fault = AgentFault | ServiceFault | ConfigFault | SignalFault | HarnessFault


def classify_fault(turn: Turn) -> Fault | None:
    """The kind of fault that made this turn fail; None where it did not fail."""
    end = turn.exit
    if end.why == "unstartable":
        return ConfigFault(end.error)
    if end.why in ("stopped", "killed"):
        return SignalFault("the agent was ended on request")
    if end.why == "interrupted":
        return HarnessFault(describe_exit(turn) if end.error else "the agent's keeper died in mid-turn")
    if turn.blame == THE_CONFIGURATION:
        return ConfigFault(turn.error or describe_exit(turn))
    if turn.limited is not None and (turn.errored or not turn.text.strip()):  # else the agent recovered by itself
        return ServiceFault(turn.limited.message.rstrip(" ."), turn.limited.resets_at)  # used inside a sentence
    if turn.blame == THE_SERVICE:
        return ServiceFault(turn.error or describe_exit(turn))
    if turn.error is not None:
        return AgentFault(turn.error)
    return None if end.clean else AgentFault(describe_exit(turn))


def describe_exit(turn: Turn) -> str:
    """How the agent's process ended, in words."""
    end = turn.exit
    match end.why:
        case "timeout":
            return "the agent was ended: its time was up (agent.timeoutSeconds)"
        case "idle":
            return "the agent was ended: a long silence (agent.idleTimeoutSeconds)"
        case "stopped" | "killed":
            return "the agent was ended on request"
        case "interrupted":
            return f"the agent was lost: {end.error}" if end.error else "the agent's keeper died, and the agent with it"
        case _ if end.signal is not None:
            return f"the agent died by signal {end.signal}"
        case _:
            return f"the agent exited with code {end.code}"
