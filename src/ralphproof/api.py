"""Loops from Python, with functions for agent, checks, limits and observers wherever settings name programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack

from ralphproof.agent import Agent
from ralphproof.agents.callable import awaited
from ralphproof.agents.root import RootContext, RootRunner
from ralphproof.check import Check, Inspection
from ralphproof.cli.order import Order, Wish, prepare
from ralphproof.cli.to_the_end import ANEW, Which, to_the_end
from ralphproof.config.brought import Brought
from ralphproof.config.functions import agent_of, check_of, function_of, items, name_of, observer_of, word
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.ledger import Observer
from ralphproof.limit import LIMIT, Breach
from ralphproof.record import Record
from ralphproof.state import State
from ralphproof.value import replace
from ralphproof.verdict import Outcome


class Options(TypedDict, total=False):
    """What a run may be told. Whatever is left out comes from the project's and the user's settings.

    `agent` is a command line, a function from the prompt to a text or a `AgentReply`, or an Agent. `checks` are shell
    commands, functions from an Inspection to True, False or (passed, why), or Checks; `verification_command` is one
    more. `limits` are functions from the run's State to None, or to the sentence that says why it must end.
    `observers` are functions that see every record once it is durable, or Observers. `settings` are any other
    settings, in the shape of the settings' file; what is named here beats them. One alone may stand where several may.
    `resume` names a run that is taken up again, or `latest`; its prompt stays, and functions must be given anew.
    `judge` has criteria that a small model judges. `task` names a task of the ledger, in place of a prompt. Runs by
    stories (`preset="stories"`) lie in the folder `ralph_dir`; `review` False does without reviews, and a story has
    at most `review_cap` of them.
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
    judge: str | Iterable[str]
    task: str
    ralph_dir: str
    review: bool
    review_cap: int
    resume: str
    settings: dict[str, Any]


# Where an option stands in the settings.
SETTINGS = {
    "preset": "preset", "model": "agent.model", "max_iterations": "maximumIterations",
    "max_cost_usd": "limits.maxCostUsd", "daily_cost_usd": "limits.dailyCostUsd", "max_tokens": "limits.maxTokens",
    "max_minutes": "limits.maxMinutes", "completion_promise": "completionResponse",
    "stall_detection_threshold": "limits.stallIterations", "same_error_threshold": "limits.sameErrorIterations",
    "escalate_to_deep_debug": "limits.escalateToDeepDebug", "context_injection": "contextInjection",
    "review": "review.enabled", "review_cap": "review.cap",
}  # fmt: skip


def run(prompt: str = "", **options: Unpack[Options]) -> Outcome:
    """Loop an agent on a project until its checks show that the work is done, or a limit says stop.

    Raises a RalphError where the run may not begin; however it ends after that is an Outcome.
    """
    return Loop(prompt, **options).run()


def supervise(
    run_root: Callable[[RootContext, int], object] | Callable[[int], object],
    run_dir: str | os.PathLike[str] | None = None,
    *,
    max_restarts: int | None = None,
    wait_timeout_s: float | None = None,
    poll_interval_s: float | None = None,
    restart_delay_s: float | None = None,
    project_task: tuple[str, str] = ("", ""),
    checks: str | Check | Callable[[Inspection], object] | Iterable[str | Check | Callable[[Inspection], object]] = (),
    observers: Observer | Callable[[Record], object] | Iterable[Observer | Callable[[Record], object]] = (),
    project_dir: str | os.PathLike[str] | None = None,
    settings: dict[str, Any] | None = None,
    resume: str = "",
) -> Outcome:
    """Call a function again and again until it leaves the file DONE in `run_dir`, and the checks agree.

    It is called with a RootContext and the number of the attempt, from 0 on, or with that number alone. What it raises
    is a failure, and it is called anew; that a program is missing, or something not permitted, is fatal. What is left
    out comes from settings. A run that waited is taken up again with `resume`.
    """
    from ralphproof.cli.supervise import superviser

    runner = RootRunner(function_of("run_root", run_root, "a coroutine function"), bool(resume))
    options: Options = {"preset": "supervise", "agent": runner, "checks": checks, "observers": observers}
    options |= {"settings": settings or {}}
    if project_dir is not None:
        options["project_dir"] = project_dir
    if max_restarts is not None:
        options["max_iterations"] = max_restarts
    group = superviser(max_restarts, restart_delay_s, wait_timeout_s, poll_interval_s)
    wish = _rooted(_wish("", options), runner, run_dir, project_task, group)
    return _looped(*_prepared(wish, word("resume", resume)))


def _rooted(wish: Wish, runner: RootRunner, run_dir: Any, names: Any, group: dict[str, Any]) -> Wish:
    """The same with what only a supervised function has."""
    from ralphproof.cli.supervise import task_folder

    if not isinstance(names, tuple | list) or len(names) != 2:
        raise Refused(f"project_task must be two names, not {names!r}")
    project, task = (word("project_task", name) for name in names)
    folder, own = _folder(run_dir, "run_dir"), wish.flags.get("supervise", {})
    return replace(
        wish, plain=(runner.name,), task_folder="" if folder is None else task_folder(folder), project=project,
        task=task, brought=replace(wish.brought, attending=(runner.attend,)),
        flags={**wish.flags, "supervise": {**own, **group}} if isinstance(own, dict) else wish.flags,
    )  # fmt: skip


