"""Codex CLI, as of 0.166.0."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from ralphproof.agents.codex_stream import CodexStream, denials
from ralphproof.agents.dialect import COMPUTED, Call, Hearing, files_in, given, keys_in, option_of, without
from ralphproof.agents.hooking import overrides
from ralphproof.agents.question import SCHEMA, only
from ralphproof.sandbox import Lodging
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ralphproof.event import Event

SHORT = ("-m", "-c", "-s", "-p")  # options of one letter, whose value may follow without a space
MODEL = ("-m", "--model")
GUARDS = ("-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--approve-for-me")
# What `exec` alone takes, with and without a value.
UNATTENDED = ("--output-schema", "-o", "--output-last-message", "--color")
UNATTENDED_ALONE = ("--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules")
OURS = "openai"  # the provider that a login with an account is for
QUIET = ("check_for_update_on_startup=false", "analytics.enabled=false")
# What gives a model tools (0.166), or words of others; and settings of the user's that a question needs to be asked.
NO_TOOLS = (
    *(
        f"features.{name}=false"
        for name in ("shell_tool", "unified_exec", "view_image", "multi_agent", "goals", "apps", "plugins", "hooks")
    ),
    "web_search=disabled", "tools.experimental_request_user_input.enabled=false", "project_doc_max_bytes=0",
    "skills.include_instructions=false", "include_apps_instructions=false", "include_permissions_instructions=false",
    "include_environment_context=false",
)  # fmt: skip
NEEDED = (
    "model", "model_provider", "model_reasoning_effort", "openai_base_url", "chatgpt_base_url", "forced_login_method",
)  # fmt: skip


class Codex:
    """`codex exec --json`, the prompt on standard input."""

    name = "codex"
    cost = COMPUTED
    guard = "workspace-write"
    resumes = True
    login = "run `codex login`, or set CODEX_API_KEY"
    credentials: tuple[str, ...] = ("CODEX_API_KEY", "~/.codex/auth.json")  # OPENAI_API_KEY does not log it in
    updates_off: Mapping[str, str] = {}

    @property
    def lodging(self) -> Lodging:
        """With the service that the user's settings name, and the variable that its key is in."""
        return Lodging(
            "~/.codex", "CODEX_HOME",
            (
                "auth.json", "config.toml", "AGENTS.md", "AGENTS.override.md", "hooks.json", "prompts", "rules",
                "skills", "plugins",
            ),
            ("api.openai.com", "chatgpt.com", "auth.openai.com"),  # the third renews a login
            ("OPENAI_BASE_URL", *_services()),
            (*keys_in(self.credentials), "CODEX_*", "OPENAI_*", *_said_of_services("env_key")),
            (".codex/",),
            logins=files_in(self.credentials),
        )  # fmt: skip

    def arguments(self, call: Call) -> tuple[str, ...]:
        """It refuses an option that comes twice, `-c` aside, where the last one counts."""
        if call.brief.schema:
            return _question(call)
        flags = _apart(call.flags)
        if call.model:
            flags = without(flags, *MODEL)
        guard = ("--sandbox", self.guard) if call.guarded else ("--dangerously-bypass-approvals-and-sandbox",)
        guards = given(flags, *GUARDS) or "sandbox_mode" in _overrides(flags)
        return (
            "exec",
            *_config(QUIET),
            *flags,
            *(_config(overrides(call, _overrides(flags))) if call.brief.hooks else ()),
            *(() if guards else guard),
            *(("--model", call.model) if call.model else ()),
            *(() if given(flags, "--skip-git-repo-check") else ("--skip-git-repo-check",)),
            *(() if given(flags, "--json") else ("--json",)),
            # `resume` itself knows few options, but those before it count for it too.
            *(("resume", call.brief.session) if call.brief.session else ()),
            "-",
        )  # fmt: skip

    def interactive(self, call: Call, again: bool) -> tuple[str, ...]:
        """The prompt comes first: `--image` takes every word after it. No session has a name before it has begun."""
        flags = without(_apart(call.flags), *UNATTENDED, *(MODEL if call.model else ()))
        flags = tuple(flag for flag in flags if flag not in UNATTENDED_ALONE)
        guard = ("--sandbox", self.guard) if call.guarded else ("--dangerously-bypass-approvals-and-sandbox",)
        guards = given(flags, *GUARDS) or "sandbox_mode" in _overrides(flags)
        return (
            call.brief.prompt,
            *_config(QUIET),
            *flags,
            *(() if guards else guard),
            *(("--model", call.model) if call.model else ()),
        )

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        """Its default, which changes with the login, is not known."""
        flags = _apart(flags)
        if named := model or option_of(flags, *MODEL):
            return named
        if given(flags, "--oss"):  # then a model of its own choice runs on this machine
            return None
        named = _overrides(flags).get("model")
        if named is None and not given(flags, "--ignore-user-config"):
            named = _settings(option_of(flags, "-p", "--profile")).get("model")
        return named if isinstance(named, str) else None

    def environment(self, call: Call) -> Mapping[str, str]:
        return {}

    def unhooked(self, flags: tuple[str, ...], environ: Mapping[str, str]) -> str:
        """The flag by which it would call no hook; empty where it calls them. It outweighs any `-c`."""
        pairs = zip(flags, (*flags[1:], ""), strict=True)
        off = any(flag == "--disable=hooks" or (flag == "--disable" and text == "hooks") for flag, text in pairs)
        return "--disable hooks" if off else ""

    def overheard(self, complained: str) -> tuple[Event, ...]:
        """A call that a hook denied is not in its stream."""
        return denials(complained)

    def beside(self, call: Call) -> Mapping[str, str]:
        """It takes a schema from a file."""
        return {SCHEMA: call.brief.schema} if call.brief.schema else {}

    def reader(self, hearing: Hearing) -> CodexStream:
        return CodexStream(self, hearing, notional=_subscribed())


