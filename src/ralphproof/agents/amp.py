"""Adapter for Amp, as of 0.0.1790142911, and the reader of its stream."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ralphproof.agents.adapter import (
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    credential_files,
    credential_variables,
    has_option,
    keep_options,
    parse_token_count,
)
from ralphproof.agents.claude import ClaudeStream
from ralphproof.agents.cost import UsageTally
from ralphproof.agents.json_lines import decode_line
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.events import Event, Spent, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

EXECUTE_OPTIONS = ("-x", "--execute")
SETTINGS_SUFFIX = ".settings.json"
NO_TOOLS_SETTINGS = (
    '{"amp.permissions":[{"tool":"*","action":"reject"}],"amp.dangerouslyAllowAll":false,"amp.mcpServers":{}}'
)


class Amp:
    """`amp -x`, the prompt on standard input."""

    name = "amp"
    cost = COST_UNKNOWN  # it names no models, and is paid in credits
    counts_tokens = True
    guard = ""
    resumes = False
    login = "run `amp login`, or set AMP_API_KEY"
    credentials: tuple[str, ...] = ("AMP_API_KEY", "~/.local/share/amp/secrets.json")
    updates_off: Mapping[str, str] = {"AMP_SKIP_UPDATE_CHECK": "1"}
    requirements = AgentRequirements(
        "~/.local/share/amp", "",
        (
            "secrets.json", "~/.config/AGENTS.md",
            *(
                f"~/.config/amp/{name}"
                for name in ("settings.json", "settings.jsonc", "AGENTS.md", "commands", "skills", "plugins", "tools")
            ),
        ),
        ("ampcode.com", "*.ampcode.com"),
        ("AMP_URL",),
        (*credential_variables(credentials), *updates_off, "AMP_*"),
        (".amp/",),
        logins=credential_files(credentials),
    )  # fmt: skip

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        if call.brief.schema:
            mode = ("--mode", call.model) if call.model else keep_options(call.flags, "--mode")
            return ("--settings-file", call.brief.log_base + SETTINGS_SUFFIX, *mode, "--stream-json", "-x")
        held = call.guarded or has_option(call.flags, "--dangerously-allow-all")
        return (
            *(flag for flag in call.flags if flag not in EXECUTE_OPTIONS),
            *(() if held else ("--dangerously-allow-all",)),
            # It has modes in place of models: smart, rush, deep.
            *(("--mode", call.model) if call.model else ()),
            "--stream-json",
            "-x",  # takes the word after it for the prompt, so none may follow
        )

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return None

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {}

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """It has no flag that removes tools; its settings can."""
        return {SETTINGS_SUFFIX: NO_TOOLS_SETTINGS} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> AmpStream:
        return AmpStream(self, context)


class _Usage(Struct, gc=False):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0

    def value(self) -> Usage:
        return Usage(
            parse_token_count(self.input_tokens),
            parse_token_count(self.output_tokens),
            parse_token_count(self.cache_read_input_tokens),
            parse_token_count(self.cache_creation_input_tokens),
        )


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Line(Struct, gc=False):
    message: _Message | str | None = None


_LINES = msgspec.json.Decoder(_Line)


class AmpStream:
    """Claude Code's stream, but a message has no id and comes in one line, and the result may lack an account."""

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        self._emit, self._tally, self._counted = context.emit, UsageTally(context), False
        self._stream = ClaudeStream(adapter, replace(context, emit=self._pass_on))

    def read_line(self, line: bytes) -> None:
        self._stream.read_line(line)
        message = decode_line(line, _LINES).message
        if isinstance(message, _Message) and message.id is None and message.usage:
            usage = message.usage.value()
            if usage.total:  # nothing is what was not counted
                self._counted = True
                self._tally.add(message.model, usage)

    def close(self, end: Exit) -> None:
        self._stream.close(end)

    def _pass_on(self, event: Event) -> None:
        if not isinstance(event, Spent):
            self._emit(event)
            return
        self._tally.flush()
        if event.micro_usd or (event.usage is not None and event.usage.total):
            self._emit(event)
        elif self._counted:
            self._tally.close()
