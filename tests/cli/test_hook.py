"""`ralph hook`: the command that agents call. What each hook decides is tested with the hooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.hook_commands import HOOK_EVENTS, HOOKED_VARIABLE, hook_commands
from tests.ralph import SOURCE, Ended, Ralph

VERBS = [verb for _, verb, _ in HOOK_EVENTS]
BROKEN = "{"
# What a hook may load of the program beside `hooks` itself.
SHARED = {
    "ralphproof.agents.hook_commands",
    "ralphproof.base.errors",
    "ralphproof.base.interpreter",
    "ralphproof.base.json_text",
    "ralphproof.base.processes",
    "ralphproof.base.programs",
    "ralphproof.base.standard_streams",
    "ralphproof.base.value",
    "ralphproof.cli.dispatch",
    "ralphproof.cli.hook",
    "ralphproof.cli.verbs",
    "ralphproof.process.interrupts",
    "ralphproof.runs.open_project",
    "ralphproof.stories.review",
    "ralphproof.stories.schema",
}
LOADED = "import sys; from ralphproof.__main__ import main; main(); print(*sys.modules)"


def event(name: str, ralph: Ralph, **more: Any) -> str:
    return json.dumps({"hook_event_name": name, "session_id": "s", "cwd": str(ralph.root)} | more)


def marked(ralph: Ralph, run: str | None = "r1", pid: int | None = None) -> None:
    """Stories that no turn may leave behind so, and the marker of a loop that is at work on them."""
    marker = {"pid": pid or os.getpid(), "iterationMode": "implement", "preIterationSnapshot": {}, "commits": False}
    named = {} if run is None else {"run": run}
    ralph.write({"ralph/tasks.json": BROKEN, ".ralph-active": json.dumps(marker | named)})


@pytest.fixture
def stop(ralph: Ralph, tmp_path: Path) -> Any:
    """`ralph hook stop` with an environment of the session's."""
    (tmp_path / "tmp").mkdir()

    def stopped(*flags: str, cwd: Path | None = None, **env: str) -> Ended:
        told = {"TMPDIR": str(tmp_path / "tmp"), **env}
        return ralph("hook", "stop", *flags, stdin=event("Stop", ralph), env=told, cwd=cwd)

    return stopped


def test_an_end_that_breaks_the_rules_of_a_live_run_is_refused_to_its_own_session(ralph: Ralph, stop: Any) -> None:
    marked(ralph)
    told = stop(RALPH_RUN_ID="r1")
    assert (told.code, told.json["decision"]) == (0, "block")
    assert "ralph/tasks.json" in told.json["reason"]


@pytest.mark.parametrize(
    ("run", "env"),
    [
        ("r1", {}),
        ("r1", {"RALPH_RUN_ID": "r2"}),
        ("r1", {"RALPH_RUN_ID": "r1", HOOKED_VARIABLE: "1"}),
        (None, {HOOKED_VARIABLE: "1"}),
    ],
    ids=["no run's session", "another run's session", "a run with its own hooks", "silenced by hand"],
)
def test_every_other_session_is_left_alone(ralph: Ralph, stop: Any, run: str | None, env: dict[str, str]) -> None:
    marked(ralph, run)
    assert stop(**env) == Ended(0, "", "")


def test_a_loop_that_is_over_holds_nobody_back(ralph: Ralph, stop: Any) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    marked(ralph, run=None, pid=over.pid)
    told = stop()
    assert (told.code, told.out) == (0, "")


def test_a_marker_that_names_no_run_has_every_session_of_its_folder(ralph: Ralph, stop: Any) -> None:
    marked(ralph, run=None)
    assert stop().json["decision"] == "block"


def test_where_there_is_no_marker_nothing_is_said(ralph: Ralph, stop: Any) -> None:
    assert stop(RALPH_RUN_ID="r1") == Ended(0, "", "")


