"""The protocol of an agent adapter, and helpers that several adapters share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ralphproof.base.text import MAX_TEXT_CHARS, truncate
from ralphproof.base.value import Protocol, value
from ralphproof.engine.agent import Event, Spent, Todo, TodosChanged, ToolEnded, TurnInput, Usage
from ralphproof.engine.sandbox import Exit

# How the cost of a turn becomes known.
COST_REPORTED, COST_COMPUTED, COST_UNKNOWN = "reported", "computed from tokens", "unknown"

MICRO_PER_USD = 1_000_000
MAX_MICRO_USD = 10**11  # 100,000 dollars: no turn costs more
MAX_TOKENS = 10**12
MAX_TOOL_OUTPUT_CHARS = 64 * 1024  # of one tool's output in an event
MAX_LINE_CHARS = 300  # of a summary, a reason, a warning
MAX_RESET_DELAY_S = 31 * 86400  # no limit lasts longer
MAX_RUNNING_CALLS = 1000  # tool calls at a time that a reader keeps track of
# Errors of turns that a model ended before it was done.
CUT_OFF_MESSAGE = "the model's last message was cut off at its greatest length"
NO_FINAL_MESSAGE = "the agent stopped after a tool call and said no last word"


@value
class AgentInvocation:
    """The input of an adapter for one turn. `flags` are the user's own; `guarded` keeps the agent's permission mode
    on.
    """

    brief: TurnInput
    flags: tuple[str, ...]
    model: str | None
    guarded: bool


@value
class ReaderContext:
    """What a stream reader needs: where events go, token prices, the clock, and what its session had cost before.

    `model` is the one that the agent was started with, where that is known. `on_idle` registers a callback that is
    called whenever all output so far was read.
    """

    emit: Callable[[Event], None]
    cost: Callable[[str | None, Usage], int | None]
    now: Callable[[], float]
    billed: Spent = Spent(0, Usage())
    model: str | None = None
    on_idle: Callable[[Callable[[], None]], None] = lambda _: None


class StreamReader(Protocol):
    """Reads the output of one turn."""

    def read_line(self, line: bytes) -> None:
        """Emit the events of a line; raises ValueError or RecursionError for one in another format."""

    def close(self, end: Exit) -> None:
        """Emit what is known only at the end. A turn without an `Ended` event by then has failed."""


@value
class AgentTraits:
    """Facts about an agent beside those that every adapter has.

    `small_model` is a small model, as its `--model` takes it; empty where it has no stable name for one. `provider` is
    OpenTelemetry's name of the service behind it; empty where the user chooses it. With `cost_only_at_end` no cost is
    known during a turn. With `reports_resets` it says when a limit of its service ends; with `calls_guard` it calls the
    command guard before every tool.
    """

    small_model: str = ""
    provider: str = ""
    cost_only_at_end: bool = False
    reports_resets: bool = False
    calls_guard: bool = False


class AgentAdapter(Protocol):
    """The interface of one agent program: how it is started and how its output is read. The prompt is on its standard
    input.

    Optional attributes: `counts_tokens`, `traits` (AgentTraits), `requirements` (AgentRequirements), and the methods
    `extra_files(call)`, `interactive(call, resume)`, `stderr_events(text)`, `hooks_disabled_by(flags, environ)`.
    """

    name: str
    cost: str  # one of the COST constants; with COST_UNKNOWN, `counts_tokens = True` says that it reports tokens
    guard: str  # the name of its own mode that asks nothing and still limits what it does; empty where it has none
    resumes: bool  # can continue a session; its reader knows whether the reported cost is then of the whole session
    login: str  # how to log in, in one clause
    credentials: tuple[str, ...]  # variables and files (with a slash; ~ is the home folder) that hold a login
    updates_off: Mapping[str, str]  # variables that prevent automatic updates during a run

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """Everything after the program's name."""

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """The model that it will use, as far as settings, flags and its own files tell before it runs."""

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        """Variables that this turn needs in addition to the user's."""

    def reader(self, context: ReaderContext) -> StreamReader:
        """The stream reader of one turn."""


