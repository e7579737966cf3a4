"""Processes of a commit: hooks are timed, stopped and ended with everything that they started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ralphproof.store.run_state import find_live_turn
from tests.misbehaviour.machine import there, word
from tests.misbehaviour.test_crashes import ABOVE_AGENT
from tests.ralph import Live, Ralph, Step, done, say, until, write
from tests.scenarios.test_scm_commits import committed, hook, prepared

WAITS = "touch ../hooked; while ! test -e ../go; do sleep 0.01; done"


@pytest.fixture
def agent(ralph: Ralph) -> str:
    prepared(ralph, shutdownGraceSeconds=0.2)
    return ralph.script([write(made__txt="x"), done()], message=[say("Add made.txt")])


def begin(ralph: Ralph, agent: str) -> Live:
    """Start a run, and wait until a hook of its commit is at work."""
    live = ralph.start("run", "-p", "go", "--agent", agent, "--check", "true")
    until((ralph.folder / "hooked").exists, "the hook runs")
    return live


def stays(ralph: Ralph) -> str:
    """The words of a shell that nothing but a kill ends, with a word in its command line that finds it."""
    return f"sh -c \"trap '' TERM HUP INT; touch ../hooked; while :; do sleep 0.1; done\" {word(ralph)}"


def subjects(ralph: Ralph) -> list[str]:
    return ralph.git("log", "--format=%s").splitlines()


def test_while_a_commit_outlives_its_harness_no_other_run_begins(ralph: Ralph, agent: str) -> None:
    hook(ralph, "pre-commit", f": {word(ralph)}; {WAITS}")
    live = begin(ralph, agent)
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (run,) = ralph.runs()
    beside = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert beside.code == 2, beside
    assert f"run {run.id} lost its harness" in beside.err
    (ralph.folder / "go").touch()
    until(lambda: find_live_turn(ralph.project, run.id) is None, "git goes on to its end")
    assert ralph.processes(run.id) == []
    assert subjects(ralph) == ["Add made.txt", "a state of the project"]
    again = ralph.script([write(more__txt="y"), done()], message=[say("Add more.txt")], name="again")
    ended = ralph("run", "-p", "go", "--agent", again, "--check", "true")
    assert ended.code == 0, ended
    assert f"run {run.id} crashed and is closed" in ended.err
    assert subjects(ralph) == ["Add more.txt", "Add made.txt", "a state of the project"]
    assert not list((ralph.root / ".git").glob("ralph-index-*")), "what the dead one left is swept"


def test_a_commit_that_outlives_its_harness_is_ended_by_cancel(ralph: Ralph, agent: str) -> None:
    hook(ralph, "pre-commit", stays(ralph))
    live = begin(ralph, agent)
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (run,) = ralph.runs()
    assert there(word(ralph)) != []
    assert ralph("cancel", run.id).code == 0
    assert ralph.processes(run.id) == []
    assert there(word(ralph)) == []
    assert subjects(ralph) == ["a state of the project"]


@pytest.mark.parametrize("name", ["pre-commit", "post-commit"])
def test_what_a_hook_leaves_behind_is_gone_when_the_run_goes_on(ralph: Ralph, agent: str, name: str) -> None:
    hook(ralph, name, f"setsid {stays(ralph)} > /dev/null 2>&1 < /dev/null &\n"
                      "while ! test -e ../hooked; do sleep 0.01; done")  # fmt: skip
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ended.code == 0, ended
    assert there(word(ralph)) == []
    assert subjects(ralph)[0] == "Add made.txt"
    assert ralph.outcome()["concerns"] == []


def test_a_second_signal_ends_a_hook_at_once(ralph: Ralph, agent: str) -> None:
    ralph.env["RALPH__SHUTDOWN_GRACE_SECONDS"] = "60"
    hook(ralph, "pre-commit", stays(ralph))
    live = begin(ralph, agent)
    began = time.monotonic()
    live.process.send_signal(signal.SIGTERM)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    live.process.send_signal(signal.SIGTERM)
    ended = live.end()
    assert time.monotonic() - began < 6
    assert (ended.code, ralph.outcome()["reason"]) == (130, "INTERRUPTED"), ended
    assert there(word(ralph)) == []
    (step,) = committed(ralph)
    assert "git commit was stopped" in step.committed.error
    assert "git commit was stopped" in ended.err
    assert subjects(ralph) == ["a state of the project"]
    assert ralph.git("status", "--porcelain", "--", "made.txt") == "?? made.txt\n"


def test_a_hook_that_ends_within_the_grace_keeps_the_work(ralph: Ralph, agent: str) -> None:
    ralph.env["RALPH__SHUTDOWN_GRACE_SECONDS"] = "60"
    hook(ralph, "pre-commit", WAITS)
    live = begin(ralph, agent)
    live.process.send_signal(signal.SIGTERM)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    (ralph.folder / "go").touch()
    ended = live.end()
    assert (ended.code, ralph.outcome()["reason"]) == (130, "INTERRUPTED"), ended
    (step,) = committed(ralph)
    assert step.committed.commit == ralph.git("rev-parse", "HEAD").strip()
    assert subjects(ralph)[0] == "Add made.txt"


def test_a_commit_whose_keeper_dies_is_reported_and_ended(ralph: Ralph, agent: str) -> None:
    hook(ralph, "pre-commit", f"{ABOVE_AGENT}; kill -9 $2; exec {stays(ralph)}")  # git stands where an agent would
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true")
    assert ended.code == 0, ended
    assert ralph.outcome()["concerns"] == ["scm: git commit was cut off, its keeper died"]
    assert there(word(ralph)) == []
    assert subjects(ralph) == ["a state of the project"]


def test_a_signal_while_the_message_is_asked_for_begins_no_commit(ralph: Ralph) -> None:
    prepared(ralph, shutdownGraceSeconds=60)
    message: list[Step] = [{"write": {"../hooked": ""}}, {"until": "../go"}, say("Add made.txt")]
    live = begin(ralph, ralph.script([write(made__txt="x"), done()], message=message))
    live.process.send_signal(signal.SIGTERM)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    (ralph.folder / "go").touch()
    ended = live.end()
    assert ended.code == 130, ended
    assert subjects(ralph) == ["a state of the project"]
    assert "saved, not committed" in committed(ralph)[0].committed.error


def test_the_output_of_a_hook_is_in_a_log_of_its_own(ralph: Ralph, agent: str) -> None:
    hook(ralph, "post-commit", "echo a word of the hook")
    assert ralph("run", "-p", "go", "--agent", agent, "--check", "true").code == 0
    assert "a word of the hook" in (ralph.run_folder() / "scm_001_commit.log").read_text()
    shown = ralph("logs").out
    assert "a word of the hook" in shown
    assert "Add made.txt" in shown
    assert ralph("logs", "--agent").out.count("==>") == 2, "the turn, and the call for a message"


def test_a_secret_that_a_hook_prints_is_masked_everywhere(ralph: Ralph, agent: str) -> None:
    hook(ralph, "pre-commit", 'echo "$DEPLOY_TOKEN"; exit 1')
    secret = "xyzzy-plugh-1234"
    ended = ralph("run", "-p", "go", "--agent", agent, "--check", "true", env={"DEPLOY_TOKEN": secret})
    assert ended.code == 0, ended
    assert "***" in ralph.outcome()["concerns"][0]
    said = ended.out + ended.err + (ralph.run_folder() / "scm_001_commit.log").read_text()
    assert secret not in said + (ralph.run_folder() / "outcome.json").read_text()
