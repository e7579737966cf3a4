"""Agents as processes: those that hang, ignore, detach, multiply or die, and what is left of them."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys

import pytest

from ralphproof.agents.command import ScriptedAgent
from ralphproof.base.value import replace
from ralphproof.engine.agent import Event, TurnInput
from ralphproof.engine.sandbox import CONTINUE, Command, CommandWatcher, Exit
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from tests.misbehaviour.agents import case
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import LOOK, daemon, exits, there, word
from tests.needs import require
from tests.ralph import Ended, Ralph, done

QUICK_S = 1  # the least time that an agent can be given


def run(ralph: Ralph, agent: str, *flags: str, check: str = "true", most: int = 1) -> Ended:
    """A run after which everything holds that must, and nothing of this test is alive."""
    ralph.warm = False  # the checks know us by our command line
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", str(most), *flags)
    hold(ralph, ended)
    assert there(ralph.folder) == []
    return ended


def look(ralph: Ralph) -> str:
    """A check that fails while a daemon of the test, or a zombie of the run's, is there."""
    (ralph.folder / "look.py").write_text(LOOK)
    return shlex.join([sys.executable, "-I", "-S", str(ralph.folder / "look.py"), word(ralph)])


def test_an_agent_over_its_time_is_ended_and_the_run_goes_on_to_its_limit(ralph: Ralph) -> None:
    """PR-01"""
    ralph.settings(agent={"timeoutSeconds": QUICK_S})
    ended = run(ralph, ralph.script([{"sleep": 300}]), most=2)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS")
    assert [(end.why, end.signal) for end in exits(ralph)] == [("timeout", signal.SIGTERM)] * 2
    assert all(QUICK_S <= end.seconds < QUICK_S + 5 for end in exits(ralph)), "it obeyed TERM"
    assert "agent.timeoutSeconds" in ended.err


def test_a_hardened_daemon_that_holds_stdout_is_gone_soon_after_the_timeout(ralph: Ralph) -> None:
    """PR-02, PR-03, PR-04: two forks, a session of its own, no mark in its environment, deaf to TERM."""
    ralph.settings(agent={"timeoutSeconds": QUICK_S})
    hardened = daemon(ralph, quiet=False, clean_env=True)
    agent = ralph.script([{"ignore": ["TERM"]}, hardened, {"until": "../daemon"}, {"sleep": 300}])
    ended = run(ralph, agent, check=look(ralph))
    (end,) = exits(ralph)
    assert (end.why, end.signal) == ("timeout", signal.SIGKILL), ended
    assert QUICK_S + 5 <= end.seconds <= QUICK_S + 6
    assert "passed (exit code 0)" in ended.err, "it was gone before the check looked"


@pytest.mark.parametrize(
    "how",
    [
        case("child", {"setsid": False, "double_fork": False, "deaf": False}),
        case("holds-stdout", {"quiet": False, "deaf": False}),
        case("own-session", {"double_fork": False, "deaf": False}),
        case("daemon", {"clean_env": True}),
    ],
)
def test_what_an_agent_leaves_behind_is_gone_before_the_checks_look(ralph: Ralph, how: dict[str, bool]) -> None:
    """PR-03, PR-04, PR-09, FC-27"""
    left = daemon(ralph, "date +%N > beat; sleep 0.05", **how)
    agent = ralph.script([left, {"until": "beat"}, done()])
    ended = run(ralph, agent, check=f"{look(ralph)} && cp beat ../beat && sleep 0.3 && cmp beat ../beat")
    assert ended.code == 0, ended
    assert (exits(ralph)[0].seconds >= 5) is how.get("deaf", True), "so long it has after TERM"


