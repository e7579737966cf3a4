"""What an agent said or did, in our words. Adapters translate their CLI's stream into these."""

from __future__ import annotations

from ralphproof.value import value


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


@value
class Started:
    """The agent came up."""

    session: str | None = None
    model: str | None = None


@value
class Said:
    """Text for the user."""

    text: str


@value
class ToolStarted:
    """A tool call began; `id` ties it to its end."""

    id: str
    name: str
    summary: str = ""


@value
class ToolEnded:
    """A tool call ended."""

    id: str
    ok: bool
    output: str = ""


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
    """What the turn has cost so far, in all. None is unknown, never zero."""

    micro_usd: int | None
    usage: Usage | None = None


@value
class Limited:
    """The model's service refused for now; `resets_at` is epoch seconds where it said so."""

    message: str
    resets_at: float | None = None


@value
class Ended:
    """The agent's own last word. `ok` is its claim of having worked, not of being done."""

    ok: bool
    text: str = ""
    error: str | None = None


@value
class Unparsed:
    """Bytes that we did not understand, bounded; the log has them whole."""

    raw: str
    size: int


Event = Started | Said | ToolStarted | ToolEnded | TodosChanged | Spent | Limited | Ended | Unparsed
