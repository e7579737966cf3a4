"""What each agent gets in a sandbox: its own service and its own login, and nothing of another agent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ralphproof.agents.adapter import AgentInvocation, credential_variables
from ralphproof.agents.selection import EMPTY_TURN, KNOWN_AGENTS, load_adapter
from ralphproof.engine.sandbox import AgentRequirements
from ralphproof.sandbox.egress_rules import AllowedHost, AllowList
from ralphproof.sandbox.plan import ALLOWED_VARIABLES, READ_ONLY, WRITABLE, filter_environment
from ralphproof.sandbox.planner import agent_egress, agent_home_mounts

each_agent = pytest.mark.parametrize("agent", KNOWN_AGENTS)

# Where each one asks its model, and renews its login where that is done elsewhere.
SERVICES = {
    "claude": ("api.anthropic.com", "platform.claude.com"),
    "codex": ("api.openai.com", "chatgpt.com", "auth.openai.com"),
    "gemini": ("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
    "qwen": ("dashscope.aliyuncs.com", "portal.qwen.ai", "chat.qwen.ai", "api.openai.com"),
    "opencode": ("opencode.ai", "models.dev", "api.anthropic.com", "api.openai.com"),
    "copilot": ("api.github.com", "api.githubcopilot.com", "api.business.githubcopilot.com"),
    "amp": ("ampcode.com", "production.ampcode.com"),
    "pi": ("api.anthropic.com", "api.openai.com", "openrouter.ai"),
}
STATE = {
    "claude": ("~/.claude", "CLAUDE_CONFIG_DIR"), "codex": ("~/.codex", "CODEX_HOME"), "gemini": ("~/.gemini", ""),
    "qwen": ("~/.qwen", "QWEN_HOME"), "opencode": ("~/.local/share/opencode", ""),
    "copilot": ("~/.copilot", "COPILOT_HOME"), "amp": ("~/.local/share/amp", ""),
    "pi": ("~/.pi/agent", "PI_CODING_AGENT_DIR"),
}  # fmt: skip
# Logins of something else, and what would make a program do what somebody else wants.
FOREIGN = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "NPM_TOKEN",
    "PYPI_TOKEN", "TWINE_PASSWORD", "CARGO_REGISTRY_TOKEN", "DATABASE_URL", "PGPASSWORD", "STRIPE_SECRET_KEY",
    "SLACK_BOT_TOKEN", "HF_TOKEN", "SENTRY_AUTH_TOKEN", "VAULT_TOKEN", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONFIG",
    "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GIT_ASKPASS", "GIT_SSH_COMMAND",
    "LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "PYTHONSTARTUP", "HTTPS_PROXY", "RALPH_STATE_DIR", "RALPH_CONFIG_DIR",
)  # fmt: skip
# What lies in the user's own folder of an agent and is never lent: what they did, said and trusted elsewhere.
PRIVATE = (
    "history.jsonl", "projects", "sessions", "todos", "tmp", "logs", "log", "cache", "threads", "shell-snapshots",
    "history", "session-state", "storage", "snapshot", "opencode.db", "state_5.sqlite", "trustedFolders.json",
)  # fmt: skip


def requirements_of(agent: str) -> AgentRequirements:
    found: AgentRequirements = load_adapter(agent).requirements
    return found


def rules_for(requirements: AgentRequirements, **addresses: str) -> AllowList:
    return AllowList(agent_egress(requirements, (), (), addresses.items()).hosts)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with everything that an agent may have, and no variable that moves it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for _, variable in STATE.values():
        monkeypatch.delenv(variable, raising=False) if variable else None
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_every_known_agent_is_in_these_tables() -> None:
    assert set(SERVICES) == set(STATE) == set(KNOWN_AGENTS)


@each_agent
def test_it_calls_its_own_service_and_no_other_host(agent: str) -> None:
    rules = rules_for(requirements_of(agent))
    for host in SERVICES[agent]:
        assert isinstance(rules.judge(host, 443), AllowedHost), host
    for host in ("example.com", "github.com", "gist.github.com", "169.254.169.254", "localhost", "127.0.0.1"):
        assert isinstance(rules.judge(host, 443), str), host
    assert isinstance(rules.judge(SERVICES[agent][0], 22), str)


@each_agent
def test_its_state_is_where_it_looks_for_it(agent: str) -> None:
    requirements = requirements_of(agent)
    assert (requirements.folder, requirements.variable) == STATE[agent]


@each_agent
def test_its_login_is_lent_or_told(agent: str) -> None:
    requirements, credentials = requirements_of(agent), load_adapter(agent).credentials
    named = {*requirements.lent, *(f"{requirements.folder}/{name}" for name in requirements.lent)}
    assert credentials
    assert [one for one in credentials if "/" in one and one not in named] == []
    keys = dict.fromkeys(credential_variables(credentials), "x")
    assert filter_environment(keys, requirements.variables) == keys


@each_agent
def test_no_variable_of_something_else_is_told(agent: str) -> None:
    requirements = requirements_of(agent)
    assert filter_environment(dict.fromkeys(FOREIGN, "x"), (*ALLOWED_VARIABLES, *requirements.variables)) == {}
    assert [name for name in requirements.variables if "*" in name and not name.endswith("_*")] == []


@each_agent
def test_of_the_users_home_only_its_own_settings_and_login_are_seen(agent: str, home: Path, tmp_path: Path) -> None:
    requirements, own = requirements_of(agent), str(tmp_path / "own")
    theirs = home / requirements.folder.removeprefix("~/")
    for name in (*PRIVATE, *requirements.lent):
        path = home / name[2:] if name.startswith("~/") else theirs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (home / ".ssh").mkdir()
    mounts, moved = agent_home_mounts(requirements, own, {"HOME": str(home)}, str(home))
    state, *lent = mounts
    assert (state.kind, state.host_path) == (WRITABLE, own)
    assert state.path == (own if requirements.variable else str(theirs))
    assert moved == ({requirements.variable: own} if requirements.variable else {})
    assert {mount.kind for mount in lent} == {READ_ONLY}
    assert len(lent) == len(requirements.lent), "all of it is found"
    seen = {os.path.relpath(mount.host_path, home) for mount in lent}
    assert not seen & {os.path.relpath(theirs / name, home) for name in PRIVATE}
    for mount in lent:
        inside = state.path if os.path.relpath(mount.host_path, theirs)[:2] != ".." else str(home)
        top = theirs if inside == state.path else home
        assert mount.path == os.path.join(inside, os.path.relpath(mount.host_path, top))


@each_agent
def test_what_it_would_execute_in_a_project_is_none_of_the_projects_work(agent: str) -> None:
    """A folder is one of settings: it begins with a dot."""
    for path in requirements_of(agent).settings:
        assert path.startswith(".") or path in ("opencode.json", "opencode.jsonc")
        assert not path.startswith((".git/", ".ralph/"))


@each_agent
def test_another_address_of_its_service_is_called_instead(agent: str) -> None:
    requirements = requirements_of(agent)
    for variable in (name for name in requirements.addresses if "://" not in name):
        assert isinstance(rules_for(requirements).judge("models.lan", 8443), str)
        assert isinstance(
            rules_for(requirements, **{variable: "https://models.lan:8443/v1"}).judge("models.lan", 8443), AllowedHost
        )
        assert agent_egress(requirements, (), (), [(variable, "http://127.0.0.1:1234")]).local_ports == (1234,)


def test_the_docs_tell_the_same_of_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text("utf-8")
    section = page.partition("## Inside a sandbox")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert {name.strip("| `") for name, *_ in rows} == set(KNOWN_AGENTS)
    for name, state, added, _ in rows:
        agent = name.strip("| `")
        folder, variable = STATE[agent]
        assert state == f"`{folder}`" + (f", by `{variable}`" if variable else "")
        spoken = load_adapter(agent)
        skips, guarded = (spoken.arguments(AgentInvocation(EMPTY_TURN, (), None, held)) for held in (False, True))
        flags = " ".join(word for word in skips if word not in guarded or word == "--approval-mode")
        assert added == (f"`{flags}`" if flags else "nothing: it never asks")


TOML = '[model_providers.{name}]\nbase_url = "{url}"\nenv_key = "LAN_KEY"\n'
OWN = {
    "codex": (".codex/config.toml", TOML.format(name="lan", url="http://models.lan:8080/v1")
              + TOML.format(name="here", url="http://localhost:1234/v1")),
    "pi": (".pi/agent/models.json", json.dumps({"providers": {
        "lan": {"baseUrl": "http://models.lan:8080/v1", "apiKey": "LAN_KEY"},
        "here": {"baseUrl": "http://localhost:1234/v1", "apiKey": "not-a-name"},
    }})),
    "opencode": (".config/opencode/opencode.json", json.dumps({"provider": {
        "lan": {"options": {"baseURL": "http://models.lan:8080/v1", "apiKey": "{env:LAN_KEY}"}},
        "here": {"options": {"baseURL": "http://localhost:1234/v1", "apiKey": "LITERAL"}},
    }})),
    "qwen": (".qwen/settings.json", json.dumps({"modelProviders": {"openai": [
        {"baseUrl": "http://models.lan:8080/v1", "envKey": "LAN_KEY"}, {"baseUrl": "http://localhost:1234/v1"},
    ]}})),
}  # fmt: skip


@pytest.mark.parametrize("agent", OWN)
def test_services_that_the_users_own_settings_name_are_reached_with_their_keys(agent: str, home: Path) -> None:
    """One in their network by its name and port, one on this machine by its port."""
    name, text = OWN[agent]
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text(text)
    requirements = requirements_of(agent)
    egress = agent_egress(requirements, (), (), ())
    allowed = AllowList(egress.hosts).judge("models.lan", 8080)
    assert isinstance(allowed, AllowedHost)
    assert (allowed.private, egress.local_ports) == (True, (1234,))
    assert filter_environment({"LAN_KEY": "x", "LITERAL": "x", "OTHER_KEY": "x"}, requirements.variables) == {
        "LAN_KEY": "x"
    }


@pytest.mark.parametrize("agent", OWN)
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"provider": 1, "providers": [null], "baseUrl": 1}', "a = ["])
def test_settings_that_cannot_be_read_name_nothing(agent: str, text: str, home: Path) -> None:
    before = requirements_of(agent)
    path = home / OWN[agent][0]
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert requirements_of(agent) == before


@each_agent
def test_settings_that_an_agent_gave_itself_are_gone_afterwards(agent: str, home: Path, tmp_path: Path) -> None:
    """Its login and its sessions stay."""
    requirements, own = requirements_of(agent), tmp_path / "own"
    (own / "sessions").mkdir(parents=True)
    named = [name for name in requirements.lent if not name.startswith("~/")]
    for name in named:
        (own / name).write_text("planted")
    agent_home_mounts(requirements, str(own), {}, str(home))
    assert {path.name for path in own.iterdir()} == {"sessions", *(set(requirements.logins) & set(named))}


def test_what_is_empty_in_its_folder_stays_since_something_may_lie_over_it(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "skills").mkdir(parents=True)
    (own / "settings.json").touch()
    (own / "plugins" / "evil").mkdir(parents=True)
    agent_home_mounts(AgentRequirements("~/.x", "X", ("skills", "settings.json", "plugins")), str(own), {}, str(home))
    assert {path.name for path in own.iterdir()} == {"skills", "settings.json"}