def test_the_result_of_an_agent_that_never_leaves_counts(ralph: Ralph) -> None:
    """PR-05: it says its result and lingers, for a shorter time than it really may."""

    class Impatient:
        name, strength = "impatient", "none"

        def run(self, command: Command, watch: CommandWatcher) -> Exit:
            return DirectRunner(keeper).run(replace(command, linger_s=0.2), watch)

    class Nobody:
        def events(self, events: list[Event]) -> None:
            """Not of interest."""

        def tick(self) -> int:
            return CONTINUE

    script = ralph.script([done(), {"linger": 300}]).removeprefix("scripted ")
    (ralph.folder / "prompt").write_text("make it so")
    base = str(ralph.folder / "agent")
    brief = TurnInput("make it so", str(ralph.folder / "prompt"), str(ralph.root), tuple(ralph.env.items()), base,
                  f"{base}.turn", call_id="linger/1", timeout_s=60.0)  # fmt: skip
    keeper = KeeperClient()
    try:
        turn = ScriptedAgent(script).take_turn(brief, Impatient(), Nobody())
    finally:
        keeper.close()
    assert (turn.exit.why, turn.exit.clean, turn.errored) == ("lingered", True, False)
    assert turn.text == "<response>DONE</response>"
    assert there(ralph.folder) == []


@pytest.mark.parametrize("arguments", ["", " {prompt_file}", " {prompt}"])
def test_an_agent_that_reads_its_input_to_the_end_does_not_hang(ralph: Ralph, arguments: str) -> None:
    """PR-06"""
    ralph.program("reader", "cat > ../input; echo '<response>DONE</response>'")
    assert run(ralph, f"reader{arguments}").code == 0
    told = (ralph.folder / "input").read_text()
    assert ("make it so" in told) is (arguments == "")


@pytest.mark.parametrize("each", ["exit 0", "exec setsid sleep 300"])
def test_fifty_that_nobody_waits_for_are_reaped(ralph: Ralph, each: str) -> None:
    """PR-07"""
    many = f"for n in $(seq 50); do ({each}) < /dev/null > /dev/null 2>&1 & done"
    agent = ralph.script([{"run": ["sh", "-c", many, word(ralph)]}, done()])
    assert run(ralph, agent, check=look(ralph)).code == 0


BOMB = """
import os, sys, time
for count in range(300):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(300)
    except BlockingIOError:
        break
open("../forked", "w").write(str(count + 1))
time.sleep(300)
"""


def test_of_a_fork_bomb_nothing_is_left(ralph: Ralph) -> None:
    """PR-08"""
    ralph.settings(agent={"timeoutSeconds": 300})
    bomb = {"spawn": {"argv": [sys.executable, "-I", "-S", "-c", BOMB, word(ralph)], "quiet": True}}
    ended = run(ralph, ralph.script([bomb, {"until": "../forked"}, done()]), check=look(ralph))
    assert ended.code == 0, ended
    assert (ralph.folder / "forked").read_text() == "300"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_an_agent_that_dies_by_a_signal_is_told_and_tried_again(ralph: Ralph, number: int) -> None:
    """PR-23"""
    ended = run(ralph, ralph.script([done(), {"signal": number}], [done()]), most=5)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2)
    assert [(end.code, end.signal) for end in exits(ralph)] == [(None, number), (0, None)]
    assert f"the agent died by signal {number:d}" in ended.err


def elf(machine: int) -> bytes:
    """The beginning of a program for this kind of processor, and nothing more."""
    return (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + b"\x02\x00"
        + machine.to_bytes(2, "little")
        + b"\x01\x00\x00\x00"
        + bytes(40)
    )


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        case("PR-28-no-first-line", b"echo hello\n", 0o755, "Exec format error"),
        case("PR-28-no-interpreter", b"#!/no/such/thing\n", 0o755, "the interpreter that its first line names"),
        case("PR-28-other-processor", elf(8), 0o755, "Exec format error"),
    ],
)
def test_an_agent_that_cannot_start_is_told_at_once(ralph: Ralph, content: bytes, mode: int, said: str) -> None:
    """PR-28"""
    path = ralph.root / "agent"
    path.write_bytes(content)
    path.chmod(mode)
    ended = run(ralph, "./agent", check="echo asked >> ../asked", most=5)
    assert (ended.code, len(exits(ralph))) == (2, 1)
    assert str(path) in ended.out
    assert said in ended.out
    assert (ralph.folder / "asked").read_text() == "asked\n", "before the first iteration, and never again"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        case("PR-27-missing", None, "does not exist"),
        case("PR-27-not-executable", "#!/bin/sh\n", "may not be executed"),
        case("PR-28-directory", "", "is a directory"),
    ],
)
def test_an_agent_that_is_no_program_is_refused_before_the_run(ralph: Ralph, content: str | None, said: str) -> None:
    """PR-27, PR-28"""
    path = ralph.root / "agent"
    if content:
        path.write_text(content)
    elif content is not None:
        path.mkdir()
    ended = ralph("run", "-p", "make it so", "--agent", "./agent")
    hold(ralph, ended, refused=True)
    assert f"agent ./agent: {path} {said}" in ended.err


