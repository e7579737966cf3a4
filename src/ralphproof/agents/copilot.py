"""Adapter for GitHub Copilot CLI, as of 1.0.102, and the reader of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_UNKNOWN,
    MAX_RUNNING_CALLS,
    AgentAdapter,
    AgentInvocation,
    MessageBuffer,
    ReaderContext,
    credential_files,
    credential_variables,
    keep_options,
    make_tool_ended,
    one_line,
    option,
    option_value,
    summarize_arguments,
    unless_given,
)
from ralphproof.agents.error_messages import (
    CREDIT_ERROR,
    LIMIT_ERROR,
    LOGIN_ERROR,
    MODEL_ERROR,
    SERVICE_ERROR_CODES,
    TOO_LONG_ERROR,
    FailureReason,
    failure_event,
    find_reset_time,
    status_error_kind,
)
from ralphproof.agents.json_lines import ANY_DECODER, decode_line, decode_raw
from ralphproof.engine.agent import Asked, Denied, Ended, Limited, Progress, Said, Started, ToolStarted
from ralphproof.engine.sandbox import AgentRequirements, Exit

# Only tools named by --available-tools are offered, and no tool is called `none`. A denial outweighs any permission.
QUESTION_OPTIONS = (
    "--available-tools=none", "--deny-tool=shell", "--deny-tool=write", "--disable-builtin-mcps",
    "--no-custom-instructions", "--no-ask-user",
)  # fmt: skip
PERMISSION_OPTIONS = ("--allow-all", "--yolo", "--allow-all-tools", "--assisted-approval")

# Families of events; those without a case in `read_line` are ignored.
EVENT_FAMILIES = {
    "abort", "agent", "assistant", "auto_mode_switch", "capabilities", "command", "commands", "elicitation",
    "exit_plan_mode", "extensions", "external_tool", "hook", "human_response", "mcp", "mcp_app", "model",
    "pending_messages", "permission", "prompt_cache_break", "sampling", "sandbox", "session",
    "session_limits_exhausted", "skill", "subagent", "system", "tool", "tool_search", "ui", "user", "user_input",
    "workflow",
}  # fmt: skip
# Error types of Copilot itself.
ERROR_TYPES = {
    "authentication": LOGIN_ERROR, "authorization": LOGIN_ERROR, "quota": CREDIT_ERROR, "rate_limit": LIMIT_ERROR,
    "context_limit": TOO_LONG_ERROR,
}  # fmt: skip


class _Data(Struct, gc=False):
    model: Any = None
    content: Any = None
    chunkIndex: Any = None
    toolCallId: str = ""
    toolName: str = ""
    arguments: Raw = Raw()
    success: Any = None
    result: Any = None
    error: Any = None
    shellExecution: Any = None
    reason: Any = None
    message: Any = None
    errorType: Any = None
    errorCode: Any = None
    errorMessage: Any = None
    statusCode: Any = None
    retryAttempt: Any = None


class _Usage(Struct, gc=False):
    premiumRequests: Any = None


class _Line(Struct, gc=False):
    type: str = ""
    agentId: str | None = None  # of a subagent
    data: _Data = msgspec.field(default_factory=_Data)
    # result
    sessionId: str | None = None
    exitCode: Any = None
    usage: _Usage | None = None


_LINES = msgspec.json.Decoder(_Line)


class Copilot:
    """`copilot`, the prompt on standard input: it then asks nothing, and denies what was not permitted."""

    name = "copilot"
    cost = COST_UNKNOWN  # it reports no tokens, and is billed in credits
    guard = "--allow-tool=write"  # edits below the current folder, and commands that only read
    resumes = True
    login = "run `copilot login`, or set COPILOT_GITHUB_TOKEN"
    credentials: tuple[str, ...] = (
        "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL", "~/.copilot/config.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"COPILOT_AUTO_UPDATE": "false"}
    requirements = AgentRequirements(
        "~/.copilot", "COPILOT_HOME",
        (
            "config.json", "settings.json", "mcp-config.json", "copilot-instructions.md", "instructions", "agents",
            "skills", "hooks", "installed-plugins",
        ),
        ("api.github.com", "*.githubcopilot.com"),
        ("COPILOT_PROVIDER_BASE_URL", "COPILOT_API_URL", "GH_HOST"),
        (*credential_variables(credentials), *updates_off, "COPILOT_*", "GH_HOST"),
        (".github/hooks/", ".github/copilot/", ".copilot/"),
        logins=credential_files(credentials),
    )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        if call.brief.schema:
            model = option("--model", call.model) or keep_options(call.flags, "--model")
            return (*model, *QUESTION_OPTIONS, "--output-format", "json")
        return (
            *call.flags,
            *unless_given(call.flags, PERMISSION_OPTIONS, self.guard if call.guarded else "--allow-all"),
            *option("--model", call.model),
            *((f"--resume={call.brief.session}",) if call.brief.session else ()),
            "--output-format", "json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_value(flags, "--model")

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def reader(self, context: ReaderContext) -> CopilotStream:
        return CopilotStream(self, context)


class CopilotStream:
    """Reads one turn."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        self._adapter, self._context, self._emit = adapter, context, context.emit
        self._model: str | None = None
        self._last_message = MessageBuffer()
        self._running: dict[str, tuple[str, str]] = {}  # names and summaries of running tools, by call
        self._failure = _Data()  # the last failed call of a model, until one succeeds
        self._error: _Data | None = None

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, _LINES)
        own, data = entry.agentId is None, entry.data
        match entry.type:
            case "session.tools_updated" if self._model is None and isinstance(data.model, str):
                self._model = data.model
                self._emit(Started(None, self._model))
            case "assistant.message":
                self._message(own, data)
            case "tool.execution_start":
                self._tool(data)
            case "tool.execution_complete":
                self._tool_ended(data)
            case "model.call_failure":
                self._call_failed(data)
            case "assistant.turn_retry":
                self._retry(data)
            case "session.warning":
                self._emit(Progress(one_line(data.message)))
            case "session.error" if own:
                self._error = data
            case "result":
                self._result(entry)
            case _ if entry.type.partition(".")[0] not in EVENT_FAMILIES:
                raise ValueError(entry.type)

    def close(self, end: Exit) -> None:
        """Nothing is left: the result line came last."""

    def _message(self, own: bool, data: _Data) -> None:
        self._failure = _Data()
        if not own or not isinstance(data.content, str):
            return
        self._error = None
        self._model = data.model if isinstance(data.model, str) else self._model
        if not data.chunkIndex:  # a message with reasoning in between comes in pieces
            self._last_message.clear()
        if data.content:
            self._last_message.add(data.content)
            self._emit(Said(data.content))

    def _tool(self, data: _Data) -> None:
        arguments = decode_raw(data.arguments)
        summary = summarize_arguments(arguments)
        if len(self._running) < MAX_RUNNING_CALLS:
            self._running[data.toolCallId] = (data.toolName, summary)
        self._emit(ToolStarted(data.toolCallId, data.toolName, summary))
        if data.toolName == "ask_user":
            self._emit(Asked(one_line(_get_field(arguments, "question"))))

    def _tool_ended(self, data: _Data) -> None:
        name, summary = self._running.pop(data.toolCallId, ("tool", ""))
        why = _get_field(data.error, "message")
        # The tool that ran a command succeeds even if the command fails.
        ok = data.success is True and not _get_field(data.shellExecution, "exitCode")
        self._emit(make_tool_ended(data.toolCallId, ok, str(_get_field(data.result, "content") or why or "")))
        if _get_field(data.error, "code") == "denied":
            text = str(why).partition(". ")[0]  # advice for interactive use follows
            self._emit(Denied(name, one_line(f"{summary}: {text}" if summary else text)))

    def _call_failed(self, data: _Data) -> None:
        self._failure = data
        if _error_kind(data, None) == LIMIT_ERROR:
            self._limited(_service_message(data))

    def _retry(self, data: _Data) -> None:
        count = self._failure.retryAttempt
        number = f" {count + 1}" if isinstance(count, int) else ""
        self._emit(Progress(one_line(f"service error ({self._failure.statusCode or data.reason}), retry{number}")))

    def _limited(self, message: str) -> None:
        self._emit(Limited(one_line(message), find_reset_time(message, self._context.now())))

    def _result(self, entry: _Line) -> None:
        if entry.sessionId:
            self._emit(Started(entry.sessionId, self._model))
        requests = entry.usage.premiumRequests if entry.usage else None
        if isinstance(requests, int | float) and requests > 0:
            self._emit(Progress(f"premium requests used: {requests:g}"))
        text = self._last_message.text
        if type(entry.exitCode) is int and entry.exitCode == 0 and self._error is None:  # False is no exit code
            self._emit(Ended(True, text))
            return
        error = self._error or _Data()
        message = str(error.message or f"the agent reported exit code {entry.exitCode}")
        kind = _error_kind(self._failure, error)
        if kind == LIMIT_ERROR:
            self._limited(message)
        if kind:
            self._emit(failure_event(self._adapter, FailureReason(kind, one_line(message)), text))
        else:
            self._emit(Ended(False, text, one_line(message)))


def _error_kind(failure: _Data, error: _Data | None) -> str:
    """The error kind by structured fields of the model's last call and of the session: code, else type, else status."""
    status = failure.statusCode if error is None or error.statusCode is None else error.statusCode
    return (
        SERVICE_ERROR_CODES.get(str(failure.errorCode))
        or SERVICE_ERROR_CODES.get(str(failure.errorType))
        or (ERROR_TYPES.get(str(error.errorType)) if error else None)
        or (MODEL_ERROR if status == 404 else status_error_kind(status))
    )


def _service_message(data: _Data) -> str:
    """The service's own message inside the reported one."""
    try:
        text = _get_field(decode_line(str(data.errorMessage).encode("utf-8", "replace"), ANY_DECODER), "message")
    except (ValueError, RecursionError):
        text = None
    return str(text or data.errorMessage)


def _get_field(table: object, name: str) -> Any:
    return table.get(name) if isinstance(table, dict) else None
