"""A harness that is killed while a real agent works in a sandbox: the turn is taken up, and then nothing is left."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from ralphproof.engine.records import Resumed, TurnBegan, TurnEnded
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import there
from tests.ralph import Live, Ralph, until
from tests.real_agents.conftest import DONE, RUN, runs, writes
from tests.real_agents.sandboxed_project import HOST, Boxed, holds

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("agent", ["claude"])]


@pytest.fixture
def boxed(ralph: Ralph, agent: str) -> Boxed:
    holds("bubblewrap", ralph)
    return Boxed(ralph, agent)


def gate(boxed: Boxed) -> Path:
    return boxed.ralph.folder / "gate"


def length(boxed: Boxed) -> str:
    """How long a sleep of this test takes: a number that stands in no other command line."""
    return f"3600.{os.getpid()}{abs(hash(boxed.ralph.folder))}"


def begin(boxed: Boxed) -> Live:
    """A run that is resumed when the file `resume` is there. It has left a sleeper, and the model waits."""
    program = shlex.join((sys.executable, "-m", "ralphproof", "run", "--resume"))
    again = f'"$@"; until test -e {boxed.ralph.folder}/resume; do sleep 0.05; done; exec {program}'
    sleeper = f"nohup setsid sleep {length(boxed)} >/dev/null 2>&1 & echo half > half.txt"
    turns = [runs(sleeper), writes("more.txt", hold=str(gate(boxed))), *DONE]
    on_stage = (*boxed._via(turns, {}), "sh", "-c", again, "sh")
    live = boxed.ralph.start(*RUN, "--agent", boxed.agent, "--sandbox=bubblewrap", via=on_stage)
    until(lambda: len(boxed.answered()) == 2, "the agent is in the middle of its turn", 40)
    assert there(f"sleep\0{length(boxed)}")
    return live


def test_a_boxed_turn_goes_on_without_its_harness_and_leaves_nothing(boxed: Boxed) -> None:
    live = begin(boxed)
    (row,) = boxed.ralph.runs()
    os.kill(row.pid, signal.SIGKILL)
    (boxed.ralph.folder / "resume").touch()
    until(lambda: len(boxed.recorded(Resumed)) == 1, "the run is taken up", 40)
    assert there(f"sleep\0{length(boxed)}"), "the turn is still the same"
    gate(boxed).touch()
    ended = live.end()
    hold(boxed.ralph, ended)
    assert (ended.code, boxed.answered()) == (0, [0, 1, 2, 3]), ended
    assert "is followed to its end" in ended.err
    assert [record.iteration for record in boxed.recorded(TurnBegan)] == [1]
    (reply,) = [record.reply for record in boxed.recorded(TurnEnded)]
    assert (reply.exit.why, reply.exit.code, reply.tools) == ("exit", 0, 3)
    assert {line["host"] for line in boxed.audit()} == {HOST}, "the way out was the same all the time"
    nothing_is_left(boxed)


def test_a_boxed_turn_whose_run_is_cancelled_leaves_nothing(boxed: Boxed) -> None:
    live = begin(boxed)
    (row,) = boxed.ralph.runs()
    os.kill(row.pid, signal.SIGKILL)
    until(lambda: not row.process.alive, "the harness is dead")
    told = boxed.ralph("cancel")
    assert (told.code, f"run {row.id} is over" in told.out) == (0, True), told
    assert boxed.ralph.processes(row.id) == []
    nothing_is_left(boxed)
    (boxed.ralph.folder / "resume").touch()
    assert live.end().code == 2, "what was cancelled is not taken up"


def nothing_is_left(boxed: Boxed) -> None:
    """No process, and none of the things that lay over files which must not come to be."""
    assert there(length(boxed)) == []
    found = {path.name for path in boxed.ralph.root.iterdir()} - {".git", ".ralph"}
    assert found <= {"attempts.sh", "check.sh", "kept", "half.txt", "more.txt", "done.txt"}
    assert not list(Path(boxed.ralph.project.store, "runs").rglob("*.tmp"))
