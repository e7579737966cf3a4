"""OpenCode, as of 1.18.33."""

from __future__ import annotations

import os

from ralphproof.agents.dialect import REPORTED, Call, Hearing, files_in, given, keys_in, option_of, without
from ralphproof.agents.opencode_stream import OpenCodeStream
from ralphproof.agents.own_settings import key_variables, services
from ralphproof.agents.question import only
from ralphproof.sandbox import Lodging
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = ("--model", "-m")
GUARDS = ("--auto", "--yolo", "--dangerously-skip-permissions")
PERMISSION = "OPENCODE_PERMISSION"  # a variable that has the last word over its settings
SETTINGS = "~/.config/opencode/opencode.json"
LENT = (
    "opencode.json", "opencode.jsonc", "config.json", "AGENTS.md", "agent", "agents", "command", "commands", "plugin",
    "plugins", "skill", "skills", "tool", "tools",
)  # fmt: skip
# Its own rules let it do everything in its folder, and ask for the rest: then nobody answers, and its turn is over.
# What is denied it is told, and it goes on. The rule beside `*` keeps it from hiding the tool altogether, or nobody
# would learn why no command is run; and the user's own rules for single commands stay.
HOLD_BACK = (
    '{"bash":{"*":"deny","":"deny"},"webfetch":"deny","external_directory":{"*":"deny"},'
    '"read":{"*.env":"deny","*.env.*":"deny","*.env.example":"allow"}}'
)


class OpenCode:
    """`opencode run`, the prompt on standard input."""

    name = "opencode"
    cost = REPORTED
    guard = PERMISSION
    resumes = True
    login = "run `opencode auth login`, or set the key of a provider such as ANTHROPIC_API_KEY"
    credentials: tuple[str, ...] = (
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY",
        "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "~/.local/share/opencode/auth.json",
        SETTINGS,
    )  # fmt: skip
    updates_off: Mapping[str, str] = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}

    @property
    def lodging(self) -> Lodging:
        """With the services that the user's settings name, and the variables that their keys are in."""
        return Lodging(
            "~/.local/share/opencode", "", ("auth.json", *(f"~/.config/opencode/{name}" for name in LENT)),
            (
                "opencode.ai", "models.dev", "api.anthropic.com", "platform.claude.com", "api.openai.com",
                "chatgpt.com", "auth.openai.com", "generativelanguage.googleapis.com", "openrouter.ai",
            ),
            ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", *services(SETTINGS)),
            (
                *keys_in(self.credentials), *self.updates_off, "OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "OPENROUTER_*",
                *key_variables(SETTINGS, "apiKey", "{env:", "}"),
            ),
            (".opencode/", "opencode.json", "opencode.jsonc"),
            logins=files_in(self.credentials),
        )  # fmt: skip

    def arguments(self, call: Call) -> tuple[str, ...]:
        flags = without(call.flags, *MODEL) if call.model else call.flags
        if call.brief.schema:
            own = only(flags, *MODEL, "--variant")
            return ("run", *own, *(("--model", call.model) if call.model else ()), "--format", "json")
        return (
            "run",
            *flags,
            *(() if call.guarded or given(flags, *GUARDS) else ("--auto",)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.brief.session) if call.brief.session else ()),
            "--format", "json",
        )  # fmt: skip

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or option_of(flags, *MODEL)

    def environment(self, call: Call) -> Mapping[str, str]:
        here = {"PWD": os.path.abspath(call.brief.cwd)}  # it works there, wherever it is
        if call.brief.schema:  # a tool that is denied altogether is not offered
            return {**here, PERMISSION: '{"*":"deny"}', "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        if not call.guarded or given(call.flags, *GUARDS) or PERMISSION in dict(call.brief.env):
            return here
        return {**here, PERMISSION: HOLD_BACK}

    def reader(self, hearing: Hearing) -> OpenCodeStream:
        return OpenCodeStream(self, hearing)