def test_an_agent_that_is_nowhere_on_path_is_refused(ralph: Ralph) -> None:
    """PR-27"""
    ended = ralph("run", "-p", "make it so", "--agent", "no-such-agent")
    hold(ralph, ended, refused=True)
    assert "agent no-such-agent was not found on PATH" in ended.err


def test_an_agent_that_closes_its_output_is_waited_for(ralph: Ralph) -> None:
    """PR-30"""
    ralph.program("silent", "echo '<response>DONE</response>'; exec >&- 2>&-; sleep 0.5; echo done > work")
    assert run(ralph, "silent", check="test -f work").code == 0


# Run in a space of process ids of its own: as soon as the agent is gone, its number is given to a bystander.
REUSE = """
"$@" > ../out 2> ../err &
ralph=$!
while ! test -s ../agent; do sleep 0.01; done
pid=$(cat ../agent)
while test -e /proc/$pid; do :; done
for n in 1 2 3 4 5 6 7 8 9; do
    echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
    setsid sleep 60 &
    test $! = $pid && break
done
test $! = $pid && echo $pid > ../reused
wait $ralph
echo $? > ../code
test -e /proc/$pid/exe && cat /proc/$pid/comm > ../lives
"""


def test_a_process_that_got_the_number_of_a_dead_agent_is_not_touched(ralph: Ralph) -> None:
    """PR-31"""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    probe = subprocess.run([*apart, "sh", "-c", "echo 99 > /proc/sys/kernel/ns_last_pid"], capture_output=True)
    require(not probe.returncode, "only root can choose process ids, in a space of its own")
    ralph.program(
        "leaver",
        f"""echo $$ > ../agent.new
        setsid sh -c "trap '' TERM; touch ../stays; while :; do sleep 0.1; done" {word(ralph)} > /dev/null 2>&1 &
        while ! test -e ../stays; do sleep 0.01; done
        mv ../agent.new ../agent; echo '<response>DONE</response>'""",
    )
    ended = ralph("run", "-p", "make it so", "--agent", "leaver", "-m", "1", via=[*apart, "sh", "-c", REUSE, "sh"])
    assert ended.code == 0, ended
    assert (ralph.folder / "reused").exists(), "the number was given out again while the leftover was being ended"
    assert (ralph.folder / "code").read_text() == "0\n", (ralph.folder / "err").read_text()
    assert (ralph.folder / "lives").read_text() == "sleep\n"


COUNT = """
read -r prompt
read -r stat < /proc/$PPID/stat
set -- ${stat##*) }
harness=$2 seen=
for pid in $harness $PPID; do
    set -- /proc/$pid/fd/*
    seen="$seen $#"
    set -- /proc/$pid/task/*
    seen="$seen $#"
    read -r children < /proc/$pid/task/$pid/children
    set -- $children
    seen="$seen $#"
done
echo $seen >> ../counts
echo $seen >> work
"""


@pytest.mark.thorough
def test_two_hundred_iterations_leave_nothing_open(ralph: Ralph) -> None:
    """PR-34"""
    (ralph.folder / "config").mkdir()
    (ralph.folder / "config" / "settings.json").write_text(json.dumps({"caps": {"iterations": 200}}))
    ralph.commit()
    ralph.program("counter", COUNT)
    ended = ralph("run", "-p", "make it so", "--agent", "counter", "-m", "200", "-q")
    assert ended.code == 1, ended
    counts = [line.split() for line in (ralph.folder / "counts").read_text().splitlines()]
    assert len(counts) == 200
    early, late = (
        [min(map(int, column)) for column in zip(*half, strict=True)] for half in (counts[:100], counts[100:])
    )
    assert late == early, "descriptors, threads and children, of the harness and of the keeper"