def test_a_project_that_is_named_goes_before_the_agents_own(ralph: Ralph, stop: Any, tmp_path: Path) -> None:
    marked(ralph)
    (tmp_path / "elsewhere").mkdir()
    env = {"RALPH_RUN_ID": "r1", "CLAUDE_PROJECT_DIR": str(tmp_path / "elsewhere"), "TMPDIR": str(tmp_path)}
    away = event("Stop", ralph, cwd=str(tmp_path / "elsewhere"))
    assert ralph("hook", "stop", stdin=away, env=env).out == ""
    assert ralph("hook", "stop", "-d", str(ralph.root), stdin=away, env=env).json["decision"] == "block"
    refused = stop("-d", "nowhere", **env)
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("verb", ["post-tool-use", "post-tool-use-failure"])
def test_a_full_context_is_told_once_and_again_in_a_new_session(ralph: Ralph, tmp_path: Path, verb: str) -> None:
    name = next(name for name, known, _ in HOOK_EVENTS if known == verb)
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("x" * 440_000)
    env = {"TMPDIR": str(tmp_path)}

    def told() -> Ended:
        return ralph("hook", verb, stdin=event(name, ralph, transcript_path=str(transcript)), env=env)

    said = told().json["hookSpecificOutput"]
    assert (said["hookEventName"], "Context usage: ~55%" in said["additionalContext"]) == (name, True)
    assert told() == Ended(0, "", "")
    assert ralph("hook", "session-start", stdin=event("SessionStart", ralph, source="startup"), env=env).code == 0
    assert told().json["hookSpecificOutput"] == said


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("given", ["", "{", "[]", '{"session_id": 5}', "\x00"])
def test_input_that_makes_no_sense_disturbs_nobody(ralph: Ralph, verb: str, given: str) -> None:
    told = ralph("hook", verb, stdin=given)
    assert (told.code, told.out) == (0, "")
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [([], "required"), (["stpo"], "invalid choice"), (["stop", "stop"], "unknown argument stop"), (["Stop"], "choice")],
)
def test_a_slip_is_refused_in_one_line(ralph: Ralph, argv: list[str], message: str) -> None:
    told = ralph("hook", *argv, env={HOOKED_VARIABLE: "1"})
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert message in told.err


@pytest.mark.parametrize("flags", [["-q"], ["--json"], ["--no-color", "-V"]], ids=" ".join)
def test_the_flags_of_every_verb_change_nothing(ralph: Ralph, stop: Any, flags: list[str]) -> None:
    marked(ralph)
    plain = stop(RALPH_RUN_ID="r1")
    assert stop(*flags, RALPH_RUN_ID="r1") == plain


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_loads_nothing_but_the_hook(ralph: Ralph, verb: str) -> None:
    argv = [sys.executable, "-c", LOADED, "hook", verb]
    ran = subprocess.run(argv, input="{}", cwd=ralph.root, env=ralph.env, capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    ours = {name for name in loaded if name.startswith("ralphproof.")}
    (module,) = (module for _, known, module in HOOK_EVENTS if known == verb)
    assert f"ralphproof.hooks.{module}" in ours
    assert {name for name in ours if name.count(".") == 2 and not name.startswith("ralphproof.hooks.")} <= SHARED
    assert loaded & {"argparse", "sqlite3", "msgspec", "asyncio", "dataclasses"} == set()


def test_a_run_has_its_agents_call_this_very_python() -> None:
    told = dict(hook_commands())
    assert list(told) == [name for name, _, _ in HOOK_EVENTS]
    assert all(command.startswith(f"{sys.executable} -I ") for command in told.values())


def test_what_a_run_has_its_agents_call_is_this_very_program_wherever_they_are(ralph: Ralph, tmp_path: Path) -> None:
    """It needs no installation and no variable, and takes nothing from the project."""
    marked(ralph)
    ralph.write({"ralphproof/__init__.py": "raise SystemExit(3)\n", "json.py": "raise SystemExit(3)\n"})
    copy = tmp_path / "it's a copy"
    shutil.copytree(SOURCE / "ralphproof", copy / "ralphproof", ignore=shutil.ignore_patterns("__pycache__"))
    hook = copy / "ralphproof" / "hooks" / "stop.py"
    hook.write_text(f"{hook.read_text('utf-8')}\nprint(__file__, file=sys.stderr)\n", encoding="utf-8")
    tells = "from ralphproof.agents.hook_commands import hook_commands; print(dict(hook_commands())['Stop'])"
    argv, env = [sys.executable, "-c", tells], {**ralph.env, "PYTHONPATH": str(copy)}
    command = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    run = {"PATH": os.environ["PATH"], "RALPH_RUN_ID": "r1", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ralph.root)}
    ended = subprocess.run(
        ["sh", "-c", command], input=event("Stop", ralph), cwd=ralph.root, env=run, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert json.loads(ended.stdout)["decision"] == "block"
    assert str(hook) in ended.stderr
