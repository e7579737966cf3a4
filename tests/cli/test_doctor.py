from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Any

import pytest

from ralphproof.agents.adapter import COST_UNKNOWN
from ralphproof.agents.selection import KNOWN_AGENTS, load_adapter
from ralphproof.engine.agent import Spent
from ralphproof.store.spend import SpendStore
from tests.cli.missing_packages import without
from tests.misbehaviour.machine import give, strangers_project
from tests.ralph import Ralph, done, until, write

USED = ("git", "sh", "sleep", "touch")  # what these tests start


@pytest.fixture(autouse=True)
def _no_sandbox_is_tried_for_long(ralph: Ralph) -> None:
    """Nor is any agent of this machine asked. What is said of sandboxes has tests of its own."""
    few = ralph.folder / "few"
    few.mkdir()
    for name in USED:
        (few / name).symlink_to(str(shutil.which(name)))
    ralph.env["PATH"] = f"{ralph.bin}:{few}"


def items_of(ralph: Ralph, via: tuple[str, ...] = (), **env: str) -> tuple[int, dict[str, Any]]:
    told = ralph("doctor", "--json", env=env, via=via)
    data: dict[str, Any] = told.json
    assert data["ok"] == (told.code == 0)
    return told.code, {item["name"]: item for item in data["items"]}


def examined(ralph: Ralph, via: tuple[str, ...] = (), **env: str) -> tuple[int, dict[str, tuple[str, str]]]:
    code, items = items_of(ralph, via, **env)
    return code, {name: (item["state"], item["text"]) for name, item in items.items()}


def test_a_sound_machine_can_run(ralph: Ralph) -> None:
    ralph.commit()
    code, items = examined(ralph)
    assert code == 0
    assert items["keeper"][0] == "ok"
    assert "git version" in items["git"][1]
    assert str(ralph.state_dir) in items["state"][1]
    assert items["sandbox limits"][0] in ("ok", "note")
    assert ralph("doctor").out.endswith("A run can start.\n")


def told_of(ralph: Ralph, name: str, **env: str) -> tuple[Any, str]:
    """What the doctor tells of one agent: to programs, and to people."""
    item = items_of(ralph, (), **env)[1][f"agent {name}"]
    return item["agent"], item["text"]


def test_agents_are_asked_for_their_version_and_only_outside_the_project(ralph: Ralph) -> None:
    ralph.program("claude", f'[ "$(pwd)" = / ] && echo "claude 1.2.3"; touch {ralph.folder}/asked')
    ralph.program("codex", "sleep 60")
    ralph.program("qwen", "echo broken >&2; exit 3")
    ralph.write({"bin/amp": "#!/bin/sh\ntouch project-code-ran\n"})
    (ralph.root / "bin/amp").chmod(0o755)
    path = f"{ralph.root}/bin:bin:{ralph.env['PATH']}"
    code, items = examined(ralph, PATH=path)
    assert code == 0
    assert items["agent claude"][1].startswith(f"{ralph.bin}/claude; claude 1.2.3; ")
    assert "its version is unknown; --version failed: did not finish in time" in items["agent codex"][1]
    assert "its version is unknown; --version failed: broken" in items["agent qwen"][1]
    assert items["agent qwen"][0] == "note"
    assert items["agents"] == ("ok", "not on PATH: gemini, opencode, copilot, amp, pi")
    assert (ralph.folder / "asked").exists()
    assert not (ralph.root / "project-code-ran").exists()


def test_an_agent_whose_package_tells_its_version_is_not_started(ralph: Ralph) -> None:
    folder = ralph.folder / "node_modules/codex"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"version": "0.166.0", "bin": "codex"}')
    ralph.program("codex", f"touch {ralph.folder}/asked").rename(folder / "codex")
    (ralph.bin / "codex").symlink_to(folder / "codex")
    assert told_of(ralph, "codex")[0]["version"] == "0.166.0"
    assert not (ralph.folder / "asked").exists()


@pytest.mark.parametrize(
    ("said", "version"),
    [("2.1.325 (Claude Code)", "2.1.325 (Claude Code)"), ("v0.1", "v0.1"), ("Welcome!", None), ("Node 20", None)],
)  # fmt: skip
def test_what_does_not_look_like_a_version_is_none(ralph: Ralph, said: str, version: str | None) -> None:
    ralph.program("claude", f"echo '{said}'")
    told, text = told_of(ralph, "claude")
    assert told["version"] == version
    assert ("; its version is unknown; " in text) == (version is None)


def test_signs_of_a_login_are_named_and_never_shown(ralph: Ralph) -> None:
    ralph.program("claude", "echo 1.0")
    code, items = items_of(ralph)
    claude = items["agent claude"]
    assert (code, claude["state"]) == (0, "note")
    assert "no sign of a login (run `claude` once and log in, or set ANTHROPIC_API_KEY)" in claude["text"]
    assert claude["agent"]["login"] == []
    (ralph.home / ".claude").mkdir()
    (ralph.home / ".claude/.credentials.json").write_text("open-sesame")
    env = {"ANTHROPIC_API_KEY": "sk-ant-open-sesame", "CLAUDE_CODE_OAUTH_TOKEN": ""}
    assert told_of(ralph, "claude", **env)[0]["login"] == ["ANTHROPIC_API_KEY", "~/.claude/.credentials.json"]
    shown = ralph("doctor", env=env).out
    assert "[OK]   agent claude: " in shown
    assert "; login: ANTHROPIC_API_KEY, ~/.claude/.credentials.json; " in shown
    assert "sesame" not in shown


