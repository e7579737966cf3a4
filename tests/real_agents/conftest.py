"""Whole runs with a real agent. Its home is new, its keys are dummies, and the only network is a model with a script.

    def test_a_lie_is_refused(real: Real) -> None:
        ended = real.run([say("<response>DONE</response>")], "-m", "1")
        assert ended.code == 1

A test that takes `agent` or `real` runs once for each agent. Where an agent is not installed its tests are skipped, and
in CI they fail. `tests/agents/model/script.py` tells what a turn of a script may be.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.agents import isolated_network, real_clis
from tests.agents.model_server import shown
from tests.misbehaviour.invariants import hold
from tests.needs import require
from tests.ralph import Ended, Live, Ralph
from tests.ralph import ralph as ralph

T = TypeVar("T")
Json = dict[str, Any]
AGENTS = ("claude", "codex")
CHECK = "test -e done.txt || { echo 'MISSING: done.txt'; exit 1; }\n"
RUN = ("run", "-p", "make it so", "--check", "sh check.sh")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Never below /dev: Codex 0.166 starts a copy of itself from its home in a sandbox that has another /dev."""
    with tempfile.TemporaryDirectory(prefix="ralph-real-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def says(text: str, **more: Any) -> Json:
    """A turn: the model says this."""
    return {"text": text, **more}


def claims(text: str = "", **more: Any) -> Json:
    """A turn: the model says that the work is done."""
    return says(f"{text}\n<response>DONE</response>", **more)


def writes(name: str, content: str = "x\n", **more: Any) -> Json:
    """A turn: the model writes a file."""
    return {"text": f"I write {name}.", "calls": [{"write": [name, content]}], **more}


def runs(command: str, **more: Any) -> Json:
    """A turn: the model runs a command."""
    return {"text": "I run it.", "calls": [{"shell": command}], **more}


DONE = (writes("done.txt"), claims())
"""Two turns that do what `check.sh` asks for."""


@dataclass
class Real:
    """A project whose check wants `done.txt`, and an agent. `env` has the last word over the agent's environment.

    The model is asked by its address, or by the first of `hosts`, over TLS where `tls` has a certificate for that.
    """

    ralph: Ralph
    agent: str
    others: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    tls: Path | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            require(real_clis.program(name) is not None, f"{name} is not installed; `make agents` installs it")
        self.ralph.write({"check.sh": CHECK})
        self.ralph.commit()
        programs = [str(real_clis.folder(name) / "node_modules" / ".bin") for name in self.names]
        self.ralph.env["PATH"] = os.pathsep.join([*programs, self.ralph.env["PATH"]])

    @property
    def names(self) -> tuple[str, ...]:
        return (self.agent, *self.others)

    @property
    def asked(self) -> Path:
        return self.ralph.folder / "requests.jsonl"

    def run(self, turns: Sequence[Json], *argv: str, **script: Any) -> Ended:
        """`ralph run` to its end, and what holds after every run."""
        ended = self.ralph(*RUN, "--agent", self.agent, *argv, via=self._via(turns, script))
        hold(self.ralph, ended)
        return ended

    def start(self, turns: Sequence[Json], *argv: str, **script: Any) -> Live:
        """`ralph run`, begun."""
        return self.ralph.start(*RUN, "--agent", self.agent, *argv, via=self._via(turns, script))

    def shown(self, turn: int) -> str:
        """What the model was shown when it gave this turn of the script for the first time."""
        return next(shown(request) for request in isolated_network.requests_in(self.asked) if request["turn"] == turn)

    def answered(self) -> list[int]:
        """The turns that the model gave, in order."""
        return [request["turn"] for request in isolated_network.requests_in(self.asked) if request["turn"] is not None]

    def recorded(self, kind: type[T]) -> list[T]:
        """The records of this kind of the latest run, oldest first."""
        return [record for record in self.ralph.records() if isinstance(record, kind)]

    def printed(self, name: str = "agent_001") -> list[Json]:
        """What the agent printed in a turn, a line each."""
        log = (self.ralph.run_folder() / f"{name}.ndjson").read_text(encoding="utf-8")
        return [json.loads(line) for line in log.splitlines()]

    def _via(self, turns: Sequence[Json], script: Mapping[str, Any]) -> list[str]:
        path = self.ralph.folder / "model.json"
        path.write_text(json.dumps({"turns": list(turns), **script}), encoding="utf-8")
        return isolated_network.via(path, self.asked, self.names, self.ralph.home, self.env, self.hosts, self.tls)


@pytest.fixture(autouse=True)
def no_run_goes_on(ralph: Ralph) -> Iterator[None]:
    """End the program itself where a test failed: a stage that is killed leaves it alone."""
    yield
    for row in ralph.runs() if ralph.state_dir.exists() else ():
        if row.process.alive:
            os.kill(row.pid, signal.SIGKILL)


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def real(ralph: Ralph, agent: str) -> Real:
    """A project, and each of the agents in turn."""
    return Real(ralph, agent)
