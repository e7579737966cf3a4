"""A run that is asked to end: by signals, by a terminal that goes away, by a reader that leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from ralphproof.engine.records import CheckEnded, Saved
from ralphproof.process.tree import is_stopped
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


FRESH = ("env",)  # an interpreter of its own: with all that such a one does at its end


def pressed_twice(ralph: Ralph, live: Live) -> None:
    """After a second signal the program is over, and whatever it had begun."""
    asked(live, signal.SIGINT)
    live.process.send_signal(signal.SIGINT)
    assert live.end(timeout_s=10).code == 130
    until(lambda: there(ralph.folder / "bin") == [], "what it began is gone")
    assert ralph.processes(ralph.runs()[0].id) == []


@pytest.mark.parametrize("verb", ["run", "race 2", "supervise"])
def test_a_second_signal_ends_an_agent_that_stops_its_keeper_again_and_again(ralph: Ralph, verb: str) -> None:
    ralph.commit()
    stopper = ralph.program("stopper", f"touch {ralph.folder}/started; while :; do kill -STOP $PPID; done")
    flags = ("--", str(stopper)) if verb == "supervise" else ("-p", "make it so", "--agent", "stopper")
    live = ralph.start(*verb.split(), "--check", "true", *flags, via=FRESH)
    until((ralph.folder / "started").exists, "the agent begins")
    pressed_twice(ralph, live)


@pytest.mark.parametrize("hangs", ["git", "ledger"])
def test_a_second_signal_ends_the_program_in_whatever_it_hangs(ralph: Ralph, hangs: str) -> None:
    real, here = shutil.which("git"), ralph.folder
    waits = f"test ! -e {here}/hang || {{ touch {here}/hanging; sleep 300; }}"
    ralph.commit()
    ralph.program("git", f'{waits}\nexec {real} "$@"')
    agent = ralph.script([write(**{"../started": ""}), {"until": "../go"}, write(work="1"), done()])
    live = begin(ralph, agent, via=FRESH)
    if hangs == "git":
        (here / "hang").touch()
        (here / "go").touch()
        until((here / "hanging").exists, "git hangs")
        pressed_twice(ralph, live)
        return
    (path,) = ralph.state_dir.glob("repos/*/ledger.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (here / "go").touch()
        until((ralph.root / "work").exists, "the agent is about to end")
        live.process.send_signal(signal.SIGINT)
        live.process.send_signal(signal.SIGTERM)  # two of one kind may come as one
        assert live.end(timeout_s=10).code == 130
    assert ralph("run", "--resume").code == 0, "as after kill -9"


def calls_of(ralph: Ralph, argv: tuple[str, ...]) -> list[str]:
    """The system calls of one run's main thread from its last words on, as `name:number`."""
    log = ralph.folder / "calls"
    assert ralph(*argv, via=("strace", "-o", str(log))).code == 0
    numbers, found, over = Counter[str](), list[str](), False
    for line in log.read_text(errors="replace").splitlines():
        name = line.partition("(")[0]
        numbers[name] += 1
        over = over or (name == "write" and "COMPLETED" in line)
        found += [f"{name}:{numbers[name]}"] if over and name.isidentifier() else []
    return found


@pytest.mark.parametrize("instants", [3, pytest.param(40, marks=pytest.mark.thorough)])
def test_a_signal_in_the_last_moments_changes_nothing(ralph: Ralph, instants: int) -> None:
    """PR-14: at system calls after the last line, down to the interpreter's own end."""
    require(shutil.which("strace") is not None, "strace sends a signal at a system call")
    agent = ralph.script([write(work="done"), done()])
    argv = ("run", "-p", "make it so", "--agent", agent, "--check", "true")
    last = [call for call in calls_of(ralph, argv) if not call.startswith(("exit", "kill"))]
    dice = Random(instants)
    for call in (last[-1], *dice.sample(last, instants - 1)):
        name, _, number = call.partition(":")
        sent = dice.choice(["INT", "TERM", "HUP"])
        inject = ("-e", f"trace={name}", "-e", f"inject={name}:signal={sent}:when={number}")
        ended = ralph(*argv, via=("strace", "-o", "/dev/null", *inject))
        outcome = ralph.outcome()
        expected = (0, "COMPLETED") if ended.code == 0 else (130, "ABORTED")
        assert (ended.code, outcome["status"]) == expected, (call, sent, ended)


def test_ctrl_z_suspends_the_agent_too(ralph: Ralph) -> None:
    """And its clocks: they go on when it does."""
    live = begin(ralph, ralph.script(AGENT_WAITS), via=FRESH)
    (run,) = ralph.runs()
    live.process.send_signal(signal.SIGTSTP)
    until(lambda: is_stopped(live.process.pid), "the harness is stopped")
    until(lambda: all(is_stopped(pid) for pid in ralph.processes(run.id)), "the agent is stopped")
    live.process.send_signal(signal.SIGCONT)
    until(lambda: not any(is_stopped(pid) for pid in ralph.processes(run.id)), "the agent goes on")
    (ralph.folder / "go").touch()
    ended = live.end()
    hold(ralph, ended)
    (end,) = exits(ralph)
    assert (ended.code, end.why, end.paused_s > 0) == (0, "exit", True), ended


def test_an_agent_is_not_left_suspended_by_a_harness_that_is_killed(ralph: Ralph) -> None:
    live = begin(ralph, ralph.script(AGENT_WAITS), via=FRESH)
    (run,) = ralph.runs()
    live.process.send_signal(signal.SIGTSTP)
    until(lambda: ralph.processes(run.id) and all(map(is_stopped, ralph.processes(run.id))), "the agent is stopped")
    live.process.kill()
    until(lambda: not any(map(is_stopped, ralph.processes(run.id))), "the agent goes on")
    (ralph.folder / "go").touch()
    assert ralph("run", "--resume").code == 0


@each_signal
def test_a_signal_while_a_question_is_asked_is_told_and_nothing_is_written(
    ralph: Ralph, terminal: Terminal, number: int
) -> None:
    process = terminal.start(ralph, "init")
    until(lambda: b": " in terminal.read(), "it asks")
    process.send_signal(number)
    assert process.wait(30) == 130
    assert b"ralph: interrupted" in terminal.read()
    assert not (ralph.root / ".ralph").exists()


@each_signal
def test_a_signal_to_any_verb_is_told(ralph: Ralph, number: int) -> None:
    ralph.program("git", f"touch {ralph.folder}/asked; sleep 300")
    live = ralph.start("doctor", via=FRESH)
    until((ralph.folder / "asked").exists, "it asks git for its version")
    live.process.send_signal(number)
    ended = live.end()
    assert (ended.code, ended.err.splitlines()[-1:]) == (130, ["ralph: interrupted"]), ended
