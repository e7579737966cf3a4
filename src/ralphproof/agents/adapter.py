"""The base of agent adapters: what is particular to one agent program, and helpers for command lines and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof.base.value import Protocol, replace, value
from ralphproof.engine.agent import Event, Spent, TurnInput, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

# How the cost of a turn becomes known.
COST_REPORTED, COST_COMPUTED, COST_UNKNOWN = "reported", "computed from tokens", "unknown"

MICRO_PER_USD = 1_000_000
MAX_LINE_CHARS = 300  # of a summary, a reason, a warning
MAX_RESET_DELAY_S = 31 * 86400  # no limit lasts longer


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


class AgentAdapter:
    """One agent program: how it is started and how its output is read. The prompt is on its standard input.

    An adapter is a subclass that has at least a name, a cost and a reader. Most command lines follow from the options
    listed here; another one needs its own `arguments`.
    """

    name: str
    cost: str  # one of the COST constants
    counts_tokens: bool | None = None  # where that does not follow from `cost`
    guard = ""  # the name of its own mode that asks nothing and still limits what it does; empty where it has none
    resumes = True  # can continue a session; its reader knows whether the reported cost is then of the whole session
    login = ""  # how to log in, in one clause
    credentials: tuple[str, ...] = ()  # variables and files (with a slash; ~ is the home folder) that hold a login
    updates_off: Mapping[str, str] = {}  # variables that prevent automatic updates during a run
    needs = AgentRequirements()  # from the machine, beside what follows from `credentials` and `updates_off`

    command: tuple[str, ...] = ()  # the first arguments
    model_options: tuple[str, ...] = ("--model",)
    model_variables: tuple[str, ...] = ()  # variables that name the model
    settings_file = ""  # JSON of the user with the model's name
    permission_options: tuple[str, ...] = ()  # options of the user that replace the next two
    guarded_arguments: tuple[str, ...] = ()
    unguarded_arguments: tuple[str, ...] = ()
    session_option = "--resume"
    output_arguments: tuple[str, ...] = ()
    question_options: tuple[str, ...] = ()  # options of the user that apply to judge questions

    @property
    def traits(self) -> AgentTraits:
        return AgentTraits()

    @property
    def requirements(self) -> AgentRequirements:
        """What it needs from the machine."""
        return self.requirements_with()

    def requirements_with(self, urls: tuple[str, ...] = (), variables: tuple[str, ...] = ()) -> AgentRequirements:
        """The requirements with services that the user's settings name, and the variables that hold their keys."""
        needs, own = self.needs, credential_variables(self.credentials)
        return replace(
            needs,
            addresses=(*needs.addresses, *urls),
            variables=(*own, *self.updates_off, *needs.variables, *variables),
            logins=tuple(name.rpartition("/")[2] for name in self.credentials if "/" in name),
        )

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """Everything after the program's name."""
        flags = without_options(call.flags, *self.model_options) if call.model else call.flags
        model = option(self.model_options[0], call.model)
        if call.brief.schema:
            kept = keep_options(flags, *self.model_options, *self.question_options)
            return (*self.command, *kept, *model, *self.question_arguments(call), *self.output_arguments)
        return (
            *self.command,
            *(flag for flag in flags if flag not in self.command),
            *self.permission_arguments(call, flags),
            *model,
            *option(self.session_option, call.brief.session),
            *self.output_arguments,
        )

    def permission_arguments(self, call: AgentInvocation, flags: tuple[str, ...]) -> tuple[str, ...]:
        """The permission mode, unless the user's own flags set one."""
        default = self.guarded_arguments if call.guarded else self.unguarded_arguments
        return unless_given(flags, self.permission_options, *default)

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """The arguments of a judge question: no tools, no customisation by user or project."""
        return ()

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...] | None:
        """The arguments of an interactive session with this prompt; None where that is not supported."""
        return None

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """The model that it will use, as far as settings, flags and its own files tell before it runs."""
        given = model or option_value(flags, *self.model_options)
        named = (os.environ.get(name) for name in self.model_variables)
        return given or next(filter(None, named), None) or read_json_setting(self.settings_file, "model", "name")

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        """Variables that this turn needs in addition to the user's."""
        return {}

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The contents of files that the program reads beside its prompt, by suffix of the file's name."""
        return {}

    def stderr_events(self, stderr_text: str) -> tuple[Event, ...]:
        """The events that the program reports only on stderr."""
        return ()

    def reader(self, context: ReaderContext) -> StreamReader:
        """The stream reader of one turn."""
        raise NotImplementedError


