"""Changes to the tree while a run is down, and their effect on checks and commits."""

from __future__ import annotations

import os
import signal

import pytest

from tests.ralph import Ended, Live, Ralph, done, until, write

WAITS = "touch ../checking; while ! test -e ../go; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.write({"readme": "hello"})
    ralph.commit()


def kill(ralph: Ralph, live: Live) -> None:
    """End the harness, and let the check that it left come to its end."""
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (ralph.folder / "go").touch()
    until(lambda: ralph.processes(ralph.runs()[0].id) == [], "the check ends")


def test_after_a_crash_checks_run_on_the_present_tree_and_it_is_recorded(ralph: Ralph) -> None:
    agent = ralph.script([write(work="1"), done()])
    checks = ("--check", f"test ! -e work || {{ {WAITS}; }}", "--check", "test -e users-own")
    live = ralph.start("run", "-p", "x", "--agent", agent, *checks)
    until((ralph.folder / "checking").exists, "the check runs")
    kill(ralph, live)
    ralph.write({"users-own": "mine"})
    ended = ralph("run", "--resume")
    assert ended.code == 0, ended
    latest = ralph.state().history.latest
    assert "users-own" in ralph.git("ls-tree", "-r", "--name-only", str(latest.snapshot.id)).split()
    assert [finding.passed for finding in latest.report.findings] == [True, True]


def test_passed_checks_of_another_tree_do_not_count(ralph: Ralph) -> None:
    agent = ralph.script([write(work="1"), {"cost": 1.5}, done()], [{"cost": 0.1}])
    stopped = ralph("run", "-p", "x", "--agent", agent, "--check", "test -e work", "--max-cost-usd", "1")
    assert "COST_LIMIT" in stopped.out
    (ralph.root / "work").unlink()
    ended = ralph("run", "--resume", "--max-cost-usd", "2", "-m", "2")
    assert ended.code == 1, ended
    assert "verified" not in ended.out


def interrupted_in_its_check(ralph: Ralph) -> Ended:
    ralph.settings(shutdownGraceSeconds=0)
    agent = ralph.script([write(work="1"), done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, "--check", f"test -e work && {{ {WAITS}; }}", "-m", "1")
    until((ralph.folder / "checking").exists, "the check runs")
    live.process.send_signal(signal.SIGINT)
    return live.end()


def test_an_interrupted_check_runs_again(ralph: Ralph) -> None:
    assert interrupted_in_its_check(ralph).code == 130
    (ralph.folder / "go").touch()
    ended = ralph("run", "--resume")
    assert ended.code == 0, ended
    assert ralph.outcome()["iterations"] == 1


def test_files_written_by_checks_still_belong_to_the_run_after_a_crash(ralph: Ralph) -> None:
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    agent = ralph.script([write(work="1"), done()], message=[{"text": "Work"}])
    formats = "test ! -e work || echo formatted > work"
    live = ralph.start(
        "run", "-p", "x", "--agent", agent, "--check", formats, "--check", f"test ! -e work || {{ {WAITS}; }}"
    )
    until((ralph.folder / "checking").exists, "the second check runs")
    kill(ralph, live)
    ended = ralph("run", "--resume")
    assert ended.code == 0, ended
    assert "yours" not in ended.err
    assert ralph.git("show", "--name-only", "--format=", "HEAD").split() == ["work"]
