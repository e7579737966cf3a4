"""Adapter for Gemini CLI, as of 0.61.0, and the reader of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    MAX_RUNNING_CALLS,
    AgentInvocation,
    AgentTraits,
    MessageBuffer,
    ReaderContext,
    credential_files,
    credential_variables,
    keep_options,
    make_tool_ended,
    one_line,
    option,
    option_value,
    parse_token_count,
    summarize_arguments,
    unless_given,
    without_options,
)
from ralphproof.agents.agent_config import read_json_setting
from ralphproof.agents.cost import UsageTally
from ralphproof.agents.json_lines import decode_line, decode_raw
from ralphproof.engine.agent import Denied, Ended, Progress, Said, Started, ToolStarted, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

SETTINGS_FILE = "~/.gemini/settings.json"
PERMISSION_OPTIONS = ("--approval-mode", "--yolo", "-y")
MODEL_OPTIONS = ("--model", "-m")
HEADLESS_OPTIONS = ("--prompt", "-p", "--prompt-interactive", "-i", "--output-format", "-o")
TRUST_VARIABLE = "GEMINI_CLI_TRUST_WORKSPACE"
POLICY_SUFFIX = ".policy.toml"
NO_TOOLS_POLICY = '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'
SHELL_TOOL = "run_shell_command"  # not registered where it is not permitted
MAX_ERROR_CHARS = 1000  # the end of a service's message may hold a reset time
# It exits with the HTTP status of its failure, of which the system keeps eight bits.
EXIT_STATUSES = {status % 256: status for status in (401, 402, 403, 429, 500, 502, 503, 504, 529)}


class Gemini:
    """`gemini`, the prompt on standard input."""

    name = "gemini"
    cost = COST_COMPUTED
    guard = "auto_edit"
    traits = AgentTraits("flash-lite", "gcp.gemini", cost_only_at_end=True)
    resumes = True
    login = "run `gemini` once and log in, or set GEMINI_API_KEY"
    credentials: tuple[str, ...] = (
        "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA",
        "~/.gemini/oauth_creds.json", "~/.gemini/gemini-credentials.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {}  # it updates itself only in interactive sessions
    # GEMINI_CLI_HOME names the parent of its folder, so it is not passed on.
    requirements = AgentRequirements(
        "~/.gemini", "",
        (
            "oauth_creds.json", "gemini-credentials.json", "google_accounts.json", ".env", "settings.json", "GEMINI.md",
            "commands", "extensions", "skills", "agents", "policies",
        ),
        (
            "generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "aiplatform.googleapis.com",
            "oauth2.googleapis.com",  # renews a login
        ),
        ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT"),
        (
            *credential_variables(credentials), TRUST_VARIABLE, "GEMINI_MODEL", "GEMINI_SYSTEM_MD",
            "GEMINI_DEFAULT_AUTH_TYPE", "GOOGLE_CLOUD_*", "GOOGLE_GENAI_*", "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT",
        ),
        (".gemini/",),
        logins=credential_files(credentials),
    )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        flags = without_options(call.flags, *MODEL_OPTIONS) if call.model else call.flags
        if call.brief.schema:
            return (
                *keep_options(flags, *MODEL_OPTIONS, "--proxy"),
                *option("--model", call.model),
                "--approval-mode", "default", "--admin-policy", call.brief.log_base + POLICY_SUFFIX,
                "--extensions", "none", "--allowed-mcp-server-names", "none", "--output-format", "stream-json",
            )  # fmt: skip
        return (
            *flags,
            *unless_given(flags, PERMISSION_OPTIONS, "--approval-mode", self.guard if call.guarded else "yolo"),
            *option("--model", call.model),
            *option("--resume", call.brief.session),
            "--output-format", "stream-json",
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...]:
        """`-i` starts an interactive session with a prompt."""
        flags = without_options(call.flags, *HEADLESS_OPTIONS, *(MODEL_OPTIONS if call.model else ()))
        return (
            "-i",
            call.brief.prompt,
            *flags,
            *unless_given(flags, PERMISSION_OPTIONS, "--approval-mode", self.guard if call.guarded else "yolo"),
            *option("--model", call.model),
        )

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        given = model or option_value(flags, *MODEL_OPTIONS) or os.environ.get("GEMINI_MODEL")
        return given or read_json_setting(SETTINGS_FILE, "model", "name")

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        # Without this variable it runs only in folders that were trusted in its own dialogue.
        return {} if TRUST_VARIABLE in dict(call.brief.env) else {TRUST_VARIABLE: "true"}

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The policy file of a judge question: a tool that a rule denies is not offered to the model."""
        return {POLICY_SUFFIX: NO_TOOLS_POLICY} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> GeminiStream:
        login = read_json_setting(SETTINGS_FILE, "security", "auth", "selectedType")
        return GeminiStream(context, notional=login == "oauth-personal")


