"""A harness that is killed outright: its agent ends all the same, and the next run puts things in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

import pytest

from ralphproof.engine.outcome import Failed
from ralphproof.engine.records import RunEnded, Saved, TurnBegan
from ralphproof.engine.state import RunOver
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import command_line, daemon, exits, there, word
from tests.needs import require
from tests.ralph import Ended, Ralph, Step, done, until, write

pytestmark = pytest.mark.thorough

TIMEOUT_S = 1  # of the agent's turn
ENDED_S = 6  # TERM, five seconds, KILL


def hardened(ralph: Ralph) -> list[Step]:
    """An agent that leaves a daemon which nothing but its ancestry gives away, ignores TERM and never ends."""
    return [
        {"ignore": ["TERM"]},
        daemon(ralph, quiet=False, clean_env=True),
        {"until": "../daemon"},
        write(**{"../started": ""}),
        {"sleep": 300},
    ]


def crashed(ralph: Ralph, ended: Ended, run: str) -> None:
    """A new run closed that one as crashed, and said so; nothing is left of either."""
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert ended.err.count(f"run {run} crashed and is closed") == 1
    phase = ralph.state(run).phase
    assert isinstance(phase, RunOver)
    assert isinstance(phase.outcome, Failed)
    assert "crashed" in phase.outcome.error
    begun = {record.iteration for record in ralph.records(run) if isinstance(record, TurnBegan)}
    assert phase.outcome.iterations == len(begun)  # a lone start counts
    assert sum(isinstance(record, RunEnded) for record in ralph.records(run)) == 1
    assert there(ralph.folder) == []


def next_run(ralph: Ralph) -> Ended:
    return ralph("run", "-p", "make it so", "--agent", ralph.script([done()], name="next"), "--check", "true")


@pytest.mark.parametrize(
    ("call", "started"),
    [("sendmsg:1", False), ("poll:1", True), ("poll:2", True), ("fdatasync:10", False)],
    ids=["before-the-start-is-sent", "once-it-is-sent", "at-its-first-words", "before-the-turn-is-recorded"],
)
def test_a_harness_killed_around_its_first_turn(ralph: Ralph, call: str, started: bool) -> None:
    """PR-10, RH-37: the keeper alone ends what was started, at the turn's own timeout."""
    require(shutil.which("strace") is not None, "strace kills at a system call")
    ralph.settings(agent={"timeoutSeconds": TIMEOUT_S})
    name, _, number = call.partition(":")
    inject = ("-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}")
    agent = ralph.script(hardened(ralph))
    ended = ralph("run", "-p", "make it so", "--agent", agent, via=("strace", "-o", "/dev/null", *inject))
    assert ended.code == -signal.SIGKILL, ended
    (run,) = ralph.runs()
    if started:
        until((ralph.folder / "started").exists, "the keeper starts the agent")
    until(lambda: not there(ralph.folder), "the keeper ends the turn", TIMEOUT_S + ENDED_S)
    assert (ralph.folder / "started").exists() is started
    crashed(ralph, next_run(ralph), run.id)


def test_a_harness_killed_in_mid_turn(ralph: Ralph) -> None:
    """PR-10, EN-20, EN-23: until the keeper has ended the turn, nobody else may begin."""
    ralph.settings(agent={"timeoutSeconds": TIMEOUT_S})
    live = ralph.start("run", "-p", "make it so", "--agent", ralph.script(hardened(ralph)))
    until((ralph.folder / "started").exists, "the agent works")
    os.kill(live.process.pid, signal.SIGKILL)
    began = time.monotonic()
    live.end()
    (run,) = ralph.runs()
    beside = next_run(ralph)
    assert beside.code == 2, beside
    assert f"run {run.id} lost its harness" in beside.err
    assert f"ralph cancel {run.id}" in beside.err
    assert [path.name for path in (ralph.root / ".ralph" / "runs").iterdir()] == [run.id], (
        "one that was refused is no run"
    )
    until(lambda: not there(ralph.folder), "the keeper ends the turn", TIMEOUT_S + ENDED_S)
    assert time.monotonic() - began < TIMEOUT_S + ENDED_S
    after = next_run(ralph)
    crashed(ralph, after, run.id)
    assert "what its last turn cost is not known" in after.err
    assert len(ralph.runs()) == 2
    lines = (ralph.root / ".ralph" / "metrics" / "loops.jsonl").read_text().splitlines()
    assert [(line["run"] == run.id, line["status"]) for line in map(json.loads, lines)] == [
        (True, "ERROR"),
        (False, "COMPLETED"),
    ]


