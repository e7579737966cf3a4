"""Adapter for Claude Code, as of 2.1.325, and the reader of its stream, which other agents imitate."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_REPORTED,
    JUDGE_SYSTEM_PROMPT,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    credential_files,
    credential_variables,
    format_budget_usd,
    get_list,
    get_table,
    has_guard_hook,
    has_option,
    hook_table,
    keep_options,
    make_tool_ended,
    one_line,
    option_value,
    parse_micro_usd,
    parse_reset_time,
    parse_token_count,
    summarize_arguments,
    without_options,
)
from ralphproof.agents.cost import UsageTally
from ralphproof.agents.error_messages import (
    CREDIT_ERROR,
    LIMIT_ERROR,
    LOGIN_ERROR,
    MODEL_ERROR,
    OUTAGE_ERROR,
    TOO_LONG_ERROR,
    FailureReason,
    failure_event,
    find_failure_reason,
)
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.agents.todos import TodoTracker
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.events import Asked, Denied, Ended, Limited, Progress, Said, Started, ToolStarted, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping


# The lines of Claude Code's stream, as far as they are used. Fields that may hold nonsense take anything.


# No cycles can come of these: the collector need not look at them.
class _Usage(Struct, gc=False):
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


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[_Block] | str | None = None
    usage: _Usage | None = None


class _Line(Struct, gc=False):
    """What comes by the thousand. Lines of other types are decoded once more, as what they are."""

    type: str = ""
    message: _Message | str | None = None
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
    usage: _Usage | None = None
    modelUsage: dict[str, _ModelUsage | None] | None = None
    permission_denials: list[_Denial] | None = None
    structured_output: Raw = Raw()


_LINES = msgspec.json.Decoder(_Line)
_SYSTEM_LINES, _RESULT_LINES = msgspec.json.Decoder(_SystemLine), msgspec.json.Decoder(_ResultLine)
_RATE_LIMIT_LINES = msgspec.json.Decoder(_RateLimitLine)


# The stream of Claude Code 2.1.325, and of agents that imitate it: a JSON object a line, in no fixed order of keys.


# Kinds of error that it names, and what they mean to us; of the others its message must tell.
ERROR_KINDS = {
    "authentication_failed": LOGIN_ERROR, "oauth_org_not_allowed": LOGIN_ERROR, "verification_required": LOGIN_ERROR,
    "cloud_credential_error": LOGIN_ERROR, "account_on_hold": CREDIT_ERROR, "billing_error": CREDIT_ERROR, "rate_limit": LIMIT_ERROR,
    "overloaded": OUTAGE_ERROR, "server_error": OUTAGE_ERROR, "model_not_found": MODEL_ERROR,
}  # fmt: skip
SYNTHETIC_MODEL = "<synthetic>"  # the "model" of messages that the program makes up itself
MAX_ARGUMENT_BYTES = 256 * 1024  # of a call's arguments: more are not looked into
MAX_DENIALS = 1000  # calls that are told; nobody reads more
MAX_RUNNING_CALLS = 1000  # calls at a time; nobody makes more
GUARD_PREFIX = "ralph guard"  # so begins what our guard says of a call that it denies
CHARS_PER_TOKEN = 4  # a message's own count of output comes only with the result; until then its length must do


class ClaudeStream:
    """Reads one turn."""

    def __init__(self, dialect: AgentAdapter, hearing: ReaderContext) -> None:
        self._dialect, self._hearing, self._tell = dialect, hearing, hearing.tell
        hearing.pause(self._account)
        self._tally, self._todos = UsageTally(hearing), TodoTracker()
        self._denied: set[str] = set()
        self._running: dict[str, str] = {}  # the tools that are called, by call
        self._kind = ""  # of the last error that it named
        self._limited: Limited | None = None
        self._message = _Message()  # the one that is being told, in several lines
        self._length = 0  # of it until now

    def hear(self, line: bytes) -> None:
        try:
            said = _LINES.decode(line)
        except ValueError:
            said = decode_line(line, _LINES)
        match said.type:
            case "assistant":
                self._assistant(said)
            case "user":
                self._user(said)
            case "system":
                self._system(decode_line(line, _SYSTEM_LINES))
            case "rate_limit_event":
                self._limit(decode_line(line, _RATE_LIMIT_LINES).rate_limit_info)
            case "result":
                self._result(decode_line(line, _RESULT_LINES))
            case "stream_event" | "control_request" | "control_response" | "keep_alive":
                pass
            case _:
                raise ValueError(said.type)

    def close(self, end: Exit) -> None:
        """Everything has been told with its result."""

    def _system(self, said: _SystemLine) -> None:
        match said.subtype:
            case "init" | None:
                self._tally.notional = said.apiKeySource == "none"  # then an account with a subscription pays
                self._tell(Started(said.session_id, said.model, said.claude_code_version))
            case "api_retry":
                why = said.error_status or said.error
                after = f" in {parse_token_count(said.retry_delay_ms) / 1000:.0f} s"
                self._tell(Progress(f"service error ({why}), retry {said.attempt} of {said.max_retries}{after}"))
            case "permission_denied":
                self._deny(said.tool_name, said.tool_use_id, said.message)

    def _limit(self, limit: _RateLimitInfo) -> None:
        resets_at = parse_reset_time(limit.resetsAt, self._hearing.now())
        name = (limit.rateLimitType or "usage").replace("_", " ")
        if limit.status == "rejected":
            self._limited = Limited(f"the {name} limit is reached", resets_at)
            self._tell(self._limited)
        elif limit.status == "allowed_warning" and isinstance(limit.utilization, int | float):
            self._tell(Progress(f"{limit.utilization:.0%} of the {name} limit is used"))

    def _assistant(self, said: _Line) -> None:
        message = said.message
        if not isinstance(message, _Message):
            return
        if (
            said.is_api_error_message or message.model == SYNTHETIC_MODEL
        ):  # the program's own words, no answer of a model
            if said.error is not None and said.parent_tool_use_id is None:
                self._kind = ERROR_KINDS.get(str(said.error), "")
            return
        self._kind, self._limited = "", None  # whatever it was, it got through
        if message.id != self._message.id:
            self._account()
            self._length = 0
        self._message = message
        for block in message.content if isinstance(message.content, list) else ():
            if block.type == "text" and isinstance(block.text, str):
                self._length += len(block.text)
                if said.parent_tool_use_id is None:
                    self._tell(Said(block.text))
            elif block.type == "tool_use":
                self._length += len(memoryview(block.input))
                self._tool(block)

    def _account(self) -> None:
        """Count the message that was told last."""
        message = self._message
        if message.usage is not None and message.id is not None:
            read, wrote, cache_read, cache_write = _token_counts(message.usage)
            wrote = max(wrote, self._length // CHARS_PER_TOKEN)
            self._tally.message(message.id, message.model, (read, wrote, cache_read, cache_write))

    def _tool(self, block: _Block) -> None:
        arguments, name = _decode_arguments(block.input), block.name or "tool"
        self._tell(ToolStarted(block.id or "", name, summarize_arguments(arguments)))
        if len(self._running) < MAX_RUNNING_CALLS:
            self._running[block.id or ""] = name
        if name == "AskUserQuestion":
            self._tell(Asked(_first_question(arguments)))
        self._todos.begun(block.id or "", name, arguments)

    def _user(self, said: _Line) -> None:
        content = said.message.content if isinstance(said.message, _Message) else None
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                call, ok, output = block.tool_use_id or "", not block.is_error, _tool_text(decode_raw(block.content))
                self._tell(make_tool_ended(call, ok, output))
                name = self._running.pop(call, "tool")
                if not ok and (why := output.removeprefix(f"PreToolUse:{name} hook error: ")).startswith(GUARD_PREFIX):
                    self._deny(name, call, why)
                if changed := self._todos.ended(call, ok, output):
                    self._tell(changed)

    def _deny(self, tool: str, call: str, why: object) -> None:
        if call not in self._denied and len(self._denied) < MAX_DENIALS:
            self._denied.add(call)
            self._tell(Denied(tool, one_line(why) if isinstance(why, str) else ""))

    def _result(self, said: _ResultLine) -> None:
        for denial in said.permission_denials or ():
            self._deny(
                str(denial.tool_name),
                str(denial.tool_use_id),
                summarize_arguments(_decode_arguments(denial.tool_input)),
            )
        self._settle(said)
        text = _structured_text(said.structured_output) or (said.result if isinstance(said.result, str) else "")
        # Older programs, and some that imitate this one, name no subtype: then the text of the result must be there.
        well = said.subtype == "success" or (said.subtype is None and isinstance(said.result, str))
        if well and said.is_error in (None, False) and not said.error and not said.errors:
            self._tell(Ended(True, text, window=_context_window(said)))
            return
        message = text or _error_text(said) or f"the agent reported {said.subtype or 'a result that is no success'}"
        kind = (
            TOO_LONG_ERROR
            if said.terminal_reason == "prompt_too_long"
            else self._kind or _kind_of_status(said.api_error_status)
        )
        if not kind:
            self._tell(Ended(False, text, one_line(message)))
            return
        if kind == LIMIT_ERROR and self._limited is None:
            found = find_failure_reason(message, self._hearing.now())
            self._tell(Limited(one_line(message), found.resets_at if found else None))
        self._tell(failure_event(self._dialect, FailureReason(kind, one_line(message)), text))

    def _settle(self, said: _ResultLine) -> None:
        """Its own account; of all models that it used where it lists them."""
        self._account()
        self._message = _Message()
        usage = Usage(*_token_counts(said.usage)) if said.usage else None
        if said.modelUsage:
            models = [one for one in said.modelUsage.values() if one is not None]
            usage = Usage(*map(sum, zip(*map(_token_counts, models), strict=True)))
        if said.total_cost_usd is msgspec.UNSET:
            self._tally.close(usage)
        else:
            self._tally.settle(parse_micro_usd(said.total_cost_usd), usage)


def _token_counts(usage: _Usage | _ModelUsage) -> tuple[int, int, int, int]:
    return (
        parse_token_count(usage.input_tokens), parse_token_count(usage.output_tokens), parse_token_count(usage.cache_read_input_tokens),
        parse_token_count(usage.cache_creation_input_tokens),
    )  # fmt: skip


def _context_window(said: _ResultLine) -> int | None:
    """How much goes into the context of the model that did most of the work."""
    models = [one for one in (said.modelUsage or {}).values() if one is not None]
    used = max(models, key=lambda one: sum(_token_counts(one)), default=None)
    return (parse_token_count(used.context_window) or None) if used else None


def _kind_of_status(status: object) -> str:
    """What an HTTP status says of whose fault it is."""
    known = {401: LOGIN_ERROR, 403: LOGIN_ERROR, 402: CREDIT_ERROR, 429: LIMIT_ERROR}
    return known.get(status, OUTAGE_ERROR if status >= 500 else "") if isinstance(status, int) else ""


def _structured_text(answer: Raw) -> str:
    """An answer in the form that was asked for, as the text that it is."""
    text = bytes(answer).decode("utf-8", "replace")
    return "" if text == "null" else text


def _error_text(said: _ResultLine) -> str:
    """The errors that a result without a text lists, or an error of its own."""
    listed = "; ".join(map(str, said.errors)) if isinstance(said.errors, list) else ""
    if not listed and isinstance(said.error, dict):
        return str(said.error.get("message") or "")
    return listed or (said.error if isinstance(said.error, str) else "")


def _decode_arguments(raw: Raw) -> Any:
    """The arguments of a call, where they are of a size that somebody may read."""
    return decode_raw(raw) if len(memoryview(raw)) <= MAX_ARGUMENT_BYTES else None


def _tool_text(content: object) -> str:
    """What a tool printed: a text, or a list of blocks of which some are texts."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _first_question(arguments: object) -> str:
    """The first question of a call that asks some."""
    questions = arguments.get("questions") if isinstance(arguments, dict) else None
    first = questions[0] if isinstance(questions, list) and questions else arguments
    return one_line(first.get("question") or first if isinstance(first, dict) else first)


