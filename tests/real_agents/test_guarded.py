"""The command guard in real programs that skip their own permissions: what it denies is not done, and it is told.

They call hooks under `--dangerously-skip-permissions` and `--dangerously-bypass-approvals-and-sandbox`, too. That a
hook which fails denies the call is our doing: left alone, both programs let it pass then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.claude import Claude
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.codex import Codex
from ralphproof.agents.hook_commands import GUARD_SILENT, guard_hook_commands, hook_commands
from ralphproof.engine.agent import Turn
from ralphproof.engine.records import TurnEnded
from ralphproof.engine.sandbox import Command, CommandWatcher, Exit
from tests.agents import real_clis
from tests.agents.replay import Looker, brief_in
from tests.ralph import Ralph
from tests.real_agents.conftest import DONE, Json, Real, claims, runs, says

pytestmark = pytest.mark.thorough

TREASURE, SECRET = "the user's own", "-----BEGIN OPENSSH PRIVATE KEY-----"
OVER = says("I am done.")


class OnStage:
    """Runs an agent's program where the only network is a scripted model."""

    name, strength = "direct", "none"

    def __init__(self, via: Sequence[str]) -> None:
        self._via = via

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        assert command.stdin
        assert command.err
        with open(command.stdin, "rb") as prompt, open(command.err, "wb") as err:
            ended = subprocess.run(
                [*self._via, *command.argv], cwd=command.cwd, env=dict(command.env), stdin=prompt,
                stdout=subprocess.PIPE, stderr=err, timeout=60, check=False,
            )  # fmt: skip
        watch.output(ended.stdout)
        return Exit(ended.returncode)


class Guarded:
    """A project, a user's home with things of theirs, and an agent that may do all that the user may."""

    def __init__(self, real: Real) -> None:
        self.real, self.root, self.home = real, real.ralph.root, real.ralph.home
        self.rules = real.ralph.folder / "guard.json"
        rules = {"root": str(self.root), "allow": [], "deny": [], "protected": ["kept/"]}
        self.rules.write_text(json.dumps(rules), "utf-8")
        self.treasure, self.key = self.home / "treasure.txt", self.home / ".ssh" / "id_ed25519"
        self.key.parent.mkdir()
        self.treasure.write_text(TREASURE, "utf-8")
        self.key.write_text(SECRET, "utf-8")

    def turn(self, *turns: Json, flags: Sequence[str] = (), hooks: Any = None, **more: Any) -> Turn:
        """One turn of the agent."""
        program = real_clis.program(self.real.agent)
        dialect = {"claude": Claude, "codex": Codex}[self.real.agent]()
        speaker = CliAgent(dialect, str(program), tuple(flags), guarded=False)
        hooks = guard_hook_commands(str(self.rules)) if hooks is None else hooks
        env = self.real.ralph.env | dict(more.pop("env", {}))
        folder = self.real.ralph.folder
        brief = brief_in(
            folder, cwd=str(self.root), env=tuple(env.items()), hooks=hooks, log_base=str(folder / "agent_001"), **more
        )
        return speaker.take_turn(brief, OnStage(self.real._via(turns, {"end": OVER})), Looker())

    def denied(self, turn: Turn, number: int = 1) -> str:
        """Why the calls of a turn were denied: it is in the events, and the model was told."""
        assert len(turn.denied) == number, turn.denied
        assert turn.error is None
        why = turn.denied[0].partition(": ")[2]
        assert why.startswith("ralph guard")
        assert why[:80] in self.real.shown(1)
        return why


@pytest.fixture
def guarded(real: Real) -> Guarded:
    return Guarded(real)


def test_a_dangerous_command_is_denied_and_a_harmless_one_runs(guarded: Guarded) -> None:
    turn = guarded.turn(runs("rm ~/treasure.txt"), runs("cp check.sh made.txt"), OVER)
    why = guarded.denied(turn)
    assert why.startswith("ralph guard [")
    assert "rm ~/treasure.txt" in why
    assert "; instead: " in why
    assert guarded.treasure.read_text("utf-8") == TREASURE
    assert (guarded.root / "made.txt").exists()
    assert turn.text == "I am done."


def test_without_the_guard_the_same_command_is_run(guarded: Guarded) -> None:
    turn = guarded.turn(runs("rm ~/treasure.txt"), OVER, hooks=())
    assert (turn.denied, guarded.treasure.exists()) == ((), False)


def calls(tool: str, **arguments: Any) -> Json:
    return {"calls": [{"tool": tool, "input": arguments}]}


