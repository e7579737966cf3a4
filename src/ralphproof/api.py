"""Loops from Python, with functions for agent, checks, limits and observers wherever settings name programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack

from ralphproof.agent import Agent
from ralphproof.agents.callable import CallableAgent
from ralphproof.check import Check, Inspection
from ralphproof.checks.callable import CallableCheck
from ralphproof.cli.order import Wish, prepare
from ralphproof.config.brought import Brought
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.event import Event
from ralphproof.ledger import Observer, State
from ralphproof.limit import LIMIT, Breach
from ralphproof.record import Record
from ralphproof.verdict import Outcome


class Options(TypedDict, total=False):
    """What a run may be told. Whatever is left out comes from the project's and the user's settings.

    `agent` is a command line, a function from the prompt to a text or a `AgentReply`, or an Agent. `checks` are shell
    commands, functions from an Inspection to True, False or (passed, why), or Checks; `verification_command` is one
    more. `limits` are functions from the run's State to None, or to the sentence that says why it must end.
    `observers` are functions that see every record once it is durable, or Observers. `settings` are any other
    settings, in the shape of the settings' file; what is named here beats them.
    """

    agent: str | Agent | Callable[[str], object]
    checks: Iterable[str | Check | Callable[[Inspection], object]]
    limits: Iterable[Callable[[State], str | Breach | None]]
    observers: Iterable[Observer | Callable[[Record], object]]
    project_dir: str | os.PathLike[str]
    skill: str
    preset: str
    model: str
    max_iterations: int
    max_cost_usd: float
    daily_cost_usd: float
    max_tokens: int
    max_minutes: float
    completion_promise: str
    verification_command: str
    stall_detection_threshold: int | None
    same_error_threshold: int | None
    escalate_to_deep_debug: bool
    context_injection: bool
    protect: Iterable[str]
    task_type: str
    risk: str
    allow_unknown_cost: bool
    guarded: bool
    force: bool
    settings: dict[str, Any]


# Where an option stands in the settings.
SETTINGS = {
    "preset": "preset", "model": "agent.model", "max_iterations": "maximumIterations",
    "max_cost_usd": "limits.maxCostUsd", "daily_cost_usd": "limits.dailyCostUsd", "max_tokens": "limits.maxTokens",
    "max_minutes": "limits.maxMinutes", "completion_promise": "completionResponse",
    "stall_detection_threshold": "limits.stallIterations", "same_error_threshold": "limits.sameErrorIterations",
    "escalate_to_deep_debug": "limits.escalateToDeepDebug", "context_injection": "contextInjection",
}  # fmt: skip


def run(prompt: str, **options: Unpack[Options]) -> Outcome:
    """Loop an agent on a project until its checks show that the work is done, or a limit says stop.

    Raises a RalphError where the run may not begin; however it ends after that is an Outcome.
    """
    return Loop(prompt, **options).run()


class Loop:
    """A run that is ready to begin: everything is read and checked, nothing is touched or started yet."""

    def __init__(self, prompt: str, **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(Options.__annotations__)):
            raise Refused(f"no such option: {', '.join(unknown)}; see ralphproof.Options")
        agent, folder = options.get("agent"), options.get("project_dir")
        asked = [*options.get("checks", ()), *filter(None, [options.get("verification_command")])]
        brought = Brought(
            None if agent is None or isinstance(agent, str) else _agent(agent),
            tuple(_check(check) for check in asked if not isinstance(check, str)),
            tuple(_limit(limit) for limit in options.get("limits", ())),
            tuple(_observer(observer) for observer in options.get("observers", ())),
        )
        commands = tuple(check for check in asked if isinstance(check, str))
        self._order = prepare(
            Wish(
                (prompt, None), _settings(options), None if folder is None else os.fspath(folder), commands,
                tuple(options.get("protect", ())), options.get("guarded", True),
                options.get("allow_unknown_cost", False), skill=options.get("skill", ""),
                type=options.get("task_type", ""), risk=options.get("risk", ""), force=options.get("force", False),
                brought=brought,
            )
        )  # fmt: skip

    def run(self) -> Outcome:
        """Go on until the run is over; Ctrl-C ends it in good order where this is the main thread."""
        from ralphproof.cli.to_the_end import to_the_end
        from ralphproof.keeper.client import Keeper

        keeper = Keeper()
        try:
            with _Signals() as main:
                return to_the_end(self._order, keeper, lambda *_: (), lambda begun, end: begun.tell(end), signals=main)
        finally:
            keeper.close()


class _Signals:
    """Gives the signals back that a run takes over."""

    def __enter__(self) -> bool:
        import signal
        import threading

        from ralphproof.cli.signals import SIGNALS

        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
        return main

    def __exit__(self, *_: object) -> None:
        import signal

        for number, action in self._before.items():
            signal.signal(number, action)


class Seeing:
    """A function as an observer."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self._function = function

    def saw(self, record: Record) -> None:
        self._function(record)

    def heard(self, events: list[Event]) -> None:
        """Records alone are told."""

    def tick(self) -> None:
        """Time is not told."""


def _agent(agent: Any) -> Agent:
    return agent if hasattr(agent, "take_turn") else CallableAgent(agent)


def _check(check: Any) -> Check:
    return check if hasattr(check, "ask") else CallableCheck(check)


def _observer(observer: Any) -> Observer:
    return observer if hasattr(observer, "saw") else Seeing(observer)


def _limit(limit: Callable[[State], str | Breach | None]) -> Callable[[State], Breach | None]:
    def asked(state: State) -> Breach | None:
        try:
            said = limit(state)
        except Exception as error:
            name = getattr(limit, "__name__", "of the caller's")
            raise HarnessFailed(f"the limit {name} cannot be asked: {type(error).__name__}: {error}") from error
        return said if said is None or isinstance(said, Breach) else Breach(LIMIT, said)

    return asked


def _settings(options: Options) -> dict[str, Any]:
    """The options that are settings, in the settings' own shape, on top of those that were given in it."""
    import copy

    made: dict[str, Any] = copy.deepcopy(options.get("settings", {}))
    named = {path: options[name] for name, path in SETTINGS.items() if name in options}  # type: ignore[literal-required]
    if isinstance(command := options.get("agent"), str):
        named["agent.command"] = command
    for path, item in named.items():
        group, _, name = path.rpartition(".")
        (made.setdefault(group, {}) if group else made)[name] = item
    return made
