"""Adapter for OpenCode, as of 1.18.33, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_REPORTED,
    CUT_OFF_MESSAGE,
    NO_FINAL_MESSAGE,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    TodoTracker,
    credential_files,
    credential_variables,
    has_option,
    keep_options,
    make_tool_ended,
    one_line,
    option,
    option_value,
    parse_micro_usd,
    parse_token_count,
    summarize_arguments,
    without_options,
)
from ralphproof.agents.agent_config import find_key_variables, find_service_urls
from ralphproof.agents.error_messages import LOGIN_ERROR, TOO_LONG_ERROR, FailureReason, failure_event
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.base.text import truncate
from ralphproof.base.value import replace
from ralphproof.engine.agent import Denied, Ended, Progress, Said, Spent, Started, ToolStarted, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

# The stream of OpenCode 1.18.33: one JSON object a line, each a finished part of a message.


EVENT_TYPES = ("text", "tool_use", "step_start", "step_finish", "error", "reasoning")
REFUSAL_MESSAGES = (
    "The user rejected permission to use",
    "The user has specified a rule which prevents you from using",
)
INVALID_TOOL = "invalid"  # stands for calls of tools that do not exist
SUBAGENT_TOOL = "task"
STOP_REASON = "stop"  # the model finished its answer
MAX_ERROR_CHARS = 1000  # the end of a service's message may hold a reset time
LOG_FOLDER = "~/.local/share/opencode/log"


class _Metadata(Struct, gc=False):
    exit: Any = None


class _State(Struct, gc=False):
    status: Any = None
    input: Raw = Raw()
    output: Any = None
    error: Any = None
    metadata: _Metadata | None = None


class _Cache(Struct, gc=False):
    read: Any = 0
    write: Any = 0


class _Tokens(Struct, gc=False):
    """The token counts of a step; reasoning is counted separately from output."""

    input: Any = 0
    output: Any = 0
    reasoning: Any = 0
    cache: _Cache | None = None

    def value(self) -> Usage:
        cache = self.cache or _Cache()
        output_count = parse_token_count(self.output) + parse_token_count(self.reasoning)
        return Usage(
            parse_token_count(self.input), output_count, parse_token_count(cache.read), parse_token_count(cache.write)
        )


class _Part(Struct, gc=False):
    messageID: Any = None
    text: Any = None
    synthetic: Any = None
    tool: Any = None
    callID: Any = None
    state: _State | None = None
    reason: Any = None
    cost: Any = None
    tokens: _Tokens | None = None


class _Line(Struct, gc=False):
    type: str = ""
    sessionID: Any = None
    part: _Part | None = None
    error: Any = None


_LINES = msgspec.json.Decoder(_Line)


class OpenCodeStream:
    """Reads one turn. There is no result line: whether the turn succeeded is known when the program has ended."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        self._adapter, self._context, self._emit = adapter, context, context.emit
        self._todos = TodoTracker()
        self._started = self._in_step = self._denied = self._overflowed = False
        self._error: Ended | None = None  # the last error, until another step starts
        self._message_id: object = None  # of the last message
        self._text = ""  # of the last message
        self._stop_reason: str | None = None  # of the last step
        self._spent = Spent(0, Usage(), at_least=True)
        self._used_subagent = False  # whose cost is not reported

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, _LINES)
        if entry.type not in EVENT_TYPES:
            raise ValueError(entry.type)
        if not self._started:
            self._started = True
            session = entry.sessionID if isinstance(entry.sessionID, str) else None
            self._emit(Started(session, self._context.model))
        part = entry.part or _Part()
        match entry.type:
            case "text":
                self._say(part)
            case "tool_use":
                self._tool(part)
            case "step_start":
                self._stop_reason = self._error = None
                self._in_step, self._denied = True, False
            case "step_finish":
                self._finish(part)
            case "error":
                self._fail(entry.error)

    def close(self, end: Exit) -> None:
        """A failed turn may exit with 0, and one that recovered from an error with 1."""
        by_itself = end.why in ("exit", "lingered")
        if self._started:
            self._emit(replace(self._spent, at_least=not by_itself or self._in_step or self._used_subagent))
        if self._error is not None:
            self._emit(self._error)
        elif self._overflowed and by_itself and not end.clean:
            reason = FailureReason(TOO_LONG_ERROR, "it was summed up on the way")
            self._emit(failure_event(self._adapter, reason, self._text))
        elif self._stop_reason == STOP_REASON:
            self._emit(Ended(True, self._text))
        elif by_itself and self._started:
            self._emit(Ended(False, self._text, self._describe_stop()))

    def _describe_stop(self) -> str:
        match self._stop_reason:
            case None:
                return "the agent ended in the middle of a step"
            case "tool-calls" if self._denied:
                return "the agent stopped where a tool was not permitted"
            case "tool-calls":
                return NO_FINAL_MESSAGE
            case "length":
                return CUT_OFF_MESSAGE
            case reason:
                return f"the model stopped: {one_line(reason)}"

    def _say(self, part: _Part) -> None:
        if part.synthetic or not isinstance(part.text, str):  # synthetic text is a prompt of the program itself
            return
        self._text = truncate(self._text + part.text if part.messageID == self._message_id else part.text)
        self._message_id = part.messageID
        if part.text.strip():
            self._emit(Said(part.text))

    def _tool(self, part: _Part) -> None:
        """A call is reported once, when it has ended."""
        state = part.state or _State()
        arguments = decode_raw(state.input)
        call, tool = str(part.callID), str(part.tool)
        error = state.error if isinstance(state.error, str) else ""
        exited_well = state.metadata is None or state.metadata.exit in (0, None)
        ok = state.status == "completed" and exited_well and tool != INVALID_TOOL
        self._emit(ToolStarted(call, tool, summarize_arguments(arguments)))
        self._emit(make_tool_ended(call, ok, state.output if isinstance(state.output, str) else error))
        if error.startswith(REFUSAL_MESSAGES):
            self._denied = True
            self._emit(Denied(tool, summarize_arguments(arguments)))
        if tool == "todowrite" and ok and (changed := self._todos.apply("TodoWrite", arguments)):
            self._emit(changed)
        self._used_subagent = self._used_subagent or tool == SUBAGENT_TOOL

    def _finish(self, part: _Part) -> None:
        self._in_step = False
        self._stop_reason = part.reason if isinstance(part.reason, str) else "no reason was told"
        if part.messageID != self._message_id:
            self._message_id, self._text = part.messageID, ""
        usage = part.tokens.value() if part.tokens else Usage()
        cost, notional = parse_micro_usd(part.cost) if usage.total or part.cost else None, self._spent.notional
        if cost == 0:  # OpenCode reports zero for an unknown price, and for what a subscription covers
            cost = self._context.cost(self._context.model, usage)
            notional = notional or cost is not None
        self._spent = replace(self._spent.plus(Spent(cost, usage)), at_least=True, notional=notional)
        self._emit(self._spent)

    def _fail(self, error: object) -> None:
        name, data = (error.get("name"), error.get("data")) if isinstance(error, dict) else (None, None)
        details = data if isinstance(data, dict) else {}
        message = one_line(details.get("message") or name or "the agent reported an error", MAX_ERROR_CHARS)
        if isinstance(status := details.get("statusCode"), int):
            message = f"API error {status}: {message}"
        match name:
            case "ProviderAuthError":
                self._error = failure_event(self._adapter, FailureReason(LOGIN_ERROR, message), "")
            case "ContextOverflowError":
                self._overflowed = True
                self._error = failure_event(self._adapter, FailureReason(TOO_LONG_ERROR, message), "")
                self._emit(Progress(message))
            case "UnknownError":
                self._error = Ended(False, "", f"{message} (its log is in {LOG_FOLDER})")
            case _:
                self._error = Ended(False, "", message)


