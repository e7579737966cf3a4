"""A Python function as an agent. It runs in our own process, so nothing can end it before it returns."""

from __future__ import annotations

import time

from ralphproof.agent import Brief, Fold, Turn, TurnWatch
from ralphproof.event import Ended, Event, Spent, Started, Usage
from ralphproof.sandbox import Exit, Sandbox
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_USD = 1_000_000.0  # a turn that says to have cost more says nothing


@value
class AgentReply:
    """What a function may return instead of a text. A cost of None is unknown, never zero."""

    text: str
    cost_usd: float | None = None
    tokens: int | None = None
    error: str | None = None


class CallableAgent:
    """Asks a function: it is given the prompt, and returns what it has to say."""

    def __init__(self, function: Callable[[str], object]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self.reports_cost = True  # by its AgentReply; a text alone makes that turn's cost unknown

    def argv(self, brief: Brief) -> tuple[str, ...]:
        return (self.name,)

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Call it. What it raises is the turn's error. A call that died with its process is not made again."""
        if brief.taken_up:
            return Turn(Exit(None, why="interrupted"))
        began_s = time.monotonic()
        fold = Fold()
        watch.tick()
        events = [Started(None, None), *self._asked(brief.prompt)]
        watch.events(events)
        watch.tick()
        fold.add(events)
        return fold.turn(Exit(0, seconds=time.monotonic() - began_s))

    def _asked(self, prompt: str) -> list[Event]:
        said, raised = attempted(lambda: replied(awaited(self._function(prompt))))
        if not isinstance(said, AgentReply):
            return [Ended(False, "", f"{type(raised).__name__}: {raised}")]
        return [spent(said), Ended(said.error is None, said.text, said.error)]


def attempted(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    """What a caller's function returns, and what it raises: one of them is None."""
    try:
        return function(), None
    except (Exception, SystemExit) as raised:  # noqa: BLE001 (whatever the caller's function raises is its failure)
        return None, raised


def replied(said: object) -> AgentReply:
    """What a function said, whatever it returned."""
    if not isinstance(said, AgentReply):
        return AgentReply(_text(said))
    return replace(said, text=_text(said.text), error=None if said.error is None else str(said.error))


def _text(said: object) -> str:
    return "" if said is None else str(said)


def spent(reply: AgentReply) -> Spent:
    """A figure that is none counts as unknown."""
    cost, tokens = reply.cost_usd, reply.tokens
    sane = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= MOST_USD
    usage = Usage(output=tokens) if isinstance(tokens, int) and 0 <= tokens < 10**15 else None
    return Spent(round(cost * 1_000_000) if sane and cost is not None else None, usage)


def awaited(result: object) -> object:
    """The result itself; what comes of it where the function is an asynchronous one, whoever else runs a loop."""
    import inspect

    if not inspect.iscoroutine(result):
        return result
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:  # a thread has one event loop at most, as in a notebook
        return thread.submit(asyncio.run, result).result()
