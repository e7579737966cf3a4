"""Stall and idle detection: files of checks are not the agent's work, files of a silent agent are."""

from __future__ import annotations

import pytest

from tests.ralph import Ralph, say


def test_files_that_a_check_leaves_do_not_hide_a_stall(ralph: Ralph) -> None:
    ralph.write({"kept.txt": "x"})
    ralph.commit()
    ralph.env["RALPH__LIMITS__PAUSE_MILLISECONDS"] = "50"  # files are stamped by a clock that ticks slowly
    ralph.settings(limits={"stallIterations": 3, "sameErrorIterations": None})
    agent = ralph.script([say("thinking")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "date +%N > coverage.out; false", "-m", "9")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "STALL")
    assert len(ralph.state().history.iterations) == 3


def test_an_agent_that_writes_files_in_silence_is_not_idle(ralph: Ralph) -> None:
    ralph.settings(agent={"idleTimeoutSeconds": 2}, guardrails=[{"command": "test -f f6"}])
    ralph.program("quiet", "for i in 1 2 3 4 5 6; do sleep 0.6; : > f$i; done; echo '<response>DONE</response>'")
    ended = ralph("run", "-p", "go", "--agent", "quiet", "-m", "1")
    assert ended.code == 0, ended.err


def test_an_agent_that_does_nothing_in_silence_is_ended(ralph: Ralph) -> None:
    ralph.settings(agent={"idleTimeoutSeconds": 1})
    ralph.program("stuck", "echo hello; sleep 60")
    ended = ralph("run", "-p", "go", "--agent", "stuck", "-m", "1")
    assert ended.code == 1
    assert "long silence" in ended.err


@pytest.mark.parametrize("git", [True, False])
def test_ralphs_own_files_are_not_counted_as_work(ralph: Ralph, git: bool) -> None:
    ralph.write({"kept.txt": "x"})
    if git:
        ralph.commit()
    ralph.settings(limits={"stallIterations": 3, "sameErrorIterations": None})
    shell = ("sh", "-c", 'exec "$@" > ralph.log 2>&1', "sh")
    agent = ralph.script([say("thinking")])
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "false", "-m", "9", via=shell)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "STALL")
    assert len(ralph.state().history.iterations) == 3
    assert "STALL" in (ralph.root / "ralph.log").read_text()
