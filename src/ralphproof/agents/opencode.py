"""Adapter for OpenCode, as of 1.18.33, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from ralphproof.agents.adapter import (
    COST_REPORTED,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    find_key_variables,
    find_service_urls,
    get_table,
    has_option,
    one_line,
)
from ralphproof.agents.error_messages import LOGIN_ERROR, TOO_LONG_ERROR, FailureReason, failure_event
from ralphproof.agents.stream import (
    CUT_OFF_MESSAGE,
    NO_FINAL_MESSAGE,
    JsonStream,
    inner_table,
    parse_micro_usd,
    parse_token_count,
    summarize_arguments,
    text_or_none,
)
from ralphproof.base.text import truncate
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Progress, Said, Spent, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

REFUSAL_MESSAGES = (
    "The user rejected permission to use",
    "The user has specified a rule which prevents you from using",
)
INVALID_TOOL = "invalid"  # stands for calls of tools that do not exist
SUBAGENT_TOOL = "task"
STOP_REASON = "stop"  # the model finished its answer
MAX_ERROR_CHARS = 1000  # the end of a service's message may hold a reset time
LOG_FOLDER = "~/.local/share/opencode/log"
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


class OpenCode(AgentAdapter):
    """`opencode run`, the prompt on standard input."""

    name = "opencode"
    cost = COST_REPORTED
    guard = PERMISSION_VARIABLE
    login = "run `opencode auth login`, or set the key of a provider such as ANTHROPIC_API_KEY"
    credentials = (
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "~/.local/share/opencode/auth.json",
        SETTINGS_FILE,
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
    needs = AgentRequirements(
        "~/.local/share/opencode", "",
        ("auth.json", *(f"~/.config/opencode/{name}" for name in CONFIG_FILES)),
        (
            "opencode.ai", "models.dev", "api.anthropic.com", "platform.claude.com", "api.openai.com",
            "chatgpt.com", "auth.openai.com", "generativelanguage.googleapis.com", "openrouter.ai",
        ),
        ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"),
        ("OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "OPENROUTER_*"),
        (".opencode/", "opencode.json", "opencode.jsonc"),
    )  # fmt: skip
    command = ("run",)
    model_options = ("--model", "-m")
    permission_options = ("--auto", "--yolo", "--dangerously-skip-permissions")
    unguarded_arguments = ("--auto",)
    session_option = "--session"
    output_arguments = ("--format", "json")
    question_options = ("--variant",)

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's settings name, and the variables that hold their keys."""
        variables = find_key_variables(SETTINGS_FILE, "apiKey", "{env:", "}")
        return self.requirements_with(find_service_urls(SETTINGS_FILE), variables)

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        here = {"PWD": os.path.abspath(call.brief.cwd)}  # it works in $PWD, not in the current directory
        if call.brief.schema:  # a tool that is denied altogether is not offered
            return {**here, PERMISSION_VARIABLE: '{"*":"deny"}', "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        decided = has_option(call.flags, *self.permission_options) or PERMISSION_VARIABLE in dict(call.brief.env)
        return {**here, PERMISSION_VARIABLE: DENY_PERMISSIONS} if call.guarded and not decided else here

    def reader(self, context: ReaderContext) -> OpenCodeStream:
        return OpenCodeStream(self, context)


class OpenCodeStream(JsonStream):
    """Reads one turn: each line is a finished part of a message.

    There is no result line: whether the turn succeeded is known when the program has ended.
    """

    ignored = ("reasoning",)

    def __init__(self, adapter: OpenCode, context: ReaderContext) -> None:
        super().__init__(adapter, context)
        self._started = self._in_step = self._refused = self._overflowed = False
        self._error: Ended | None = None  # the last error, until another step starts
        self._message_id: object = None  # of the last message
        self._text = ""  # of the last message
        self._stop_reason: str | None = None  # of the last step
        self._spent = Spent(0, Usage(), at_least=True)
        self._used_subagent = False  # whose cost is not reported

    def _start(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Report the start of the turn at its first line; returns the part of the message in this line."""
        if not self._started:
            self._started = True
            self.emit(Started(text_or_none(entry.get("sessionID")), self.context.model))
        return inner_table(entry, "part")

    def close(self, end: Exit) -> None:
        """A failed turn may exit with 0, and one that recovered from an error with 1."""
        by_itself = end.why in ("exit", "lingered")
        if self._started:
            self.emit(replace(self._spent, at_least=not by_itself or self._in_step or self._used_subagent))
        if self._error is not None:
            self.emit(self._error)
        elif self._overflowed and by_itself and not end.clean:
            self.fail("it was summed up on the way", self._text, TOO_LONG_ERROR)
        elif self._stop_reason == STOP_REASON:
            self.emit(Ended(True, self._text))
        elif by_itself and self._started:
            self.fail(self._describe_stop(), self._text)

    def _describe_stop(self) -> str:
        match self._stop_reason:
            case None:
                return "the agent ended in the middle of a step"
            case "tool-calls" if self._refused:
                return "the agent stopped where a tool was not permitted"
            case "tool-calls":
                return NO_FINAL_MESSAGE
            case "length":
                return CUT_OFF_MESSAGE
            case reason:
                return f"the model stopped: {reason}"

    def _say(self, entry: dict[str, Any]) -> None:
        part = self._start(entry)
        text, message_id = part.get("text"), part.get("messageID")
        if part.get("synthetic") or not isinstance(text, str):  # synthetic text is a prompt of the program itself
            return
        self._text = truncate(self._text + text if message_id == self._message_id else text)
        self._message_id = message_id
        if text.strip():
            self.emit(Said(text))

    def _tool(self, entry: dict[str, Any]) -> None:
        """A call is reported once, when it has ended."""
        part = self._start(entry)
        state, call, tool = inner_table(part, "state"), str(part.get("callID")), str(part.get("tool"))
        error, exit_code = text_or_none(state.get("error")) or "", inner_table(state, "metadata").get("exit")
        ok = state.get("status") == "completed" and exit_code in (0, None) and tool != INVALID_TOOL
        output = state.get("output")
        self.start_tool(call, tool, state.get("input"))
        self.end_tool(call, ok, output if isinstance(output, str) else error)
        if error.startswith(REFUSAL_MESSAGES):
            self._refused = True
            self.deny(tool, summarize_arguments(state.get("input")))
        self._used_subagent = self._used_subagent or tool == SUBAGENT_TOOL

    def _start_step(self, entry: dict[str, Any]) -> None:
        self._start(entry)
        self._stop_reason = self._error = None
        self._in_step, self._refused = True, False

    def _finish_step(self, entry: dict[str, Any]) -> None:
        part = self._start(entry)
        self._in_step = False
        self._stop_reason = text_or_none(part.get("reason")) or "no reason was told"
        if part.get("messageID") != self._message_id:
            self._message_id, self._text = part.get("messageID"), ""
        usage, reported = _usage(inner_table(part, "tokens")), part.get("cost")
        cost, notional = parse_micro_usd(reported) if usage.total or reported else None, self._spent.notional
        if cost == 0:  # OpenCode reports zero for an unknown price, and for what a subscription covers
            cost = self.context.cost(self.context.model, usage)
            notional = notional or cost is not None
        self._spent = replace(self._spent.plus(Spent(cost, usage)), at_least=True, notional=notional)
        self.emit(self._spent)

    def _report_error(self, entry: dict[str, Any]) -> None:
        self._start(entry)
        error = get_table(entry, "error")
        name, details = error.get("name"), get_table(error, "data")
        message = one_line(details.get("message") or name or "the agent reported an error", MAX_ERROR_CHARS)
        if isinstance(status := details.get("statusCode"), int):
            message = f"API error {status}: {message}"
        kind = {"ProviderAuthError": LOGIN_ERROR, "ContextOverflowError": TOO_LONG_ERROR}.get(str(name))
        if kind == TOO_LONG_ERROR:
            self._overflowed = True
            self.emit(Progress(message))
        if kind:
            self._error = failure_event(self.adapter, FailureReason(kind, message), "")
        else:
            log = f" (its log is in {LOG_FOLDER})" if name == "UnknownError" else ""
            self._error = Ended(False, "", message + log)

    handlers: ClassVar = {
        "text": _say, "tool_use": _tool, "step_start": _start_step, "step_finish": _finish_step, "error": _report_error
    }  # fmt: skip


def _usage(tokens: dict[str, Any]) -> Usage:
    """The token counts of a step; reasoning is counted separately from output."""
    cache = inner_table(tokens, "cache")
    input_count, output_count, reasoning = (parse_token_count(tokens.get(n)) for n in ("input", "output", "reasoning"))
    read, write = parse_token_count(cache.get("read")), parse_token_count(cache.get("write"))
    return Usage(input_count, output_count + reasoning, read, write)
