"""Hooks and permissions are given to one turn, beside whatever the user's own flags give."""

from __future__ import annotations

import json
import tomllib
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.claude import SETTINGS_SUFFIX, Claude
from ralphproof.agents.codex import Codex
from ralphproof.engine.agent import Denied, Event
from tests.agents.replay import Played, Recording, brief_in, play

Json = dict[str, Any]
HOOKS = (("Stop", "python -m stop 'it'"), ("PostToolUse", 'python -m "monitor"'))
MAY_RUN = ("git commit:*", "make test")


def call(folder: Path, *flags: str, guarded: bool = True, **more: Any) -> AgentInvocation:
    brief = brief_in(folder, **{"hooks": HOOKS, "allowed_commands": MAY_RUN, **more})
    return AgentInvocation(brief, flags, None, guarded)


def settings(made: AgentInvocation) -> Any:
    return json.loads(Claude().extra_files(made)[SETTINGS_SUFFIX])


def test_claude_gets_a_settings_file_of_the_turn(tmp_path: Path) -> None:
    made = call(tmp_path)
    argv = Claude().arguments(made)
    assert argv[argv.index("--settings") + 1] == made.brief.log_base + SETTINGS_SUFFIX
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
    "own", ["broken.json", "list.json", '{"hooks": [], "permissions": 1}', '{"permissions": {"allow": 1}}', "{}"]
)
def test_settings_that_make_no_sense_take_no_hook_away(tmp_path: Path, own: str) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    found = settings(call(tmp_path, "--settings", own))
    assert found["hooks"]["Stop"]
    assert found["permissions"]["allow"] == ["Bash(git commit:*)", "Bash(make test)"]


def test_settings_may_begin_with_the_mark_of_their_encoding(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(OWN), encoding="utf-8-sig")
    assert settings(call(tmp_path, "--settings", "own.json"))["permissions"]["deny"] == ["Bash(git push:*)"]


@pytest.mark.parametrize("own", ["nothing.json", ".", "{", "[1]", '{"permissions": {"deny": ["Bash"]}} }'])
def test_settings_with_which_claude_refuses_to_start_are_left_to_it(tmp_path: Path, own: str) -> None:
    made = call(tmp_path, "--settings", own)
    assert Claude().extra_files(made) == {}
    assert Claude().arguments(made)[:3] == ("-p", "--settings", own)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git add:*", "git add:*"),
        (" make test ", "make test"),
        ("make lint && make test", "make lint && make test"),
        ("pytest tests/*.py", "pytest tests/*.py:*"),  # without the end any file would do
        ("test $(cat x) = y", r"test $\(cat x\) = y"),
        (r"grep -q 'a\.b' c", r"grep -q 'a\\.b' c"),
        ("case $x in a) ;; esac", r"case $x in a\) ;; esac"),
    ],
)
def test_a_rule_permits_its_command_and_no_other(tmp_path: Path, command: str, rule: str) -> None:
    assert settings(call(tmp_path, allowed_commands=(command,)))["permissions"]["allow"] == [f"Bash({rule})"]


def test_an_agent_without_a_guard_needs_no_permission(tmp_path: Path) -> None:
    assert "permissions" not in settings(call(tmp_path, guarded=False))


def test_a_turn_without_hooks_is_called_as_ever(tmp_path: Path) -> None:
    made = call(tmp_path, "--settings", "{}", hooks=(), allowed_commands=())
    assert Claude().extra_files(made) == {}
    assert Claude().arguments(made)[:3] == ("-p", "--settings", "{}")


def codex(made: AgentInvocation) -> Any:
    """The hooks on Codex's command line, the user's own flags aside."""
    argv = Codex().arguments(made)
    last = {text.partition("=")[0]: text for flag, text in pairwise(argv) if flag == "-c" and text.startswith("hooks.")}
    return tomllib.loads("\n".join(last.values()))["hooks"]


def test_codex_gets_the_same_hooks_as_settings_on_its_command_line(tmp_path: Path) -> None:
    made = call(tmp_path, hooks=(*HOOKS, ("PostToolUseFailure", "no event of Codex")))
    found = codex(made)
    assert {*found} == {"Stop", "PostToolUse", "state"}
    assert found["Stop"] == [{"hooks": [{"type": "command", "command": HOOKS[0][1], "timeout": 20}]}]
    assert found["PostToolUse"][0]["hooks"][0]["command"] == HOOKS[1][1]
    assert not [word for word in Codex().arguments(call(tmp_path, hooks=())) if "hooks" in word]


STOP = (
    r"""{"event_name":"stop","hooks":[{"async":false,"command":"python -m stop 'it'","timeout":20,"type":"command"}]}"""
)
AFTER_TOOLS = (
    r"""{"event_name":"post_tool_use","hooks":[{"async":false,"command":"python -m \"monitor\"","timeout":20,"""
    r""""type":"command"}],"matcher":".*"}"""
)


def test_codex_trusts_these_hooks_and_no_others(tmp_path: Path) -> None:
    assert codex(call(tmp_path))["state"] == {
        f"/<session-flags>/config.toml:{event}:0:0": {"trusted_hash": f"sha256:{sha256(known.encode()).hexdigest()}"}
        for event, known in (("stop", STOP), ("post_tool_use", AFTER_TOOLS))
    }
    assert "--dangerously-bypass-hook-trust" not in Codex().arguments(call(tmp_path))


