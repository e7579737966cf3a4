"""Agent events, as adapters translate them from the agent's stream."""

from __future__ import annotations

from ralphproof.base.value import value


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
