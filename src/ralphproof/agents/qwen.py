"""Adapter for Qwen Code, as of 0.24.4, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    find_key_variables,
    find_service_urls,
    get_table,
    one_line,
    read_json_setting,
)
from ralphproof.agents.claude import ClaudeStream
from ralphproof.agents.error_messages import LOGIN_ERROR, FailureReason, failure_event
from ralphproof.agents.stream import ANY_DECODER, UsageTally, decode_line, parse_token_count, text_or_none
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Event, Progress, Said, Spent, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

FOLDER_VARIABLE = "QWEN_HOME"
API_ERROR_PREFIX = "[API Error: "  # of error messages that the program shows as messages of the model
NO_AUTH_MESSAGE = "No auth type is selected"


class Qwen(AgentAdapter):
    """`qwen`, the prompt on standard input."""

    name = "qwen"
    cost = COST_COMPUTED
    guard = "auto-edit"
    login = "run `qwen` once and log in, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"
    credentials = (
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "~/.qwen/oauth_creds.json",
        "~/.qwen/settings.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"QWEN_USAGE_STATISTICS_ENABLED": "false"}
    needs = AgentRequirements(
        "~/.qwen", FOLDER_VARIABLE,
        ("oauth_creds.json", ".env", "settings.json", "QWEN.md", "commands", "agents", "skills", "extensions"),
        (
            "chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com",
            "coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com", "api.openai.com",
            "api.anthropic.com", "generativelanguage.googleapis.com",
        ),
        ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        ("QWEN_*", "OPENAI_*", "ANTHROPIC_*", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "DASHSCOPE_*", "BAILIAN_*"),
        (".qwen/",),
    )  # fmt: skip
    model_options = ("--model", "-m")  # a repeated option makes it crash
    model_variables = ("OPENAI_MODEL", "QWEN_MODEL")
    settings_file = "~/.qwen/settings.json"
    permission_options = ("--approval-mode", "--yolo", "-y")
    guarded_arguments = ("--approval-mode", guard)
    unguarded_arguments = ("--approval-mode", "yolo")
    output_arguments = ("--output-format", "stream-json")
    question_options = ("--auth-type", "--openai-api-key", "--openai-base-url", "--proxy")

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's settings name, and the variables that hold their keys."""
        settings = os.path.join(os.environ.get(FOLDER_VARIABLE) or "~/.qwen", "settings.json")
        return self.requirements_with(find_service_urls(settings), find_key_variables(settings, "envKey"))

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        # The tool that takes the answer does not count as a tool call.
        return (
            "--safe-mode", "--approval-mode", "default", "--max-tool-calls", "0", "--chat-recording=false",
            "--json-schema", call.brief.schema,
        )  # fmt: skip

    def reader(self, context: ReaderContext) -> QwenStream:
        login = read_json_setting(self.settings_file, "security", "auth", "selectedType")
        return QwenStream(self, context, notional=login == "qwen-oauth")


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
        entry = decode_line(line, ANY_DECODER)
        match entry:
            case {"type": "system", "subtype": "retry"}:
                self._emit(Progress("the service's answer was of no use: another try"))
                return
            case {"type": "system", "subtype": "model_fallback", "data": {"toModel": model}}:
                self._emit(Progress(one_line(f"the service failed: now with model {model}")))
                return
            case {"type": "result", "is_error": True, "num_turns": 0, "error": error} if self._answered:
                # A subagent failed: the agent itself has had a turn by now.
                why = error.get("message") if isinstance(error, dict) else error
                self._emit(Progress(f"a subagent failed: {one_line(why)}"))
                return
            case {"type": "result"}:
                self._close(get_table(entry, "usage") if "usage" in entry else None, bool(entry.get("is_error")))
            case {"type": "assistant"}:
                self._count(get_table(entry, "message"))
            case {"qwen_code_version": str(version)}:
                self._version = version
        self._stream.read_line(line)

    def close(self, end: Exit) -> None:
        self._stream.close(end)

    def _count(self, message: dict[str, Any]) -> None:
        self._answered = True
        name, counts = text_or_none(message.get("id")), _token_counts(get_table(message, "usage"))
        if name is not None and any(counts):
            self._counted = True
            self._tally.message(name, text_or_none(message.get("model")), counts)

    def _close(self, reported: dict[str, Any] | None, failed: bool) -> None:
        """Report the usage. Zero tokens are possible where the turn failed; otherwise zero means not counted."""
        usage = None if reported is None else Usage(*_token_counts(reported))
        if usage is not None and usage.total:
            self._tally.close(usage)
        elif usage is not None and failed and not self._counted:
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


def _token_counts(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    """The usage of a message or of a turn; its input includes cache reads."""
    cached = parse_token_count(usage.get("cache_read_input_tokens"))
    uncached = max(0, parse_token_count(usage.get("input_tokens")) - cached)
    return uncached, parse_token_count(usage.get("output_tokens")), cached, 0
