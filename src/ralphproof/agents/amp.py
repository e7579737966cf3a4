"""Amp, as of 0.0.1790142911."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ralphproof.agents.claude_stream import ClaudeStream
from ralphproof.agents.dialect import UNKNOWN, Call, Dialect, Hearing, files_in, given, keys_in, tokens
from ralphproof.agents.lenient import decode
from ralphproof.agents.question import only
from ralphproof.agents.tally import Tally
from ralphproof.event import Event, Spent, Usage
from ralphproof.sandbox import Exit, Lodging
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

EXECUTE = ("-x", "--execute")
SETTINGS = ".settings.json"
NO_TOOLS = '{"amp.permissions":[{"tool":"*","action":"reject"}],"amp.dangerouslyAllowAll":false,"amp.mcpServers":{}}'


class Amp:
    """`amp -x`, the prompt on standard input."""

    name = "amp"
    cost = UNKNOWN  # it names no models, and is paid in credits
    counts_tokens = True
    guard = ""
    resumes = False
    login = "run `amp login`, or set AMP_API_KEY"
    credentials: tuple[str, ...] = ("AMP_API_KEY", "~/.local/share/amp/secrets.json")
    updates_off: Mapping[str, str] = {"AMP_SKIP_UPDATE_CHECK": "1"}
    lodging = Lodging(
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
        (*keys_in(credentials), *updates_off, "AMP_*"),
        (".amp/",),
        logins=files_in(credentials),
    )  # fmt: skip

    def arguments(self, call: Call) -> tuple[str, ...]:
        if call.brief.schema:
            mode = ("--mode", call.model) if call.model else only(call.flags, "--mode")
            return ("--settings-file", call.brief.base + SETTINGS, *mode, "--stream-json", "-x")
        held = call.guarded or given(call.flags, "--dangerously-allow-all")
        return (
            *(flag for flag in call.flags if flag not in EXECUTE),
            *(() if held else ("--dangerously-allow-all",)),
            # It has modes in place of models: smart, rush, deep.
            *(("--mode", call.model) if call.model else ()),
            "--stream-json",
            "-x",  # takes the word after it for the prompt, so none may follow
        )

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return None

    def environment(self, call: Call) -> Mapping[str, str]:
        return {}

    def beside(self, call: Call) -> Mapping[str, str]:
        """It has no flag that holds it back; its settings can."""
        return {SETTINGS: NO_TOOLS} if call.brief.schema else {}

    def reader(self, hearing: Hearing) -> AmpStream:
        return AmpStream(self, hearing)


class _Usage(Struct, gc=False):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0

    def value(self) -> Usage:
        return Usage(
            tokens(self.input_tokens), tokens(self.output_tokens), tokens(self.cache_read_input_tokens),
            tokens(self.cache_creation_input_tokens),
        )  # fmt: skip


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Line(Struct, gc=False):
    message: _Message | str | None = None


_LINES = msgspec.json.Decoder(_Line)


class AmpStream:
    """Claude Code's stream, but a message has no name and comes in one line, and the result may lack an account."""

    def __init__(self, dialect: Dialect, hearing: Hearing) -> None:
        self._tell, self._tally, self._counted = hearing.tell, Tally(hearing), False
        self._stream = ClaudeStream(dialect, replace(hearing, tell=self._pass_on))

    def hear(self, line: bytes) -> None:
        self._stream.hear(line)
        message = decode(line, _LINES).message
        if isinstance(message, _Message) and message.id is None and message.usage:
            usage = message.usage.value()
            if usage.total:  # nothing is what was not counted
                self._counted = True
                self._tally.add(message.model, usage)

    def close(self, end: Exit) -> None:
        self._stream.close(end)

    def _pass_on(self, event: Event) -> None:
        if not isinstance(event, Spent):
            self._tell(event)
            return
        self._tally.flush()
        if event.micro_usd or (event.usage is not None and event.usage.total):
            self._tell(event)
        elif self._counted:
            self._tally.close()
