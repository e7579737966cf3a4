"""Agents: their events, the turns built from them, faults, and retries after outages of a service."""

from __future__ import annotations

from zlib import crc32

from ralphproof.base.text import MAX_TEXT_CHARS, truncate
from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value
from ralphproof.engine.sandbox import Exit, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable


@value
class Usage:
    """Tokens of a turn so far; input excludes tokens read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: Usage) -> Usage:
        """The sum of both."""
        return Usage(
            self.input + other.input, self.output + other.output,
            self.cache_read + other.cache_read, self.cache_write + other.cache_write,
        )  # fmt: skip

    def less(self, other: Usage) -> Usage:
        """The part that is not in `other`."""
        return Usage(
            self.input - other.input, self.output - other.output,
            self.cache_read - other.cache_read, self.cache_write - other.cache_write,
        )  # fmt: skip


@value
class Started:
    """The agent started; `version` is that of its program, where reported."""

    session: str | None = None
    model: str | None = None
    version: str | None = None


@value
class Said:
    """Text for the user."""

    text: str


@value
class ToolStarted:
    """A tool call began; `id` links it to its end. `summary` is the most informative argument, in one line."""

    id: str
    name: str
    summary: str = ""


@value
class ToolEnded:
    """A tool call ended. `output` is bounded; `lines` and `chars` count the whole of it."""

    id: str
    ok: bool
    output: str = ""
    lines: int = 0
    chars: int = 0


@value
class Denied:
    """A tool call was not permitted, and no user could be asked."""

    tool: str
    why: str = ""


@value
class Asked:
    """The agent asked a question, which nobody can answer during a run."""

    question: str


@value
class Todo:
    """One entry of the agent's to-do list; `state` is pending, active or done."""

    text: str
    state: str


@value
class TodosChanged:
    """The agent's present to-do list."""

    items: tuple[Todo, ...]


@value
class Spent:
    """Total cost of the turn so far. None is unknown, never zero.

    An `at_least` figure is computed here from the stream so far; the agent's own figure may follow. A `notional` figure
    is what the tokens would cost, where a subscription covers them.
    """

    micro_usd: int | None
    usage: Usage | None = None
    at_least: bool = False
    notional: bool = False

    def plus(self, other: Spent) -> Spent:
        """The sum of both; what is unknown in one is unknown in the sum."""
        usage = (self.usage or Usage()).plus(other.usage or Usage())
        if self.micro_usd is None or other.micro_usd is None:
            return Spent(None, usage)
        return Spent(self.micro_usd + other.micro_usd, usage)


@value
class Limited:
    """The model's service refused for now; `resets_at` is epoch seconds where stated."""

    message: str
    resets_at: float | None = None


@value
class Progress:
    """The agent is alive and reports what it does: a retry, a wait, a warning."""

    text: str


# The cause of an agent's error, where the agent states it in a structured form.
THE_SERVICE, THE_CONFIGURATION = "service", "config"


@value
class Ended:
    """The agent's final event. `ok` means that it ran without an error, not that the task is done.

    `text` is its final message, None where that is the last text it said. `blame` is THE_SERVICE, THE_CONFIGURATION, or
    empty: then its own work failed. `window` is the size of its context in tokens, where reported.
    """

    ok: bool
    text: str | None = None
    error: str | None = None
    blame: str = ""
    window: int | None = None


@value
class Unparsed:
    """Bytes that could not be parsed, truncated; the log has them whole."""

    raw: str
    size: int


Event = (
    Started
    | Said
    | ToolStarted
    | ToolEnded
    | Denied
    | Asked
    | TodosChanged
    | Spent
    | Limited
    | Progress
    | Ended
    | Unparsed
)


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
            self._turn, exit=exit, text=truncate(text), tools=self._tools, errors=self._errors,
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
            return replace(turn, denied=(*turn.denied, truncate(f"{tool}: {why}" if why else tool, MAX_DENIAL_CHARS)))
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


MAX_FAILURES = 8  # consecutive failures after which a service is given up
BACK_OFF_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
BACK_OFF_SPREAD = 0.25  # random part of a back-off, either way: loops that failed together do not retry together
RESET_MARGIN_S = 1.0  # after a stated reset: clocks differ
MAX_WAIT_S = 24 * 3600.0  # a later reset is not waited for