class _Line(Struct, gc=False):
    type: str = ""
    role: Any = None
    content: Any = None
    session_id: Any = None
    model: Any = None
    tool_name: Any = None
    tool_id: Any = None
    parameters: Raw = Raw()
    status: Any = None
    output: Any = None
    error: Any = None
    severity: Any = None
    message: Any = None
    stats: Raw = Raw()


class _ModelUsage(Struct, gc=False):
    """The usage of one model. Input includes cached tokens; thinking is only in the total."""

    total_tokens: Any = 0
    input_tokens: Any = 0
    output_tokens: Any = 0
    cached: Any = 0

    def value(self) -> Usage:
        input_count, cached = parse_token_count(self.input_tokens), parse_token_count(self.cached)
        output_count = max(parse_token_count(self.output_tokens), parse_token_count(self.total_tokens) - input_count)
        return Usage(max(0, input_count - cached), output_count, cached)


class _Stats(Struct):
    models: dict[str, _ModelUsage]


_LINES = msgspec.json.Decoder(_Line)
_STATS = msgspec.json.Decoder(_Stats)


class GeminiStream:
    """Reads one turn. A failed turn may exit with 0. The result has no text, so the last message is used."""

    def __init__(self, context: ReaderContext, notional: bool = False) -> None:
        self._emit, self._tally = context.emit, UsageTally(context)
        self._tally.notional = notional
        self._message = MessageBuffer()
        self._error = ""  # the last error, until a message or a tool call follows
        self._running: dict[str, str] = {}  # names of running tools, by call
        self._failed: Ended | None = None

    def read_line(self, line: bytes) -> None:
        entry = decode_line(line, _LINES)
        match entry.type:
            case "message":
                if entry.role == "assistant" and isinstance(entry.content, str):  # else it repeats the prompt
                    self._add_text(entry.content)
            case "tool_use":
                self._tool_started(entry)
            case "tool_result":
                self._tool_ended(entry)
            case "init":
                self._emit(Started(_as_text(entry.session_id), _as_text(entry.model)))
            case "error":
                message = one_line(entry.message)
                self._error = message if entry.severity == "error" else self._error
                self._emit(Progress(message))
            case "result":
                self._result(entry)
            case _:
                raise ValueError(entry.type)

    def close(self, end: Exit) -> None:
        """Emit a message that was cut off, and an error again with the HTTP status that the exit code tells."""
        self._flush_message()
        status = EXIT_STATUSES.get(end.code or 0)
        if self._failed is not None and status is not None and str(status) not in str(self._failed.error):
            self._emit(Ended(False, self._failed.text, f"API error {status}: {self._failed.error}"))

    def _add_text(self, piece: str) -> None:
        if piece:
            self._error = ""
            self._message.add(piece)

    def _flush_message(self) -> str:
        """Emit the current message, and begin another."""
        text = self._message.text
        self._message.clear()
        if text.strip():
            self._emit(Said(text))
        return text

    def _tool_started(self, entry: _Line) -> None:
        self._flush_message()
        self._error = ""
        arguments = decode_raw(entry.parameters)
        call, name = str(entry.tool_id), str(entry.tool_name)
        if len(self._running) < MAX_RUNNING_CALLS:
            self._running[call] = name
        self._emit(ToolStarted(call, name, summarize_arguments(arguments)))

    def _tool_ended(self, entry: _Line) -> None:
        self._flush_message()
        call, error = str(entry.tool_id), entry.error if isinstance(entry.error, dict) else {}
        output = entry.output if isinstance(entry.output, str) else str(error.get("message") or "")
        self._emit(make_tool_ended(call, entry.status == "success", output))
        name, kind = self._running.pop(call, ""), error.get("type")
        if kind == "policy_violation" or (kind == "tool_not_registered" and name == SHELL_TOOL):
            self._emit(Denied(name, one_line(error.get("message") or "")))

    def _result(self, entry: _Line) -> None:
        text = self._flush_message()
        succeeded = entry.status == "success" and not entry.error and not self._error
        self._account(entry.stats, succeeded)
        if succeeded:
            self._emit(Ended(True, text))
            return
        why = _error_message(entry.error) or self._error or _describe_status(entry.status)
        self._failed = Ended(False, text, one_line(why, MAX_ERROR_CHARS))
        self._emit(self._failed)

    def _account(self, stats: Raw, succeeded: bool) -> None:
        """Report the usage, which is that of this process, without earlier turns of the session.

        Zero tokens are possible where the turn failed; otherwise zero means not counted.
        """
        try:
            models = decode_line(bytes(stats), _STATS).models
        except ValueError:
            return
        counted = {name: usage for name, used in models.items() if (usage := used.value()).total}
        if not counted and not succeeded:
            self._tally.settle(0, Usage())
            return
        for name, usage in counted.items():
            self._tally.add(name, usage)
        self._tally.close()


def _error_message(error: object) -> object:
    """The message of an error, or else its type."""
    return error.get("message") or error.get("type") if isinstance(error, dict) else _as_text(error)


def _describe_status(status: object) -> str:
    reported = "success and an error" if status == "success" else status or "a result that is no success"
    return f"the agent reported {reported}"


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
