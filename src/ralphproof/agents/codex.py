"""Adapter for Codex CLI, as of 0.166.0, and the reader of its stream."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    GUARD_EVENT,
    MAX_LINE_CHARS,
    SCHEMA_SUFFIX,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
    ReaderContext,
    get_list,
    get_table,
    has_guard_hook,
    has_option,
    hook_table,
    keep_options,
    one_line,
    option,
    option_value,
    read_json_setting,
    unless_given,
    without_options,
)
from ralphproof.agents.error_messages import OUTAGE_ERROR, SERVICE_ERROR_CODES
from ralphproof.agents.stream import (
    MAX_DENIALS,
    MAX_TODOS,
    JsonStream,
    content_text,
    inner_table,
    parse_token_count,
    summarize_arguments,
    text_or_none,
)
from ralphproof.engine.agent import Denied, Ended, Event, Progress, Said, Started, Todo, TodosChanged, Usage
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
USAGE_FIELDS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
RETRY_PREFIX = "Reconnecting..."  # the beginning of its retry messages; without a network it retries without end
ERROR_LOG_MARK, HOOK_BLOCK_MARK = " ERROR codex_core::tools::router: error=", " blocked by PreToolUse hook: "
PATCH_START = "*** Begin Patch"
_SHELL = re.compile(r"\S{0,200}sh -l?c (?=['\"])")
_QUOTED = re.compile(r"""'([^']*)(?:'|$)|"((?:\\.|[^"\\])*)(?:"|$)""", re.DOTALL)


class CodexStream(JsonStream):
    """Reads one turn."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext, notional: bool = False) -> None:
        super().__init__(adapter, context, notional)
        self._final = ""  # the last message, until a tool runs
        self._todos: tuple[Todo, ...] = ()
        self._spawned_agents = False  # whose tokens it does not count
        self._error = ""  # the last error message, until another item follows
        self._ended = self._failed = False

    def close(self, end: Exit) -> None:
        """Without an end of the turn in the stream, the last error is its reason."""
        if self._ended or not self._error:
            return
        if self._error.startswith(RETRY_PREFIX):
            self.fail(self._error, self._final, OUTAGE_ERROR)
        elif end.why == "exit":
            self.fail(self._error, self._final)

    def _started(self, entry: dict[str, Any]) -> None:
        self.emit(Started(text_or_none(entry.get("thread_id")), self.context.model))

    def _turn_started(self, _: dict[str, Any]) -> None:
        self._failed = False

    def _turn_completed(self, entry: dict[str, Any]) -> None:
        self._account(get_table(entry, "usage"))
        if not self._failed:  # a failure is final until the next turn starts
            self._ended = True
            self.emit(Ended(True, self._final))

    def _turn_failed(self, entry: dict[str, Any]) -> None:
        self._failed = self._ended = True
        error = entry.get("error")
        text = error.get("message") if isinstance(error, dict) else error
        message, code = _parse_error(str(text or "the agent reported an error"))
        self.fail(message, self._final, SERVICE_ERROR_CODES.get(code, ""))

    def _report_error(self, entry: dict[str, Any]) -> None:
        self._error = one_line(entry.get("message") or "an error without words")
        self.emit(Progress(self._error))

    def _item(self, entry: dict[str, Any]) -> None:
        item, done = inner_table(entry, "item"), entry["type"] == "item.completed"
        kind, text = str(item.get("type")), item.get("text")
        if kind in TOOL_NAMES:
            self._tool(item, kind, done)
        elif kind == "agent_message" and done and isinstance(text, str):
            self._final = text
            self.emit(Said(text))
        elif kind == "todo_list":
            self._list(get_list(item, "items"))
        elif kind == "error":  # a warning, on healthy turns too
            self.emit(Progress(one_line(item.get("message"))))
            return
        elif kind != "reasoning":
            raise ValueError(kind)
        self._error = ""

    def _tool(self, item: dict[str, Any], kind: str, done: bool) -> None:
        """A message before the start of a tool was not the final one.

        A tool may end after the final message: commands that still run at the end of the turn do, or never end.
        """
        call, name, status = str(item.get("id")), TOOL_NAMES[kind] or _tool_name(item), item.get("status")
        if call not in self.running:
            self._final = ""
            self._spawned_agents |= name == "spawn_agent"
            self.start_tool(call, name, _item_summary(item, kind))
        if done:
            # Older versions have no status.
            ok = status in ("completed", None) and item.get("exit_code") in (0, None)
            self.end_tool(call, ok, _tool_output(item))
            if status == "declined":
                self.deny(name, _item_summary(item, kind))

    def _list(self, items: list[Any]) -> None:
        todos = tuple(
            Todo(one_line(item.get("text")), "done" if item.get("completed") is True else "pending")
            for item in items[:MAX_TODOS]
            if isinstance(item, dict)
        )
        if todos != self._todos:  # the list comes again at the end of the turn
            self._todos = todos
            self.emit(TodosChanged(todos))

    def _account(self, counts: dict[str, Any]) -> None:
        """Usage is that of the whole session. Input includes cache reads and writes, and output the reasoning.

        A service that does not count tokens reports none, or zero.
        """
        input_count, output_count, read, write = (parse_token_count(counts.get(name)) for name in USAGE_FIELDS)
        usage = Usage(max(0, input_count - read - write), output_count, read, write)
        if usage.total:
            self.tally.close(usage, at_least=self._spawned_agents)

    handlers: ClassVar = {
        **dict.fromkeys(("item.started", "item.updated", "item.completed"), _item),
        "error": _report_error, "turn.completed": _turn_completed, "turn.failed": _turn_failed,
        "thread.started": _started, "turn.started": _turn_started,
    }  # fmt: skip


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


def _tool_name(item: dict[str, Any]) -> str:
    server, tool = item.get("server"), item.get("tool")
    return f"{server}.{tool}" if server else str(tool or "tool")


def _item_summary(item: dict[str, Any], kind: str) -> str:
    match kind:
        case "command_execution":
            return _unwrap_shell(str(item.get("command") or ""))
        case "file_change":
            files = [file for file in get_list(item, "changes") if isinstance(file, dict)]
            return ", ".join(str(file.get("path")) for file in files[:20])
        case "mcp_tool_call":
            return summarize_arguments(item.get("arguments"))
        case _:
            return str(item.get("query") or item.get("prompt") or "")


def _unwrap_shell(command: str) -> str:
    """The beginning of a command without its shell wrapper: `/bin/bash -lc 'make test'`."""
    wrapped = _SHELL.match(command)
    return _QUOTED.sub(_unquote, command[wrapped.end() : 4 * MAX_LINE_CHARS]) if wrapped else command


def _unquote(part: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", part[2]) if part[1] is None else part[1]


def _tool_output(item: dict[str, Any]) -> str:
    """The output of a tool, or its error."""
    output = item.get("aggregated_output")
    if isinstance(output, str):
        return output
    return content_text(get_table(item, "result").get("content")) or str(get_table(item, "error").get("message", ""))


SHORT_OPTIONS = ("-m", "-c", "-s", "-p")  # options of one letter, whose value may follow without a space
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


class Codex(AgentAdapter):
    """`codex exec --json`, the prompt on standard input."""

    name = "codex"
    cost = COST_COMPUTED
    guard = "workspace-write"
    login = "run `codex login`, or set CODEX_API_KEY"
    credentials = ("CODEX_API_KEY", "~/.codex/auth.json")  # OPENAI_API_KEY does not log it in
    needs = AgentRequirements(
        "~/.codex", "CODEX_HOME",
        (
            "auth.json", "config.toml", "AGENTS.md", "AGENTS.override.md", "hooks.json", "prompts", "rules", "skills",
            "plugins",
        ),
        ("api.openai.com", "chatgpt.com", "auth.openai.com"),  # the third renews a login
        ("OPENAI_BASE_URL",),
        ("CODEX_*", "OPENAI_*"),
        (".codex/",),
    )  # fmt: skip
    model_options = ("--model", "-m")
    permission_options = ("-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--approve-for-me")
    guarded_arguments = ("--sandbox", guard)
    unguarded_arguments = ("--dangerously-bypass-approvals-and-sandbox",)

    @property
    def traits(self) -> AgentTraits:
        """Another provider has other models."""
        small = "" if uses_other_provider() else "gpt-6-luna"
        return AgentTraits(small, "openai", cost_only_at_end=True, reports_resets=True, calls_guard=True)

    @property
    def requirements(self) -> AgentRequirements:
        """Including the URLs of model providers in the user's settings, and the variables that hold their keys."""
        return self.requirements_with(_service_urls(), _provider_settings("env_key"))

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """Codex refuses a repeated option, except `-c`, where the last one counts."""
        if call.brief.schema:
            return self._question_arguments(call)
        flags = self._flags(call)
        return (
            "exec",
            *_config_arguments(QUIET_SETTINGS),
            *flags,
            *(_config_arguments(hook_overrides(call, _parse_overrides(flags))) if call.brief.hooks else ()),
            *self.permission_arguments(call, flags),
            *option("--model", call.model),
            *unless_given(flags, ("--skip-git-repo-check",), "--skip-git-repo-check"),
            *unless_given(flags, ("--json",), "--json"),
            # `resume` itself takes few options, but those before it apply to it too.
            *(("resume", call.brief.session) if call.brief.session else ()),
            "-",
        )  # fmt: skip

    def _question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        flags = self._flags(call)
        kept = [text for text in _iter_overrides(flags) if _is_question_setting(text.partition("=")[0].strip())]
        mcp_servers = _disable_mcp_servers(option_value(flags, "-p", "--profile"))
        return (
            "exec",
            *keep_options(flags, *self.model_options, "-p", "--profile", "--local-provider", bare=("--oss",)),
            *_config_arguments((*kept, *QUIET_SETTINGS, *NO_TOOLS_SETTINGS, *mcp_servers)),
            *option("--model", call.model),
            "--sandbox", "read-only", "--skip-git-repo-check", "--ignore-rules", "--ephemeral",
            "--output-schema", call.brief.log_base + SCHEMA_SUFFIX, "--json", "-",
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...]:
        """The prompt comes first: `--image` takes every word after it. A new session cannot be given an id."""
        flags = tuple(flag for flag in without_options(self._flags(call), *EXEC_OPTIONS) if flag not in EXEC_FLAGS)
        return (
            call.brief.prompt,
            *_config_arguments(QUIET_SETTINGS),
            *flags,
            *self.permission_arguments(call, flags),
            *option("--model", call.model),
        )

    def _flags(self, call: AgentInvocation) -> tuple[str, ...]:
        """The user's flags in a regular form, without a model that another one replaces."""
        flags = _split_short_options(call.flags)
        return without_options(flags, *self.model_options) if call.model else flags

    def permission_arguments(self, call: AgentInvocation, flags: tuple[str, ...]) -> tuple[str, ...]:
        return () if "sandbox_mode" in _parse_overrides(flags) else super().permission_arguments(call, flags)

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """Without a configured model the result is None: the default depends on the login."""
        flags = _split_short_options(flags)
        if given := model or option_value(flags, *self.model_options):
            return given
        if has_option(flags, "--oss"):  # a local model that Codex chooses
            return None
        configured = _parse_overrides(flags).get("model")
        if configured is None and not has_option(flags, "--ignore-user-config"):
            configured = _load_settings(option_value(flags, "-p", "--profile")).get("model")
        return configured if isinstance(configured, str) else None

    def stderr_events(self, stderr_text: str) -> tuple[Event, ...]:
        """The denied calls, which are not in the stream."""
        return parse_denials(stderr_text)

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The schema of a judge question, which Codex reads from a file."""
        return {SCHEMA_SUFFIX: call.brief.schema} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> CodexStream:
        return CodexStream(self, context, notional=_is_subscription())


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
    login = read_json_setting(os.path.join(_codex_home(), "auth.json"), "auth_mode")
    return login == "chatgpt" and not uses_other_provider()