def test_hooks_on_the_users_own_command_line_stay_beside_them(tmp_path: Path) -> None:
    mine = {"hooks": [{"type": "command", "command": "mine"}]}
    own = ('hooks.Stop=[{hooks=[{type="command",command="mine"}]}]', 'hooks.state={mine={trusted_hash="x"}}')
    found = codex(call(tmp_path, "-c", own[0], "-c", own[1]))
    assert [found["Stop"][0], len(found["Stop"])] == [mine, 2]
    assert [*found["state"]][:2] == ["mine", "/<session-flags>/config.toml:stop:1:0"]


# The guard, which is called before every tool

GUARDED = (*HOOKS, ("PreToolUse", "sh -c 'guard' rules.json"))
BEFORE_TOOLS = (
    r"""{"event_name":"pre_tool_use","hooks":[{"async":false,"command":"sh -c 'guard' rules.json","timeout":86400,"""
    r""""type":"command"}],"matcher":".*"}"""
)


def test_a_guard_is_waited_for_longer_than_any_turn_lasts(tmp_path: Path) -> None:
    made = call(tmp_path, hooks=GUARDED, guarded=False)
    handler = {"type": "command", "command": GUARDED[-1][1], "timeout": 86400}
    for found in (settings(made)["hooks"], codex(made)):
        assert found["PreToolUse"] == [{"matcher": ".*", "hooks": [handler]}]
        assert found["Stop"][0]["hooks"][0]["timeout"] == 20


def test_codex_trusts_a_guard_beside_the_other_hooks(tmp_path: Path) -> None:
    state = codex(call(tmp_path, hooks=GUARDED))["state"]
    places = [f"/<session-flags>/config.toml:{event}:0:0" for event in ("stop", "post_tool_use", "pre_tool_use")]
    assert [*state] == places
    assert state[places[-1]] == {"trusted_hash": f"sha256:{sha256(BEFORE_TOOLS.encode()).hexdigest()}"}


@pytest.mark.parametrize("own", ['{"disableAllHooks": true}', "{}"])
def test_no_setting_of_claude_code_turns_a_guard_off(tmp_path: Path, own: str) -> None:
    assert settings(call(tmp_path, "--settings", own, hooks=GUARDED))["disableAllHooks"] is False
    assert settings(call(tmp_path, "--settings", own)).get("disableAllHooks") == json.loads(own).get("disableAllHooks")


def test_no_setting_of_codex_turns_a_guard_off(tmp_path: Path) -> None:
    own = ("-c", "features.hooks=false")
    said = [word for word in Codex().arguments(call(tmp_path, *own, hooks=GUARDED)) if word.startswith("features.")]
    assert said == ["features.hooks=false", "features.hooks=true"], "the last one counts"
    assert "features.hooks=true" not in Codex().arguments(call(tmp_path, *own))


WHY = "ralph guard [delete-outside]: rm -rf ~/x deletes what is not the project's; instead: name a path of the project"


def denied(seen: Played) -> list[Event]:
    return [event for event in seen.events if isinstance(event, Denied)]


def called(name: str, call: str) -> Json:
    block = {"type": "tool_use", "id": call, "name": name, "input": {}}
    return {"type": "assistant", "message": {"id": f"m{call}", "content": [block]}}


def answered(call: str, text: str) -> Json:
    block = {"type": "tool_result", "tool_use_id": call, "is_error": True, "content": text}
    return {"type": "user", "message": {"content": [block]}}


def test_claude_tells_at_once_why_the_guard_denied_a_call(tmp_path: Path) -> None:
    lines = [
        called("Bash", "t1"), answered("t1", f"PreToolUse:Bash hook error: {WHY}"),
        called("Write", "t2"), answered("t2", WHY),
        called("Bash", "t3"), answered("t3", f"Exit code 1\n{WHY}"),
        {"type": "result", "subtype": "success", "result": "x", "permission_denials": [
            {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "rm -rf ~/x"}}]},
    ]  # fmt: skip
    out = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    seen = play(Claude(), Recording(out), tmp_path)
    assert denied(seen) == [Denied("Bash", WHY), Denied("Write", WHY)]
    assert seen.turn.denied == (f"Bash: {WHY}", f"Write: {WHY}")


SAYS = "2026-11-16T20:09:27.022886Z ERROR codex_core::tools::router: error="
STDERR = (
    f"{SAYS}unsupported call: update_plan\n"
    f"{SAYS}Command blocked by PreToolUse hook: {WHY}. Command: rm -rf ~/x\n"
    f"{SAYS}Command blocked by PreToolUse hook: Alarm clock\nno answer. Command: *** Begin Patch\n*** Add File: a\n+b\n"
    f"{SAYS}Tool call blocked by PreToolUse hook: {WHY}. Tool: mcp__x__wipe\n"
    f"{SAYS}exec_command failed: blocked by PreToolUse hook: no. Tool: x\n"
)


def test_codex_tells_of_calls_that_were_denied_on_standard_error_alone(tmp_path: Path) -> None:
    out = (
        b'{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"over"}}\n{"type":"turn.completed"}\n'
    )
    seen = play(Codex(), Recording(out, err=STDERR), tmp_path)
    assert denied(seen) == [
        Denied("shell", WHY), Denied("apply_patch", "Alarm clock no answer"), Denied("mcp__x__wipe", WHY),
    ]  # fmt: skip
    assert (seen.ok, seen.turn.text) == (True, "over")
    assert seen.turn.denied[0] == f"shell: {WHY}"