SETTINGS_SUFFIX = ".settings.json"


def claude_settings(call: AgentInvocation, own: str | None) -> str:
    """Claude Code's settings for this turn: the user's own, as their flags give them, hooks, and what it may run.

    Empty where it would not start with the user's own: it shall say so itself.
    """
    settings = _load_user_settings(own, call.brief.cwd)
    if settings is None:
        return ""
    hooks = get_table(settings, "hooks")
    for event, groups in hook_table(call).items():
        hooks = hooks | {event: [*get_list(hooks, event), *groups]}
    rules = get_table(settings, "permissions")
    if call.guarded and call.brief.may_run:
        allowed = [_permission_rule(command) for command in call.brief.may_run]
        rules = rules | {"allow": [*get_list(rules, "allow"), *allowed]}
    made = settings | {"hooks": hooks} | ({"permissions": rules} if rules else {})
    made |= {"disableAllHooks": False} if has_guard_hook(call) else {}
    return msgspec.json.encode(made).decode()


def _permission_rule(command: str) -> str:
    """What permits this command. A star would stand for anything, but not before `:*`, which stands for more words."""
    text = command.strip().replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return f"Bash({text}:*)" if "*" in text.removesuffix(":*") else f"Bash({text})"


def _load_user_settings(given: str | None, cwd: str) -> dict[str, Any] | None:
    """What a user's `--settings` say, in a file or by themselves; None where Claude Code refuses to start with them.

    A file that holds something else it passes over (2.1.325).
    """
    text = (given or "{}").strip()
    named = not (text.startswith("{") and text.endswith("}"))
    try:
        found = msgspec.json.decode(_read_text(os.path.join(cwd, text)) if named else text)
    except OSError:
        return None
    except ValueError:
        return {} if named else None
    return found if isinstance(found, dict) else {}


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8-sig") as file:
        return file.read()


