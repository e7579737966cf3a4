"""Runs that lose their harness, their keeper or both, and what is counted to tell what was done once and what twice."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ralphproof.engine.records import Record, Resumed, TurnBegan, TurnEnded
from ralphproof.process import turn_journal
from ralphproof.process.tree import is_alive
from ralphproof.store.run_state import find_live_turn
from tests.misbehaviour.machine import command_line, there
from tests.ralph import Ended, Live, Ralph, Step, done, until, write

End = TypeVar("End")
RUN = ("run", "-p", "make it so")
START: Step = {"append": {"../starts": "start\n"}}
COST = 0.25
# An agent that is half done until the file `go` is there.
SLOW = [START, {"cost": COST}, write(work="half", **{"../working": ""}), {"until": "../go"}, write(work="done"), done()]
QUICK = [START, {"cost": COST}, write(work="done"), done()]
CHECK = "echo check >> ../checks; grep -q done work"


def count(ralph: Ralph, name: str) -> int:
    """How many lines stand in a file beside the project."""
    path = ralph.folder / name
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def begin(ralph: Ralph, *iterations: list[Step], flags: tuple[str, ...] = ("--check", CHECK)) -> Live:
    """A run of this script that has begun."""
    return ralph.start(*RUN, "--agent", ralph.script(*iterations), *flags)


def at_work(ralph: Ralph, *later: list[Step], flags: tuple[str, ...] = ("--check", CHECK)) -> Live:
    """A run whose agent is in the middle of its first turn."""
    live = begin(ralph, SLOW, *later, flags=flags)
    until((ralph.folder / "working").exists, "the agent is at work")
    return live


def go_on(ralph: Ralph) -> None:
    """Let the agent finish."""
    (ralph.folder / "go").touch()


def kill(live: Live) -> None:
    """`kill -9` of the harness alone."""
    os.kill(live.process.pid, signal.SIGKILL)
    assert live.end().code == -signal.SIGKILL


def kill_both(ralph: Ralph, live: Live) -> None:
    """`kill -9` of the keeper that has a turn at work, and of its harness."""
    keeper = keeper_of(ralph)
    assert keeper, "a turn is at work"
    os.kill(live.process.pid, signal.SIGSTOP)  # it must not see that its keeper is gone
    os.kill(keeper, signal.SIGKILL)
    kill(live)
    until(lambda: not command_line(keeper), "the keeper is gone")


def keeper_of(ralph: Ralph) -> int:
    """The process that has a turn of the latest run at work; 0 where none is."""
    past = find_live_turn(ralph.project, ralph.runs()[0].id)
    return past.keeper[0] if past else 0


def turn_file(ralph: Ralph, name: str) -> Path:
    """The file that tells of one command of the latest run."""
    return Path(ralph.project.store) / "runs" / ralph.runs()[0].id / f"{name}.turn"


def ended_alone(ralph: Ralph, name: str = "agent_001") -> None:
    """Wait until a turn that nobody looks at is over, and its keeper gone."""
    path = str(turn_file(ralph, name))
    until(lambda: turn_journal.read_turn_file(path).result, "the turn ends")
    until(lambda: not is_alive(*turn_journal.read_turn_file(path).keeper), "its keeper leaves")


def resume(ralph: Ralph, *flags: str) -> Ended:
    """`ralph run --resume`, to its end."""
    return ralph("run", "--resume", *flags)


def turns(ralph: Ralph) -> list[tuple[int, int]]:
    """(iteration, turn) of all that began, in their order."""
    return [(record.iteration, record.turn) for record in ralph.records() if isinstance(record, TurnBegan)]


def whys(ralph: Ralph) -> list[str]:
    """How each turn ended."""
    return [record.reply.exit.why for record in ralph.records() if isinstance(record, TurnEnded)]


def ages(ralph: Ralph) -> list[float]:
    """How old the run was each time that it was taken up."""
    return [record.elapsed_s for record in ralph.records() if isinstance(record, Resumed)]


def booked(ralph: Ralph) -> dict[str, int | None]:
    """What the user's book says of each call, in micro-dollars; each call stands in it once."""
    database = sqlite3.connect(ralph.state_dir / "spend.db")
    rows = database.execute("SELECT call, micro_usd FROM booking ORDER BY seq").fetchall()
    database.close()
    assert len({call for call, _ in rows}) == len(rows)
    return {str(call).rpartition("/")[2]: cost for call, cost in rows}


def untouched(ralph: Ralph, do: Callable[[], Ended]) -> Ended:
    """Do something that is refused: no record is written and no agent started."""
    before: tuple[Record, ...] = ralph.records()
    starts = count(ralph, "starts")
    ended = do()
    assert ended.code == 2, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert (ralph.records(), count(ralph, "starts")) == (before, starts)
    return ended


def nothing_left(ralph: Ralph) -> None:
    """No process of this project is there any more."""
    until(lambda: not there(ralph.folder), "all processes are gone")


def quiet(ralph: Ralph) -> None:
    """Wait until nothing of the latest run is at work any more."""
    runs = [row.id for row in ralph.runs()[:1]] if ralph.state_dir.exists() else []
    until(lambda: not any(find_live_turn(ralph.project, run) for run in runs), "what was at work ends")


def walk(folder: Path, killed: Callable[[Path, int], tuple[list[str], End]], part: slice) -> tuple[int, End]:
    """Die at each of these points, and end as the run that nobody killed. How many there were, and that run's end.

    `killed` is a run in this folder that dies at this point, where it is not 0: what it had done until then, its end.
    """
    did, whole = killed(folder / "whole", 0)
    points = range(1, len(did) + 1)[part]
    for number in points:
        so_far, end = killed(folder / str(number), number)
        assert end == whole, f"killed at {number}: {so_far[-1]}"
        shutil.rmtree(folder / str(number))
    return len(points), whole
