"""Loops from Python, with functions for agent, checks, limits and observers wherever settings name programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack

from ralphproof.agent import Agent
from ralphproof.agents.callable import CallableAgent, awaited
from ralphproof.check import Check, Inspection
from ralphproof.checks.callable import CallableCheck
from ralphproof.cli.order import Wish, prepare
from ralphproof.config.brought import Brought
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.event import Event
from ralphproof.ledger import Observer
from ralphproof.limit import LIMIT, Breach
from ralphproof.record import Record
from ralphproof.state import State
from ralphproof.verdict import Outcome


class Options(TypedDict, total=False):
    """What a run may be told. Whatever is left out comes from the project's and the user's settings.

    `agent` is a command line, a function from the prompt to a text or a `AgentReply`, or an Agent. `checks` are shell
    commands, functions from an Inspection to True, False or (passed, why), or Checks; `verification_command` is one
    more. `limits` are functions from the run's State to None, or to the sentence that says why it must end.
    `observers` are functions that see every record once it is durable, or Observers. `settings` are any other
    settings, in the shape of the settings' file; what is named here beats them. One alone may stand where several may.
    """

    agent: str | Agent | Callable[[str], object]
    checks: str | Check | Callable[[Inspection], object] | Iterable[str | Check | Callable[[Inspection], object]]
    limits: Callable[[State], str | Breach | None] | Iterable[Callable[[State], str | Breach | None]]
    observers: Observer | Callable[[Record], object] | Iterable[Observer | Callable[[Record], object]]
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
    protect: str | Iterable[str]
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
        asked = [*_items(options.get("checks")), *filter(None, [options.get("verification_command")])]
        self._order = prepare(
            Wish(
                (_word("prompt", prompt), None), _settings(options), _folder(options.get("project_dir")),
                tuple(check for check in asked if isinstance(check, str)),
                tuple(_word("protect", path) for path in _items(options.get("protect"))),
                options.get("guarded", True), options.get("allow_unknown_cost", False),
                skill=_word("skill", options.get("skill", "")), type=_word("task_type", options.get("task_type", "")),
                risk=_word("risk", options.get("risk", "")), force=options.get("force", False),
                brought=_brought(options, [check for check in asked if not isinstance(check, str)]),
                flags_from="options",
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
        try:
            awaited(self._function(record))
        except SystemExit:
            pass  # who only looks on ends nothing; other exceptions are ignored wherever observers are told

    def heard(self, events: list[Event]) -> None:
        """Records alone are told."""

    def tick(self) -> None:
        """Time is not told."""


def _items(given: Any) -> tuple[Any, ...]:
    """What was given as several; one alone is one, whatever can be taken to pieces in it."""
    if given is None:
        return ()
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    return (given,) if alone else tuple(given)


def _word(option: str, given: object) -> str:
    if not isinstance(given, str):
        raise Refused(f"{option} must be text, not {given!r}")
    return given


def _folder(given: Any) -> str | None:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise Refused(f"project_dir must be a path, not {given!r}")
    return None if given is None else os.fsdecode(given)


def _brought(options: Options, checks: list[Any]) -> Brought:
    agent = options.get("agent")
    return Brought(
        None if agent is None or isinstance(agent, str) else _agent(agent),
        tuple(_check(check) for check in checks),
        tuple(_limit(limit) for limit in _items(options.get("limits"))),
        tuple(_observer(observer) for observer in _items(options.get("observers"))),
    )


def _agent(agent: Any) -> Agent:
    return agent if hasattr(agent, "take_turn") else CallableAgent(_function("agent", agent, "a command line"))


def _check(check: Any) -> Check:
    if hasattr(check, "ask"):
        _word("a check's name", getattr(check, "name", None))
        return check  # type: ignore[no-any-return]
    function = _function("a check", check, "a shell command")
    return CallableCheck(lambda inspection: awaited(function(inspection)), _name(function))


def _observer(observer: Any) -> Observer:
    return observer if hasattr(observer, "saw") else Seeing(_function("an observer", observer, "an Observer"))


def _function(what: str, given: Any, other: str) -> Callable[[Any], object]:
    if not callable(given):
        raise Refused(f"{what} must be {other} or a function, not {given!r}")
    return given  # type: ignore[no-any-return]


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _limit(given: Any) -> Callable[[State], Breach | None]:
    if not callable(given):
        raise Refused(f"a limit must be a function, not {given!r}")

    def asked(state: State) -> Breach | None:
        try:
            said = awaited(given(state))
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            raise HarnessFailed(f"the limit {_name(given)} cannot be asked: {why}") from error
        if said is None or isinstance(said, Breach):
            return said
        if not isinstance(said, str) or not said.strip():
            raise HarnessFailed(f"the limit {_name(given)} must return None or a sentence, not {said!r}")
        return Breach(LIMIT, said)

    return asked


def _settings(options: Options) -> dict[str, Any]:
    """The options that are settings, in the settings' own shape, on top of those that were given in it."""
    import copy

    given = options.get("settings", {})
    if not isinstance(given, dict):
        raise Refused(f"settings must be a dict in the shape of the settings' file, not {given!r}")
    _refuse_odd_names(given)
    made: dict[str, Any] = copy.deepcopy(given)
    named = {path: options[name] for name, path in SETTINGS.items() if name in options}  # type: ignore[literal-required]
    if isinstance(command := options.get("agent"), str):
        named["agent.command"] = command
    for path, item in named.items():
        group, _, name = path.rpartition(".")
        inner = made.setdefault(group, {}) if group else made
        if isinstance(inner, dict):  # else it is wrong, and will be told with everything that is
            inner[name] = item
    return made


def _refuse_odd_names(given: object) -> None:
    """A file cannot have other names than texts; a dict can."""
    if isinstance(given, dict):
        for name in given:
            _word("a name in settings", name)
    for inner in given.values() if isinstance(given, dict) else given if isinstance(given, list) else ():
        _refuse_odd_names(inner)