# Claude Code, as of 2.1.325.


PERMISSION_OPTIONS = ("--permission-mode", "--dangerously-skip-permissions")
# Nothing of the user's or a project's own but the login and the model; the tool that takes the answer is always there.
QUESTION_OPTIONS = (
    "--safe-mode", "--tools", "", "--strict-mcp-config", "--disable-slash-commands", "--permission-mode", "dontAsk",
    "--no-session-persistence", "--system-prompt", JUDGE_SYSTEM_PROMPT,
)  # fmt: skip
# What it takes with -p alone, with and without a value; and what says whose conversation a session goes on with.
PRINT_MODE_OPTIONS = (
    "--output-format", "--input-format", "--json-schema", "--max-turns", "--max-budget-usd", "--permission-prompt-tool",
)  # fmt: skip
PRINT_MODE_FLAGS = (
    "-p", "--print", "--include-partial-messages", "--include-hook-events", "--forward-subagent-text",
    "--replay-user-messages", "--no-session-persistence",
)  # fmt: skip
HOOKLESS_FLAGS = (
    "--bare",
    "--safe-mode",
)  # with these it calls no hook, whatever its settings say; so it is with variables
HOOKLESS_VARIABLES = ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
SESSION_OPTIONS = ("-c", "--continue", "-r", "--resume", "--from-pr", "--session-id")