@value
class Outage:
    """Consecutive failures of a service, until when (epoch seconds) it is not called, and for how long at most."""

    failures: int = 0
    until: float = 0.0
    wait_s: float = 0.0


@value
class AgentRotation:
    """The agents by index: the models of a ladder or the agents that alternate, then the fallbacks."""

    rungs: int = 1
    rotating: int = 0
    fallbacks: int = 0

    def order(self, iteration: int, rung: int, stage_agent: int | None = None) -> tuple[int, ...]:
        """The indexes to try for an iteration, the preferred one first: that of its stage, if it has one."""
        usual = max(self.rungs, self.rotating)
        if stage_agent is not None:
            return (stage_agent, *range(usual, usual + self.fallbacks))
        turns = tuple((iteration - 1 + step) % self.rotating for step in range(self.rotating))
        return (*(turns or (min(rung, self.rungs - 1),)), *range(usual, usual + self.fallbacks))


@value
class ServiceOutages:
    """The outages of all agents' services, by index."""

    by_agent: tuple[Outage, ...] = ()

    def outage_at(self, index: int) -> Outage:
        return self.by_agent[index] if index < len(self.by_agent) else Outage()

    def with_failure(self, index: int, until: float, wait_s: float = 0.0) -> ServiceOutages:
        """The outages after one more failure."""
        return self._with(index, Outage(self.outage_at(index).failures + 1, until, wait_s))

    def with_answer(self, index: int) -> ServiceOutages:
        """The outages after an answer of any kind."""
        return self._with(index, Outage()) if self.outage_at(index) != Outage() else self

    def first_ready(self, indexes: tuple[int, ...], epoch_s: float) -> int | None:
        """The first of these indexes that may be called now."""
        return next((index for index in self._not_given_up(indexes) if self.outage_at(index).until <= epoch_s), None)

    def ready_at(self, indexes: tuple[int, ...]) -> float | None:
        """When the first of them may be called; None where all are given up."""
        return min((self.outage_at(index).until for index in self._not_given_up(indexes)), default=None)

    def _not_given_up(self, indexes: tuple[int, ...]) -> list[int]:
        return [index for index in indexes if self.outage_at(index).failures < MAX_FAILURES]

    def _with(self, index: int, outage: Outage) -> ServiceOutages:
        grown = self.by_agent + (Outage(),) * (index + 1 - len(self.by_agent))
        return ServiceOutages((*grown[:index], outage, *grown[index + 1 :]))


class RetryClock:
    """The time for waits on a service: the wall clock, but no wait lasts longer than intended.

    The wall clock may be set back during a wait, or before a run is resumed. The monotonic clock stops while the
    machine sleeps. So whichever reaches the end of the wait first counts.
    """

    def __init__(self) -> None:
        self._due: dict[float, float] = {}  # end of each wait by the monotonic clock, by its end in epoch seconds

    def now(self, services: ServiceOutages, epoch_s: float, monotonic_s: float) -> float:
        """Epoch seconds, or the end of a wait that has lasted long enough."""
        times = [epoch_s]
        for outage in services.by_agent:
            if outage.until > epoch_s:
                wait_s = outage.wait_s or outage.until - epoch_s
                if monotonic_s >= self._due.setdefault(outage.until, monotonic_s + wait_s):
                    times.append(outage.until)
        return max(times)


def next_retry_at(failures: int, resets_at: float | None, epoch_s: float, seed: str) -> float:
    """When to call again after this many consecutive failures: at the stated reset, else after a growing delay. A
    reset in the past is ignored. `seed` spreads the delays of different runs.
    """
    if resets_at is not None and resets_at > epoch_s:
        return resets_at + RESET_MARGIN_S
    back_off_s = BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1]
    chance = crc32(f"{seed} {failures}".encode("utf-8", "surrogatepass")) / 2**32
    return epoch_s + back_off_s * (1 - BACK_OFF_SPREAD + 2 * BACK_OFF_SPREAD * chance)