def _question(call: Call) -> tuple[str, ...]:
    flags = _apart(call.flags)
    if call.model:
        flags = without(flags, *MODEL)
    needed = [text for text in _config_flags(flags) if _is_needed(text.partition("=")[0].strip())]
    return (
        "exec",
        *only(flags, *MODEL, "-p", "--profile", "--local-provider", bare=("--oss",)),
        *_config((*needed, *QUIET, *NO_TOOLS, *_no_servers(option_of(flags, "-p", "--profile")))),
        *(("--model", call.model) if call.model else ()),
        "--sandbox", "read-only", "--skip-git-repo-check", "--ignore-rules", "--ephemeral",
        "--output-schema", call.brief.base + SCHEMA,
        "--json", "-",
    )  # fmt: skip


def _no_servers(profile: str | None) -> tuple[str, ...]:
    """The user's MCP servers are tools too. An empty table would leave them there: each is turned off."""
    tables = [_settings(file).get("mcp_servers") for file in (None, profile)]
    names = dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table)
    off = ",".join(f"{msgspec.json.encode(name).decode()}={{enabled=false}}" for name in names)
    return (f"mcp_servers={{{off}}}",) if off else ()


def _is_needed(key: str) -> bool:
    return key in NEEDED or key.startswith("model_providers.")


def _config(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for text in settings for word in ("-c", text))


def _apart(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags, with `=` between an option of one letter and a value that clings to it."""
    clings = [flag[:2] in SHORT and flag[2:3] not in ("", "=") for flag in flags]
    return tuple(f"{flag[:2]}={flag[2:]}" if one else flag for flag, one in zip(flags, clings, strict=True))


def _overrides(flags: tuple[str, ...]) -> dict[str, Any]:
    """The settings that `-c key=value` gives, each as TOML or else as the text that it is."""
    return {key.strip(): _toml(text) for key, _, text in (one.partition("=") for one in _config_flags(flags))}


def _config_flags(flags: tuple[str, ...]) -> Iterator[str]:
    words = iter(flags)
    for flag in words:
        name, equals, text = flag.partition("=")
        if name in ("-c", "--config"):
            yield text if equals else next(words, "")


def _toml(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _home() -> str:
    return os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")


def _settings(profile: str | None = None) -> dict[str, Any]:
    """Its settings file, under that of a profile; what cannot be read says nothing."""
    import tomllib

    settings: dict[str, Any] = {}
    for name in ("config.toml", *((f"{profile}.config.toml",) if profile else ())):
        try:
            with open(os.path.join(_home(), name), "rb") as file:
                settings |= tomllib.load(file)
        except (OSError, ValueError):
            continue
    return settings


class _Login(Struct):
    """The kind of a login; the keys beside it are not decoded."""

    auth_mode: str | None = None


def _said_of_services(key: str) -> tuple[str, ...]:
    """What the user's settings say of services beside OpenAI's."""
    found = _settings().get("model_providers")
    tables = found.values() if isinstance(found, dict) else ()
    return tuple(text for table in tables if isinstance(table, dict) and isinstance(text := table.get(key), str))


def _services() -> tuple[str, ...]:
    """Where those services are, and where OpenAI's own is said to be."""
    own = (_settings().get(key) for key in ("openai_base_url", "chatgpt_base_url"))
    said = (*_said_of_services("base_url"), *own)
    return tuple(address for address in said if isinstance(address, str) and "://" in address)


def bought_elsewhere() -> bool:
    """Whether the user's settings name another service than OpenAI's: its models have other names."""
    return str(_settings().get("model_provider", OURS)) != OURS


def _subscribed() -> bool:
    """Whether an account pays, by its plan, and not a key by the token."""
    if os.environ.get("CODEX_API_KEY"):
        return False
    try:
        with open(os.path.join(_home(), "auth.json"), "rb") as file:
            login = msgspec.json.decode(file.read(), type=_Login)
    except (OSError, ValueError):
        return False
    return login.auth_mode == "chatgpt" and not bought_elsewhere()