class Claude:
    """`claude -p`, the prompt on standard input."""

    name = "claude"
    cost = COST_REPORTED
    guard = "acceptEdits"
    resumes = True
    login = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
    credentials: tuple[str, ...] = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX", "~/.claude/.credentials.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"DISABLE_AUTOUPDATER": "1"}
    lodging = AgentRequirements(
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
            *credential_variables(credentials), *updates_off, "ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX", "DISABLE_*",
            "MAX_THINKING_TOKENS", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS",
            "BASH_MAX_OUTPUT_LENGTH", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION",
            "CLOUD_ML_REGION", "VERTEX_REGION_*",
        ),
        logins=credential_files(credentials),
    )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        if call.brief.schema:
            return _question_arguments(call)
        guard = ("--permission-mode", self.guard) if call.guarded else ("--dangerously-skip-permissions",)
        # One object at the end says as much as the stream where nobody looks on, its cost included.
        form = ("stream-json", "--verbose") if call.brief.stream else ("json",)
        hooks = ("--settings", call.brief.base + SETTINGS_SUFFIX) if self.beside(call) else ()
        return (
            "-p",
            *(without_options(call.flags, "--settings") if hooks else call.flags),
            *hooks,
            *(() if has_option(call.flags, *PERMISSION_OPTIONS) else guard),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.brief.session) if call.brief.session else ()),
            "--output-format", *form,
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, again: bool) -> tuple[str, ...]:
        """The prompt comes first: an option that takes several words would take it for one of its own."""
        flags = tuple(flag for flag in without_options(call.flags, *PRINT_MODE_OPTIONS) if flag not in PRINT_MODE_FLAGS)
        guard = ("--permission-mode", self.guard) if call.guarded else ("--dangerously-skip-permissions",)
        named = call.brief.session if not has_option(flags, *SESSION_OPTIONS) else None
        return (
            call.brief.prompt,
            *flags,
            *(() if has_option(flags, *PERMISSION_OPTIONS) else guard),
            *(("--model", call.model) if call.model else ()),
            *(("--resume" if again else "--session-id", named) if named else ()),
        )

    def beside(self, call: AgentInvocation) -> Mapping[str, str]:
        """It takes hooks from a file of settings; the user's own are in it too."""
        settings = claude_settings(call, option_value(call.flags, "--settings")) if call.brief.hooks else ""
        return {SETTINGS_SUFFIX: settings} if settings else {}

    def unhooked(self, flags: tuple[str, ...], environ: Mapping[str, str]) -> str:
        """The flag or the variable by which it would call no hook; empty where it calls them."""
        said = [name for name in HOOKLESS_FLAGS if has_option(flags, name)]
        said += [
            name for name in HOOKLESS_VARIABLES if environ.get(name, "").lower() not in ("", "0", "false", "no", "off")
        ]
        return next(iter(said), "")

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_value(flags, "--model")

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        # As root it refuses to skip permissions unless it is told that it is in a sandbox, or that the user knows.
        skips = not call.guarded and not call.brief.schema
        return {"IS_SANDBOX": "1"} if skips and os.geteuid() == 0 else {}

    def reader(self, hearing: ReaderContext) -> ClaudeStream:
        return ClaudeStream(self, hearing)


def _question_arguments(call: AgentInvocation) -> tuple[str, ...]:
    most = format_budget_usd(call)
    return (
        "-p",
        *keep_options(call.flags, "--settings", *(() if call.model else ("--model",))),
        *(("--model", call.model) if call.model else ()),
        *QUESTION_OPTIONS,
        *(("--max-budget-usd", most) if most else ()),
        "--json-schema", call.brief.schema,
        "--output-format", "json",
    )  # fmt: skip
