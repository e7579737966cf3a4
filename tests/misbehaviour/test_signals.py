"""A run that is asked to end: by signals, by a terminal that goes away, by a reader that leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.record import CheckEnded, Saved
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import Terminal, exits, recorded, there
from tests.needs import require
from tests.ralph import PROGRAM, Ended, Live, Ralph, Step, done, say, until, write

WORDS = "Received signal, shutting down..."
BEGUN = "test -e ../started || exit 1"  # what a check asks first that is meant for what comes after the agent
WAITS = f"{BEGUN}; touch ../checking; while ! test -e ../go; do sleep 0.01; done; echo checked"
AGENT_WAITS = [write(**{"../started": ""}), {"until": "../go"}, write(work="done"), done()]
AGENT_STAYS = [{"ignore": ["TERM", "INT"]}, write(**{"../started": ""}), {"sleep": 300}]

each_signal = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


def begin(ralph: Ralph, agent: str, *flags: str, check: str = "true", via: tuple[str, ...] = ()) -> Live:
    """Start a run, and wait until its agent is at work."""
    live = ralph.start("run", "-p", "make it so", "--agent", agent, "--check", check, *flags, via=via)
    until((ralph.folder / "started").exists, "the agent begins")
    return live


def asked(live: Live, number: int) -> None:
    """Send a signal, and wait until it was heard."""
    live.process.send_signal(number)
    until(lambda: WORDS in Path(live.err.name).read_text(), "the run says that it ends")


def interrupted(ralph: Ralph, ended: Ended, iterations: int = 1) -> None:
    """The run ended as one that was asked to, with everything in order."""
    hold(ralph, ended)
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"]) == (130, "ABORTED", "INTERRUPTED"), ended
    assert outcome["iterations"] == iterations
    assert ended.err.count(WORDS) == 1
    assert "INTERRUPTED" in ended.out.splitlines()[-1]
    assert there(ralph.folder / "script.json") == []


@each_signal
def test_after_a_signal_the_agent_may_finish_and_nothing_new_begins(ralph: Ralph, number: int) -> None:
    """PR-14, PR-16, PR-17"""
    ralph.commit()
    live = begin(ralph, ralph.script(AGENT_WAITS), check=f"{BEGUN}; touch ../asked")
    asked(live, number)
    (ralph.folder / "go").touch()
    interrupted(ralph, live.end())
    (saved,) = recorded(ralph, Saved)
    assert ralph.git("show", f"{saved.snapshot.ref}:work") == "done", "its work is kept"
    assert not (ralph.folder / "asked").exists(), "no check was begun"


@each_signal
def test_a_second_signal_ends_at_once_what_ignores_the_first(ralph: Ralph, number: int) -> None:
    """PR-15"""
    live = begin(ralph, ralph.script(AGENT_STAYS))
    asked(live, number)
    live.process.send_signal(number)
    began = time.monotonic()
    interrupted(ralph, live.end())
    assert time.monotonic() - began < 6
    assert [end.why for end in exits(ralph)] == ["killed"]


def test_an_agent_that_does_not_finish_in_the_grace_is_ended(ralph: Ralph) -> None:
    """PR-14"""
    ralph.settings(shutdownGraceSeconds=0.2)
    live = begin(ralph, ralph.script([write(**{"../started": ""}), {"sleep": 300}]))
    asked(live, signal.SIGINT)
    interrupted(ralph, live.end())


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(ralph: Ralph) -> None:
    """PR-17: nohup"""
    live = begin(ralph, ralph.script(AGENT_WAITS), via=("nohup",))
    live.process.send_signal(signal.SIGHUP)
    (ralph.folder / "go").touch()
    ended = live.end()
    hold(ralph, ended)
    assert (ended.code, WORDS in ended.err) == (0, False), ended


@pytest.mark.parametrize("presses", [1, 2])
def test_notifications_are_not_waited_for_by_somebody_in_a_hurry(ralph: Ralph, presses: int) -> None:
    (ralph.folder / "config").mkdir()
    hangs = {"notify": ["sh -c 'touch ../telling; sleep 300'"]}
    (ralph.folder / "config" / "settings.json").write_text(json.dumps(hangs))
    live = begin(ralph, ralph.script([write(**{"../started": ""}), done()]))
    until((ralph.folder / "telling").exists, "somebody is told of the end")
    began = time.monotonic()
    for _ in range(presses):
        asked(live, signal.SIGINT)
    ended = live.end()
    assert time.monotonic() - began < 8, "of ten seconds"
    hold(ralph, ended)
    assert (ended.code, "notify: sh: was not done" in ended.err) == (0, True), ended


def test_a_running_check_may_finish_and_nothing_follows(ralph: Ralph) -> None:
    """PR-21"""
    agent = ralph.script([write(**{"../started": ""}), done()])
    live = begin(ralph, agent, "--check", f"{BEGUN}; touch ../second", check=WAITS)
    until((ralph.folder / "checking").exists, "the check runs")
    asked(live, signal.SIGINT)
    (ralph.folder / "go").touch()
    ended = live.end()
    interrupted(ralph, ended)
    (finding,) = [record.finding for record in recorded(ralph, CheckEnded) if record.iteration]
    assert (finding.passed, finding.output) == (True, "checked\n")
    assert not (ralph.folder / "second").exists()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        pytest.param(say("working"), "not done", id="between-iterations"),
        pytest.param({"limited": {"message": "no more", "in_s": 3600}}, "waits until", id="until-a-reset"),
        pytest.param({"limited": {"message": "no more"}}, "waits until", id="back-off"),
    ],
)
def test_a_run_that_only_waits_ends_at_once(ralph: Ralph, step: Step, said: str) -> None:
    """PR-20"""
    ralph.settings(limits={"pauseMilliseconds": 60_000})
    del ralph.env["RALPH__LIMITS__PAUSE_MILLISECONDS"]
    live = begin(ralph, ralph.script([write(**{"../started": ""}), step]))
    until(lambda: said in Path(live.err.name).read_text(), "the run waits")
    live.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    ended = live.end()
    assert time.monotonic() - began < 1
    interrupted(ralph, ended)


@pytest.mark.parametrize(
    "call", ["flock:1", "flock:2", "fdatasync:1", "flock:3", "fdatasync:8", "flock:4", "sendmsg:1"]
)
def test_a_signal_on_the_way_to_the_first_turn_leaves_nothing_behind(ralph: Ralph, call: str) -> None:
    """PR-14: at a system call, from the first lock to the agent's start."""
    require(shutil.which("strace") is not None, "strace sends a signal at a system call")
    ralph.settings(shutdownGraceSeconds=0.1)
    name, _, number = call.partition(":")
    inject = ("-e", f"trace={name}", "-e", f"inject={name}:signal=INT:when={number}")
    agent = ralph.script([{"sleep": 300}])
    ended = ralph("run", "-p", "make it so", "--agent", agent, via=("strace", "-o", "/dev/null", *inject))
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert there(ralph.folder / "script.json") == []
    assert all(run.ended for run in ralph.runs())
    again = ralph("run", "-p", "make it so", "--agent", ralph.script([done()]), "--check", "true")
    hold(ralph, again)
    assert (again.code, "crashed" in again.err) == (0, False), again


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal() as made:
        yield made


