"""Adapter for GitHub Copilot CLI, as of 1.0.102, and the reader of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ralphproof.agents.adapter import COST_UNKNOWN, AgentAdapter, AgentInvocation, ReaderContext, get_table, one_line
from ralphproof.agents.error_messages import (
    CREDIT_ERROR,
    LIMIT_ERROR,
    LOGIN_ERROR,
    MODEL_ERROR,
    SERVICE_ERROR_CODES,
    TOO_LONG_ERROR,
    find_reset_time,
    status_error_kind,
)
from ralphproof.agents.stream import ANY_DECODER, JsonStream, MessageBuffer, decode_line, inner_table, text_or_none
from ralphproof.engine.agent import Asked, Ended, Limited, Progress, Said, Started
from ralphproof.engine.sandbox import AgentRequirements

# Only tools named by --available-tools are offered, and no tool is called `none`. A denial outweighs any permission.
QUESTION_OPTIONS = (
    "--available-tools=none", "--deny-tool=shell", "--deny-tool=write", "--disable-builtin-mcps",
    "--no-custom-instructions", "--no-ask-user",
)  # fmt: skip
# Error types of Copilot itself.
ERROR_TYPES = {
    "authentication": LOGIN_ERROR, "authorization": LOGIN_ERROR, "quota": CREDIT_ERROR, "rate_limit": LIMIT_ERROR,
    "context_limit": TOO_LONG_ERROR,
}  # fmt: skip


class Copilot(AgentAdapter):
    """`copilot`, the prompt on standard input: it then asks nothing, and denies what was not permitted."""

    name = "copilot"
    cost = COST_UNKNOWN  # it reports no tokens, and is billed in credits
    guard = "--allow-tool=write"  # edits below the current folder, and commands that only read
    login = "run `copilot login`, or set COPILOT_GITHUB_TOKEN"
    credentials = (
        "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL", "~/.copilot/config.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"COPILOT_AUTO_UPDATE": "false"}
    needs = AgentRequirements(
        "~/.copilot", "COPILOT_HOME",
        (
            "config.json", "settings.json", "mcp-config.json", "copilot-instructions.md", "instructions", "agents",
            "skills", "hooks", "installed-plugins",
        ),
        ("api.github.com", "*.githubcopilot.com"),
        ("COPILOT_PROVIDER_BASE_URL", "COPILOT_API_URL", "GH_HOST"),
        ("COPILOT_*", "GH_HOST"),
        (".github/hooks/", ".github/copilot/", ".copilot/"),
    )  # fmt: skip
    permission_options = ("--allow-all", "--yolo", "--allow-all-tools", "--assisted-approval")
    guarded_arguments = (guard,)
    unguarded_arguments = ("--allow-all",)
    session_option = "--resume="
    output_arguments = ("--output-format", "json")

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        return QUESTION_OPTIONS

    def reader(self, context: ReaderContext) -> CopilotStream:
        return CopilotStream(self, context)


class CopilotStream(JsonStream):
    """Reads one turn. A line has its fields in `data`, and an `agentId` where it is of a subagent."""

    ignored = (
        "abort", "agent", "assistant", "auto_mode_switch", "capabilities", "command", "commands", "elicitation",
        "exit_plan_mode", "extensions", "external_tool", "hook", "human_response", "mcp", "mcp_app", "model",
        "pending_messages", "permission", "prompt_cache_break", "sampling", "sandbox", "session",
        "session_limits_exhausted", "skill", "subagent", "system", "tool", "tool_search", "ui", "user", "user_input",
        "workflow",
    )  # fmt: skip

    def __init__(self, adapter: Copilot, context: ReaderContext) -> None:
        super().__init__(adapter, context)
        self._model: str | None = None
        self._last_message = MessageBuffer()
        self._failure: dict[str, Any] = {}  # the last failed call of a model, until one succeeds
        self._error: dict[str, Any] | None = None

    def _tools_updated(self, entry: dict[str, Any]) -> None:
        model = inner_table(entry, "data").get("model")
        if self._model is None and isinstance(model, str):
            self._model = model
            self.emit(Started(None, model))

    def _message(self, entry: dict[str, Any]) -> None:
        self._failure, data = {}, inner_table(entry, "data")
        content = data.get("content")
        if entry.get("agentId") is not None or not isinstance(content, str):
            return
        self._error = None
        self._model = text_or_none(data.get("model")) or self._model
        if not data.get("chunkIndex"):  # a message with reasoning in between comes in pieces
            self._last_message.clear()
        if content:
            self._last_message.add(content)
            self.emit(Said(content))

    def _tool_started(self, entry: dict[str, Any]) -> None:
        data = inner_table(entry, "data")
        name, arguments = str(data.get("toolName")), data.get("arguments")
        self.start_tool(str(data.get("toolCallId")), name, arguments)
        if name == "ask_user":
            self.emit(Asked(one_line(get_table(data, "arguments").get("question"))))

    def _tool_ended(self, entry: dict[str, Any]) -> None:
        data = inner_table(entry, "data")
        error = get_table(data, "error")
        why = str(error.get("message") or "")
        # The tool that ran a command succeeds even if the command fails.
        ok = data.get("success") is True and not get_table(data, "shellExecution").get("exitCode")
        output = str(get_table(data, "result").get("content") or why)
        name, summary = self.end_tool(str(data.get("toolCallId")), ok, output)
        if error.get("code") == "denied":
            text = why.partition(". ")[0]  # advice for interactive use follows
            self.deny(name, f"{summary}: {text}" if summary else text)

    def _call_failed(self, entry: dict[str, Any]) -> None:
        self._failure = inner_table(entry, "data")
        if _error_kind(self._failure, {}) == LIMIT_ERROR:
            self._limited(_service_message(self._failure.get("errorMessage")))

    def _retry(self, entry: dict[str, Any]) -> None:
        count, status = self._failure.get("retryAttempt"), self._failure.get("statusCode")
        number = f" {count + 1}" if isinstance(count, int) else ""
        reason = status or inner_table(entry, "data").get("reason")
        self.emit(Progress(one_line(f"service error ({reason}), retry{number}")))

    def _warn(self, entry: dict[str, Any]) -> None:
        self.emit(Progress(one_line(inner_table(entry, "data").get("message"))))

    def _report_error(self, entry: dict[str, Any]) -> None:
        if entry.get("agentId") is None:
            self._error = inner_table(entry, "data")

    def _limited(self, message: str) -> None:
        self.emit(Limited(one_line(message), find_reset_time(message, self.context.now())))

    def _result(self, entry: dict[str, Any]) -> None:
        if session := text_or_none(entry.get("sessionId")):
            self.emit(Started(session, self._model))
        requests, code = inner_table(entry, "usage").get("premiumRequests"), entry.get("exitCode")
        if isinstance(requests, int | float) and requests > 0:
            self.emit(Progress(f"premium requests used: {requests:g}"))
        text = self._last_message.text
        if type(code) is int and code == 0 and self._error is None:  # False is no exit code
            self.emit(Ended(True, text))
            return
        error = self._error or {}
        message = str(error.get("message") or f"the agent reported exit code {code}")
        kind = _error_kind(self._failure, error)
        if kind == LIMIT_ERROR:
            self._limited(message)
        self.fail(message, text, kind)

    handlers: ClassVar = {
        "session.tools_updated": _tools_updated, "assistant.message": _message, "tool.execution_start": _tool_started,
        "tool.execution_complete": _tool_ended, "model.call_failure": _call_failed, "assistant.turn_retry": _retry,
        "session.warning": _warn, "session.error": _report_error, "result": _result,
    }  # fmt: skip


def _error_kind(failure: dict[str, Any], error: dict[str, Any]) -> str:
    """The error kind by structured fields of the model's last call and of the session: code, else type, else status."""
    status = failure.get("statusCode") if error.get("statusCode") is None else error["statusCode"]
    return (
        SERVICE_ERROR_CODES.get(str(failure.get("errorCode")))
        or SERVICE_ERROR_CODES.get(str(failure.get("errorType")))
        or ERROR_TYPES.get(str(error.get("errorType")))
        or (MODEL_ERROR if status == 404 else status_error_kind(status))
    )


def _service_message(reported: object) -> str:
    """The service's own message inside the reported one."""
    try:
        answer = decode_line(str(reported).encode("utf-8", "replace"), ANY_DECODER)
    except (ValueError, RecursionError):
        answer = None
    return str((answer.get("message") if isinstance(answer, dict) else None) or reported)