class Loop:
    """A run that is ready to begin: everything is read and checked, nothing is touched or started yet."""

    def __init__(self, prompt: str = "", **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(Options.__annotations__)):
            raise Refused(f"no such option: {', '.join(unknown)}; see ralphproof.Options")
        self._order, self._which = _prepared(_wish(prompt, options), word("resume", options.get("resume", "")))

    def run(self) -> Outcome:
        """Go on until the run is over; Ctrl-C ends it in good order where this is the main thread."""
        return _looped(self._order, self._which)


def _looped(order: Order, which: Which) -> Outcome:
    from ralphproof.cli.signals import Present, deaf
    from ralphproof.keeper.client import Keeper

    keeper = Keeper()
    try:
        with _Signals() as main:
            hear = Present.listen if main else deaf
            return to_the_end(order, keeper, lambda *_: (), lambda begun, end: begun.tell(end), hear, which)
    finally:
        keeper.close()


def _wish(prompt: str, options: Options) -> Wish:
    if (task := word("task", options.get("task", ""))) and prompt:
        raise Refused("a task says itself what is to be done; leave the prompt out")
    asked = [*items(options.get("checks")), *filter(None, [options.get("verification_command")])]
    return Wish(
        (word("prompt", prompt), None), _settings(options), _folder(options.get("project_dir")),
        tuple(check for check in asked if isinstance(check, str)),
        tuple(word("protect", path) for path in items(options.get("protect"))),
        options.get("guarded", True), options.get("allow_unknown_cost", False),
        skill=word("skill", options.get("skill", "")), type=word("task_type", options.get("task_type", "")),
        risk=word("risk", options.get("risk", "")), force=options.get("force", False),
        brought=_brought(options, [check for check in asked if not isinstance(check, str)]),
        flags_from="options", judge=tuple(word("judge", criterion) for criterion in items(options.get("judge"))),
        task=task, work=task, stories=word("ralph_dir", options.get("ralph_dir", "")),
    )  # fmt: skip


def _prepared(wish: Wish, resume: str) -> tuple[Order, Which]:
    _refuse_ignored_children()
    meant, which = _meant(wish, resume)
    return prepare(meant), which


def _refuse_ignored_children() -> None:
    """What becomes of a signal is the program's to say that uses us: here it must say something else."""
    import signal

    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        how = "set it to signal.SIG_DFL"
        raise Refused(f"this process ignores SIGCHLD, so it never learns how a program ended that it started; {how}")


def _meant(wish: Wish, resume: str) -> tuple[Wish, Which]:
    """What is wanted, and of which run."""
    if not resume:
        return wish, ANEW
    from ralphproof.cli.resume_run import wanted
    from ralphproof.views.project import Project

    if wish.prompt[0]:
        raise Refused("a run that is resumed has its prompt; leave the prompt out")
    row, kept = wanted(Project.at(wish.folder, os.environ), resume, wish)
    return kept, Which(row=row)


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


def _folder(given: Any, option: str = "project_dir") -> str | None:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise Refused(f"{option} must be a path, not {given!r}")
    return None if given is None else os.fsdecode(given)


def _brought(options: Options, checks: list[Any]) -> Brought:
    agent = options.get("agent")
    return Brought(
        None if agent is None or isinstance(agent, str) else agent_of(agent),
        tuple(check_of(check) for check in checks),
        tuple(_limit(limit) for limit in items(options.get("limits"))),
        tuple(observer_of(observer) for observer in items(options.get("observers"))),
    )


def _limit(given: Any) -> Callable[[State], Breach | None]:
    if not callable(given):
        raise Refused(f"a limit must be a function, not {given!r}")

    def asked(state: State) -> Breach | None:
        try:
            said = awaited(given(state))
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            raise HarnessFailed(f"the limit {name_of(given)} cannot be asked: {why}") from error
        if said is None or isinstance(said, Breach):
            return said
        if not isinstance(said, str) or not said.strip():
            raise HarnessFailed(f"the limit {name_of(given)} must return None or a sentence, not {said!r}")
        return Breach(LIMIT, said)

    return asked


def _settings(options: Options) -> dict[str, Any]:
    """The options that are settings, in the settings' own shape, on top of those that were given in it."""
    import copy

    given = options.get("settings", {})
    if not isinstance(given, dict):
        raise Refused(f"settings must be a dict in the shape of the settings' file, not {given!r}")
    _refuse_odd_names(given)
    made: dict[str, Any] = copy.deepcopy(given) | ({"preset": "pipeline"} if options.get("task") else {})
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
            word("a name in settings", name)
    for inner in given.values() if isinstance(given, dict) else given if isinstance(given, list) else ():
        _refuse_odd_names(inner)
