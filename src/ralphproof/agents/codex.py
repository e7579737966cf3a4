"""Adapter for Codex CLI, as of 0.166.0, and the reader of its stream."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    GUARD_EVENT,
    MAX_LINE_CHARS,
    MAX_RUNNING_CALLS,
    MAX_TODOS,
    SCHEMA_SUFFIX,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
    ReaderContext,
    content_text,
    credential_files,
    credential_variables,
    get_list,
    get_table,
    has_guard_hook,
    has_option,
    hook_table,
    keep_options,
    make_tool_ended,
    one_line,
    option,
    option_value,
    parse_token_count,
    summarize_arguments,
    unless_given,
    without_options,
)
from ralphproof.agents.cost import UsageTally
from ralphproof.agents.error_messages import OUTAGE_ERROR, SERVICE_ERROR_CODES, FailureReason, failure_event
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.engine.agent import (
    Denied,
    Ended,
    Event,
    Progress,
    Said,
    Started,
    Todo,
    TodosChanged,
    ToolStarted,
    Usage,
)
from ralphproof.engine.sandbox import AgentRequirements, Exit

# Codex has no event of its own for a failed tool.
HOOK_EVENT_NAMES = {
    GUARD_EVENT: "pre_tool_use",
    "Stop": "stop",
    "PostToolUse": "post_tool_use",
    "SessionStart": "session_start",
}
HOOK_KEY = "/<session-flags>/config.toml:{}:{}:0"  # the key of a hook from the command line: event and group


def hook_overrides(call: AgentInvocation, own: Mapping[str, Any]) -> tuple[str, ...]:
    """The hooks of this turn as `-c` settings, added to `own`, the settings that the user's flags give.

    Codex runs only hooks whose digests are trusted; only our own are trusted here.
    """
    overrides: dict[str, Any] = {}
    trusted = get_table(own, "hooks.state")
    for event, groups in hook_table(call).items():
        if name := HOOK_EVENT_NAMES.get(event):
            before = get_list(own, f"hooks.{event}")
            overrides[f"hooks.{event}"] = [*before, *groups]
            trusted = trusted | {HOOK_KEY.format(name, len(before)): {"trusted_hash": _hook_digest(name, groups[0])}}
    overrides |= {"hooks.state": trusted} | ({"features.hooks": True} if has_guard_hook(call) else {})
    return tuple(f"{key}={_to_toml(item)}" for key, item in overrides.items())


def _hook_digest(event: str, group: dict[str, Any]) -> str:
    """The digest by which Codex trusts a hook (0.166)."""
    handlers = [handler | {"async": False} for handler in group["hooks"]]
    encoded = msgspec.json.encode(group | {"event_name": event, "hooks": handlers}, order="sorted")
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def _to_toml(value: Any) -> str:
    """Inline TOML of tables, lists, texts, numbers and booleans."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_to_toml(name)}={_to_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_to_toml, value)) + "]"
    return msgspec.json.encode(value).decode()


# The stream of Codex 0.166.0: items that start, change and complete, and the end of the turn.


TOOL_NAMES = {
    "command_execution": "shell", "file_change": "apply_patch", "web_search": "web_search", "mcp_tool_call": "",
    "collab_tool_call": "",
}  # fmt: skip
RETRY_PREFIX = "Reconnecting..."  # the beginning of its retry messages; without a network it retries without end
MAX_DENIALS = 1000  # denied calls that are reported
ERROR_LOG_MARK, HOOK_BLOCK_MARK = " ERROR codex_core::tools::router: error=", " blocked by PreToolUse hook: "
PATCH_START = "*** Begin Patch"
_SHELL = re.compile(r"\S{0,200}sh -l?c (?=['\"])")
_QUOTED = re.compile(r"""'([^']*)(?:'|$)|"((?:\\.|[^"\\])*)(?:"|$)""", re.DOTALL)


class _Item(Struct, gc=False):
    id: Any = None
    type: str = ""
    text: Any = None
    message: Any = None
    status: Any = None
    command: Any = None
    aggregated_output: Any = None
    exit_code: Any = None
    changes: Raw = Raw()
    server: Any = None
    tool: Any = None
    arguments: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()
    query: Any = None
    prompt: Any = None
    items: Raw = Raw()


