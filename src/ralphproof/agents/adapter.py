"""The adapter protocol of agent programs, with the options, hooks and questions that adapters share."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, value
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.events import Event, Spent, ToolEnded, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ralphproof.engine.sandbox import Exit


# What is particular about one agent's program: how it is called, and how its output is read.
#
# One small file an agent. `speaker` does everything that they have in common.


# How the cost of a turn becomes known.
COST_REPORTED, COST_COMPUTED, COST_UNKNOWN = "reported", "computed from tokens", "unknown"

MICRO_PER_USD = 1_000_000
MAX_MICRO_USD = 10**11  # a turn that cost 100,000 dollars did not happen
MAX_TOKENS = 10**12
MAX_TOOL_OUTPUT_CHARS = 64 * 1024  # of one tool's output, handed on
MAX_LINE_CHARS = 300  # of a summary, a reason, a warning
MAX_RESET_DELAY_S = 31 * 86400  # no limit lasts longer


@value
class AgentInvocation:
    """One turn as an argument list needs it. `flags` are the user's own; `guarded` keeps the agent's own guard on."""

    brief: TurnInput
    flags: tuple[str, ...]
    model: str | None
    guarded: bool


@value
class ReaderContext:
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


class StreamReader(Protocol):
    """Understands the output of one turn."""

    def hear(self, line: bytes) -> None:
        """Tell what a line says; raises ValueError or RecursionError where it is none of this dialect."""

    def close(self, end: Exit) -> None:
        """Tell what is known only now. A turn without an `Ended` event until then has failed."""


class AgentAdapter(Protocol):
    """One agent's program. The prompt is on its standard input."""

    name: str
    cost: str  # REPORTED, COMPUTED or UNKNOWN; with the last one, `counts_tokens = True` says that it tells its tokens
    guard: str  # the name of its own mode that asks nothing and still limits what it does; empty where it has none
    resumes: bool  # can go on with a session; its reader knows whether it then accounts for the whole of it
    login: str  # how to log in, in one clause
    credentials: tuple[str, ...]  # variables and files (with a slash; ~ is the home folder) that hold a login
    updates_off: Mapping[str, str]  # variables that keep it from updating itself in the middle of a night

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """Everything after the program's name."""

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """The model that it will use, as far as settings, flags and its own files tell before it runs."""

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        """Variables that this turn needs beside the user's."""

    def reader(self, hearing: ReaderContext) -> StreamReader:
        """For one turn."""


