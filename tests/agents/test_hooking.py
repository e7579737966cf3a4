"""Hooks and permissions are given to one turn, beside whatever the user's own flags give."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.claude import Claude
from ralphproof.agents.codex import Codex
from ralphproof.agents.dialect import Call
from ralphproof.agents.hooking import SETTINGS

from .replay import brief_in

HOOKS = (("Stop", "python -m stop 'it'"), ("PostToolUse", 'python -m "monitor"'))
MAY_RUN = ("git commit:*", "make test")


def call(folder: Path, *flags: str, guarded: bool = True, **more: Any) -> Call:
    return Call(brief_in(folder, **{"hooks": HOOKS, "may_run": MAY_RUN, **more}), flags, None, guarded)


def settings(made: Call) -> Any:
    return json.loads(Claude().beside(made)[SETTINGS])


def test_claude_gets_a_settings_file_of_the_turn(tmp_path: Path) -> None:
    made = call(tmp_path)
    argv = Claude().arguments(made)
    assert argv[argv.index("--settings") + 1] == made.brief.base + SETTINGS
    found = settings(made)
    assert found["hooks"]["Stop"] == [{"hooks": [{"type": "command", "command": HOOKS[0][1], "timeout": 20}]}]
    assert found["hooks"]["PostToolUse"][0]["matcher"] == ".*"
    assert found["permissions"] == {"allow": ["Bash(git commit:*)", "Bash(make test)"]}


OWN = {
    "env": {"A": "1"},
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]},
    "permissions": {"allow": ["WebFetch"], "deny": ["Bash(git push:*)"]},
}


@pytest.mark.parametrize("form", ["text", "file", "joined"])
def test_the_users_own_settings_stay_in_force(tmp_path: Path, form: str) -> None:
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    said = "own.json" if form == "file" else json.dumps(OWN)
    made = call(tmp_path, *((f"--settings={said}",) if form == "joined" else ("--settings", said)), "--verbose")
    assert [word for word in Claude().arguments(made) if "--settings" in word] == ["--settings"]
    found = settings(made)
    assert found["env"] == {"A": "1"}
    assert [group["hooks"][0]["command"] for group in found["hooks"]["Stop"]] == ["mine", HOOKS[0][1]]
    assert found["permissions"]["deny"] == ["Bash(git push:*)"]
    assert found["permissions"]["allow"] == ["WebFetch", "Bash(git commit:*)", "Bash(make test)"]


@pytest.mark.parametrize(
    "own", ["nothing.json", "{", "[1]", '{"hooks": [], "permissions": 1}', '{"permissions": {"allow": 1}}']
)
def test_settings_that_make_no_sense_take_no_hook_away(tmp_path: Path, own: str) -> None:
    found = settings(call(tmp_path, "--settings", own))
    assert found["hooks"]["Stop"]
    assert found["permissions"]["allow"] == ["Bash(git commit:*)", "Bash(make test)"]


def test_an_agent_without_a_guard_needs_no_permission(tmp_path: Path) -> None:
    assert "permissions" not in settings(call(tmp_path, guarded=False))


def test_a_turn_without_hooks_is_called_as_ever(tmp_path: Path) -> None:
    made = call(tmp_path, "--settings", "{}", hooks=(), may_run=())
    assert Claude().beside(made) == {}
    assert Claude().arguments(made)[:3] == ("-p", "--settings", "{}")


def test_codex_gets_the_same_hooks_as_settings_on_its_command_line(tmp_path: Path) -> None:
    argv = Codex().arguments(call(tmp_path))
    given = [text for flag, text in pairwise(argv) if flag == "-c" and text.startswith("hooks.")]
    found = tomllib.loads("\n".join(given))["hooks"]
    assert found["Stop"] == [{"hooks": [{"type": "command", "command": HOOKS[0][1], "timeout": 20}]}]
    assert found["PostToolUse"][0]["hooks"][0]["command"] == HOOKS[1][1]
    assert "--dangerously-bypass-hook-trust" in argv
    bare = Codex().arguments(call(tmp_path, hooks=()))
    assert "--dangerously-bypass-hook-trust" not in bare