def patch(path: str) -> Json:
    return {"calls": [{"tool": "apply_patch", "input": f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"}]}


SPEAKS_PATCHES = ("-m", "gpt-5.5")


@pytest.mark.parametrize(
    ("agent", "does", "flags"),
    [
        ("claude", calls("Read", file_path="~/.ssh/id_ed25519"), ()),
        ("claude", calls("Write", file_path="~/treasure.txt", content="x"), ()),
        ("claude", calls("Write", file_path="kept/a.txt", content="x"), ()),
        ("claude", calls("WebFetch", url="http://169.254.169.254/latest/meta-data/", prompt="read it"), ()),
        ("codex", runs("cat ~/.ssh/id_ed25519"), ()),
        ("codex", runs("echo x > ~/treasure.txt"), ()),
        ("codex", patch("{home}/new.txt"), SPEAKS_PATCHES),
        ("codex", patch("kept/a.txt"), SPEAKS_PATCHES),
    ],
    ids=["read", "write", "protected", "fetch", "cat", "echo", "patch", "patch-protected"],
)
def test_other_tools_are_looked_at_too(guarded: Guarded, does: Json, flags: Sequence[str]) -> None:
    does = json.loads(json.dumps(does).replace("{home}", str(guarded.home)))
    guarded.denied(guarded.turn(does, OVER, flags=flags))
    assert guarded.treasure.read_text("utf-8") == TREASURE
    assert not (guarded.home / "new.txt").exists()
    assert not (guarded.root / "kept").exists()
    assert SECRET not in guarded.real.shown(1)


@pytest.mark.parametrize(
    ("agent", "does"),
    [("claude", calls("Write", file_path="b.txt", content="x")), ("codex", patch("b.txt"))],
)
def test_files_of_the_project_are_written(guarded: Guarded, does: Json) -> None:
    turn = guarded.turn(does, OVER, flags=SPEAKS_PATCHES if guarded.real.agent == "codex" else ())
    assert (turn.denied, (guarded.root / "b.txt").exists()) == ((), True)


def test_agents_of_the_agent_are_looked_at_too(ralph: Ralph) -> None:
    guarded = Guarded(Real(ralph, "claude"))
    begins = calls("Agent", description="d", prompt="run it", subagent_type="general-purpose", run_in_background=False)
    turn = guarded.turn(begins, runs("rm ~/treasure.txt"), OVER, OVER)
    assert turn.denied[0].startswith("Bash: ralph guard [")
    assert guarded.treasure.exists()


def test_settings_of_the_project_or_the_user_do_not_turn_it_off(guarded: Guarded) -> None:
    off = guarded.root / ".claude" / "settings.local.json"
    off.parent.mkdir()
    off.write_text('{"disableAllHooks": true}', "utf-8")
    flags = ("-c", "features.hooks=false") if guarded.real.agent == "codex" else ()
    guarded.denied(guarded.turn(runs("rm ~/treasure.txt"), OVER, flags=flags))
    assert guarded.treasure.exists()


@pytest.mark.parametrize(
    ("agent", "flags", "env"),
    [
        ("claude", ("--bare",), {}),
        ("claude", ("--safe-mode",), {}),
        ("claude", (), {"CLAUDE_CODE_SIMPLE": "1"}),
        ("claude", (), {"CLAUDE_CODE_SAFE_MODE": "1"}),
        ("codex", ("--disable", "hooks"), {}),
    ],
)
def test_what_turns_it_off_for_good_is_known_beforehand(guarded: Guarded, flags: tuple[str, ...], env: Json) -> None:
    """If this fails, the program has mended its ways: then docs/hooks.md need not name it any more."""
    guarded.turn(runs("rm ~/treasure.txt"), OVER, flags=flags, env=env)
    assert not guarded.treasure.exists()


def test_without_rules_nothing_is_done(guarded: Guarded) -> None:
    guarded.rules.unlink()
    why = guarded.denied(guarded.turn(runs("touch made.txt"), OVER))
    assert why.endswith("the guard's rules cannot be read: No such file or directory")
    assert not (guarded.root / "made.txt").exists()


@pytest.mark.parametrize("ends", ["exit 1", "kill -9 $$", "kill -ALRM $$"])
def test_a_guard_that_ends_without_an_answer_lets_nothing_pass(
    guarded: Guarded, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n")
    python.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))
        hooks = guard_hook_commands(str(guarded.rules))
    turn = guarded.turn(runs("touch made.txt"), OVER, hooks=hooks)
    assert not (guarded.root / "made.txt").exists()
    (why,) = turn.denied
    assert GUARD_SILENT in why
    assert GUARD_SILENT in guarded.real.shown(1)


def test_it_stands_beside_the_hooks_of_stories(guarded: Guarded) -> None:
    """An end that the rules of stories refuse is refused, and the call that mends it is judged."""
    marker = {"run": "r1", "commits": False, "iterationMode": "implement", "preIterationSnapshot": {}}
    right = {"project": "", "branchName": "", "description": "", "userStories": []}
    guarded.real.ralph.write({
        ".ralph-active": json.dumps(marker), "ralph/tasks.json": "{", "right.json": json.dumps(right),
    })  # fmt: skip
    hooks = (*hook_commands(), *guard_hook_commands(str(guarded.rules)))
    turns = (runs("rm ~/treasure.txt"), says("Now?"), runs("cp right.json ralph/tasks.json"), OVER)
    turn = guarded.turn(*turns, hooks=hooks, env={"RALPH_RUN_ID": "r1"})
    guarded.denied(turn)
    assert "ralph/tasks.json: it is not valid JSON" in guarded.real.shown(2)
    assert guarded.real.answered() == [0, 1, 2, 3]
    assert turn.text == "I am done."


# A whole run


def test_a_run_without_a_sandbox_has_the_guard_and_tells_what_it_denied(real: Real) -> None:
    treasure = real.ralph.home / "treasure.txt"
    treasure.write_text(TREASURE, "utf-8")
    ended = real.run([runs("rm ~/treasure.txt"), claims(), *DONE], "--no-sandbox")
    assert ended.code == 0, ended
    assert treasure.exists()
    first, second = (record.reply for record in real.recorded(TurnEnded))
    (why,) = first.denied
    assert "ralph guard [" in why
    assert second.denied == ()
    assert "not permitted; do the work without them:" in real.shown(2)
    assert why[:80] in real.shown(2)
    assert "1 tool call was denied" in ended.err + ended.out
