"""Claude Code, as of 2.1.325."""

from __future__ import annotations

import os

from ralphproof.agents.claude_stream import ClaudeStream
from ralphproof.agents.dialect import REPORTED, Call, Hearing, given, option_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GUARDS = ("--permission-mode", "--dangerously-skip-permissions")


class Claude:
    """`claude -p`, the prompt on standard input."""

    name = "claude"
    cost = REPORTED
    guard = "acceptEdits"
    resumes = True
    login = "run `claude` once and log in, or set ANTHROPIC_API_KEY"
    credentials: tuple[str, ...] = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX", "~/.claude/.credentials.json",
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"DISABLE_AUTOUPDATER": "1"}

    def arguments(self, call: Call) -> tuple[str, ...]:
        guard = ("--permission-mode", self.guard) if call.guarded else ("--dangerously-skip-permissions",)
        # One object at the end says as much as the stream where nobody looks on, its cost included.
        form = ("stream-json", "--verbose") if call.brief.stream else ("json",)
        return (
            "-p",
            *call.flags,
            *(() if given(call.flags, *GUARDS) else guard),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.brief.session) if call.brief.session else ()),
            "--output-format", *form,
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_of(flags, "--model")

    def environment(self, call: Call) -> Mapping[str, str]:
        # As root it refuses to skip permissions unless it is told that it is in a sandbox, or that the user knows.
        return {"IS_SANDBOX": "1"} if not call.guarded and os.geteuid() == 0 else {}

    def reader(self, hearing: Hearing) -> ClaudeStream:
        return ClaudeStream(self, hearing)
