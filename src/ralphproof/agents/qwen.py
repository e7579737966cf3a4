"""Qwen Code, as of 0.24.4."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Struct

from ralphproof.agents.claude_stream import ClaudeStream
from ralphproof.agents.complaint import LOGIN, Complaint, failed
from ralphproof.agents.dialect import (
    COMPUTED,
    Call,
    Dialect,
    Hearing,
    files_in,
    given,
    keys_in,
    one_line,
    option_of,
    tokens,
    without,
)
from ralphproof.agents.lenient import decode
from ralphproof.agents.own_settings import key_variables, services, setting
from ralphproof.agents.question import only
from ralphproof.agents.tally import Tally
from ralphproof.event import Ended, Event, Progress, Said, Spent, Started, Usage
from ralphproof.sandbox import Exit, Lodging
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS, FOLDER = "~/.qwen/settings.json", "QWEN_HOME"
GUARDS = ("--approval-mode", "--yolo", "-y")
MODEL = ("--model", "-m")
SERVICE = ("--auth-type", "--openai-api-key", "--openai-base-url", "--proxy")
OWN_WORDS = "[API Error: "  # of the program, in the place of a model's
NO_LOGIN = "No auth type is selected"


class Qwen:
    """`qwen`, the prompt on standard input."""

    name = "qwen"
    cost = COMPUTED
    guard = "auto-edit"
    resumes = True
    login = "run `qwen` once and log in, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"
    credentials: tuple[str, ...] = (
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "~/.qwen/oauth_creds.json",
        SETTINGS,
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"QWEN_USAGE_STATISTICS_ENABLED": "false"}

    @property
    def lodging(self) -> Lodging:
        """With the services that the user's settings name, and the variables that their keys are in."""
        settings = os.path.join(os.environ.get(FOLDER) or "~/.qwen", "settings.json")
        return Lodging(
            "~/.qwen", FOLDER,
            ("oauth_creds.json", ".env", "settings.json", "QWEN.md", "commands", "agents", "skills", "extensions"),
            (
                "chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com",
                "coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com", "api.openai.com",
                "api.anthropic.com", "generativelanguage.googleapis.com",
            ),
            ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", *services(settings)),
            (
                *keys_in(self.credentials), "QWEN_*", "OPENAI_*", "ANTHROPIC_*", "GEMINI_MODEL",
                "GOOGLE_GEMINI_BASE_URL", "DASHSCOPE_*", "BAILIAN_*", *key_variables(settings, "envKey"),
            ),
            (".qwen/",),
            logins=files_in(self.credentials),
        )  # fmt: skip

    def arguments(self, call: Call) -> tuple[str, ...]:
        flags = without(call.flags, *MODEL) if call.model else call.flags  # it breaks where an option comes twice
        if call.brief.schema:
            return (
                *only(flags, *MODEL, *SERVICE),
                *(("--model", call.model) if call.model else ()),
                # The tool that takes the answer is none of those that are counted.
                "--safe-mode", "--approval-mode", "default", "--max-tool-calls", "0", "--chat-recording=false",
                "--json-schema", call.brief.schema, "--output-format", "stream-json",
            )  # fmt: skip
        return (
            *flags,
            *(() if given(flags, *GUARDS) else ("--approval-mode", self.guard if call.guarded else "yolo")),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.brief.session) if call.brief.session else ()),
            "--output-format", "stream-json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        named = model or option_of(flags, *MODEL) or os.environ.get("OPENAI_MODEL") or os.environ.get("QWEN_MODEL")
        return named or setting(SETTINGS, "model", "name")

    def environment(self, call: Call) -> Mapping[str, str]:
        return {}

    def reader(self, hearing: Hearing) -> QwenStream:
        return QwenStream(self, hearing, setting(SETTINGS, "security", "auth", "selectedType") == "qwen-oauth")


class _Usage(Struct, gc=False):
    """Of the input some was read from a cache."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0

    def counts(self) -> tuple[int, int, int, int]:
        cached = tokens(self.cache_read_input_tokens)
        return max(0, tokens(self.input_tokens) - cached), tokens(self.output_tokens), cached, 0


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
    """Claude Code's stream, but every line is a message of its own, its figures are others, and it has no prices."""

    def __init__(self, dialect: Dialect, hearing: Hearing, notional: bool = False) -> None:
        self._dialect, self._tell, self._tally = dialect, hearing.tell, Tally(hearing)
        self._tally.notional = notional
        self._stream = ClaudeStream(dialect, replace(hearing, tell=self._pass_on))
        self._version: str | None = None
        self._answered = self._counted = False

    def hear(self, line: bytes) -> None:
        said = decode(line, _LINES)
        match said.type:
            case "system" if said.subtype == "retry":
                self._tell(Progress("the service's answer was of no use: another try"))
                return
            case "system" if said.subtype == "model_fallback" and isinstance(said.data, dict):
                self._tell(Progress(one_line(f"the service failed: now with model {said.data.get('toModel')}")))
                return
            case "result" if self._answered and said.is_error and said.num_turns == 0:
                # A subagent failed; the agent itself has had a turn by now.
                self._tell(Progress(f"a subagent failed: {one_line(_message(said.error))}"))
                return
            case "result":
                self._close(said)
            case "assistant":
                self._count(said.message)
        self._version = said.qwen_code_version or self._version
        self._stream.hear(line)

    def close(self, end: Exit) -> None:
        self._stream.close(end)

    def _count(self, message: _Message | str | None) -> None:
        self._answered = True
        if isinstance(message, _Message) and message.id is not None and message.usage is not None:
            counts = message.usage.counts()
            if any(counts):
                self._counted = True
                self._tally.message(message.id, message.model, counts)

    def _close(self, said: _Line) -> None:
        """No tokens at all are what a failure may have cost; else they were only not counted."""
        usage = Usage(*said.usage.counts()) if said.usage else None
        if usage is not None and usage.total:
            self._tally.close(usage)
        elif usage is not None and said.is_error and not self._counted:
            self._tally.settle(0, usage)
        else:
            self._tally.close()

    def _pass_on(self, event: Event) -> None:
        match event:
            case Spent():
                return
            case Said(text) if text.lstrip().startswith(OWN_WORDS):
                return
            case Started(session, model, _):
                self._tell(Started(session, model, self._version))
            case Ended(False, text, str(why)) if why.startswith(NO_LOGIN):
                self._tell(failed(self._dialect, Complaint(LOGIN, why), text))
            case Ended(True, str(text)) if text.lstrip().startswith(OWN_WORDS):
                self._tell(Ended(False, "", one_line(text)))
            case _:
                self._tell(event)


def _message(error: object) -> object:
    return error.get("message") if isinstance(error, dict) else error
