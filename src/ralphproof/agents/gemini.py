"""Adapter for Gemini CLI, as of 0.61.0, and the reader of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
    ReaderContext,
    get_table,
    one_line,
    option,
    read_json_setting,
    without_options,
)
from ralphproof.agents.stream import JsonStream, MessageBuffer, parse_token_count, text_or_none
from ralphproof.engine.agent import Ended, Progress, Said, Started, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

HEADLESS_OPTIONS = ("--prompt", "-p", "--prompt-interactive", "-i", "--output-format", "-o")
TRUST_VARIABLE = "GEMINI_CLI_TRUST_WORKSPACE"
POLICY_SUFFIX = ".policy.toml"
NO_TOOLS_POLICY = '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'
SHELL_TOOL = "run_shell_command"  # not registered where it is not permitted
MAX_ERROR_CHARS = 1000  # the end of a service's message may hold a reset time
# It exits with the HTTP status of its failure, of which the system keeps eight bits.
EXIT_STATUSES = {status % 256: status for status in (401, 402, 403, 429, 500, 502, 503, 504, 529)}


class Gemini(AgentAdapter):
    """`gemini`, the prompt on standard input."""

    name = "gemini"
    cost = COST_COMPUTED
    guard = "auto_edit"
    traits = AgentTraits("flash-lite", "gcp.gemini", cost_only_at_end=True)
    login = "run `gemini` once and log in, or set GEMINI_API_KEY"
    credentials = (
        "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA",
        "~/.gemini/oauth_creds.json", "~/.gemini/gemini-credentials.json",
    )  # fmt: skip
    # GEMINI_CLI_HOME names the parent of its folder, so it is not passed on. It updates itself only in interactive
    # sessions.
    needs = AgentRequirements(
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
            TRUST_VARIABLE, "GEMINI_MODEL", "GEMINI_SYSTEM_MD", "GEMINI_DEFAULT_AUTH_TYPE", "GOOGLE_CLOUD_*",
            "GOOGLE_GENAI_*", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT",
        ),
        (".gemini/",),
    )  # fmt: skip
    model_options = ("--model", "-m")
    model_variables = ("GEMINI_MODEL",)
    settings_file = "~/.gemini/settings.json"
    permission_options = ("--approval-mode", "--yolo", "-y")
    guarded_arguments = ("--approval-mode", guard)
    unguarded_arguments = ("--approval-mode", "yolo")
    output_arguments = ("--output-format", "stream-json")
    question_options = ("--proxy",)

    def question_arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        return (
            "--approval-mode", "default", "--admin-policy", call.brief.log_base + POLICY_SUFFIX, "--extensions", "none",
            "--allowed-mcp-server-names", "none",
        )  # fmt: skip

    def interactive(self, call: AgentInvocation, resume: bool) -> tuple[str, ...]:
        """`-i` starts an interactive session with a prompt."""
        flags = without_options(call.flags, *HEADLESS_OPTIONS, *(self.model_options if call.model else ()))
        permissions = self.permission_arguments(call, flags)
        return ("-i", call.brief.prompt, *flags, *permissions, *option("--model", call.model))

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        # Without this variable it runs only in folders that were trusted in its own dialogue.
        return {} if TRUST_VARIABLE in dict(call.brief.env) else {TRUST_VARIABLE: "true"}

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The policy file of a judge question: a tool that a rule denies is not offered to the model."""
        return {POLICY_SUFFIX: NO_TOOLS_POLICY} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> GeminiStream:
        login = read_json_setting(self.settings_file, "security", "auth", "selectedType")
        return GeminiStream(self, context, notional=login == "oauth-personal")


class GeminiStream(JsonStream):
    """Reads one turn. A failed turn may exit with 0. The result has no text, so the last message is used."""

    def __init__(self, adapter: Gemini, context: ReaderContext, notional: bool) -> None:
        super().__init__(adapter, context, notional)
        self._message = MessageBuffer()
        self._error = ""  # the last error, until a message or a tool call follows
        self._failed: Ended | None = None

    def close(self, end: Exit) -> None:
        """Emit a message that was cut off, and an error again with the HTTP status that the exit code tells."""
        self._flush_message()
        status = EXIT_STATUSES.get(end.code or 0)
        if self._failed is not None and status is not None and str(status) not in str(self._failed.error):
            self.emit(Ended(False, self._failed.text, f"API error {status}: {self._failed.error}"))

    def _started(self, entry: dict[str, Any]) -> None:
        self.emit(Started(text_or_none(entry.get("session_id")), text_or_none(entry.get("model"))))

    def _add_text(self, entry: dict[str, Any]) -> None:
        piece = entry.get("content")
        if entry.get("role") == "assistant" and isinstance(piece, str) and piece:  # another role repeats the prompt
            self._error = ""
            self._message.add(piece)

    def _flush_message(self) -> str:
        """Emit the current message, and begin another."""
        text = self._message.text
        self._message.clear()
        if text.strip():
            self.emit(Said(text))
        return text

    def _tool_started(self, entry: dict[str, Any]) -> None:
        self._flush_message()
        self._error = ""
        self.start_tool(str(entry.get("tool_id")), str(entry.get("tool_name")), entry.get("parameters"))

    def _tool_ended(self, entry: dict[str, Any]) -> None:
        self._flush_message()
        error, output = get_table(entry, "error"), entry.get("output")
        why = str(error.get("message") or "")
        text = output if isinstance(output, str) else why
        name, _ = self.end_tool(str(entry.get("tool_id")), entry.get("status") == "success", text)
        kind = error.get("type")
        if kind == "policy_violation" or (kind == "tool_not_registered" and name == SHELL_TOOL):
            self.deny(name, why)

    def _report_error(self, entry: dict[str, Any]) -> None:
        message = one_line(entry.get("message"))
        self._error = message if entry.get("severity") == "error" else self._error
        self.emit(Progress(message))

    def _result(self, entry: dict[str, Any]) -> None:
        text, status, error = self._flush_message(), entry.get("status"), entry.get("error")
        succeeded = status == "success" and not error and not self._error
        models = get_table(entry, "stats").get("models")
        if isinstance(models, dict):
            self._account(models, succeeded)
        if succeeded:
            self.emit(Ended(True, text))
            return
        why = error.get("message") or error.get("type") if isinstance(error, dict) else text_or_none(error)
        reported = "success and an error" if status == "success" else status or "a result that is no success"
        why = one_line(why or self._error or f"the agent reported {reported}", MAX_ERROR_CHARS)
        self._failed = Ended(False, text, why)
        self.emit(self._failed)

    def _account(self, models: dict[str, Any], succeeded: bool) -> None:
        """Report the usage, which is that of this process, without earlier turns of the session.

        Zero tokens are possible where the turn failed; otherwise zero means not counted.
        """
        counted = {name: usage for name in models if (usage := _usage(get_table(models, name))).total}
        for name, usage in counted.items():
            self.tally.add(name, usage)
        if counted or succeeded:
            self.tally.close()
        else:
            self.tally.settle(0, Usage())

    handlers: ClassVar = {
        "init": _started, "message": _add_text, "tool_use": _tool_started, "tool_result": _tool_ended,
        "error": _report_error, "result": _result,
    }  # fmt: skip


def _usage(counts: dict[str, Any]) -> Usage:
    """The usage of one model. Input includes cached tokens; thinking is only in the total."""
    total, input_count, output_count, cached = (
        parse_token_count(counts.get(name)) for name in ("total_tokens", "input_tokens", "output_tokens", "cached")
    )
    return Usage(max(0, input_count - cached), max(output_count, total - input_count), cached)
