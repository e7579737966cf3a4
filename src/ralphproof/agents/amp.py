"""Adapter for Amp, as of 0.0.1790142911, and the reader of its stream."""

from __future__ import annotations

from collections.abc import Mapping

from ralphproof.agents.adapter import (
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
    ReaderContext,
    keep_options,
    option,
)
from ralphproof.agents.claude import LINES, ClaudeMessage, ClaudeStream, token_counts
from ralphproof.agents.stream import UsageTally, decode_line
from ralphproof.base.value import replace
from ralphproof.engine.agent import Event, Spent, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit

EXECUTE_OPTIONS = ("-x", "--execute")
SETTINGS_SUFFIX = ".settings.json"
NO_TOOLS_SETTINGS = (
    '{"amp.permissions":[{"tool":"*","action":"reject"}],"amp.dangerouslyAllowAll":false,"amp.mcpServers":{}}'
)


class Amp(AgentAdapter):
    """`amp -x`, the prompt on standard input."""

    name = "amp"
    cost = COST_UNKNOWN  # it reports no models, and is billed in credits
    counts_tokens = True
    traits = AgentTraits("rush")
    resumes = False
    login = "run `amp login`, or set AMP_API_KEY"
    credentials = ("AMP_API_KEY", "~/.local/share/amp/secrets.json")
    updates_off: Mapping[str, str] = {"AMP_SKIP_UPDATE_CHECK": "1"}
    needs = AgentRequirements(
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
        ("AMP_*",),
        (".amp/",),
    )  # fmt: skip

    permission_options = unguarded_arguments = ("--dangerously-allow-all",)

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        if call.brief.schema:
            mode = option("--mode", call.model) or keep_options(call.flags, "--mode")
            return ("--settings-file", call.brief.log_base + SETTINGS_SUFFIX, *mode, "--stream-json", "-x")
        return (
            *(flag for flag in call.flags if flag not in EXECUTE_OPTIONS),
            *self.permission_arguments(call, call.flags),
            *option("--mode", call.model),  # it has modes instead of models: smart, rush, deep
            "--stream-json",
            "-x",  # last, because a word after it would be taken for the prompt
        )

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return None

    def extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        """The settings of a judge question: no flag removes tools, but a setting does."""
        return {SETTINGS_SUFFIX: NO_TOOLS_SETTINGS} if call.brief.schema else {}

    def reader(self, context: ReaderContext) -> AmpStream:
        return AmpStream(self, context)


class AmpStream:
    """Reads one turn. The format is that of Claude Code, but a message has no id and comes in one line, and the result
    may lack usage and cost.
    """

    def __init__(self, adapter: AgentAdapter, context: ReaderContext) -> None:
        self._emit, self._tally, self._counted = context.emit, UsageTally(context), False
        self._stream = ClaudeStream(adapter, replace(context, emit=self._pass_on))

    def read_line(self, line: bytes) -> None:
        self._stream.read_line(line)
        message = decode_line(line, LINES).message
        if isinstance(message, ClaudeMessage) and message.id is None and message.usage:
            usage = Usage(*token_counts(message.usage))
            if usage.total:  # zero means not counted
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
