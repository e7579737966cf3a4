"""Functions that a caller brings along, as parts of a run."""

from __future__ import annotations

from collections.abc import Iterable

from ralphproof.agents.callable import awaited, prompted
from ralphproof.checks.callable import CallableCheck
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.agent import Agent
    from ralphproof.check import Check
    from ralphproof.event import Event
    from ralphproof.ledger import Observer
    from ralphproof.record import Record


class Seeing:
    """A function as an observer."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self._function = function

    def saw(self, record: Record) -> None:
        try:
            awaited(self._function(record))
        except SystemExit:
            pass  # who only looks on ends nothing; other exceptions are ignored wherever observers are told

    def heard(self, events: list[Event]) -> None:
        """Records alone are told."""

    def tick(self) -> None:
        """Time is not told."""


def items(given: Any) -> tuple[Any, ...]:
    """What was given as several; one alone is one, whatever can be taken to pieces in it."""
    if given is None:
        return ()
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    return (given,) if alone else tuple(given)


def word(option: str, given: object) -> str:
    """The same; raises Refused where it is no text, or one that no file, program or prompt may hold."""
    if not isinstance(given, str):
        raise Refused(f"{option} must be text, not {given!r}")
    if "\0" in given:
        raise Refused(f"{option} holds a NUL character; remove it")
    return given


def agent_of(agent: Any) -> Agent:
    """An agent, or a function as one."""
    return agent if hasattr(agent, "take_turn") else prompted(function_of("agent", agent, "a command line"))


def check_of(check: Any) -> Check:
    """A check, or a function as one."""
    if hasattr(check, "ask"):
        word("a check's name", getattr(check, "name", None))
        return check  # type: ignore[no-any-return]
    function = function_of("a check", check, "a shell command")
    return CallableCheck(lambda inspection: awaited(function(inspection)), name_of(function))


def observer_of(observer: Any) -> Observer:
    """An observer, or a function as one."""
    return observer if hasattr(observer, "saw") else Seeing(function_of("an observer", observer, "an Observer"))


def function_of(what: str, given: Any, other: str) -> Callable[..., object]:
    """The same; raises Refused where it cannot be called. `other` is what may stand in its place."""
    if not callable(given):
        raise Refused(f"{what} must be {other} or a function, not {given!r}")
    return given  # type: ignore[no-any-return]


def name_of(function: object) -> str:
    """How a function is called in messages."""
    return str(getattr(function, "__name__", type(function).__name__))