def test_a_terminal_that_goes_away_ends_the_run_in_good_order(ralph: Ralph, terminal: Terminal) -> None:
    """PR-17"""
    ralph.settings(shutdownGraceSeconds=0.2)
    process = terminal.start(ralph, "run", "-p", "make it so", "--agent", ralph.script(AGENT_STAYS[1:]))
    until((ralph.folder / "started").exists, "the agent begins")
    assert b"Iteration 1" in terminal.read()
    terminal.close()
    code = process.wait(30)
    hold(ralph, Ended(code, "", ""))
    assert (code, ralph.outcome()["reason"]) == (130, "INTERRUPTED")
    assert there(ralph.folder / "script.json") == []


def test_an_agent_that_reaches_for_the_terminal_finds_none(ralph: Ralph, terminal: Terminal) -> None:
    """PR-29"""
    reach = "sh -c '(stty raw -echo; echo hidden) < /dev/tty > /dev/tty' 2> ../reached; test -s ../reached"
    before = terminal.settings()
    agent = ralph.script([{"run": ["sh", "-c", reach]}, done()])
    process = terminal.start(ralph, "run", "-p", "make it so", "--agent", agent, "--check", "! true < /dev/tty")
    until(lambda: terminal.read() and process.poll() is not None, "the run is over")
    hold(ralph, Ended(process.returncode, terminal.shown.decode(), ""))
    assert process.returncode == 0, terminal.shown
    assert terminal.settings() == before
    assert b"hidden" not in terminal.shown


@pytest.mark.parametrize("flags", [(), ("--json",), ("--verbose",)])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_leaves_does_not_stop_the_run(ralph: Ralph, stream: str, flags: tuple[str, ...]) -> None:
    """PR-19"""
    argv = [*PROGRAM, "run", "-p", "make it so", "--agent", ralph.script(AGENT_WAITS), "--check", "true", *flags]
    reads, writes = os.pipe()
    with (ralph.folder / "other").open("w+") as other:
        out, err = (writes, other) if stream == "stdout" else (other, writes)
        process = subprocess.Popen(argv, cwd=ralph.root, env=ralph.env, stdout=out, stderr=err)
        os.close(writes)
        try:
            until(lambda: (ralph.folder / "started").exists() or process.poll() is not None, "the agent begins")
            os.close(reads)
            (ralph.folder / "go").touch()
            code = process.wait(30)
        finally:
            process.kill()
            process.wait()
        other.seek(0)
        ended = Ended(code, "", other.read())
    hold(ralph, ended)
    assert ended.code == 0, ended