# The words of a shell that find the process above another one: the agent is above the shell, its keeper above that.
ABOVE_AGENT = "read -r stat < /proc/$PPID/stat; set -- ${stat##*) }"
ABOVE_KEEPER = f"{ABOVE_AGENT}; read -r stat < /proc/$2/stat; set -- ${{stat##*) }}"


def test_an_agent_that_kills_the_harness(ralph: Ralph) -> None:
    """RH-37: earlier iterations stay on record."""
    ralph.settings(agent={"timeoutSeconds": 30})
    kill = {"run": ["sh", "-c", f"{ABOVE_KEEPER}; kill -9 $2"]}
    agent = ralph.script([write(work="1")], [daemon(ralph), {"until": "../daemon"}, kill, write(work="2"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "true")
    assert ended.code == -signal.SIGKILL, ended
    (run,) = ralph.runs()
    until(lambda: not there(ralph.folder), "the keeper ends the turn")
    assert (ralph.root / "work").read_text() == "2", "the agent's turn went on to its end"
    crashed(ralph, next_run(ralph), run.id)
    assert [record.iteration for record in ralph.records(run.id) if isinstance(record, Saved)] == [1, 2]
    begun = [record for record in ralph.records(run.id) if isinstance(record, TurnBegan)]
    assert [record.iteration for record in begun] == [1, 2], "the turn that was cut off still counts"


def test_an_agent_that_kills_its_keeper(ralph: Ralph) -> None:
    """RH-37: what is above the agent is not the harness. The turn is over, its work is judged, the run goes on."""
    kill = {"run": ["sh", "-c", f"{ABOVE_AGENT}; kill -9 $2"]}
    hidden = daemon(ralph, clean_env=True)
    first = [hidden, {"until": "../daemon"}, write(work="1"), done(), kill, {"sleep": 300}]
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script(first, [done()]), "--check", "test -f work")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    assert [end.why for end in exits(ralph)] == ["interrupted", "exit"]
    assert ralph.state().history.iterations[0].claim is None
    assert there(ralph.folder) == []


@pytest.mark.parametrize("first", ["true", "test -e ../started || exit 1"], ids=["before-the-agent", "after-it"])
def test_a_check_outlives_a_killed_harness_no_longer_than_its_timeout(ralph: Ralph, first: str) -> None:
    """PR-10: a check is owned as an agent is."""
    check = f"{first}; trap '' TERM; touch ../checking; : {word(ralph)}; while :; do sleep 0.1; done"
    ralph.settings(guardrails=[{"command": check, "name": "endless", "timeoutSeconds": 1}])
    live = ralph.start("run", "-p", "make it so", "--agent", ralph.script([write(**{"../started": ""}), done()]))
    until((ralph.folder / "checking").exists, "the check runs")
    assert (ralph.folder / "started").exists() is (first != "true")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    (run,) = ralph.runs()
    until(lambda: not there(word(ralph)), "the keeper ends the check", 1 + ENDED_S)
    ralph.settings()
    crashed(ralph, next_run(ralph), run.id)


@pytest.mark.parametrize("dies", ["kill -9 $2", "kill -9 $2 $PPID"], ids=["harness", "git-too"])
def test_a_harness_killed_while_git_commits(ralph: Ralph, dies: str) -> None:
    """PR-13: git goes on or gives up; the user's own work stays, and nothing is committed twice."""
    ralph.write({"mine": "as committed"})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.write({"mine": "my own work", "new": "mine too"})
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    hook = ralph.root / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\necho $PPID > {ralph.folder}/git\n{ABOVE_KEEPER}\n{dies}\n")  # git is above the hook
    hook.chmod(0o755)
    agent = ralph.script([write(work="1"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work")
    assert ended.code == -signal.SIGKILL, ended
    (run,) = ralph.runs()
    git = int((ralph.folder / "git").read_text())
    until(lambda: not command_line(git), "git goes on without us, or dies")
    hook.unlink()
    again = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work")
    hold(ralph, again)
    assert again.code == 0, again
    assert f"run {run.id} crashed and is closed" in again.err
    assert (ralph.root / "mine").read_text() == "my own work"
    assert (ralph.root / "new").read_text() == "mine too"
    assert ralph.git("log", "--format=", "--name-only").split() in (["work", "mine"], ["mine"])
    assert ralph.git("fsck", "--strict", "--no-dangling") == ""
    assert not list((ralph.root / ".git").glob("*.lock")), "nothing that would keep the user's own git from work"
