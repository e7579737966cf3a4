"""Events of an agent: what it said and did, as adapters translate its stream."""

from __future__ import annotations

from ralphproof.base.value import value


@value
class Usage:
    """Tokens of a turn so far; input excludes what was read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.input + other.input, self.output + other.output,
            self.cache_read + other.cache_read, self.cache_write + other.cache_write,
        )  # fmt: skip

    def less(self, other: Usage) -> Usage:
        """What of this is not in `other`."""
        return Usage(
            self.input - other.input, self.output - other.output,
            self.cache_read - other.cache_read, self.cache_write - other.cache_write,
        )  # fmt: skip


@value
class Started:
    """The agent came up; `version` is that of its program, where it says so."""

    session: str | None = None
    model: str | None = None
    version: str | None = None


@value
class Said:
    """Text for the user."""

    text: str


@value
class ToolStarted:
    """A tool call began; `id` ties it to its end. `summary` is the one argument that tells most, in one line."""

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
    """A tool call was not permitted, and nobody could be asked."""

    tool: str
    why: str = ""


@value
class Asked:
    """The agent put a question to somebody, and nobody is there."""

    question: str


@value
class Todo:
    """One line of the agent's own list; `state` is pending, active or done."""

    text: str
    state: str


@value
class TodosChanged:
    """The agent's own to-do list as it now stands."""

    items: tuple[Todo, ...]


@value
class Spent:
    """What the turn has cost so far, in all. None is unknown, never zero.

    A figure that is `at_least` so much is ours, from what has come by; the agent's own account may still follow. A
    `notional` figure is what the tokens would cost: a subscription pays for them.
    """

    micro_usd: int | None
    usage: Usage | None = None
    at_least: bool = False
    notional: bool = False

    def plus(self, other: Spent) -> Spent:
        """Both together; what is unknown of one is unknown of the sum."""
        usage = (self.usage or Usage()).plus(other.usage or Usage())
        if self.micro_usd is None or other.micro_usd is None:
            return Spent(None, usage)
        return Spent(self.micro_usd + other.micro_usd, usage)


@value
class Limited:
    """The model's service refused for now; `resets_at` is epoch seconds where it said so."""

    message: str
    resets_at: float | None = None


@value
class Progress:
    """The agent lives, and says what it is at: a retry, a wait, a warning."""

    text: str


# Whose fault an agent's own error is, where the agent says so in a form that is more than prose.
THE_SERVICE, THE_CONFIGURATION = "service", "config"


@value
class Ended:
    """The agent's own last word. `ok` is its claim of having worked, not of being done.

    `text` is its final message, None where that is the last thing that it said. `blame` is THE_SERVICE,
    THE_CONFIGURATION, or nothing: then its own work failed. `window` is how many tokens its context holds, where it
    says so.
    """

    ok: bool
    text: str | None = None
    error: str | None = None
    blame: str = ""
    window: int | None = None


@value
class Unparsed:
    """Bytes that we did not understand, bounded; the log has them whole."""

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
