from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.misbehaviour.machine import give, strangers_project
from tests.ralph import Ralph, done, until, write


def examined(ralph: Ralph, via: tuple[str, ...] = (), **env: str) -> tuple[int, dict[str, tuple[str, str]]]:
    told = ralph("doctor", "--json", env=env, via=via)
    data: dict[str, Any] = told.json
    assert data["ok"] == (told.code == 0)
    return told.code, {item["name"]: (item["state"], item["text"]) for item in data["items"]}


def test_a_sound_machine_can_run(ralph: Ralph) -> None:
    ralph.commit()
    code, items = examined(ralph)
    assert code == 0
    assert items["keeper"][0] == "ok"
    assert "git version" in items["git"][1]
    assert str(ralph.state_dir) in items["state"][1]
    assert items["sandbox"][0] == "note"
    assert ralph("doctor").out.endswith("A run can start.\n")


def test_agents_are_asked_for_their_version_and_only_outside_the_project(ralph: Ralph) -> None:
    ralph.program("claude", f'[ "$(pwd)" = / ] && echo "claude 1.2.3"; touch {ralph.folder}/asked')
    ralph.program("codex", "sleep 60")
    ralph.write({"bin/amp": "#!/bin/sh\ntouch project-code-ran\n"})
    (ralph.root / "bin/amp").chmod(0o755)
    path = f"{ralph.root}/bin:bin:{ralph.env['PATH']}"
    _, items = examined(ralph, PATH=path)
    assert items["agent claude"][1].startswith("claude 1.2.3 ")
    assert "unknown" in items["agent codex"][1]
    assert "agent amp" not in items
    assert (ralph.folder / "asked").exists()
    assert not (ralph.root / "project-code-ran").exists()


def test_what_makes_a_run_impossible_is_a_problem(ralph: Ralph) -> None:
    ralph.settings(maximumIterations="x", agent={"flags": 3})
    code, items = examined(ralph)
    assert (code, items["settings"][0]) == (1, "problem")
    ralph.settings(agent={"command": "not-installed-anywhere"})
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