MODEL_OPTIONS = ("--model", "-m")
PERMISSION_OPTIONS = ("--auto", "--yolo", "--dangerously-skip-permissions")
PERMISSION_VARIABLE = "OPENCODE_PERMISSION"  # overrides the permissions in its settings
SETTINGS_FILE = "~/.config/opencode/opencode.json"
CONFIG_FILES = (
    "opencode.json", "opencode.jsonc", "config.json", "AGENTS.md", "agent", "agents", "command", "commands", "plugin",
    "plugins", "skill", "skills", "tool", "tools",
)  # fmt: skip
# OpenCode's default rules allow everything in its folder and ask about the rest, which ends an unattended turn. After a
# denied call the model continues. The rule for the empty command keeps the bash tool visible, so that the model learns
# why no command is run; the user's own rules for single commands still apply.
DENY_PERMISSIONS = (
    '{"bash":{"*":"deny","":"deny"},"webfetch":"deny","external_directory":{"*":"deny"},'
    '"read":{"*.env":"deny","*.env.*":"deny","*.env.example":"allow"}}'
)


class OpenCode:
    """`opencode run`, the prompt on standard input."""

    name = "opencode"
    cost = COST_REPORTED
    guard = PERMISSION_VARIABLE
    resumes = True
    login = "run `opencode auth login`, or set the key of a provider such as ANTHROPIC_API_KEY"
    credentials: tuple[str, ...] = (
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "~/.local/share/opencode/auth.json",
        SETTINGS_FILE,
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's settings name, and the variables that hold their keys."""
        return AgentRequirements(
            "~/.local/share/opencode", "",
            ("auth.json", *(f"~/.config/opencode/{name}" for name in CONFIG_FILES)),
            (
                "opencode.ai", "models.dev", "api.anthropic.com", "platform.claude.com", "api.openai.com",
                "chatgpt.com", "auth.openai.com", "generativelanguage.googleapis.com", "openrouter.ai",
            ),
            ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", *find_service_urls(SETTINGS_FILE)),
            (
                *credential_variables(self.credentials), *self.updates_off, "OPENCODE_*", "ANTHROPIC_*", "OPENAI_*",
                "OPENROUTER_*", *find_key_variables(SETTINGS_FILE, "apiKey", "{env:", "}"),
            ),
            (".opencode/", "opencode.json", "opencode.jsonc"),
            logins=credential_files(self.credentials),
        )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        flags = without_options(call.flags, *MODEL_OPTIONS) if call.model else call.flags
        if call.brief.schema:
            kept = keep_options(flags, *MODEL_OPTIONS, "--variant")
            return ("run", *kept, *option("--model", call.model), "--format", "json")
        return (
            "run",
            *flags,
            *(() if call.guarded or has_option(flags, *PERMISSION_OPTIONS) else ("--auto",)),
            *option("--model", call.model),
            *option("--session", call.brief.session),
            "--format", "json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_value(flags, *MODEL_OPTIONS)

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        here = {"PWD": os.path.abspath(call.brief.cwd)}  # it works in $PWD, not in the current directory
        if call.brief.schema:  # a tool that is denied altogether is not offered
            return {**here, PERMISSION_VARIABLE: '{"*":"deny"}', "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        if (
            not call.guarded
            or has_option(call.flags, *PERMISSION_OPTIONS)
            or PERMISSION_VARIABLE in dict(call.brief.env)
        ):
            return here
        return {**here, PERMISSION_VARIABLE: DENY_PERMISSIONS}

    def reader(self, context: ReaderContext) -> OpenCodeStream:
        return OpenCodeStream(self, context)
