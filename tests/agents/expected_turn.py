"""What a recording means: tables of these are the tests of an adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ralphproof.agents.adapter import AgentAdapter
from ralphproof.base.value import replace
from ralphproof.engine.agent import Fault, Progress, Said, Spent, TodosChanged, ToolEnded, ToolStarted, Turn, Usage
from tests.agents.replay import Played, Recording, cuts, play, recorded

DONE = "All done.\n<promise>COMPLETE</promise>"
HALF = "Failed.\n<promise>COMPLETE</promise>"
PRICED = ("fake", "fake-model", "fake/fake-model")


def price(model: str | None, usage: Usage) -> int | None:
    """$2 a million tokens of input, $10 of output, $1 read from a cache; of the scripted models only."""
    return usage.input * 2 + usage.output * 10 + usage.cache_read if model in PRICED else None


@dataclass(frozen=True)
class Case:
    """`turn` lacks the error, of which `says` has the telling part.

    A tool is told as `name summary`, with a `!` before it where it failed.
    """

    turn: Turn
    fault: type[Fault] | None = None
    says: str = ""
    tools: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    progress: int = 0
    err: str = ""
    model: str | None = None


def means(dialect: AgentAdapter, name: str, case: Case, folder: Path) -> Played:
    """Play a recording and see that it is told as it was meant, wherever its stream is cut."""
    out = recorded(dialect.name)[name].read_bytes()
    played = play(dialect, Recording(out, case.turn.exit, case.err), folder, cost=price, model=case.model)
    assert replace(played.turn, error=None) == case.turn
    assert (played.turn.error is None) == (not case.says)
    assert case.says in (played.turn.error or "")
    assert type(played.fault) is (case.fault or type(None))
    assert tools(played) == case.tools
    assert tuple(event.text for event in played.events if isinstance(event, Said)) == case.said
    assert sum(isinstance(event, Progress) for event in played.events) == case.progress
    for cut in cuts(out, case.turn.exit, case.err):
        assert unspent(play(dialect, cut, folder, cost=price, model=case.model)) == unspent(played)
    return played


def tools(played: Played) -> tuple[str, ...]:
    """Every call in its order, told by how it ended."""
    ends = {event.id: event.ok for event in played.events if isinstance(event, ToolEnded)}
    began = [event for event in played.events if isinstance(event, ToolStarted)]
    return tuple(f"{'' if ends[event.id] else '!'}{event.name} {event.summary}".rstrip() for event in began)


def unspent(played: Played) -> tuple[object, ...]:
    """Everything but how often a sum was told on the way, which goes with how the stream came."""
    return played.turn, tuple(event for event in played.events if not isinstance(event, Spent))


def todos(played: Played) -> list[TodosChanged]:
    return [event for event in played.events if isinstance(event, TodosChanged)]
