"""Adapter for Qwen Code, as of 0.24.4, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    credential_files,
    credential_variables,
    keep_options,
    one_line,
    option,
    option_value,
    parse_token_count,
    unless_given,
    without_options,
)
from ralphproof.agents.agent_config import find_key_variables, find_service_urls, read_json_setting
from ralphproof.agents.claude import ClaudeStream
from ralphproof.agents.cost import UsageTally
from ralphproof.agents.error_messages import LOGIN_ERROR, FailureReason, failure_event
from ralphproof.agents.json_lines import decode_line
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Event, Progress, Said, Spent, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

SETTINGS_FILE, FOLDER_VARIABLE = "~/.qwen/settings.json", "QWEN_HOME"
PERMISSION_OPTIONS = ("--approval-mode", "--yolo", "-y")
MODEL_OPTIONS = ("--model", "-m")
SERVICE_OPTIONS = ("--auth-type", "--openai-api-key", "--openai-base-url", "--proxy")
API_ERROR_PREFIX = "[API Error: "  # of error messages that the program shows as messages of the model
NO_AUTH_MESSAGE = "No auth type is selected"


class Qwen:
    """`qwen`, the prompt on standard input."""

    name = "qwen"
    cost = COST_COMPUTED
    guard = "auto-edit"
    resumes = True
    login = "run `qwen` once and log in, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"
    credentials: tuple[str, ...] = (
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "~/.qwen/oauth_creds.json",
        SETTINGS_FILE,
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"QWEN_USAGE_STATISTICS_ENABLED": "false"}

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's settings name, and the variables that hold their keys."""
        settings = os.path.join(os.environ.get(FOLDER_VARIABLE) or "~/.qwen", "settings.json")
        return AgentRequirements(
            "~/.qwen", FOLDER_VARIABLE,
            ("oauth_creds.json", ".env", "settings.json", "QWEN.md", "commands", "agents", "skills", "extensions"),
            (
                "chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com",
                "coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com", "api.openai.com",
                "api.anthropic.com", "generativelanguage.googleapis.com",
            ),
            ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", *find_service_urls(settings)),
            (
                *credential_variables(self.credentials), "QWEN_*", "OPENAI_*", "ANTHROPIC_*", "GEMINI_MODEL",
                "GOOGLE_GEMINI_BASE_URL", "DASHSCOPE_*", "BAILIAN_*", *find_key_variables(settings, "envKey"),
            ),
            (".qwen/",),
            logins=credential_files(self.credentials),
        )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        # A repeated option makes it crash.
        flags = without_options(call.flags, *MODEL_OPTIONS) if call.model else call.flags
        if call.brief.schema:
            return (
                *keep_options(flags, *MODEL_OPTIONS, *SERVICE_OPTIONS),
                *option("--model", call.model),
                # The tool that takes the answer does not count as a tool call.
                "--safe-mode", "--approval-mode", "default", "--max-tool-calls", "0", "--chat-recording=false",
                "--json-schema", call.brief.schema, "--output-format", "stream-json",
            )  # fmt: skip
        return (
            *flags,
            *unless_given(flags, PERMISSION_OPTIONS, "--approval-mode", self.guard if call.guarded else "yolo"),
            *option("--model", call.model),
            *option("--resume", call.brief.session),
            "--output-format", "stream-json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return (
            model
            or option_value(flags, *MODEL_OPTIONS)
            or os.environ.get("OPENAI_MODEL")
            or os.environ.get("QWEN_MODEL")
            or read_json_setting(SETTINGS_FILE, "model", "name")
        )

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def reader(self, context: ReaderContext) -> QwenStream:
        login = read_json_setting(SETTINGS_FILE, "security", "auth", "selectedType")
        return QwenStream(self, context, notional=login == "qwen-oauth")


class _Usage(Struct, gc=False):
    """The usage of a message or of a turn; its input includes cache reads."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0

    def counts(self) -> tuple[int, int, int, int]:
        cached = parse_token_count(self.cache_read_input_tokens)
        return max(0, parse_token_count(self.input_tokens) - cached), parse_token_count(self.output_tokens), cached, 0


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Line(Struct, gc=False):
    type: str = ""
    subtype: Any = None
    message: _Message | str | None = None
    qwen_code_version: str | None = None
    data: Any = None
    is_error: Any = None
    num_turns: Any = None
    error: Any = None
    usage: _Usage | None = None


_LINES = msgspec.json.Decoder(_Line)


class QwenStream:
    """Reads one turn. The format is that of Claude Code, but every line is a message of its own, usage is counted
    differently, and no cost is reported.
    """

    def __init__(self, adapter: AgentAdapter, context: ReaderContext, notional: bool = False) -> None:
        self._adapter, self._emit, self._tally = adapter, context.emit, UsageTally(context)
        self._tally.notional = notional
        self._stream = ClaudeStream(adapter, replace(context, emit=self._pass_on))
        self._version: str | None = None
        self._answered = self._counted = False

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, _LINES)
        match entry.type:
            case "system" if entry.subtype == "retry":
                self._emit(Progress("the service's answer was of no use: another try"))
                return
            case "system" if entry.subtype == "model_fallback" and isinstance(entry.data, dict):
                self._emit(Progress(one_line(f"the service failed: now with model {entry.data.get('toModel')}")))
                return
            case "result" if self._answered and entry.is_error and entry.num_turns == 0:
                # A subagent failed: the agent itself has had a turn by now.
                self._emit(Progress(f"a subagent failed: {one_line(_error_message(entry.error))}"))
                return
            case "result":
                self._close(entry)
            case "assistant":
                self._count(entry.message)
        self._version = entry.qwen_code_version or self._version
        self._stream.read_line(line)

    def close(self, end: Exit) -> None:
        self._stream.close(end)

    def _count(self, message: _Message | str | None) -> None:
        self._answered = True
        if isinstance(message, _Message) and message.id is not None and message.usage is not None:
            counts = message.usage.counts()
            if any(counts):
                self._counted = True
                self._tally.message(message.id, message.model, counts)

    def _close(self, entry: _Line) -> None:
        """Report the usage. Zero tokens are possible where the turn failed; otherwise zero means not counted."""
        usage = Usage(*entry.usage.counts()) if entry.usage else None
        if usage is not None and usage.total:
            self._tally.close(usage)
        elif usage is not None and entry.is_error and not self._counted:
            self._tally.settle(0, usage)
        else:
            self._tally.close()

    def _pass_on(self, event: Event) -> None:
        match event:
            case Spent():
                return
            case Said(text) if text.lstrip().startswith(API_ERROR_PREFIX):
                return
            case Started(session, model, _):
                self._emit(Started(session, model, self._version))
            case Ended(False, text, str(why)) if why.startswith(NO_AUTH_MESSAGE):
                self._emit(failure_event(self._adapter, FailureReason(LOGIN_ERROR, why), text))
            case Ended(True, str(text)) if text.lstrip().startswith(API_ERROR_PREFIX):
                self._emit(Ended(False, "", one_line(text)))
            case _:
                self._emit(event)


def _error_message(error: object) -> object:
    return error.get("message") if isinstance(error, dict) else error