def credential_variables(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The variables among what holds a login."""
    return tuple(name for name in credentials if "/" not in name)


def credential_files(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the files among what holds a login."""
    return tuple(name.rpartition("/")[2] for name in credentials if "/" in name)


def has_option(flags: tuple[str, ...], *names: str) -> bool:
    """Whether the user's own flags hold one of these options, as `--name value` or `--name=value`."""
    return any(flag.partition("=")[0] in names for flag in flags)


def option_value(flags: tuple[str, ...], *names: str) -> str | None:
    """The value that the user's own flags give to one of these options; the last one counts."""
    found = None
    for place, flag in enumerate(flags):
        name, equals, text = flag.partition("=")
        if name in names:
            found = text if equals else next(iter(flags[place + 1 :]), None)
    return found


def without_options(flags: tuple[str, ...], *names: str) -> tuple[str, ...]:
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


def parse_micro_usd(dollars: object) -> int | None:
    """A figure of cost that an agent reports, in micro-dollars; None for what can be none."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars < MAX_MICRO_USD / MICRO_PER_USD:  # refuses NaN too
        return None
    return round(dollars * MICRO_PER_USD)


def parse_token_count(count: object) -> int:
    """A count of tokens that an agent reports; nonsense counts nothing."""
    if type(count) is int and 0 <= count < MAX_TOKENS:  # the usual case, a thousand times a second
        return count
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < MAX_TOKENS:
        return 0
    return int(count)


def parse_reset_time(epoch_s: object, now_s: float) -> float | None:
    """When a limit ends, as an agent reports it; None for what can be no such time."""
    if isinstance(epoch_s, bool) or not isinstance(epoch_s, int | float) or not 0 < epoch_s < now_s + MAX_RESET_DELAY_S:
        return None
    return float(epoch_s)


def one_line(text: object, chars: int = MAX_LINE_CHARS) -> str:
    """A text, or anything, for one line of a display."""
    if isinstance(text, str) and len(text) <= chars and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(str(text)[: chars * 4].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def make_tool_ended(call: str, ok: bool, output: str) -> ToolEnded:
    """The end of a tool call, its output bounded and its size told."""
    lines = output.count("\n") + (not output.endswith("\n")) if output else 0
    return ToolEnded(call, ok, output[:MAX_TOOL_OUTPUT_CHARS], lines, len(output))


# The argument of a tool that tells most about a call, in the order in which they are looked for.
SUMMARY_ARGUMENTS = (
    "command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path", "pattern", "query", "url",
    "description", "subject", "prompt",
)  # fmt: skip


def summarize_arguments(arguments: object) -> str:
    """The arguments of a tool call in one line."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else one_line(arguments)
    for name in SUMMARY_ARGUMENTS:
        if telling := arguments.get(name):
            break
    else:
        telling = next((item for item in arguments.values() if isinstance(item, str)), "")
    return one_line(" ".join(map(str, telling)) if isinstance(telling, list) else telling)


# A turn that is one question: no tool, no file, no session that stays, and no customisation that steers the answer.


JUDGE_SYSTEM_PROMPT = (
    "You judge work that others did. You have no tools. Answer in the form that you are asked for, and in no other."
)
SCHEMA_SUFFIX = ".schema.json"
# Small models, by what each agent's own list or help calls them. The others have no name for one that always holds.
SMALL_MODELS: Mapping[str, str] = {"claude": "haiku", "codex": "gpt-6-luna", "gemini": "flash-lite", "amp": "rush"}


def small_model(name: str) -> str:
    """The small model of an agent, as its `--model` takes it; empty where its own default must do."""
    if name == "codex":
        from ralphproof.agents.codex import uses_other_provider

        return "" if uses_other_provider() else SMALL_MODELS[name]
    return SMALL_MODELS.get(name, "")


def keep_options(flags: tuple[str, ...], *names: str, bare: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of the user's own flags these options with their values, and those that have none: the rest could loosen it."""
    kept: list[str] = []
    words = iter(flags)
    for flag in words:
        name, equals, _ = flag.partition("=")
        if name in bare:
            kept.append(flag)
        elif name in names:
            kept += [flag] if equals else [flag, *(word for word in [next(words, None)] if word is not None)]
    return tuple(kept)


def format_budget_usd(call: AgentInvocation) -> str | None:
    """What the question may cost; None where nobody says."""
    most = call.brief.most_micro_usd
    return None if most is None else f"{most / MICRO_PER_USD:f}"


# Hooks for one turn alone: what an agent's program is told to call at its own events, in each program's form.


HOOK_TIMEOUT_S = 20
GUARD_EVENT = "PreToolUse"
# A call whose guard is waited for in vain is made all the same: then it must be the turn that ends, by its own limits.
GUARD_TIMEOUT_S = 24 * 3600
TOOL_EVENTS = (GUARD_EVENT, "PostToolUse", "PostToolUseFailure")


def hook_table(call: AgentInvocation) -> dict[str, Any]:
    """The events and what is called at each, in the form that Claude Code gave to the world."""
    return {
        event: [{**({"matcher": ".*"} if event in TOOL_EVENTS else {}), "hooks": [_hook_handler(event, command)]}]
        for event, command in call.brief.hooks
    }


def _hook_handler(event: str, command: str) -> dict[str, Any]:
    return {
        "type": "command",
        "command": command,
        "timeout": GUARD_TIMEOUT_S if event == GUARD_EVENT else HOOK_TIMEOUT_S,
    }


def has_guard_hook(call: AgentInvocation) -> bool:
    """Whether a guard looks at every call: then no other setting may keep hooks from being called."""
    return any(event == GUARD_EVENT for event, _ in call.brief.hooks)


def get_table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def get_list(settings: Mapping[str, Any], name: str) -> list[Any]:
    found = settings.get(name)
    return found if isinstance(found, list) else []
