"""What is particular about one agent's program: how it is called, and how its output is read.

One small file an agent. `speaker` does everything that they have in common.
"""

from __future__ import annotations

from ralphproof.agent import Brief
from ralphproof.event import Event, Spent, ToolEnded, Usage
from ralphproof.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.sandbox import Exit

# How the cost of a turn becomes known.
REPORTED, COMPUTED, UNKNOWN = "reported", "computed from tokens", "unknown"

MICRO = 1_000_000
MOST_MICRO_USD = 10**11  # a turn that cost 100,000 dollars did not happen
MOST_TOKENS = 10**12
OUTPUT_CHARS = 64 * 1024  # of one tool's output, handed on
LINE_CHARS = 300  # of a summary, a reason, a warning
FURTHEST_S = 31 * 86400  # no limit lasts longer


@value
class Call:
    """One turn as an argument list needs it. `flags` are the user's own; `guarded` keeps the agent's own guard on."""

    brief: Brief
    flags: tuple[str, ...]
    model: str | None
    guarded: bool


@value
class Hearing:
    """What a reader works with: where events go, what tokens cost, what its session had cost before, what time it is.

    `model` is the one that it was started with, where that is known. What is given to `pause` is called whenever
    everything that has come was read.
    """

    tell: Callable[[Event], None]
    cost: Callable[[str | None, Usage], int | None]
    now: Callable[[], float]
    billed: Spent = Spent(0, Usage())
    model: str | None = None
    pause: Callable[[Callable[[], None]], None] = lambda _: None


class Reader(Protocol):
    """Understands the output of one turn."""

    def hear(self, line: bytes) -> None:
        """Tell what a line says; raises ValueError or RecursionError where it is none of this dialect."""

    def close(self, end: Exit) -> None:
        """Tell what is known only now. A turn without an `Ended` event until then has failed."""


class Dialect(Protocol):
    """One agent's program. The prompt is on its standard input."""

    name: str
    cost: str  # REPORTED, COMPUTED or UNKNOWN; with the last one, `counts_tokens = True` says that it tells its tokens
    guard: str  # the name of its own mode that asks nothing and still limits what it does; empty where it has none
    resumes: bool  # can go on with a session; its reader knows whether it then accounts for the whole of it
    login: str  # how to log in, in one clause
    credentials: tuple[str, ...]  # variables and files (with a slash; ~ is the home folder) that hold a login
    updates_off: Mapping[str, str]  # variables that keep it from updating itself in the middle of a night

    def arguments(self, call: Call) -> tuple[str, ...]:
        """Everything after the program's name."""

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """The model that it will use, as far as settings, flags and its own files tell before it runs."""

    def environment(self, call: Call) -> Mapping[str, str]:
        """Variables that this turn needs beside the user's."""

    def reader(self, hearing: Hearing) -> Reader:
        """For one turn."""


def keys_in(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The variables among what holds a login."""
    return tuple(name for name in credentials if "/" not in name)


def files_in(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the files among what holds a login."""
    return tuple(name.rpartition("/")[2] for name in credentials if "/" in name)


def given(flags: tuple[str, ...], *names: str) -> bool:
    """Whether the user's own flags hold one of these options, as `--name value` or `--name=value`."""
    return any(flag.partition("=")[0] in names for flag in flags)


def option_of(flags: tuple[str, ...], *names: str) -> str | None:
    """The value that the user's own flags give to one of these options; the last one counts."""
    found = None
    for place, flag in enumerate(flags):
        name, equals, text = flag.partition("=")
        if name in names:
            found = text if equals else next(iter(flags[place + 1 :]), None)
    return found


def without(flags: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """The user's own flags less these options and their values."""
    kept: list[str] = []
    words = iter(flags)
    for flag in words:
        name, equals, _ = flag.partition("=")
        if name not in names:
            kept.append(flag)
        elif not equals:
            next(words, None)
    return tuple(kept)


def micro_usd(dollars: object) -> int | None:
    """A figure of cost that an agent reports, in micro-dollars; None for what can be none."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars < MOST_MICRO_USD / MICRO:  # refuses NaN too
        return None
    return round(dollars * MICRO)


def tokens(count: object) -> int:
    """A count of tokens that an agent reports; nonsense counts nothing."""
    if type(count) is int and 0 <= count < MOST_TOKENS:  # the usual case, a thousand times a second
        return count
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < MOST_TOKENS:
        return 0
    return int(count)


def reset_at(epoch_s: object, now_s: float) -> float | None:
    """When a limit ends, as an agent reports it; None for what can be no such time."""
    if isinstance(epoch_s, bool) or not isinstance(epoch_s, int | float) or not 0 < epoch_s < now_s + FURTHEST_S:
        return None
    return float(epoch_s)


def one_line(text: object, chars: int = LINE_CHARS) -> str:
    """A text, or anything, for one line of a display."""
    if isinstance(text, str) and len(text) <= chars and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(str(text)[: chars * 4].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def ended_tool(call: str, ok: bool, output: str) -> ToolEnded:
    """The end of a tool call, its output bounded and its size told."""
    lines = output.count("\n") + (not output.endswith("\n")) if output else 0
    return ToolEnded(call, ok, output[:OUTPUT_CHARS], lines, len(output))


# The argument of a tool that tells most about a call, in the order in which they are looked for.
TELLING = (
    "command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path", "pattern", "query", "url",
    "description", "subject", "prompt",
)  # fmt: skip


def summary(arguments: object) -> str:
    """The arguments of a tool call in one line."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else one_line(arguments)
    for name in TELLING:
        if telling := arguments.get(name):
            break
    else:
        telling = next((item for item in arguments.values() if isinstance(item, str)), "")
    return one_line(" ".join(map(str, telling)) if isinstance(telling, list) else telling)
