"""Adapter for pi, as of 0.73.1, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_REPORTED,
    CUT_OFF_MESSAGE,
    JUDGE_SYSTEM_PROMPT,
    NO_FINAL_MESSAGE,
    AgentInvocation,
    ReaderContext,
    credential_files,
    credential_variables,
    keep_options,
    make_tool_ended,
    one_line,
    option,
    option_value,
    parse_micro_usd,
    parse_token_count,
    summarize_arguments,
    unless_given,
)
from ralphproof.agents.agent_config import find_key_variables, find_service_urls
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Progress, Said, Spent, Started, ToolStarted, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

FOLDER_VARIABLE = "PI_CODING_AGENT_DIR"
SUBSCRIPTION_PROVIDERS = ("openai-codex", "github-copilot")  # providers that do not bill by the token
QUESTION_OPTIONS = (
    "--no-tools", "--no-session", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-context-files",
    "--system-prompt", JUDGE_SYSTEM_PROMPT,
)  # fmt: skip
IGNORED_EVENTS = (
    "agent_start", "turn_start", "turn_end", "message_update", "tool_execution_update", "queue_update",
    "session_info_changed", "thinking_level_changed",
)  # fmt: skip


class _Cost(Struct, gc=False):
    total: Any = None


class _Usage(Struct, gc=False):
    input: Any = 0
    output: Any = 0
    cacheRead: Any = 0
    cacheWrite: Any = 0
    cost: _Cost | None = None

    def value(self) -> Usage:
        return Usage(
            parse_token_count(self.input),
            parse_token_count(self.output),
            parse_token_count(self.cacheRead),
            parse_token_count(self.cacheWrite),
        )


class _Block(Struct, gc=False):
    type: str = ""
    text: Any = None


class _Message(Struct, gc=False):
    role: str = ""
    content: list[_Block] | str | None = None
    provider: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    stopReason: str | None = None
    errorMessage: Any = None


class _Result(Struct, gc=False):
    content: list[_Block] | str | None = None


class _Type(Struct, gc=False):
    type: str = ""


class _Line(Struct, gc=False):
    id: str | None = None
    message: _Message | None = None
    toolCallId: str = ""
    toolName: str = ""
    args: Raw = Raw()
    result: _Result | None = None
    isError: Any = None
    success: Any = None
    attempt: Any = None
    maxAttempts: Any = None
    delayMs: Any = None
    errorMessage: Any = None


_TYPES, _LINES = msgspec.json.Decoder(_Type), msgspec.json.Decoder(_Line)


class Pi:
    """`pi -p`, the prompt on standard input. It has no permission mode: everything is allowed."""

    name = "pi"
    cost = COST_REPORTED
    guard = ""
    resumes = True
    login = "run `pi` once and type /login, or set the key of a provider such as ANTHROPIC_API_KEY"
    credentials: tuple[str, ...] = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY",
        "DEEPSEEK_API_KEY", "GROQ_API_KEY", "CEREBRAS_API_KEY", "XAI_API_KEY", "FIREWORKS_API_KEY",
        "OPENROUTER_API_KEY", "AI_GATEWAY_API_KEY", "ZAI_API_KEY", "MISTRAL_API_KEY", "MINIMAX_API_KEY",
        "MOONSHOT_API_KEY", "OPENCODE_API_KEY", "KIMI_API_KEY", "CLOUDFLARE_API_KEY", "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "~/.pi/agent/auth.json", "~/.pi/agent/models.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's list of models names, and the variables that hold their keys."""
        models = os.path.join(os.environ.get(FOLDER_VARIABLE) or "~/.pi/agent", "models.json")
        return AgentRequirements(
            "~/.pi/agent", FOLDER_VARIABLE,
            (
                "auth.json", "models.json", "settings.json", "AGENTS.md", "CLAUDE.md", "SYSTEM.md", "APPEND_SYSTEM.md",
                "skills", "prompts", "extensions", "npm", "git", "bin",
            ),
            (
                "api.anthropic.com", "platform.claude.com", "api.openai.com", "chatgpt.com", "auth.openai.com",
                "generativelanguage.googleapis.com", "openrouter.ai", "api.githubcopilot.com", "api.deepseek.com",
                "api.groq.com", "api.cerebras.ai", "api.x.ai", "api.mistral.ai", "api.z.ai", "ai-gateway.vercel.sh",
                "api.fireworks.ai", "api.minimax.io", "api.moonshot.ai", "api.kimi.com", "opencode.ai",
            ),
            ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "AZURE_OPENAI_BASE_URL", *find_service_urls(models)),
            (
                *credential_variables(self.credentials), *self.updates_off, "PI_*", "ANTHROPIC_*", "OPENAI_*",
                "AZURE_OPENAI_*", *find_key_variables(models, "apiKey"),
            ),
            (".pi/",),
            logins=credential_files(self.credentials),
        )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        if call.brief.schema:
            kept = keep_options(call.flags, "--provider", "--api-key", "--thinking")
            model = option("--model", call.model) or keep_options(call.flags, "--model")
            return ("-p", *kept, *model, *QUESTION_OPTIONS, "--mode", "json")
        return (
            *unless_given(call.flags, ("-p", "--print"), "-p"),
            *call.flags,
            *option("--model", call.model),
            *option("--session", call.brief.session),
            "--mode", "json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_value(flags, "--model")

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def reader(self, context: ReaderContext) -> PiStream:
        return PiStream(context)


class PiStream:
    """Reads one turn. pi always exits with 0; its last message says whether the turn succeeded."""

    def __init__(self, context: ReaderContext) -> None:
        self._context, self._emit = context, context.emit
        self._session: str | None = None
        self._started = self._compacted = False
        self._last: _Message | None = None
        self._spent = Spent(0, Usage(), at_least=True)
        self._ended = False  # the end was emitted

    def read_line(self, line: bytes) -> None:
        kind = decode_line(line, _TYPES).type
        if kind in IGNORED_EVENTS:
            return
        entry = decode_line(line, _LINES)
        match kind:
            case "session":
                self._session = entry.id
            case "message_start" | "message_end" if entry.message is not None:
                self._message(kind, entry.message)
            case "tool_execution_start":
                self._emit(ToolStarted(entry.toolCallId, entry.toolName, summarize_arguments(decode_raw(entry.args))))
            case "tool_execution_end":
                self._emit(make_tool_ended(entry.toolCallId, not entry.isError, _content_text(entry.result)))
            case "agent_end" if self._last is not None:
                if self._last.stopReason != "error":  # an error may be retried
                    self._end(self._last)
            case "auto_retry_end" if self._last is not None:
                if entry.success is False:
                    self._end(self._last)
            case "auto_retry_start" | "compaction_start" | "compaction_end":
                self._progress(kind, entry)
            case _:
                raise ValueError(kind)

    def close(self, end: Exit) -> None:
        """Report a failure that was not retried."""
        if self._last is not None and self._last.stopReason == "error" and not self._ended:
            self._end(self._last)

    def _message(self, kind: str, message: _Message) -> None:
        if message.role != "assistant":
            return
        if not self._started:
            self._started = True
            self._emit(Started(self._session, message.model))
        if kind == "message_end":
            self._last, self._ended = message, False
            if text := _content_text(message):
                self._emit(Said(text))
            self._spend(message)

    def _spend(self, message: _Message) -> None:
        """Count a message, at its end only: it is repeated at the end of its turn and of the whole run."""
        reported = message.usage or _Usage()
        usage, cost = reported.value(), parse_micro_usd(reported.cost.total) if reported.cost else None
        if cost == 0 and usage.total:  # pi reports zero for a model without a known price
            cost = self._context.cost(message.model, usage)
        elif cost == 0 and message.stopReason != "error":  # and for a service that does not count tokens
            cost = None
        notional = self._spent.notional or message.provider in SUBSCRIPTION_PROVIDERS
        self._spent = replace(self._spent.plus(Spent(cost, usage)), at_least=True, notional=notional)
        self._emit(self._spent)

    def _end(self, last: _Message) -> None:
        self._ended = True
        # The cost of compaction is not reported.
        self._emit(replace(self._spent, at_least=self._compacted))
        text = _content_text(last)
        match last.stopReason:
            case "error" | "aborted":
                self._emit(Ended(False, text, one_line(last.errorMessage or f"the agent reported {last.stopReason}")))
            case "length":
                self._emit(Ended(False, text, CUT_OFF_MESSAGE))
            case "toolUse":
                self._emit(Ended(False, text, NO_FINAL_MESSAGE))
            case "stop":
                self._emit(Ended(True, text))
            case reason:
                self._emit(Ended(False, text, f"the model stopped: {one_line(reason or 'no reason was told')}"))

    def _progress(self, kind: str, entry: _Line) -> None:
        if kind == "auto_retry_start":
            after = f"retry {entry.attempt} of {entry.maxAttempts} in {parse_token_count(entry.delayMs) / 1000:.0f} s"
            self._emit(Progress(f"service error ({one_line(entry.errorMessage)}), {after}"))
        elif kind == "compaction_start":
            self._compacted = True
            self._emit(Progress("the context is summed up"))
            self._emit(self._spent)
        elif entry.errorMessage:
            self._emit(Progress(one_line(entry.errorMessage)))


def _content_text(holder: _Message | _Result | None) -> str:
    """All text of a message or of a tool result."""
    content = holder.content if holder is not None else None
    if isinstance(content, str):
        return content
    texts = (block.text for block in content or () if block.type == "text")
    return "\n".join(text for text in texts if isinstance(text, str))
