"""Adapter for Claude Code, as of 2.1.325, and the reader of its stream, which other agents imitate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_REPORTED,
    JUDGE_SYSTEM_PROMPT,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
    ReaderContext,
    format_budget_usd,
    get_list,
    get_table,
    has_guard_hook,
    hook_table,
    one_line,
    option,
    option_value,
    unless_given,
    without_options,
)
from ralphproof.agents.error_messages import (
    CREDIT_ERROR,
    LIMIT_ERROR,
    LOGIN_ERROR,
    MODEL_ERROR,
    OUTAGE_ERROR,
    TOO_LONG_ERROR,
    find_failure_reason,
    status_error_kind,
)
from ralphproof.agents.stream import (
    JsonStream,
    content_text,
    decode_line,
    decode_raw,
    parse_micro_usd,
    parse_reset_time,
    parse_token_count,
    summarize_arguments,
)
from ralphproof.base.value import replace
from ralphproof.engine.agent import Asked, Ended, Limited, Progress, Said, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements

# The lines of Claude Code's stream, with the fields that are used. Fields of untrusted type are `Any`.


# `gc=False`: these cannot form cycles.
class ClaudeUsage(Struct, gc=False):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0


class _ModelUsage(Struct, gc=False, rename="camel"):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0
    context_window: Any = None


class _Block(Struct, gc=False):
    type: str = ""
    text: Any = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    content: Raw = Raw()
    is_error: bool | None = None


class ClaudeMessage(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[_Block] | str | None = None
    usage: ClaudeUsage | None = None


class _Line(Struct, gc=False):
    """The fields of frequent lines. Lines of other types are decoded again as their own type."""

    type: str = ""
    message: ClaudeMessage | str | None = None
    parent_tool_use_id: str | None = None
    error: Any = None
    is_api_error_message: bool | None = None


class _SystemLine(Struct):
    subtype: str | None = None
    session_id: str | None = None
    model: str | None = None
    claude_code_version: str | None = None
    apiKeySource: str | None = None
    attempt: Any = None
    max_retries: Any = None
    retry_delay_ms: Any = None
    error: Any = None
    error_status: Any = None
    tool_name: str = ""
    tool_use_id: str = ""
    message: Any = None


class _RateLimitInfo(Struct):
    status: str = ""
    resetsAt: Any = None
    rateLimitType: str | None = None
    utilization: Any = None


class _RateLimitLine(Struct):
    rate_limit_info: _RateLimitInfo


class _Denial(Struct):
    tool_name: Any = ""
    tool_use_id: Any = ""
    tool_input: Raw = Raw()


class _ResultLine(Struct):
    subtype: str | None = None
    result: Any = None
    is_error: Any = None
    error: Any = None
    errors: Any = None
    terminal_reason: Any = None
    api_error_status: Any = None
    total_cost_usd: Any = msgspec.UNSET
    usage: ClaudeUsage | None = None
    modelUsage: dict[str, _ModelUsage | None] | None = None
    permission_denials: list[_Denial] | None = None
    structured_output: Raw = Raw()


LINES = msgspec.json.Decoder(_Line)
_SYSTEM_LINES, _RESULT_LINES = msgspec.json.Decoder(_SystemLine), msgspec.json.Decoder(_ResultLine)
_RATE_LIMIT_LINES = msgspec.json.Decoder(_RateLimitLine)


# Error kinds by the names in the stream; other errors are classified by their message.
ERROR_KINDS = {
    "authentication_failed": LOGIN_ERROR, "oauth_org_not_allowed": LOGIN_ERROR, "verification_required": LOGIN_ERROR,
    "cloud_credential_error": LOGIN_ERROR, "account_on_hold": CREDIT_ERROR, "billing_error": CREDIT_ERROR,
    "rate_limit": LIMIT_ERROR, "overloaded": OUTAGE_ERROR, "server_error": OUTAGE_ERROR, "model_not_found": MODEL_ERROR,
}  # fmt: skip
SYNTHETIC_MODEL = "<synthetic>"  # the "model" of messages that the program makes up itself
MAX_ARGUMENT_BYTES = 256 * 1024  # of a call's arguments: larger ones are not decoded
GUARD_PREFIX = "ralph guard"  # the beginning of our guard's message for a call that it denies
CHARS_PER_TOKEN = 4  # the stream counts output tokens only in the result; until then they are estimated by length


class ClaudeStream(JsonStream):
    """Reads one turn of Claude Code 2.1.325, or of an agent that imitates it.

    Its lines are decoded into structures instead of tables: it prints the most, and this takes half the time.
    """

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        context.on_idle(self._account)  # before the tally reports its sum
        super().__init__(adapter, context)
        self._error_kind = ""  # of the last error message
        self._limited: Limited | None = None
        self._message = ClaudeMessage()  # the current one, which comes in several lines
        self._message_chars = 0

    def read_line(self, line: bytes) -> None:
        try:
            entry = LINES.decode(line)
        except ValueError:
            entry = decode_line(line, LINES)
        match entry.type:
            case "assistant":
                self._assistant(entry)
            case "user":
                self._user(entry)
            case "system":
                self._system(decode_line(line, _SYSTEM_LINES))
            case "rate_limit_event":
                self._limit(decode_line(line, _RATE_LIMIT_LINES).rate_limit_info)
            case "result":
                self._result(decode_line(line, _RESULT_LINES))
            case "stream_event" | "control_request" | "control_response" | "keep_alive":
                pass
            case _:
                raise ValueError(entry.type)

    def _system(self, entry: _SystemLine) -> None:
        match entry.subtype:
            case "init" | None:
                self.tally.notional = entry.apiKeySource == "none"  # then an account with a subscription pays
                self.emit(Started(entry.session_id, entry.model, entry.claude_code_version))
            case "api_retry":
                why = entry.error_status or entry.error
                after = f" in {parse_token_count(entry.retry_delay_ms) / 1000:.0f} s"
                self.emit(Progress(f"service error ({why}), retry {entry.attempt} of {entry.max_retries}{after}"))
            case "permission_denied":
                self.deny(entry.tool_name, entry.message, entry.tool_use_id)

    def _limit(self, limit: _RateLimitInfo) -> None:
        resets_at = parse_reset_time(limit.resetsAt, self.context.now())
        name = (limit.rateLimitType or "usage").replace("_", " ")
        if limit.status == "rejected":
            self._limited = Limited(f"the {name} limit is reached", resets_at)
            self.emit(self._limited)
        elif limit.status == "allowed_warning" and isinstance(limit.utilization, int | float):
            self.emit(Progress(f"{limit.utilization:.0%} of the {name} limit is used"))

    def _assistant(self, entry: _Line) -> None:
        message = entry.message
        if not isinstance(message, ClaudeMessage):
            return
        if entry.is_api_error_message or message.model == SYNTHETIC_MODEL:  # a message of the program, not of a model
            if entry.error is not None and entry.parent_tool_use_id is None:
                self._error_kind = ERROR_KINDS.get(str(entry.error), "")
            return
        self._error_kind, self._limited = "", None  # a model answered, so the error is over
        if message.id != self._message.id:
            self._account()
            self._message_chars = 0
        self._message = message
        for block in message.content if isinstance(message.content, list) else ():
            if block.type == "text" and isinstance(block.text, str):
                self._message_chars += len(block.text)
                if entry.parent_tool_use_id is None:
                    self.emit(Said(block.text))
            elif block.type == "tool_use":
                self._message_chars += len(memoryview(block.input))
                self._tool(block)

    def _account(self) -> None:
        """Count the usage of the last message."""
        message = self._message
        if message.usage is not None and message.id is not None:
            input_count, output_count, cache_read, cache_write = token_counts(message.usage)
            output_count = max(output_count, self._message_chars // CHARS_PER_TOKEN)
            self.tally.message(message.id, message.model, (input_count, output_count, cache_read, cache_write))

    def _tool(self, block: _Block) -> None:
        arguments, name = _decode_arguments(block.input), block.name or "tool"
        self.start_tool(block.id or "", name, arguments)
        if name == "AskUserQuestion":
            self.emit(Asked(_first_question(arguments)))

    def _user(self, entry: _Line) -> None:
        content = entry.message.content if isinstance(entry.message, ClaudeMessage) else None
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                call, ok, output = block.tool_use_id or "", not block.is_error, content_text(decode_raw(block.content))
                name, _ = self.end_tool(call, ok, output)
                if not ok and (why := output.removeprefix(f"PreToolUse:{name} hook error: ")).startswith(GUARD_PREFIX):
                    self.deny(name, why, call)

    def _result(self, entry: _ResultLine) -> None:
        for denial in entry.permission_denials or ():
            why = summarize_arguments(_decode_arguments(denial.tool_input))
            self.deny(str(denial.tool_name), why, str(denial.tool_use_id))
        self._settle(entry)
        text = _structured_text(entry.structured_output) or (entry.result if isinstance(entry.result, str) else "")
        # Older programs, and some that imitate this one, name no subtype: then the text of the result must be there.
        succeeded = entry.subtype == "success" or (entry.subtype is None and isinstance(entry.result, str))
        if succeeded and entry.is_error in (None, False) and not entry.error and not entry.errors:
            self.emit(Ended(True, text, window=_context_window(entry)))
            return
        message = text or _error_text(entry) or f"the agent reported {entry.subtype or 'a result that is no success'}"
        kind = (
            TOO_LONG_ERROR
            if entry.terminal_reason == "prompt_too_long"
            else self._error_kind or status_error_kind(entry.api_error_status)
        )
        if kind == LIMIT_ERROR and self._limited is None:
            found = find_failure_reason(message, self.context.now())
            self.emit(Limited(one_line(message), found.resets_at if found else None))
        self.fail(message, text, kind)

    def _settle(self, entry: _ResultLine) -> None:
        """Take the usage and cost that the agent reports; of all models where it lists them."""
        self._account()
        self._message = ClaudeMessage()
        usage = Usage(*token_counts(entry.usage)) if entry.usage else None
        if entry.modelUsage:
            models = [model for model in entry.modelUsage.values() if model is not None]
            usage = Usage(*map(sum, zip(*map(token_counts, models), strict=True)))
        if entry.total_cost_usd is msgspec.UNSET:
            self.tally.close(usage)
        else:
            self.tally.settle(parse_micro_usd(entry.total_cost_usd), usage)


def token_counts(usage: ClaudeUsage | _ModelUsage) -> tuple[int, int, int, int]:
    return (
        parse_token_count(usage.input_tokens),
        parse_token_count(usage.output_tokens),
        parse_token_count(usage.cache_read_input_tokens),
        parse_token_count(usage.cache_creation_input_tokens),
    )


def _context_window(entry: _ResultLine) -> int | None:
    """The context size of the model that used most tokens."""
    models = [model for model in (entry.modelUsage or {}).values() if model is not None]
    main_model = max(models, key=lambda model: sum(token_counts(model)), default=None)
    return (parse_token_count(main_model.context_window) or None) if main_model else None


def _structured_text(answer: Raw) -> str:
    """An answer in the requested schema, as text."""
    text = bytes(answer).decode("utf-8", "replace")
    return "" if text == "null" else text


def _error_text(entry: _ResultLine) -> str:
    """The errors that a result without a text lists, or its own error."""
    listed = "; ".join(map(str, entry.errors)) if isinstance(entry.errors, list) else ""
    if not listed and isinstance(entry.error, dict):
        return str(entry.error.get("message") or "")
    return listed or (entry.error if isinstance(entry.error, str) else "")


def _decode_arguments(raw: Raw) -> Any:
    """The arguments of a call, unless they are too large."""
    return decode_raw(raw) if len(memoryview(raw)) <= MAX_ARGUMENT_BYTES else None


def _first_question(arguments: object) -> str:
    """The first question of an AskUserQuestion call."""
    questions = arguments.get("questions") if isinstance(arguments, dict) else None
    first = questions[0] if isinstance(questions, list) and questions else arguments
    return one_line(first.get("question") or first if isinstance(first, dict) else first)


SETTINGS_SUFFIX = ".settings.json"


def claude_settings(call: AgentInvocation, own: str | None) -> str:
    """Claude Code's settings for this turn: the user's own `--settings`, our hooks, and the permitted commands.

    Empty where Claude Code would refuse to start with the user's own settings: it reports that error itself.
    """
    settings = _load_user_settings(own, call.brief.cwd)
    if settings is None:
        return ""
    hooks = get_table(settings, "hooks")
    for event, groups in hook_table(call).items():
        hooks = hooks | {event: [*get_list(hooks, event), *groups]}
    rules = get_table(settings, "permissions")
    if call.guarded and call.brief.allowed_commands:
        allowed = [_permission_rule(command) for command in call.brief.allowed_commands]
        rules = rules | {"allow": [*get_list(rules, "allow"), *allowed]}
    merged = settings | {"hooks": hooks} | ({"permissions": rules} if rules else {})
    merged |= {"disableAllHooks": False} if has_guard_hook(call) else {}
    return msgspec.json.encode(merged).decode()


def _permission_rule(command: str) -> str:
    """The rule that permits this command. `*` matches anything, but not before `:*`, which stands for more words."""
    text = command.strip().replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return f"Bash({text}:*)" if "*" in text.removesuffix(":*") else f"Bash({text})"


def _load_user_settings(given: str | None, cwd: str) -> dict[str, Any] | None:
    """The user's `--settings`, a file or inline JSON; None where Claude Code refuses to start with them.

    A file that holds no JSON object is ignored by Claude Code (2.1.325).
    """
    text = (given or "{}").strip()
    is_path = not (text.startswith("{") and text.endswith("}"))
    try:
        found = msgspec.json.decode(_read_text(os.path.join(cwd, text)) if is_path else text)
    except OSError:
        return None
    except ValueError:
        return {} if is_path else None
    return found if isinstance(found, dict) else {}


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8-sig") as file:
        return file.read()


# Options that it takes only with -p, with and without a value.
PRINT_MODE_OPTIONS = (
    "--output-format", "--input-format", "--json-schema", "--max-turns", "--max-budget-usd", "--permission-prompt-tool",
)  # fmt: skip
PRINT_MODE_FLAGS = (
    "-p", "--print", "--include-partial-messages", "--include-hook-events", "--forward-subagent-text",
    "--replay-user-messages", "--no-session-persistence",
)  # fmt: skip
SESSION_OPTIONS = ("-c", "--continue", "-r", "--resume", "--from-pr", "--session-id")


class Claude(AgentAdapter):
    """`claude -p`, the prompt on standard input."""

    name = "claude"
    cost = COST_REPORTED
    guard = "acceptEdits"
    traits = AgentTraits("haiku", "anthropic", reports_resets=True, calls_guard=True)
    login = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
    credentials = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX", "~/.claude/.credentials.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"DISABLE_AUTOUPDATER": "1"}
    needs = AgentRequirements(
        "~/.claude", "CLAUDE_CONFIG_DIR",
        (
            ".credentials.json", "settings.json", "CLAUDE.md", "skills", "agents", "commands", "plugins", "hooks",
            "rules", "output-styles", "workflows",
            "local",  # where its old installer put it
        ),
        ("api.anthropic.com", "platform.claude.com"),  # the second renews a login
        (
            "ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
            "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_AWS_BASE_URL",
            "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
        ),
        (
            "ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX", "DISABLE_*",
            "MAX_THINKING_TOKENS", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS",
            "BASH_MAX_OUTPUT_LENGTH", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION",
            "CLOUD_ML_REGION", "VERTEX_REGION_*",
        ),
    )  # fmt: skip

    command = ("-p",)
    permission_options = ("--permission-mode", "--dangerously-skip-permissions")
    guarded_arguments = ("--permission-mode", guard)
    unguarded_arguments = ("--dangerously-skip-permissions",)
    question_options = ("--settings",)

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        settings: tuple[str, ...] = ()
        if not call.brief.schema and self.extra_files(call):
            call = replace(call, flags=without_options(call.flags, "--settings"))
            settings = ("--settings", call.brief.log_base + SETTINGS_SUFFIX)
        # Without a stream, one object at the end has everything, cost included.
        stream = call.brief.stream and not call.brief.schema
        output_format = ("stream-json", "--verbose") if stream else ("json",)
        return (*super().arguments(call), *settings, "--output-format", *output_format)

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        """No customisation except login and model; the tool that takes the answer is always there."""
        return (
            "--safe-mode", "--tools", "", "--strict-mcp-config", "--disable-slash-commands", "--permission-mode",
            "dontAsk", "--no-session-persistence", "--system-prompt", JUDGE_SYSTEM_PROMPT,
            *option("--max-budget-usd", format_budget_usd(call)), "--json-schema", call.brief.schema,
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...]:
        """The prompt comes first: an option that takes several words would consume it."""
        flags = tuple(flag for flag in without_options(call.flags, *PRINT_MODE_OPTIONS) if flag not in PRINT_MODE_FLAGS)
        return (
            call.brief.prompt,
            *flags,
            *self.permission_arguments(call, flags),
            *option("--model", call.model),
            *unless_given(
                flags, SESSION_OPTIONS, *option("--resume" if resume else "--session-id", call.brief.session)
            ),
        )

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """Hooks are passed in a settings file, merged with the user's own settings."""
        settings = claude_settings(call, option_value(call.flags, "--settings")) if call.brief.hooks else ""
        return {SETTINGS_SUFFIX: settings} if settings else {}

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        # As root it refuses to skip permissions unless this variable is set.
        skips_permissions = not call.guarded and not call.brief.schema
        return {"IS_SANDBOX": "1"} if skips_permissions and os.geteuid() == 0 else {}

    def reader(self, context: ReaderContext) -> ClaudeStream:
        return ClaudeStream(self, context)
