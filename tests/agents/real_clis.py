"""The real agents that tests drive: which versions, where they are, what they need to ask a scripted model.

`python -m tests.agents.real_clis install claude codex` puts each into a folder of its own below `$RALPH_TEST_AGENTS`
(`~/.cache/ralphproof/agents`). A folder is there whole or not at all, and what is there is not installed again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pin:
    """One version of a package, and the program that is in it."""

    package: str
    version: str
    program: str


PINS: Mapping[str, Pin] = {
    "claude": Pin("@anthropic-ai/claude-code", "2.1.325", "claude"),
    "codex": Pin("@openai/codex", "0.166.0", "codex"),
    "gemini": Pin("@google/gemini-cli", "0.61.0", "gemini"),
    "pi": Pin("@mariozechner/pi-coding-agent", "0.73.1", "pi"),
    "copilot": Pin("@github/copilot", "1.0.102", "copilot"),
}

# Claude Code declares Node 22 and runs without any Node; its binary comes as an optional package that a script links.
NPM_INSTALL = (
    "npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--engine-strict=false",
    "--ignore-scripts=false", "--include=optional",
)  # fmt: skip


class NotInstalled(Exception):
    """An agent could not be installed; the message says why, in one line."""


def folder(name: str) -> Path:
    """Where the pinned version of this agent is, or would be."""
    root = os.environ.get("RALPH_TEST_AGENTS") or "~/.cache/ralphproof/agents"
    return Path(root).expanduser() / f"{name}-{PINS[name].version}"


def program(name: str) -> Path | None:
    """The agent's program; None where it is not installed."""
    path = folder(name) / "node_modules" / ".bin" / PINS[name].program
    return path if path.exists() else None


def install(name: str) -> Path:
    """The agent's program, installed if it was not yet."""
    if found := program(name):
        return found
    if shutil.which("npm") is None:
        raise NotInstalled(f"{name}: npm is not on PATH; install Node.js 20 or newer")
    target = folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
        _fetch(name, Path(beside) / "whole")
        _publish(Path(beside) / "whole", target)
    if found := program(name):
        return found
    raise NotInstalled(f"{name}: {PINS[name].package}@{PINS[name].version} holds no program {PINS[name].program}")


def _fetch(name: str, into: Path) -> None:
    pin = PINS[name]
    into.mkdir()
    argv = [*NPM_INSTALL, "--prefix", str(into), f"{pin.package}@{pin.version}"]
    done = subprocess.run(argv, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise NotInstalled(f"{name}: npm ended with {done.returncode}: {last}")


def _publish(whole: Path, target: Path) -> None:
    try:
        whole.rename(target)
    except OSError:
        if not target.exists():
            raise  # else another process has published the same version in the meantime


def home_for(name: str, home: Path, where: str) -> dict[str, str]:
    """Write the agent's settings into `home`; the environment in which it asks the model at `where`, and no other.

    The keys are dummies. One home can serve several agents.
    """
    return {"HOME": str(home), **_HOMES[name](home, where)}


def _claude(home: Path, where: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": where, "ANTHROPIC_API_KEY": "sk-ant-dummy",
        "CLAUDE_CODE_MAX_RETRIES": "2", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # else root may not skip permissions
    }  # fmt: skip


CLAUDE_LOGGED_IN = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "dummy"}
"""Over Claude's environment: a subscriber, whose usage limits it tells of, instead of a key."""

CODEX_SETTINGS = """\
model = "fake-model"
model_provider = "fake"

[model_providers.fake]
name = "fake"
base_url = "{where}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2

# Without these two Codex waits five seconds at its end for names that a private network cannot resolve (0.166).
[analytics]
enabled = false

[features]
plugins = false

# Else it makes folders of its own in /tmp, a .git among them (0.166).
[sandbox_workspace_write]
exclude_slash_tmp = true
"""


def _codex(home: Path, where: str) -> dict[str, str]:
    """Codex makes no sandbox program in a home below $TMPDIR, where homes of tests are; so $TMPDIR moves below it."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    _write(home / ".codex" / "config.toml", CODEX_SETTINGS.replace("{where}", where))
    return {"FAKE_KEY": "dummy", "CODEX_HOME": str(home / ".codex"), "TMPDIR": str(temporary)}


def _gemini(home: Path, where: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }  # fmt: skip
    _write(home / ".gemini" / "settings.json", json.dumps(settings))
    return {
        "GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": where,
        "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false",
    }  # fmt: skip


def _pi(home: Path, where: str) -> dict[str, str]:
    cost = {"input": 5, "output": 25, "cacheRead": 0.5, "cacheWrite": 6}
    model = {"id": "fake-model", "name": "Fake", "input": ["text"], "contextWindow": 200_000, "maxTokens": 8000}
    service = {"baseUrl": f"{where}/v1", "api": "openai-completions", "apiKey": "dummy"}
    provider = {**service, "models": [{**model, "reasoning": False, "cost": cost}]}
    _write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"fake": provider}}))
    return {"PI_OFFLINE": "1"}


def _copilot(home: Path, where: str) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{where}/v1", "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "dummy", "COPILOT_MODEL": "fake-model", "COPILOT_OFFLINE": "true",
    }  # fmt: skip


_HOMES: Mapping[str, Callable[[Path, str], dict[str, str]]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "pi": _pi, "copilot": _copilot,
}  # fmt: skip


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    words = argparse.ArgumentParser(prog="real_clis", description="The agents that tests drive.")
    words.add_argument("verb", choices=["install"])
    words.add_argument("name", nargs="+", choices=list(PINS))
    for name in words.parse_args().name:
        try:
            print(install(name))
        except NotInstalled as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
