"""A run that ends in the middle of a turn: nothing of a real agent stays, and what it did is saved."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import RunEnded, Saved, TurnEnded
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import there
from tests.ralph import Live, until
from tests.real_agents.conftest import Real, runs, says

pytestmark = pytest.mark.thorough


def length(real: Real) -> str:
    """How long a sleep of this test takes: a number that stands in no other command line."""
    return f"3600.{os.getpid()}{abs(hash(real.ralph.folder))}"


def leaves(real: Real, then: str = "true") -> str:
    """A command that leaves a sleeper behind, in a session of its own, and then goes on."""
    return f"echo half > half.txt; nohup setsid sleep {length(real)} >/dev/null 2>&1 & {then}"


def begin(real: Real, *turns: dict[str, object], asked: int) -> Live:
    """Start a run, and wait until its sleepers sleep and the model was asked so often."""
    live = real.start(turns, "--no-sandbox")
    until(lambda: there(f"sleep\0{length(real)}") and len(real.answered()) == asked, "the agent is at work", 40)
    return live


def test_two_interrupts_end_a_turn_and_all_that_it_started(real: Real) -> None:
    live = begin(real, runs(leaves(real)), says("never said", hold=str(real.ralph.folder / "never")), asked=2)
    live.process.send_signal(signal.SIGINT)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    live.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    ended = live.end()
    assert time.monotonic() - began < 8
    hold(real.ralph, ended)
    assert there(length(real)) == []
    assert (ended.code, real.ralph.outcome()["reason"]) == (130, "INTERRUPTED"), ended
    (reply,) = [record.reply for record in real.recorded(TurnEnded)]
    assert (reply.exit.why, reply.tools) == ("killed", 1)
    saved(real)


def saved(real: Real) -> None:
    """What the agent did until then is in the repository, out of the user's way."""
    (kept,) = [record.snapshot for record in real.recorded(Saved)]
    assert kept.ref is not None
    assert kept.ref.startswith("refs/ralph/")
    assert real.ralph.git("show", f"{kept.ref}:half.txt") == "half\n"


def test_a_run_whose_harness_was_killed_leaves_nothing_once_it_is_cancelled(real: Real) -> None:
    live = begin(real, runs(leaves(real, f"sleep {length(real)}1")), asked=1)
    (row,) = real.ralph.runs()
    os.kill(row.pid, signal.SIGKILL)
    assert live.end().code == -signal.SIGKILL
    assert there(length(real)), "the agent does not need us"
    told = real.ralph("cancel")
    assert (told.code, f"run {row.id} is over" in told.out) == (0, True), told
    assert (real.ralph.processes(row.id), there(length(real))) == ([], [])
    (end,) = real.recorded(RunEnded)
    assert isinstance(end.outcome, Aborted)
    assert (end.outcome.breach.reason, end.outcome.spend.usd) == ("CANCELLED", None)
    assert (real.ralph.root / "half.txt").read_text() == "half\n"
