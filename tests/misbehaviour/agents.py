"""Agents that misbehave, in both ways in which an agent can speak."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ralphproof.agents.command import PLAYER_PATH
from ralphproof.engine.records import RunBegan
from tests.ralph import Ended, Ralph, Step, done, write

TAG = "<response>DONE</response>"
Kind = Callable[..., str]


def plain(ralph: Ralph, *iterations: list[Step]) -> str:
    """The command of an ordinary program that plays this script: what it prints is what it says."""
    script = ralph.script(*iterations, name="plain").removeprefix("scripted ")
    return shlex.join([sys.executable, "-I", "-S", PLAYER_PATH, script, "--plain"])


def events(ralph: Ralph, *iterations: list[Step]) -> str:
    """The command of an agent that plays this script and tells what it does as events."""
    return ralph.script(*iterations)


both = pytest.mark.parametrize("kind", [plain, events])


def heard(ralph: Ralph) -> list[str | None]:
    """What the agent claimed, iteration by iteration."""
    return [past.claim.word if past.claim else None for past in ralph.state().history.iterations]


def prompt(ralph: Ralph, iteration: int) -> str:
    """What the agent was told in an iteration."""
    return (ralph.run_folder() / f"prompt_{iteration:03d}.txt").read_text(encoding="utf-8")


def case(id: str, *values: Any) -> Any:
    """A row of a table of cases."""
    return pytest.param(*values, id=id)


def run(ralph: Ralph, *flags: str, agent: str | None = None) -> Ended:
    """A run whose agent, where none is given, leaves the file `started` behind."""
    agent = agent or ralph.script([write(started="yes"), done()])
    return ralph("run", "-p", "make it so", "--agent", agent, *flags)


def seen(ralph: Ralph) -> list[dict[str, Any]]:
    """What an agent with the step `{"record": "../seen"}` was given, turn by turn."""
    return [json.loads(line) for line in (ralph.folder / "seen").read_text(encoding="utf-8").splitlines()]


def facts(ralph: Ralph) -> dict[str, Any]:
    """What the latest run's record says of its settings."""
    return next(record.facts for record in ralph.records() if isinstance(record, RunBegan))