class _Line(Struct, gc=False):
    type: str = ""
    item: _Item | None = None
    thread_id: str | None = None
    usage: Any = None
    message: Any = None
    error: Any = None


_LINES = msgspec.json.Decoder(_Line)


class CodexStream:
    """Reads one turn."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext, notional: bool = False) -> None:
        self._adapter, self._context, self._emit = adapter, context, context.emit
        self._tally = UsageTally(context)
        self._tally.notional = notional
        self._final = ""  # the last message, until a tool runs
        self._running: set[str] = set()
        self._todos: tuple[Todo, ...] = ()
        self._spawned_agents = False  # whose tokens it does not count
        self._error = ""  # the last error message, until another item follows
        self._ended = self._failed = False

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, _LINES)
        match entry.type:
            case "item.started" | "item.updated" | "item.completed" if entry.item is not None:
                self._item(entry.item, done=entry.type == "item.completed")
            case "error":
                self._error = one_line(entry.message or "an error without words")
                self._emit(Progress(self._error))
            case "turn.completed":
                self._account(entry.usage)
                if not self._failed:  # a failure is final until the next turn starts
                    self._end(Ended(True, self._final))
            case "turn.failed":
                self._fail(entry.error)
            case "thread.started":
                self._emit(Started(entry.thread_id, self._context.model))
            case "turn.started":
                self._failed = False
            case _:
                raise ValueError(entry.type)

    def close(self, end: Exit) -> None:
        """Without an end of the turn in the stream, the last error is its reason."""
        if self._ended or not self._error:
            return
        if self._error.startswith(RETRY_PREFIX):
            self._end(failure_event(self._adapter, FailureReason(OUTAGE_ERROR, self._error), self._final))
        elif end.why == "exit":
            self._end(Ended(False, self._final, self._error))

    def _end(self, ended: Ended) -> None:
        self._ended = True
        self._emit(ended)

    def _item(self, item: _Item, done: bool) -> None:
        if item.type in TOOL_NAMES:
            self._tool(item, done)
        elif item.type == "agent_message" and done and isinstance(item.text, str):
            self._final = item.text
            self._emit(Said(item.text))
        elif item.type == "todo_list":
            self._list(decode_raw(item.items))
        elif item.type == "error":  # a warning, on healthy turns too
            self._emit(Progress(one_line(item.message)))
            return
        elif item.type != "reasoning":
            raise ValueError(item.type)
        self._error = ""

    def _tool(self, item: _Item, done: bool) -> None:
        """A message before the start of a tool was not the final one.

        A tool may end after the final message: commands that still run at the end of the turn do, or never end.
        """
        call, name = str(item.id), TOOL_NAMES[item.type] or _tool_name(item)
        if call not in self._running:
            if len(self._running) < MAX_RUNNING_CALLS:
                self._running.add(call)
            self._final = ""
            self._spawned_agents |= name == "spawn_agent"
            self._emit(ToolStarted(call, name, _item_summary(item)))
        if done:
            self._running.discard(call)
            ok = item.status in ("completed", None) and item.exit_code in (0, None)  # older versions have no status
            self._emit(make_tool_ended(call, ok, _tool_output(item)))
            if item.status == "declined":
                self._emit(Denied(name, _item_summary(item)))

    def _list(self, items: Any) -> None:
        found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        todos = tuple(
            Todo(one_line(item.get("text")), "done" if item.get("completed") is True else "pending")
            for item in found[:MAX_TODOS]
        )
        if todos != self._todos:  # the list comes again at the end of the turn
            self._todos = todos
            self._emit(TodosChanged(todos))

    def _account(self, usage_field: Any) -> None:
        """Usage is that of the whole session. Input includes cache reads and writes, and output the reasoning.

        A service that does not count tokens reports none, or zero.
        """
        counts = usage_field if isinstance(usage_field, dict) else {}
        cache_read = parse_token_count(counts.get("cached_input_tokens"))
        cache_write = parse_token_count(counts.get("cache_write_input_tokens"))
        uncached = max(0, parse_token_count(counts.get("input_tokens")) - cache_read - cache_write)
        usage = Usage(uncached, parse_token_count(counts.get("output_tokens")), cache_read, cache_write)
        if usage.total:
            self._tally.close(usage, at_least=self._spawned_agents)

    def _fail(self, error: Any) -> None:
        self._failed = True
        text = error.get("message") if isinstance(error, dict) else error
        message, code = _parse_error(str(text or "the agent reported an error"))
        if kind := SERVICE_ERROR_CODES.get(code):
            self._end(failure_event(self._adapter, FailureReason(kind, one_line(message)), self._final))
        else:
            self._end(Ended(False, self._final, one_line(message)))


def parse_denials(stderr_text: str) -> tuple[Denied, ...]:
    """The calls that hooks denied: these are not in the stream, only on stderr."""
    found: list[Denied] = []
    for piece in stderr_text.split(ERROR_LOG_MARK)[1:]:
        kind, _, rest = piece.partition(HOOK_BLOCK_MARK)
        why, _, what = rest.partition(". Command: " if kind == "Command" else ". Tool: ")
        if kind == "Command":  # patches are called commands too
            found.append(Denied("apply_patch" if what.startswith(PATCH_START) else "shell", one_line(why)))
        elif kind == "Tool call":
            found.append(Denied(one_line(what.partition("\n")[0]) or "tool", one_line(why)))
    return tuple(found[:MAX_DENIALS])


def _parse_error(message: str) -> tuple[str, str]:
    """The message of an error, and its code where the error is a service's whole answer."""
    try:
        answer = msgspec.json.decode(message) if message.startswith("{") else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return message, ""
    error = answer["error"] if isinstance(answer.get("error"), dict) else answer
    return str(error.get("message") or error.get("detail") or message), str(error.get("code"))