@pytest.mark.parametrize("name", KNOWN_AGENTS)
def test_what_an_agent_can_and_cannot_tell_is_said(ralph: Ralph, name: str) -> None:
    ralph.program(name, "echo 1.0")
    spoken, (told, text) = load_adapter(name), told_of(ralph, name)
    assert (told["path"], told["version"]) == (str(ralph.bin / name), "1.0")
    assert told["live"] == (name in ("claude", "qwen", "opencode", "pi"))
    assert (told["cost"], told["guard"], told["resumes"]) == (spoken.cost, spoken.guard or None, spoken.resumes)
    can, _, cannot = text.partition("; cannot: ")
    can = can.partition("can: ")[2]
    assert can.startswith("live events")
    assert ("as it goes" in can, "at the end" in can) == (told["live"], name in ("codex", "gemini"))
    assert (f"cost {spoken.cost}" in can) == (spoken.cost != COST_UNKNOWN) != ("cost" in cannot)
    assert (f"guarded mode {spoken.guard}" in can) == bool(spoken.guard) != ("guarded mode" in cannot)
    assert ("needs --sandbox or --no-sandbox" in text) == (not spoken.guard)
    for ability, key in (("tokens", "tokens"), ("resume", "resumes"), ("resets of limits", "resets")):
        words = can.replace("computed from tokens", "").split(", ")
        assert (ability in words) == told[key] != (ability in cannot)


def test_without_any_agent_that_could_be_taken_the_way_on_is_told(ralph: Ralph) -> None:
    ralph.program("pi", "echo 1.0")
    shown = ralph("doctor").out
    assert "[NOTE] agents: no known agent with a guard can be used; name one with --agent\n" in shown
    assert "[NOTE] agents: not on PATH: claude, codex, gemini, qwen, opencode, copilot, amp\n" in shown


def test_packages_that_are_missing_are_noted_with_what_is_lost(ralph: Ralph) -> None:
    ralph.program("claude", "echo 1.0")
    code, items = examined(ralph, (), **without(ralph, "msgspec", "genai_prices"))
    assert code == 0
    assert items["msgspec"][0] == items["genai-prices"][0] == items["agent claude"][0] == "note"
    assert "known agents cannot be used" in items["msgspec"][1]
    assert "the cost of agents that report tokens alone is unknown" in items["genai-prices"][1]
    assert "msgspec is not installed" in items["agent claude"][1]
    assert not {"msgspec", "genai-prices"} & set(examined(ralph)[1])


def test_a_dialect_that_the_repository_names_is_not_loaded(ralph: Ralph) -> None:
    ralph.settings(agent={"command": "of_the_repository:Thing"})
    ralph.write({"of_the_repository.py": "open('loaded', 'w')\n"})
    code, items = examined(ralph)
    assert (code, items["settings"][0]) == (0, "ok")
    assert not (ralph.root / "loaded").exists()


def test_what_makes_a_run_impossible_is_a_problem(ralph: Ralph) -> None:
    ralph.settings(maximumIterations="x", agent={"flags": 3})
    code, items = examined(ralph)
    assert (code, items["settings"][0]) == (1, "problem")
    for agent in ({"command": "not-installed-anywhere"}, {"fallbacks": ["not-installed-anywhere -x"]}):
        ralph.settings(agent=agent)
        code, items = examined(ralph)
        assert (code, items["settings"][0]) == (1, "problem")
        assert "not-installed-anywhere" in items["settings"][1]
    ralph.settings()
    code, items = examined(ralph, RALPH_STATE_DIR="/proc/nothing")
    assert (code, items["state"][0]) == (1, "problem")


def test_runs_that_did_not_end_are_named(ralph: Ralph) -> None:
    ralph.commit()
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(started="1"), {"sleep": 60}, done()]))
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    run = ralph.runs()[0].id
    assert "is running" in examined(ralph)[1]["runs"][1]
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()
    code, items = examined(ralph)
    assert (code, items["runs"][0]) == (0, "note")
    assert f"ralph cancel {run}" in items["runs"][1]
    assert ralph("cancel").code == 0
    assert examined(ralph)[1]["runs"] == ("ok", "none is left open")


@pytest.mark.parametrize("place", [".ralph", ".ralph/runs"])
def test_a_project_that_cannot_hold_a_runs_files_is_a_problem(ralph: Ralph, place: str) -> None:
    (ralph.root / place).parent.mkdir(exist_ok=True)
    (ralph.root / place).write_text("in the way")
    code, items = examined(ralph)
    assert (code, items["project"][0]) == (1, "problem")
    assert str(ralph.root / place) in items["project"][1]
    told = ralph("doctor")
    assert told.out.endswith("A run cannot start: see [ERR].\n")
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 2


def test_a_project_that_may_not_be_written_to_is_a_problem() -> None:
    with strangers_project() as (ralph, as_stranger):
        give(ralph.folder)
        ralph.root.chmod(0o555)
        code, items = examined(ralph, as_stranger)
    assert (code, items["project"][0]) == (1, "problem")
    assert "may not be written to" in items["project"][1]


def test_what_was_spent_today_is_told(ralph: Ralph) -> None:
    assert "spending" not in ralph("doctor").out
    book = SpendStore.open(str(ralph.state_dir))
    book.book("r", "c", Spent(1_500_000), time.time())
    book.close()
    assert "[OK]   spending: $1.50 of $50.00 today (UTC), over all projects" in ralph("doctor").out
    ralph.settings(limits={"dailyCostUsd": 1})
    told = ralph("doctor")
    assert "[ERR]  spending: $1.50 of $1.00 today" in told.out
    assert told.code == 1
