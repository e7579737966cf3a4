"""A turn that is one question: how each agent is held back, whatever the user's own flags say, and what it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents import script_player
from ralphproof.agents.adapter import (
    SCHEMA_SUFFIX,
    AgentAdapter,
    AgentInvocation,
    has_option,
    keep_options,
    option_value,
)
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.selection import agent_traits
from ralphproof.checks.judge import Submission, answer_schema, extract_diff, extract_nonce, judge_prompt
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.sandbox import Exit
from ralphproof.settings.implementations import BUILTIN, resolve_implementation
from tests.agents.replay import Looker, Recording, brief_in, play, recorded
from tests.checks.test_judge_diff import PATCH

NAMES = tuple(BUILTIN["agents"])
DIALECTS: dict[str, AgentAdapter] = {name: resolve_implementation("agents", name)() for name in NAMES}
FORM = answer_schema(2)

# What must be among the words of each, or in its environment: it has no tool, or may not use one.
HELD: dict[str, tuple[str, ...]] = {
    "claude": ("--tools", "--safe-mode", "--strict-mcp-config", "--disable-slash-commands", "--no-session-persistence"),
    "codex": ("read-only", "--ephemeral", "--ignore-rules", "features.shell_tool=false", "web_search=disabled"),
    "gemini": ("--admin-policy", "default"),
    "qwen": ("--safe-mode", "--max-tool-calls", "--chat-recording=false"),
    "opencode": ('{"*":"deny"}',),
    "copilot": ("--available-tools=none", "--no-custom-instructions", "--disable-builtin-mcps"),
    "amp": ("--settings-file",),
    "pi": ("--no-tools", "--no-session", "--no-extensions", "--no-context-files"),
}

# Flags of the user's own that would loosen it, or let others speak in it.
LOOSE: dict[str, tuple[str, ...]] = {
    "claude": (
        "--dangerously-skip-permissions", "--permission-mode", "bypassPermissions", "--tools", "default",
        "--allowedTools", "Bash", "--mcp-config", "mine.json", "--add-dir", "/", "--append-system-prompt", "say yes",
        "--continue", "--plugin-dir=x", "--output-format", "text", "--max-budget-usd", "100",
    ),
    "codex": (
        "--yolo", "-s", "danger-full-access", "--dangerously-bypass-approvals-and-sandbox", "--add-dir", "/",
        "-csandbox_mode=danger-full-access", "-c", "features.shell_tool=true", "--enable", "shell_tool",
        "-c", "model_instructions_file=mine.md", "-C", "/", "--config=mcp_servers.x.command=sh",
    ),
    "gemini": ("--yolo", "-y", "--approval-mode", "yolo", "--allowed-tools", "run_shell_command", "-e", "mine"),
    "qwen": ("--yolo", "--approval-mode=yolo", "--allowed-tools", "x", "--max-tool-calls", "9", "--core-tools", "x"),
    "opencode": ("--auto", "--yolo", "--agent", "build", "--continue", "-f", "secret.txt", "--share"),
    "copilot": ("--allow-all", "--yolo", "--allow-all-tools", "--available-tools=shell", "--add-dir=/", "--agent=x"),
    "amp": ("--dangerously-allow-all", "--settings-file", "mine.json", "--mcp-config", "x", "-x"),
    "pi": ("--tools", "bash", "-e", "mine.ts", "--append-system-prompt", "say yes", "--continue", "--skill", "x"),
}  # fmt: skip

every_dialect = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def no_settings_of_mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))


def brief(folder: Path, **more: Any) -> TurnInput:
    return brief_in(folder, **{"stream": False, "schema": FORM, "max_micro_usd": 250_000, **more})


def words(name: str, folder: Path, flags: tuple[str, ...] = (), model: str | None = None, **more: Any) -> list[str]:
    """Its arguments and what its environment adds."""
    call = AgentInvocation(brief(folder, **more), flags, model, more.pop("guarded", True))
    return [*DIALECTS[name].arguments(call), *DIALECTS[name].environment(call).values()]


@every_dialect
@pytest.mark.parametrize("guarded", [True, False])
def test_it_is_held_back_whether_or_not_its_guard_is_on(name: str, guarded: bool, tmp_path: Path) -> None:
    call = AgentInvocation(brief(tmp_path), (), None, guarded)
    told = [*DIALECTS[name].arguments(call), *DIALECTS[name].environment(call).values()]
    assert set(HELD[name]) <= set(told)
    assert not any("dangerously" in word or "yolo" in word or "allow-all" in word for word in told)


@every_dialect
def test_no_flag_of_the_user_s_loosens_it(name: str, tmp_path: Path) -> None:
    assert words(name, tmp_path, LOOSE[name]) == words(name, tmp_path)


@every_dialect
def test_the_model_that_is_asked_for_is_asked_and_else_the_user_s_own(name: str, tmp_path: Path) -> None:
    option = "--mode" if name == "amp" else "--model"
    asked, own = (option, "mine"), words(name, tmp_path, (*LOOSE[name], option, "mine"))
    assert option_value(tuple(own), option) == "mine"
    both = words(name, tmp_path, asked, "small")
    assert (option_value(tuple(both), option), both.count(option)) == ("small", 1)
    assert "mine" not in both


@every_dialect
def test_its_prompt_and_sessions_are_no_part_of_it(name: str, tmp_path: Path) -> None:
    told = words(name, tmp_path, prompt="the very prompt", session="the-session")
    assert not any("the very prompt" in word or "the-session" in word for word in told)


def test_what_it_may_cost_travels_where_there_is_a_flag_for_it(tmp_path: Path) -> None:
    assert option_value(tuple(words("claude", tmp_path)), "--max-budget-usd") == "0.250000"
    assert "--max-budget-usd" not in words("claude", tmp_path, max_micro_usd=None)
    assert float(option_value(tuple(words("claude", tmp_path, max_micro_usd=1)), "--max-budget-usd") or 0) > 0


def test_the_schema_travels_where_there_is_a_flag_for_it(tmp_path: Path) -> None:
    for name in ("claude", "qwen"):
        assert option_value(tuple(words(name, tmp_path)), "--json-schema") == FORM
    assert (
        option_value(tuple(words("codex", tmp_path)), "--output-schema") == str(tmp_path / "agent_001") + SCHEMA_SUFFIX
    )


def test_codex_keeps_what_says_whom_to_ask_and_turns_servers_off(tmp_path: Path) -> None:
    home = tmp_path / ".codex"
    home.mkdir()
    (home / "config.toml").write_text('[mcp_servers.one]\ncommand = "x"\n[mcp_servers."t.w.o"]\ncommand = "x"\n')
    (home / "work.config.toml").write_text('[mcp_servers.three]\ncommand = "x"\n')
    flags = ("-p", "work", "--oss", "-cmodel_provider=mine", "-c", "model_providers.mine.base_url=x", "-c", "tui=1")
    told = words("codex", tmp_path, flags)
    assert {"work", "--oss", "model_provider=mine", "model_providers.mine.base_url=x"} <= set(told)
    assert "tui=1" not in told
    off = ('"one"', '"t.w.o"', '"three"')
    assert f"mcp_servers={{{','.join(f'{name}={{enabled=false}}' for name in off)}}}" in told
    assert told[-1] == "-"


def test_opencode_s_own_permissions_have_no_say(tmp_path: Path) -> None:
    sandbox = Recording(b"")
    asked = brief(tmp_path, env=(("OPENCODE_PERMISSION", '{"*":"allow"}'),))
    CliAgent(DIALECTS["opencode"], "program").take_turn(asked, sandbox, Looker())
    env = dict(sandbox.commands[0].env)
    assert env["OPENCODE_PERMISSION"] == '{"*":"deny"}'
    assert env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


@pytest.mark.parametrize(
    ("name", "ending", "holds"),
    [
        ("codex", SCHEMA_SUFFIX, FORM),
        ("gemini", ".policy.toml", 'toolName = "*"'),
        ("amp", ".settings.json", '"reject"'),
    ],
)
def test_what_it_reads_from_a_file_is_there_before_it_starts(
    name: str, ending: str, holds: str, tmp_path: Path
) -> None:
    sandbox = Recording(b"")
    CliAgent(DIALECTS[name], "program").take_turn(brief(tmp_path), sandbox, Looker())
    path = tmp_path / f"agent_001{ending}"
    assert str(path) in sandbox.commands[0].argv
    assert holds in path.read_text()
    path.unlink()
    CliAgent(DIALECTS[name], "program").take_turn(brief_in(tmp_path), sandbox, Looker())
    assert not path.exists(), "a turn that is no question needs none"


def test_a_file_that_cannot_be_written_is_a_turn_that_could_not_start(tmp_path: Path) -> None:
    sandbox = Recording(b"")
    asked = brief(tmp_path, log_base=str(tmp_path / "missing" / "agent_001"))
    turn = CliAgent(DIALECTS["codex"], "program").take_turn(asked, sandbox, Looker())
    assert (turn.exit.why, sandbox.commands) == ("unstartable", [])
    assert "cannot be written: No such file or directory" in turn.exit.error


def test_an_answer_in_the_form_that_was_asked_for_is_the_text_of_the_turn(tmp_path: Path) -> None:
    seen = play(DIALECTS["claude"], Recording(recorded("claude")["json-schema"].read_bytes()), tmp_path)
    assert json.loads(seen.turn.text) == {"done": True}
    result: dict[str, Any] = {"type": "result", "subtype": "success", "is_error": False, "result": "Done, as asked."}
    answered = {**result, "structured_output": {"nonce": "x", "criteria": []}}
    for line, text in ((answered, '{"nonce":"x","criteria":[]}'), ({**result, "structured_output": None}, None)):
        out = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        turn = play(DIALECTS["claude"], Recording(out, Exit(0)), tmp_path).turn
        assert turn.text == (text or "Done, as asked.")


def test_a_failure_stays_one_whatever_was_answered(tmp_path: Path) -> None:
    line = {"type": "result", "subtype": "error_max_budget_usd", "is_error": True, "structured_output": {"a": 1}}
    turn = play(DIALECTS["claude"], Recording(json.dumps(line).encode() + b"\n", Exit(1)), tmp_path).turn
    assert turn.errored


def test_small_models_are_known_by_agent(tmp_path: Path) -> None:
    assert {name: agent_traits(name).small_model for name in (*NAMES, "mine")} == {
        "claude": "haiku", "codex": "gpt-6-luna", "gemini": "flash-lite", "amp": "rush", "qwen": "", "opencode": "",
        "copilot": "", "pi": "", "mine": "",
    }  # fmt: skip
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('model_provider = "mine"\n')
    assert agent_traits("codex").small_model == "", "another service has other models"


def test_only_the_flags_that_are_named_stay() -> None:
    flags = ("--a", "1", "--b=2", "--c", "-x", "--a=3", "--d", "--a")
    assert keep_options(flags, "--a", bare=("-x",)) == ("--a", "1", "-x", "--a=3", "--a")
    assert keep_options(flags) == ()


def test_the_scripted_agent_reads_a_question_as_it_is_asked() -> None:
    prompt = judge_prompt(("one", "two", "three"), Submission("task", PATCH, "done"), "0f" * 16)
    nonce, count, quote = script_player.parse_judge_prompt(prompt)
    assert (nonce, count) == (extract_nonce(prompt), 3)
    assert quote in extract_diff(prompt)
    assert script_player.select_steps({"answer": [{"judge": "yes"}]}, prompt) == [{"judge": "yes"}]
    with pytest.raises(SystemExit, match='has no "answer"'):
        script_player.select_steps({"iterations": []}, prompt)


def test_a_turn_without_a_schema_is_called_as_ever(tmp_path: Path) -> None:
    told = DIALECTS["claude"].arguments(AgentInvocation(brief_in(tmp_path), ("--tools", "default"), None, True))
    assert has_option(told, "--tools")
    assert "--json-schema" not in told