def _tool_name(item: _Item) -> str:
    return f"{item.server}.{item.tool}" if item.server else str(item.tool or "tool")


def _item_summary(item: _Item) -> str:
    match item.type:
        case "command_execution":
            return one_line(_unwrap_shell(str(item.command or "")))
        case "file_change":
            changes = decode_raw(item.changes)
            files = [file for file in changes if isinstance(file, dict)] if isinstance(changes, list) else []
            return one_line(", ".join(str(file.get("path")) for file in files[:20]))
        case "mcp_tool_call":
            return summarize_arguments(decode_raw(item.arguments))
        case _:
            return one_line(item.query or item.prompt or "")


def _unwrap_shell(command: str) -> str:
    """The beginning of a command without its shell wrapper: `/bin/bash -lc 'make test'`."""
    wrapped = _SHELL.match(command)
    return _QUOTED.sub(_unquote, command[wrapped.end() : 4 * MAX_LINE_CHARS]) if wrapped else command


def _unquote(part: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", part[2]) if part[1] is None else part[1]


def _tool_output(item: _Item) -> str:
    """The output of a tool, or its error."""
    if isinstance(item.aggregated_output, str):
        return item.aggregated_output
    result, error = decode_raw(item.result), decode_raw(item.error)
    text = content_text(result.get("content")) if isinstance(result, dict) else ""
    return text or (str(error.get("message", "")) if isinstance(error, dict) else "")


SHORT_OPTIONS = ("-m", "-c", "-s", "-p")  # options of one letter, whose value may follow without a space
MODEL_OPTIONS = ("-m", "--model")
PERMISSION_OPTIONS = ("-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--approve-for-me")
# Options that only `exec` takes, with and without a value.
EXEC_OPTIONS = ("--output-schema", "-o", "--output-last-message", "--color")
EXEC_FLAGS = ("--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules")
OPENAI_PROVIDER = "openai"
QUIET_SETTINGS = ("check_for_update_on_startup=false", "analytics.enabled=false")
# Settings that remove the model's tools and extra instructions (0.166).
NO_TOOLS_SETTINGS = (
    *(
        f"features.{name}=false"
        for name in ("shell_tool", "unified_exec", "view_image", "multi_agent", "goals", "apps", "plugins", "hooks")
    ),
    "web_search=disabled", "tools.experimental_request_user_input.enabled=false", "project_doc_max_bytes=0",
    "skills.include_instructions=false", "include_apps_instructions=false", "include_permissions_instructions=false",
    "include_environment_context=false",
)  # fmt: skip
# The user's settings that apply to judge questions.
QUESTION_SETTINGS = (
    "model", "model_provider", "model_reasoning_effort", "openai_base_url", "chatgpt_base_url", "forced_login_method",
)  # fmt: skip


class Codex:
    """`codex exec --json`, the prompt on standard input."""

    name = "codex"
    cost = COST_COMPUTED
    guard = "workspace-write"
    resumes = True
    login = "run `codex login`, or set CODEX_API_KEY"
    credentials: tuple[str, ...] = ("CODEX_API_KEY", "~/.codex/auth.json")  # OPENAI_API_KEY does not log it in
    updates_off: Mapping[str, str] = {}

    @property
    def traits(self) -> AgentTraits:
        """Another provider has other models."""
        small = "" if uses_other_provider() else "gpt-6-luna"
        return AgentTraits(small, "openai", cost_only_at_end=True, reports_resets=True, calls_guard=True)

    @property
    def requirements(self) -> AgentRequirements:
        """Including the URLs of model providers in the user's settings, and the variables that hold their keys."""
        return AgentRequirements(
            "~/.codex", "CODEX_HOME",
            (
                "auth.json", "config.toml", "AGENTS.md", "AGENTS.override.md", "hooks.json", "prompts", "rules",
                "skills", "plugins",
            ),
            ("api.openai.com", "chatgpt.com", "auth.openai.com"),  # the third renews a login
            ("OPENAI_BASE_URL", *_service_urls()),
            (*credential_variables(self.credentials), "CODEX_*", "OPENAI_*", *_provider_settings("env_key")),
            (".codex/",),
            logins=credential_files(self.credentials),
        )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """Codex refuses a repeated option, except `-c`, where the last one counts."""
        if call.brief.schema:
            return _question_arguments(call)
        flags = _split_short_options(call.flags)
        if call.model:
            flags = without_options(flags, *MODEL_OPTIONS)
        return (
            "exec",
            *_config_arguments(QUIET_SETTINGS),
            *flags,
            *(_config_arguments(hook_overrides(call, _parse_overrides(flags))) if call.brief.hooks else ()),
            *self._permission_arguments(call, flags),
            *option("--model", call.model),
            *unless_given(flags, ("--skip-git-repo-check",), "--skip-git-repo-check"),
            *unless_given(flags, ("--json",), "--json"),
            # `resume` itself takes few options, but those before it apply to it too.
            *(("resume", call.brief.session) if call.brief.session else ()),
            "-",
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...]:
        """The prompt comes first: `--image` takes every word after it. A new session cannot be given an id."""
        flags = without_options(_split_short_options(call.flags), *EXEC_OPTIONS, *(MODEL_OPTIONS if call.model else ()))
        flags = tuple(flag for flag in flags if flag not in EXEC_FLAGS)
        return (
            call.brief.prompt,
            *_config_arguments(QUIET_SETTINGS),
            *flags,
            *self._permission_arguments(call, flags),
            *option("--model", call.model),
        )

    def _permission_arguments(self, call: AgentInvocation, flags: tuple[str, ...]) -> tuple[str, ...]:
        if "sandbox_mode" in _parse_overrides(flags):
            return ()
        guard = ("--sandbox", self.guard) if call.guarded else ("--dangerously-bypass-approvals-and-sandbox",)
        return unless_given(flags, PERMISSION_OPTIONS, *guard)

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """Without a configured model the result is None: the default depends on the login."""
        flags = _split_short_options(flags)
        if given := model or option_value(flags, *MODEL_OPTIONS):
            return given
        if has_option(flags, "--oss"):  # a local model that Codex chooses
            return None
        configured = _parse_overrides(flags).get("model")
        if configured is None and not has_option(flags, "--ignore-user-config"):
            configured = _load_settings(option_value(flags, "-p", "--profile")).get("model")
        return configured if isinstance(configured, str) else None

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def hooks_disabled_by(self, flags: tuple[str, ...], environ: Mapping[str, str]) -> str:
        """The flag that disables hooks; empty where they are called. It takes precedence over `-c`."""
        pairs = zip(flags, (*flags[1:], ""), strict=True)
        off = any(flag == "--disable=hooks" or (flag == "--disable" and text == "hooks") for flag, text in pairs)
        return "--disable hooks" if off else ""

    def stderr_events(self, stderr_text: str) -> tuple[Event, ...]:
        """The denied calls, which are not in the stream."""
        return parse_denials(stderr_text)

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The schema of a judge question, which Codex reads from a file."""
        return {SCHEMA_SUFFIX: call.brief.schema} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> CodexStream:
        return CodexStream(self, context, notional=_is_subscription())


def _question_arguments(call: AgentInvocation) -> tuple[str, ...]:
    flags = _split_short_options(call.flags)
    if call.model:
        flags = without_options(flags, *MODEL_OPTIONS)
    kept = [text for text in _iter_overrides(flags) if _is_question_setting(text.partition("=")[0].strip())]
    mcp_servers = _disable_mcp_servers(option_value(flags, "-p", "--profile"))
    return (
        "exec",
        *keep_options(flags, *MODEL_OPTIONS, "-p", "--profile", "--local-provider", bare=("--oss",)),
        *_config_arguments((*kept, *QUIET_SETTINGS, *NO_TOOLS_SETTINGS, *mcp_servers)),
        *option("--model", call.model),
        "--sandbox", "read-only", "--skip-git-repo-check", "--ignore-rules", "--ephemeral",
        "--output-schema", call.brief.log_base + SCHEMA_SUFFIX, "--json", "-",
    )  # fmt: skip


def _disable_mcp_servers(profile: str | None) -> tuple[str, ...]:
    """The setting that turns off each of the user's MCP servers; an empty table would leave them enabled."""
    tables = [_load_settings(file).get("mcp_servers") for file in (None, profile)]
    names = dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table)
    off = ",".join(f"{msgspec.json.encode(name).decode()}={{enabled=false}}" for name in names)
    return (f"mcp_servers={{{off}}}",) if off else ()


