"""A harness that is killed in the middle of a real agent's turn: the next one takes the turn up, and misses nothing."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.engine.records import Resumed, TurnBegan, TurnEnded
from tests.misbehaviour.crashing import booked, ended_alone
from tests.misbehaviour.invariants import hold
from tests.ralph import Ended, Live, Ralph, until
from tests.real_agents.conftest import DONE, RUN, Json, Real, writes

pytestmark = pytest.mark.thorough


@pytest.fixture
def twin(tmp_path: Path, agent: str) -> Iterator[Real]:
    """The same agent in another project, whose harness nobody kills."""
    ralph = Ralph(tmp_path / "twin")
    yield Real(ralph, agent)
    ralph.close()


def turns(real: Real) -> list[Json]:
    """The model waits before its second answer."""
    return [writes("half.txt"), writes("more.txt", hold=str(gate(real))), *DONE]


def gate(real: Real) -> Path:
    return real.ralph.folder / "gate"


def begin(real: Real) -> Live:
    """A run that is resumed when the file `resume` is there. The model outlives the first harness."""
    program = shlex.join((sys.executable, "-m", "ralphproof", "run", "--resume"))
    again = f'"$@"; until test -e {real.ralph.folder}/resume; do sleep 0.05; done; exec {program}'
    on_stage = (*real._via(turns(real), {}), "sh", "-c", again, "sh")
    live = real.ralph.start(*RUN, "--agent", real.agent, via=on_stage)
    until(lambda: len(real.answered()) == 2, "the agent is in the middle of its turn", 40)
    return live


def shape(line: Json) -> tuple[object, ...]:
    """What kind of line it is, and what it says, without names and times of its own."""
    item = line.get("item", {})
    message = line["message"]["content"] if isinstance(line.get("message"), dict) else []
    blocks = message if isinstance(message, list) else []
    said = [(block.get("type"), block.get("text"), block.get("name")) for block in blocks]
    return line["type"], line.get("subtype"), item.get("type"), item.get("text"), *said


def kept(real: Real) -> list[tuple[object, ...]]:
    """The turn's whole log; how often Claude Code tells of its own health depends on the clock."""
    shapes = [shape(line) for line in real.printed()]
    return [one for one in shapes if one[:2] != ("system", "status")]


@pytest.mark.parametrize("alone", [False, True], ids=["adopted", "ended-alone"])
def test_a_turn_goes_on_without_its_harness_and_is_taken_up_whole(real: Real, twin: Real, alone: bool) -> None:
    """PR-10: as the twin's; one start, one bill, and all that it said."""
    live = begin(real)
    (row,) = real.ralph.runs()
    os.kill(row.pid, signal.SIGKILL)
    if alone:
        gate(real).touch()
        ended_alone(real.ralph)
    (real.ralph.folder / "resume").touch()
    until(lambda: len(real.recorded(Resumed)) == 1, "the run is taken up", 40)
    gate(real).touch()
    ended = live.end()
    said = "its result is used" if alone else "is followed to its end"
    assert said in ended.err
    gate(twin).touch()
    whole = twin.run(turns(twin))
    same(real, ended, twin, whole)


def same(real: Real, ended: Ended, twin: Real, whole: Ended) -> None:
    hold(real.ralph, ended)
    assert (ended.code, whole.code) == (0, 0), ended
    assert real.answered() == twin.answered() == [0, 1, 2, 3], "no answer of the model was asked for twice"
    assert [record.iteration for record in real.recorded(TurnBegan)] == [1]
    assert kept(real) == kept(twin)
    (reply,), (other,) = ([record.reply for record in one.recorded(TurnEnded)] for one in (real, twin))
    assert (reply.exit.why, reply.exit.code, reply.text) == (other.exit.why, other.exit.code, other.text)
    assert (reply.micro_usd, reply.usage, reply.at_least) == (other.micro_usd, other.usage, other.at_least)
    assert (reply.tools, reply.errors, reply.model) == (other.tools, other.errors, other.model)
    assert booked(real.ralph) == booked(twin.ralph) == {"agent_001": reply.micro_usd}
    assert real.ralph.outcome()["costUSD"] == twin.ralph.outcome()["costUSD"]
    if real.agent == "claude":
        assert reply.micro_usd
    files = [sorted(path.name for path in one.ralph.root.glob("*.txt")) for one in (real, twin)]
    assert files == [["done.txt", "half.txt", "more.txt"]] * 2