def credential_variables(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The environment variables among an adapter's `credentials`."""
    return tuple(name for name in credentials if "/" not in name)


def credential_files(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The file names among an adapter's `credentials`."""
    return tuple(name.rpartition("/")[2] for name in credentials if "/" in name)


def has_option(flags: tuple[str, ...], *names: str) -> bool:
    """Whether the user's own flags hold one of these options, as `--name value` or `--name=value`."""
    return any(flag.partition("=")[0] in names for flag in flags)


def option_value(flags: tuple[str, ...], *names: str) -> str | None:
    """The value of one of these options in the user's own flags; the last one counts."""
    found = None
    for index, flag in enumerate(flags):
        name, equals, text = flag.partition("=")
        if name in names:
            found = text if equals else next(iter(flags[index + 1 :]), None)
    return found


def option(name: str, text: str | None) -> tuple[str, ...]:
    """An option and its value as arguments; none where the value is missing or empty."""
    return (name, text) if text else ()


def unless_given(flags: tuple[str, ...], names: tuple[str, ...], *default: str) -> tuple[str, ...]:
    """The default arguments, unless the user's own flags hold one of these options."""
    return () if has_option(flags, *names) else default


def without_options(flags: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """The user's own flags without these options and their values."""
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
    """A cost that an agent reports, in micro-dollars; None for an impossible one."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    if not 0 <= dollars < MAX_MICRO_USD / MICRO_PER_USD:  # refuses NaN too
        return None
    return round(dollars * MICRO_PER_USD)


def parse_token_count(count: object) -> int:
    """A token count that an agent reports; 0 for an impossible one."""
    if type(count) is int and 0 <= count < MAX_TOKENS:  # the usual case; this is called a thousand times a second
        return count
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < MAX_TOKENS:
        return 0
    return int(count)


def parse_reset_time(epoch_s: object, now_s: float) -> float | None:
    """When a limit ends, as an agent reports it (epoch seconds); None for an impossible time."""
    if isinstance(epoch_s, bool) or not isinstance(epoch_s, int | float) or not 0 < epoch_s < now_s + MAX_RESET_DELAY_S:
        return None
    return float(epoch_s)


def one_line(text: object, chars: int = MAX_LINE_CHARS) -> str:
    """Any value as one line of a display."""
    if isinstance(text, str) and len(text) <= chars and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(str(text)[: chars * 4].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def make_tool_ended(call: str, ok: bool, output: str) -> ToolEnded:
    """The end of a tool call, with bounded output and the size of the whole."""
    lines = output.count("\n") + (not output.endswith("\n")) if output else 0
    return ToolEnded(call, ok, output[:MAX_TOOL_OUTPUT_CHARS], lines, len(output))


# The arguments of a tool call that describe it best, in order of preference.
SUMMARY_ARGUMENTS = (
    "command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path", "pattern", "query", "url",
    "description", "subject", "prompt",
)  # fmt: skip


def summarize_arguments(arguments: object) -> str:
    """The arguments of a tool call in one line."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else one_line(arguments)
    for name in SUMMARY_ARGUMENTS:
        if argument := arguments.get(name):
            break
    else:
        argument = next((item for item in arguments.values() if isinstance(item, str)), "")
    return one_line(" ".join(map(str, argument)) if isinstance(argument, list) else argument)


def content_text(content: object) -> str:
    """The text of a message or of a tool's output: a string, or a list of blocks of which some have text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


class MessageBuffer:
    """A message that comes in pieces; the middle of a very long one is dropped."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._chars += len(piece)
        if self._chars > 4 * MAX_TEXT_CHARS:
            shortened = truncate(self.text, 2 * MAX_TEXT_CHARS)
            self._pieces, self._chars = [shortened], len(shortened)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def clear(self) -> None:
        self._pieces, self._chars = [], 0


# Judge questions: one turn without tools, files, a lasting session, or the user's customisation.


JUDGE_SYSTEM_PROMPT = (
    "You judge work that others did. You have no tools. Answer in the form that you are asked for, and in no other."
)
SCHEMA_SUFFIX = ".schema.json"


def keep_options(flags: tuple[str, ...], *names: str, bare: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of the user's own flags only these options with their values, and the `bare` ones without: others could give a
    judge question more permissions.
    """
    kept: list[str] = []
    words = iter(flags)
    for flag in words:
        name, equals, _ = flag.partition("=")
        if name in bare:
            kept.append(flag)
        elif name in names:
            kept += [flag] if equals else [flag, *itertools.islice(words, 1)]
    return tuple(kept)


def format_budget_usd(call: AgentInvocation) -> str | None:
    """The cost limit of a question, in dollars; None without a limit."""
    limit = call.brief.max_micro_usd
    return None if limit is None else f"{limit / MICRO_PER_USD:f}"


# Hooks of one turn: the commands that an agent program calls at its own events.


HOOK_TIMEOUT_S = 20
GUARD_EVENT = "PreToolUse"
# An agent makes a tool call whose guard timed out, so the turn must reach its own time limit first.
GUARD_TIMEOUT_S = 24 * 3600
TOOL_EVENTS = (GUARD_EVENT, "PostToolUse", "PostToolUseFailure")


def hook_table(call: AgentInvocation) -> dict[str, Any]:
    """The hooks by event, in the format of Claude Code."""
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
    """Whether a guard hook sees every tool call: then no other setting may disable hooks."""
    return any(event == GUARD_EVENT for event, _ in call.brief.hooks)


def get_table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def get_list(settings: Mapping[str, Any], name: str) -> list[Any]:
    found = settings.get(name)
    return found if isinstance(found, list) else []


# The agent's own to-do list, followed through its tool calls.


TODO_STATES = {"pending": "pending", "in_progress": "active", "completed": "done"}
MAX_TODOS = 200
TODO_TOOLS = ("TodoWrite", "todo_write", "TaskCreate", "TaskUpdate")


class TodoTracker:
    """The to-do list as the tool calls leave it."""

    def __init__(self) -> None:
        self._tasks: dict[str, Todo] = {}
        self._calls: dict[str, tuple[str, Any]] = {}
        self._created = 0

    def start_call(self, call: str, tool: str, arguments: Any) -> None:
        """Note a call that may change the list once it has succeeded."""
        if tool in TODO_TOOLS and len(self._calls) < MAX_TODOS:
            self._calls[call] = (tool, arguments)

    def end_call(self, call: str, ok: bool, output: str) -> TodosChanged | None:
        """The list after this call, if the call changed it."""
        tool, arguments = self._calls.pop(call, ("", None))
        # In a resumed session the first task of this turn may have a higher number than 1.
        if ok and tool == "TaskCreate" and (number := re.match(r"Task #(\d{1,9}) ", output)):
            self._created = int(number[1]) - 1
        return self.apply(tool, arguments) if ok else None

    def apply(self, tool: str, arguments: Any) -> TodosChanged | None:
        """The list after this call, if the call changes it."""
        if not isinstance(arguments, dict):
            return None
        match tool:
            case "TodoWrite" | "todo_write":
                todos = arguments.get("todos")
                items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
                return TodosChanged(
                    tuple(_make_todo(item.get("content"), item.get("status")) for item in items[:MAX_TODOS])
                )
            case "TaskCreate" if len(self._tasks) < MAX_TODOS:
                # Claude Code numbers tasks from 1 in the order of their creation.
                self._created += 1
                self._tasks[str(self._created)] = _make_todo(arguments.get("subject"), "pending")
            case "TaskUpdate" if str(arguments.get("taskId")) in self._tasks:
                self._update(str(arguments.get("taskId")), arguments.get("subject"), arguments.get("status"))
            case _:
                return None
        return TodosChanged(tuple(self._tasks.values()))

    def _update(self, task: str, subject: object, state: object) -> None:
        """Fields that an update leaves out stay as they are."""
        if state == "deleted":
            del self._tasks[task]
            return
        before = self._tasks[task]
        self._tasks[task] = Todo(one_line(subject or before.text), TODO_STATES.get(str(state), before.state))


def _make_todo(text: object, state: object) -> Todo:
    return Todo(one_line(text), TODO_STATES.get(str(state), "pending"))
