"""Adapter for OpenCode, as of 1.18.33, and the reader of its stream."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_REPORTED,
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
    option_value,
    parse_micro_usd,
    parse_token_count,
    summarize_arguments,
    without_options,
)
from ralphproof.agents.agent_config import find_key_variables, find_service_urls
from ralphproof.agents.error_messages import LOGIN_ERROR, TOO_LONG_ERROR, FailureReason, failure_event
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.base.text import truncate_middle
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.events import Denied, Ended, Progress, Said, Spent, Started, ToolStarted, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping


# The stream of OpenCode 1.18.33: one JSON object a line, each a finished part of a message.


EVENT_TYPES = ("text", "tool_use", "step_start", "step_finish", "error", "reasoning")
REFUSAL_MESSAGES = (
    "The user rejected permission to use",
    "The user has specified a rule which prevents you from using",
)
INVALID_TOOL = "invalid"  # the tool that takes calls of none
SUBAGENT_TOOL = "task"
STOP_REASON = "stop"  # the one reason with which the model has said what it had to say
CUT_OFF_MESSAGE = "the model's last message was cut off at its greatest length"
MAX_ERROR_CHARS = 1000  # a service's message tells when to come back at its end
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
    """Reasoning is counted separately from output."""

    input: Any = 0
    output: Any = 0
    reasoning: Any = 0
    cache: _Cache | None = None

    def value(self) -> Usage:
        cache = self.cache or _Cache()
        wrote = parse_token_count(self.output) + parse_token_count(self.reasoning)
        return Usage(
            parse_token_count(self.input), wrote, parse_token_count(cache.read), parse_token_count(cache.write)
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
    """Reads one turn. There is no result line: how the turn went is known when the program has ended."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        self._adapter, self._context, self._emit = adapter, context, context.emit
        self._todos = TodoTracker()
        self._started = self._working = self._denied = self._overflowed = False
        self._error: Ended | None = None  # that it named, and no step came after it
        self._message: object = None  # the one that was told last, and its text
        self._text = ""
        self._reason: str | None = None  # why the last step ended
        self._spent = Spent(0, Usage(), at_least=True)
        self._more = False  # was spent than it says

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
                self._use(part)
            case "step_start":
                self._reason = self._error = None
                self._working, self._denied = True, False
            case "step_finish":
                self._finish(part)
            case "error":
                self._fail(entry.error)

    def close(self, end: Exit) -> None:
        """It may exit with 0 and have failed, and with 1 after an error that it recovered from."""
        by_itself = end.why in ("exit", "lingered")
        if self._started:
            known = by_itself and not self._working and not self._more
            spent = self._spent
            self._emit(Spent(spent.micro_usd, spent.usage, not known, spent.notional))
        if self._error is not None:
            self._emit(self._error)
        elif self._overflowed and by_itself and not end.clean:
            self._emit(
                failure_event(self._adapter, FailureReason(TOO_LONG_ERROR, "it was summed up on the way"), self._text)
            )
        elif self._reason == STOP_REASON:
            self._emit(Ended(True, self._text))
        elif by_itself and self._started:
            self._emit(Ended(False, self._text, self._why()))

    def _why(self) -> str:
        match self._reason:
            case None:
                return "the agent ended in the middle of a step"
            case "tool-calls" if self._denied:
                return "the agent stopped where a tool was not permitted"
            case "tool-calls":
                return "the agent stopped after a tool call and said no last word"
            case "length":
                return CUT_OFF_MESSAGE
            case reason:
                return f"the model stopped: {one_line(reason)}"

    def _say(self, part: _Part) -> None:
        if part.synthetic or not isinstance(part.text, str):  # what it prompts itself with is nobody's word
            return
        self._text = truncate_middle(self._text + part.text if part.messageID == self._message else part.text)
        self._message = part.messageID
        if part.text.strip():
            self._emit(Said(part.text))

    def _use(self, part: _Part) -> None:
        """A call is reported once, when it has ended."""
        state = part.state or _State()
        arguments = decode_raw(state.input)
        call, tool = str(part.callID), str(part.tool)
        error = state.error if isinstance(state.error, str) else ""
        ran = state.metadata is None or state.metadata.exit in (0, None)
        ok = state.status == "completed" and ran and tool != INVALID_TOOL
        self._emit(ToolStarted(call, tool, summarize_arguments(arguments)))
        self._emit(make_tool_ended(call, ok, state.output if isinstance(state.output, str) else error))
        if error.startswith(REFUSAL_MESSAGES):
            self._denied = True
            self._emit(Denied(tool, summarize_arguments(arguments)))
        if tool == "todowrite" and ok and (changed := self._todos.apply("TodoWrite", arguments)):
            self._emit(changed)
        self._more = self._more or tool == SUBAGENT_TOOL  # what that spent is told nowhere

    def _finish(self, part: _Part) -> None:
        self._working, self._reason = False, part.reason if isinstance(part.reason, str) else "no reason was told"
        if part.messageID != self._message:
            self._message, self._text = part.messageID, ""
        usage, before = part.tokens.value() if part.tokens else Usage(), self._spent
        cost, notional = parse_micro_usd(part.cost) if usage.total or part.cost else None, before.notional
        if cost == 0:  # so it tells prices that it does not know, and what a subscription pays
            cost = self._context.cost(self._context.model, usage)
            notional = notional or cost is not None
        total = None if cost is None or before.micro_usd is None else before.micro_usd + cost
        self._spent = Spent(total, usage.plus(before.usage or Usage()), True, notional)
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
PERMISSION_VARIABLE = "OPENCODE_PERMISSION"  # a variable that has the last word over its settings
SETTINGS_FILE = "~/.config/opencode/opencode.json"
CONFIG_FILES = (
    "opencode.json", "opencode.jsonc", "config.json", "AGENTS.md", "agent", "agents", "command", "commands", "plugin",
    "plugins", "skill", "skills", "tool", "tools",
)  # fmt: skip
# Its own rules allow everything in its folder and ask about the rest: unattended, that ends its turn. A denied call is
# reported to it, and it continues. The rule beside `*` keeps the tool visible, so that the model learns why no command
# is run; the user's own rules for single commands stay.
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
            "~/.local/share/opencode",
            "",
            ("auth.json", *(f"~/.config/opencode/{name}" for name in CONFIG_FILES)),
            (
                "opencode.ai",
                "models.dev",
                "api.anthropic.com",
                "platform.claude.com",
                "api.openai.com",
                "chatgpt.com",
                "auth.openai.com",
                "generativelanguage.googleapis.com",
                "openrouter.ai",
            ),
            ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", *find_service_urls(SETTINGS_FILE)),
            (
                *credential_variables(self.credentials),
                *self.updates_off,
                "OPENCODE_*",
                "ANTHROPIC_*",
                "OPENAI_*",
                "OPENROUTER_*",
                *find_key_variables(SETTINGS_FILE, "apiKey", "{env:", "}"),
            ),
            (".opencode/", "opencode.json", "opencode.jsonc"),
            logins=credential_files(self.credentials),
        )

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        flags = without_options(call.flags, *MODEL_OPTIONS) if call.model else call.flags
        if call.brief.schema:
            own = keep_options(flags, *MODEL_OPTIONS, "--variant")
            return ("run", *own, *(("--model", call.model) if call.model else ()), "--format", "json")
        return (
            "run",
            *flags,
            *(() if call.guarded or has_option(flags, *PERMISSION_OPTIONS) else ("--auto",)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.brief.session) if call.brief.session else ()),
            "--format", "json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_value(flags, *MODEL_OPTIONS)

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        here = {"PWD": os.path.abspath(call.brief.cwd)}  # it works there, wherever it is
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