def credential_variables(credentials: tuple[str, ...]) -> tuple[str, ...]:
    """The environment variables among an adapter's `credentials`."""
    return tuple(name for name in credentials if "/" not in name)


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
    """An option and its value as arguments, one word where the name ends with `=`; none where the value is missing."""
    if not text:
        return ()
    return (name + text,) if name.endswith("=") else (name, text)


def unless_given(flags: tuple[str, ...], names: tuple[str, ...], *default: str) -> tuple[str, ...]:
    """The default arguments, unless the user's own flags hold one of these options."""
    return () if has_option(flags, *names) else default


def without_options(flags: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """The user's own flags without these options and their values."""
    return _part_options(flags, names)[1]


def keep_options(flags: tuple[str, ...], *names: str, bare: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of the user's own flags only these options with their values, and the `bare` ones without."""
    return _part_options(flags, names, bare)[0]


def _part_options(
    flags: tuple[str, ...], names: tuple[str, ...], bare: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """These options with their values, and all other flags."""
    found: list[str] = []
    others: list[str] = []
    words = iter(flags)
    for flag in words:
        name, equals, _ = flag.partition("=")
        (found if name in (*names, *bare) else others).append(flag)
        if name in names and not equals:
            found.extend(word for word in [next(words, None)] if word is not None)
    return tuple(found), tuple(others)


def one_line(text: object, chars: int = MAX_LINE_CHARS) -> str:
    """Any value as one line of a display."""
    if isinstance(text, str) and len(text) <= chars and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(str(text)[: chars * 4].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


# Judge questions: one turn without tools, files, a lasting session, or the user's customisation.


JUDGE_SYSTEM_PROMPT = (
    "You judge work that others did. You have no tools. Answer in the form that you are asked for, and in no other."
)
SCHEMA_SUFFIX = ".schema.json"


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


# Configuration files of agents.


MAX_FILE_BYTES = 1 << 20
URL_KEYS = ("baseUrl", "baseURL")


def read_json_setting(file: str, *names: str) -> str | None:
    """The text at this path of keys in a JSON file (`~` is the home folder); None where there is none."""
    found = _load_json(file)
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def find_service_urls(file: str) -> tuple[str, ...]:
    """The service addresses that a JSON configuration file names, at any depth."""
    return tuple(dict.fromkeys(text for text in _iter_strings(_load_json(file), URL_KEYS) if "://" in text))


def find_key_variables(file: str, key: str, before: str = "", after: str = "") -> tuple[str, ...]:
    """The environment variables that a JSON file names under this key, each between these two texts."""
    names = (
        text.removeprefix(before).removesuffix(after)
        for text in _iter_strings(_load_json(file), (key,))
        if before in text
    )
    return tuple(dict.fromkeys(name for name in names if name.isidentifier() and name.isupper()))


def _iter_strings(node: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """All texts at these keys, at any depth."""
    items = node.items() if isinstance(node, dict) else ((None, item) for item in node)
    for key, item in items:
        if isinstance(item, str):
            if key in keys:
                yield item
        elif isinstance(item, dict | list):
            yield from _iter_strings(item, keys)


def _load_json(file: str) -> Any:
    """The file's content; an empty object where it cannot be read."""
    import msgspec  # hooks load this module, and must start quickly

    path = os.path.expanduser(file)
    if not os.path.isfile(path):  # opening a pipe would block
        return {}
    try:
        with open(path, "rb") as opened:
            found = msgspec.json.decode(opened.read(MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict | list) else {}
