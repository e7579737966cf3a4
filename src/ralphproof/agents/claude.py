"""Claude Code, as of 2.1.325."""

from __future__ import annotations

import os

from ralphproof.agents.claude_stream import ClaudeStream
from ralphproof.agents.dialect import REPORTED, Call, Hearing, files_in, given, keys_in, option_of, without
from ralphproof.agents.hooking import SETTINGS, settings_with
from ralphproof.agents.question import MANNER, dollars, only
from ralphproof.sandbox import Lodging
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GUARDS = ("--permission-mode", "--dangerously-skip-permissions")
# Nothing of the user's or a project's own but the login and the model; the tool that takes the answer is always there.
QUESTION = (
    "--safe-mode", "--tools", "", "--strict-mcp-config", "--disable-slash-commands", "--permission-mode", "dontAsk",
    "--no-session-persistence", "--system-prompt", MANNER,
)  # fmt: skip
# What it takes with -p alone, with and without a value; and what says whose conversation a session goes on with.
UNATTENDED = (
    "--output-format", "--input-format", "--json-schema", "--max-turns", "--max-budget-usd", "--permission-prompt-tool",
)  # fmt: skip
UNATTENDED_ALONE = (
    "-p", "--print", "--include-partial-messages", "--include-hook-events", "--forward-subagent-text",
    "--replay-user-messages", "--no-session-persistence",
)  # fmt: skip
UNHOOKED = ("--bare", "--safe-mode")  # with these it calls no hook, whatever its settings say; so it is with variables
UNHOOKED_BY = ("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE")
CONVERSATION = ("-c", "--continue", "-r", "--resume", "--from-pr", "--session-id")


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
    lodging = Lodging(
        "~/.claude", "CLAUDE_CONFIG_DIR",
        (
            ".credentials.json", "settings.json", "CLAUDE.md", "skills", "agents", "commands", "plugins", "hooks",
            "rules", "output-styles", "workflows",
            "local",  # where its old installer put it
        ),
        ("api.anthropic.com", "platform.claude.com"),  # the second renews a login
        (
            "ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
            "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_AWS_BASE_URL",
            "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
        ),
        (
            *keys_in(credentials), *updates_off, "ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX", "DISABLE_*",
            "MAX_THINKING_TOKENS", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS",
            "BASH_MAX_OUTPUT_LENGTH", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION",
            "CLOUD_ML_REGION", "VERTEX_REGION_*",
        ),
        logins=files_in(credentials),
    )  # fmt: skip

    def arguments(self, call: Call) -> tuple[str, ...]:
        if call.brief.schema:
            return _question(call)
        guard = ("--permission-mode", self.guard) if call.guarded else ("--dangerously-skip-permissions",)
        # One object at the end says as much as the stream where nobody looks on, its cost included.
        form = ("stream-json", "--verbose") if call.brief.stream else ("json",)
        hooks = ("--settings", call.brief.base + SETTINGS) if self.beside(call) else ()
        return (
            "-p",
            *(without(call.flags, "--settings") if hooks else call.flags),
            *hooks,
            *(() if given(call.flags, *GUARDS) else guard),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.brief.session) if call.brief.session else ()),
            "--output-format", *form,
        )  # fmt: skip

    def interactive(self, call: Call, again: bool) -> tuple[str, ...]:
        """The prompt comes first: an option that takes several words would take it for one of its own."""
        flags = tuple(flag for flag in without(call.flags, *UNATTENDED) if flag not in UNATTENDED_ALONE)
        guard = ("--permission-mode", self.guard) if call.guarded else ("--dangerously-skip-permissions",)
        named = call.brief.session if not given(flags, *CONVERSATION) else None
        return (
            call.brief.prompt,
            *flags,
            *(() if given(flags, *GUARDS) else guard),
            *(("--model", call.model) if call.model else ()),
            *(("--resume" if again else "--session-id", named) if named else ()),
        )

    def beside(self, call: Call) -> Mapping[str, str]:
        """It takes hooks from a file of settings; the user's own are in it too."""
        settings = settings_with(call, option_of(call.flags, "--settings")) if call.brief.hooks else ""
        return {SETTINGS: settings} if settings else {}

    def unhooked(self, flags: tuple[str, ...], environ: Mapping[str, str]) -> str:
        """The flag or the variable by which it would call no hook; empty where it calls them."""
        said = [name for name in UNHOOKED if given(flags, name)]
        said += [name for name in UNHOOKED_BY if environ.get(name, "").lower() not in ("", "0", "false", "no", "off")]
        return next(iter(said), "")

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_of(flags, "--model")

    def environment(self, call: Call) -> Mapping[str, str]:
        # As root it refuses to skip permissions unless it is told that it is in a sandbox, or that the user knows.
        skips = not call.guarded and not call.brief.schema
        return {"IS_SANDBOX": "1"} if skips and os.geteuid() == 0 else {}

    def reader(self, hearing: Hearing) -> ClaudeStream:
        return ClaudeStream(self, hearing)


def _question(call: Call) -> tuple[str, ...]:
    most = dollars(call)
    return (
        "-p",
        *only(call.flags, "--settings", *(() if call.model else ("--model",))),
        *(("--model", call.model) if call.model else ()),
        *QUESTION,
        *(("--max-budget-usd", most) if most else ()),
        "--json-schema", call.brief.schema,
        "--output-format", "json",
    )  # fmt: skip
