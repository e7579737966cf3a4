"""Adapter for pi, as of 0.73.1, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from ralphproof.agents.adapter import (
    COST_REPORTED,
    JUDGE_SYSTEM_PROMPT,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    find_key_variables,
    find_service_urls,
    one_line,
)
from ralphproof.agents.stream import (
    CUT_OFF_MESSAGE,
    NO_FINAL_MESSAGE,
    JsonStream,
    inner_table,
    parse_micro_usd,
    parse_token_count,
    text_or_none,
)
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Progress, Said, Spent, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

FOLDER_VARIABLE = "PI_CODING_AGENT_DIR"
SUBSCRIPTION_PROVIDERS = ("openai-codex", "github-copilot")  # providers that do not bill by the token
QUESTION_OPTIONS = (
    "--no-tools", "--no-session", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-context-files",
    "--system-prompt", JUDGE_SYSTEM_PROMPT,
)  # fmt: skip


class Pi(AgentAdapter):
    """`pi -p`, the prompt on standard input. It has no permission mode: everything is allowed."""

    name = "pi"
    cost = COST_REPORTED
    login = "run `pi` once and type /login, or set the key of a provider such as ANTHROPIC_API_KEY"
    credentials = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY",
        "DEEPSEEK_API_KEY", "GROQ_API_KEY", "CEREBRAS_API_KEY", "XAI_API_KEY", "FIREWORKS_API_KEY",
        "OPENROUTER_API_KEY", "AI_GATEWAY_API_KEY", "ZAI_API_KEY", "MISTRAL_API_KEY", "MINIMAX_API_KEY",
        "MOONSHOT_API_KEY", "OPENCODE_API_KEY", "KIMI_API_KEY", "CLOUDFLARE_API_KEY", "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "~/.pi/agent/auth.json", "~/.pi/agent/models.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    needs = AgentRequirements(
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
        ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "AZURE_OPENAI_BASE_URL"),
        ("PI_*", "ANTHROPIC_*", "OPENAI_*", "AZURE_OPENAI_*"),
        (".pi/",),
    )  # fmt: skip
    command = ("-p",)
    session_option = "--session"
    output_arguments = ("--mode", "json")
    question_options = ("--provider", "--api-key", "--thinking")

    @property
    def requirements(self) -> AgentRequirements:
        """Including the services that the user's list of models names, and the variables that hold their keys."""
        models = os.path.join(os.environ.get(FOLDER_VARIABLE) or "~/.pi/agent", "models.json")
        return self.requirements_with(find_service_urls(models), find_key_variables(models, "apiKey"))

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        return QUESTION_OPTIONS

    def reader(self, context: ReaderContext) -> PiStream:
        return PiStream(self, context)


class PiStream(JsonStream):
    """Reads one turn. pi always exits with 0; its last message says whether the turn succeeded."""

    ignored = (
        "agent_start", "turn_start", "turn_end", "message_update", "tool_execution_update", "queue_update",
        "session_info_changed", "thinking_level_changed",
    )  # fmt: skip

    def __init__(self, adapter: Pi, context: ReaderContext) -> None:
        super().__init__(adapter, context)
        self._session: str | None = None
        self._started = self._compacted = False
        self._last: dict[str, Any] = {}  # message
        self._spent = Spent(0, Usage(), at_least=True)
        self._ended = False  # the end was emitted

    def close(self, end: Exit) -> None:
        """Report a failure that was not retried."""
        if self._last.get("stopReason") == "error" and not self._ended:
            self._end()

    def _note_session(self, entry: dict[str, Any]) -> None:
        self._session = text_or_none(entry.get("id"))

    def _message(self, entry: dict[str, Any]) -> None:
        message = inner_table(entry, "message")
        if message.get("role") != "assistant":
            return
        if not self._started:
            self._started = True
            self.emit(Started(self._session, text_or_none(message.get("model"))))
        if entry["type"] == "message_end":
            self._last, self._ended = message, False
            if text := _content_text(message):
                self.emit(Said(text))
            self._spend(message)

    def _tool_started(self, entry: dict[str, Any]) -> None:
        self.start_tool(str(entry.get("toolCallId")), str(entry.get("toolName")), entry.get("args"))

    def _tool_ended(self, entry: dict[str, Any]) -> None:
        self.end_tool(
            str(entry.get("toolCallId")), not entry.get("isError"), _content_text(inner_table(entry, "result"))
        )

    def _spend(self, message: dict[str, Any]) -> None:
        """Count a message, at its end only: it is repeated at the end of its turn and of the whole run."""
        reported, model = inner_table(message, "usage"), text_or_none(message.get("model"))
        counts = (parse_token_count(reported.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
        usage, cost = Usage(*counts), parse_micro_usd(inner_table(reported, "cost").get("total"))
        if cost == 0 and usage.total:  # pi reports zero for a model without a known price
            cost = self.context.cost(model, usage)
        elif cost == 0 and message.get("stopReason") != "error":  # and for a service that does not count tokens
            cost = None
        notional = self._spent.notional or message.get("provider") in SUBSCRIPTION_PROVIDERS
        self._spent = replace(self._spent.plus(Spent(cost, usage)), at_least=True, notional=notional)
        self.emit(self._spent)

    def _agent_ended(self, _: dict[str, Any]) -> None:
        if self._last and self._last.get("stopReason") != "error":  # an error may be retried
            self._end()

    def _retries_ended(self, entry: dict[str, Any]) -> None:
        if self._last and entry.get("success") is False:
            self._end()

    def _end(self) -> None:
        self._ended = True
        # The cost of compaction is not reported.
        self.emit(replace(self._spent, at_least=self._compacted))
        text, reason = _content_text(self._last), self._last.get("stopReason")
        match reason:
            case "stop":
                self.emit(Ended(True, text))
            case "error" | "aborted":
                self.fail(self._last.get("errorMessage") or f"the agent reported {reason}", text)
            case "length" | "toolUse":
                self.fail(CUT_OFF_MESSAGE if reason == "length" else NO_FINAL_MESSAGE, text)
            case _:
                self.fail(f"the model stopped: {reason or 'no reason was told'}", text)

    def _retry(self, entry: dict[str, Any]) -> None:
        delay_s = parse_token_count(entry.get("delayMs")) / 1000
        after = f"retry {entry.get('attempt')} of {entry.get('maxAttempts')} in {delay_s:.0f} s"
        self.emit(Progress(f"service error ({one_line(entry.get('errorMessage'))}), {after}"))

    def _compact(self, _: dict[str, Any]) -> None:
        self._compacted = True
        self.emit(Progress("the context is summed up"))
        self.emit(self._spent)

    def _compaction_ended(self, entry: dict[str, Any]) -> None:
        if entry.get("errorMessage"):
            self.emit(Progress(one_line(entry["errorMessage"])))

    handlers: ClassVar = {
        "session": _note_session, "message_start": _message, "message_end": _message,
        "tool_execution_start": _tool_started, "tool_execution_end": _tool_ended, "agent_end": _agent_ended,
        "auto_retry_start": _retry, "auto_retry_end": _retries_ended, "compaction_start": _compact,
        "compaction_end": _compaction_ended,
    }  # fmt: skip


def _content_text(holder: dict[str, Any]) -> str:
    """All text of a message or of a tool result."""
    content = holder.get("content")
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "\n".join(str(block.get("text")) for block in blocks if block.get("type") == "text")
