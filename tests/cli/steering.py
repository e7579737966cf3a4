"""Runs that go on by themselves while a test steers them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from ralphproof.engine.records import Record
from ralphproof.engine.state import build_state
from tests.ralph import Live, Ralph, Step, until

UNTIL_GO: Step = {"until": "../go"}


def waits_for(name: str) -> Step:
    """A step: the agent says by a file that it got here, and waits for another one."""
    return {"run": ["sh", "-c", f"touch ../{name}; while ! test -f ../{name}-go; do sleep 0.01; done"]}


def reached(ralph: Ralph, name: str) -> None:
    """Wait until the agent is there."""
    until((ralph.folder / name).exists, f"the agent has reached {name}")


def let(ralph: Ralph, name: str) -> None:
    """Let the agent go on."""
    (ralph.folder / f"{name}-go").touch()


def detached(ralph: Ralph, agent: str, *flags: str) -> str:
    """Begin a run that goes on by itself; its id."""
    told = ralph("run", "-p", "make it so", "--agent", agent, "--detach", "--json", *flags)
    assert told.code == 0, told
    assert told.json["begun"] is True
    run: str = told.json["run"]
    return run


def over(ralph: Ralph, run: str) -> dict[str, Any]:
    """Wait until a run has ended, and its harness too; how it ended."""
    until(lambda: gone(ralph, run), f"run {run} is over")
    return ralph.outcome(run)


def gone(ralph: Ralph, run: str) -> bool:
    row = next(row for row in ralph.runs() if row.id == run)
    return row.ended and not row.process.alive


def rests(ralph: Ralph, run: str) -> None:
    """Wait until a run rests."""
    until(lambda: build_state(ralph.records(run)).user.paused, f"run {run} rests")


def lose_harness(ralph: Ralph, run: str) -> None:
    """Kill the process that has a run."""
    row = next(row for row in ralph.runs() if row.id == run)
    os.kill(row.pid, signal.SIGKILL)
    until(lambda: not row.process.alive, "the harness is dead")


def has(ralph: Ralph, run: str, kind: type[Record]) -> bool:
    """Whether such a record is there."""
    return any(isinstance(record, kind) for record in ralph.records(run))


def shows(live: Live, text: str) -> None:
    """Wait until a command has written this to standard error."""
    until(lambda: text in Path(live.err.name).read_text(encoding="utf-8"), f"{text!r} is shown")


def shown(live: Live) -> str:
    return Path(live.err.name).read_text(encoding="utf-8")