def _is_question_setting(key: str) -> bool:
    return key in QUESTION_SETTINGS or key.startswith("model_providers.")


def _config_arguments(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for text in settings for word in ("-c", text))


def _split_short_options(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags with `=` between a one-letter option and an attached value."""
    return tuple(
        f"{flag[:2]}={flag[2:]}" if flag[:2] in SHORT_OPTIONS and flag[2:3] not in ("", "=") else flag for flag in flags
    )


def _parse_overrides(flags: tuple[str, ...]) -> dict[str, Any]:
    """The settings that `-c key=value` gives, each as TOML or else as plain text."""
    pairs = (override.partition("=") for override in _iter_overrides(flags))
    return {key.strip(): _parse_toml(text) for key, _, text in pairs}


def _iter_overrides(flags: tuple[str, ...]) -> Iterator[str]:
    words = iter(flags)
    for flag in words:
        name, equals, text = flag.partition("=")
        if name in ("-c", "--config"):
            yield text if equals else next(words, "")


def _parse_toml(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _codex_home() -> str:
    return os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")


def _load_settings(profile: str | None = None) -> dict[str, Any]:
    """The user's settings file, overlaid by that of a profile; an unreadable file counts as empty."""
    import tomllib

    settings: dict[str, Any] = {}
    for name in ("config.toml", *((f"{profile}.config.toml",) if profile else ())):
        try:
            with open(os.path.join(_codex_home(), name), "rb") as file:
                settings |= tomllib.load(file)
        except (OSError, ValueError):
            continue
    return settings


class _Login(Struct):
    """The kind of a login. The secrets in the same file are not decoded."""

    auth_mode: str | None = None


def _provider_settings(key: str) -> tuple[str, ...]:
    """The values of a key in all configured model providers."""
    found = _load_settings().get("model_providers")
    tables = found.values() if isinstance(found, dict) else ()
    return tuple(text for table in tables if isinstance(table, dict) and isinstance(text := table.get(key), str))


def _service_urls() -> tuple[str, ...]:
    """The configured URLs of model providers, and of OpenAI itself."""
    openai_urls = (_load_settings().get(key) for key in ("openai_base_url", "chatgpt_base_url"))
    urls = (*_provider_settings("base_url"), *openai_urls)
    return tuple(url for url in urls if isinstance(url, str) and "://" in url)


def uses_other_provider() -> bool:
    """Whether the user's settings name another provider than OpenAI: its models have other names."""
    return str(_load_settings().get("model_provider", OPENAI_PROVIDER)) != OPENAI_PROVIDER


def _is_subscription() -> bool:
    """Whether a subscription covers the cost, rather than an API key that is billed by the token."""
    if os.environ.get("CODEX_API_KEY"):
        return False
    try:
        with open(os.path.join(_codex_home(), "auth.json"), "rb") as file:
            login = msgspec.json.decode(file.read(), type=_Login)
    except (OSError, ValueError):
        return False
    return login.auth_mode == "chatgpt" and not uses_other_provider()
