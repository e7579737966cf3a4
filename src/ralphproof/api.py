"""Loops from Python, with functions for agent, checks, limits and observers wherever settings name programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ralphproof.agent import Agent
from ralphproof.agents.callable import AgentContext, awaited, error_text
from ralphproof.agents.root import root_runner
from ralphproof.check import Check, Inspection
from ralphproof.cli.order import Order, Wish, prepare
from ralphproof.cli.to_the_end import ANEW, Which, to_the_end
from ralphproof.config.brought import Brought
from ralphproof.config.functions import agent_of, check_of, function_of, items, name_of, observer_of, word
from ralphproof.config.python_names import RUN, SETTINGS, SUPERVISE, Names
from ralphproof.errors import HarnessFailed, RalphError, RalphWarning, Refused, SettingsWrong
from ralphproof.ledger import Observer
from ralphproof.limit import LIMIT, Breach
from ralphproof.record import Record
from ralphproof.state import State
from ralphproof.value import replace
from ralphproof.verdict import Failed, Outcome

if TYPE_CHECKING:
    from ralphproof.cli.begin import Begun


AgentFunction = Callable[[str], object] | Callable[[str, AgentContext], object]
RootFunction = Callable[[AgentContext, int], object] | Callable[[int], object]
CheckFunction = Callable[[Inspection], object]
Limit = Callable[[State], str | Breach | None]
ObserverFunction = Callable[[Record], object]


class Options(TypedDict, total=False):
    """What a run may be told. Whatever is left out comes from the project's and the user's settings.

    `agent` is a command line, a function of (prompt) or (prompt, context) that returns a text or an `AgentReply`, or
    an Agent. `checks` are shell commands, functions from an Inspection to True, False or (passed, why), or Checks;
    `verification_command` is one more. Where they are left out, or None, those of the settings hold, else the ones
    that the project's files name; an empty tuple runs without. One that cannot be run refuses the run, unless
    `allow_missing_check` leaves it to the agent. `limits` are functions from the run's State to None, or to the
    sentence that says why it must end. `observers` are functions that see every record once it is durable, or
    Observers. `settings` are any other settings, in the shape of the settings' file; what is named here beats them.
    One alone may stand where several may. `resume` names a run that is taken up again, or `latest`; its prompt
    stays, and functions must be given anew. `judge` has criteria that a small model judges. `task` names a task of
    the ledger, in place of a prompt. Runs by stories (`preset="stories"`) lie in the folder `ralph_dir`; `review`
    False does without reviews, and a story has at most `review_cap` of them.
    """

    agent: str | Agent | AgentFunction
    checks: str | Check | CheckFunction | Iterable[str | Check | CheckFunction] | None
    allow_missing_check: bool
    limits: Limit | Iterable[Limit]
    observers: Observer | ObserverFunction | Iterable[Observer | ObserverFunction]
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


def run(prompt: str = "", **options: Unpack[Options]) -> Outcome:
    """Loop an agent on a project until its checks show that the work is done, or a limit says stop.

    Raises a RalphError where the run may not begin; however it ends after that is an Outcome.
    """
    return Loop(prompt, **options).run()


def supervise(
    run_root: RootFunction,
    run_dir: str | os.PathLike[str] | None = None,
    *,
    max_restarts: int | None = None,
    wait_timeout_s: float | None = None,
    poll_interval_s: float | None = None,
    restart_delay_s: float | None = None,
    project_task: tuple[str, str] = ("", ""),
    checks: str | Check | CheckFunction | Iterable[str | Check | CheckFunction] | None = None,
    observers: Observer | ObserverFunction | Iterable[Observer | ObserverFunction] = (),
    project_dir: str | os.PathLike[str] | None = None,
    settings: dict[str, Any] | None = None,
    resume: str = "",
) -> Outcome:
    """Call a function again and again until it leaves the file DONE in `run_dir`, and the checks agree.

    It is called with an AgentContext and the number of the attempt, from 0 on, or with that number alone. What it
    raises is a failure, and it is called anew; that a program is missing, or something not permitted, is fatal. What is
    left out comes from settings. A run that waited is taken up again with `resume`.
    """
    names = Names(settings, supervised=True)
    with _said_in(names):
        return _supervised(
            run_root, run_dir, project_task, resume, names,
            {"max_restarts": max_restarts, "wait_timeout_s": wait_timeout_s, "poll_interval_s": poll_interval_s,
             "restart_delay_s": restart_delay_s},
            {"checks": checks, "observers": observers, "settings": {} if settings is None else settings,
             **({} if project_dir is None else {"project_dir": project_dir})},
        )  # fmt: skip


def _supervised(
    run_root: Any, run_dir: Any, project_task: Any, resume: Any, names: Names, numbers: dict[str, float | None],
    options: Options,
) -> Outcome:  # fmt: skip
    runner = root_runner(function_of("run_root", run_root, "a coroutine function"), bool(resume))
    wish = _wish("", {**options, "preset": "supervise", "agent": runner})
    if not isinstance(project_task, tuple | list) or len(project_task) != 2:
        raise Refused(f"project_task must be two names, not {project_task!r}")
    project, task = (word("project_task", name) for name in project_task)
    wish = replace(
        wish, flags=_with_numbers(wish.flags, numbers), plain=(runner.name,), task_folder=_task_folder(run_dir),
        project=project, task=task,
    )  # fmt: skip
    return _looped(*_prepared(wish, word("resume", resume), names), names)


def _with_numbers(flags: dict[str, Any], numbers: dict[str, float | None]) -> dict[str, Any]:
    """The settings with those of the restart manager, as far as they are given."""
    given = {SUPERVISE[name].rpartition(".")[2]: number for name, number in numbers.items() if number is not None}
    own = flags.get("supervise", {})
    made = {**flags, "supervise": {**own, **given}} if isinstance(own, dict) else flags  # else it will be told
    most = numbers["max_restarts"]  # one limit under two names; told once where it is none
    return {**made, "maximumIterations": most} if isinstance(most, int) and most > 0 else made


def _task_folder(run_dir: Any) -> str:
    from ralphproof.cli.supervise import task_folder

    folder = _folder(run_dir, "run_dir")
    return "" if folder is None else task_folder(folder)


class Loop:
    """A run that is ready to begin: everything is read and checked, nothing is touched or started yet."""

    def __init__(self, prompt: str = "", **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(Options.__annotations__)):
            raise Refused(f"no such option: {', '.join(unknown)}; see ralphproof.Options")
        self._names = names = Names(options.get("settings"))
        with _said_in(names):
            resume = word("resume", options.get("resume", ""))
            self._order, self._which = _prepared(_wish(prompt, options), resume, names)

    def run(self) -> Outcome:
        """Go on until the run is over; Ctrl-C ends it in good order where this is the main thread."""
        with _said_in(self._names):
            return _looped(self._order, self._which, self._names)


def _looped(order: Order, which: Which, names: Names) -> Outcome:
    from ralphproof.cli.signals import Present, deaf
    from ralphproof.keeper.client import Keeper

    keeper, runs = Keeper(), list[str]()

    def tell(begun: Begun, outcome: Outcome) -> None:
        runs.append(begun.run)
        begun.tell(outcome)

    try:
        with _Signals() as main:
            hear = Present.listen_in_a_library if main else deaf
            outcome = to_the_end(order, keeper, lambda *_: (), tell, hear, which)
            if isinstance(outcome, Failed) and outcome.exit_code == Refused.exit_code:
                outcome = replace(outcome, error=names.said(outcome.error))
            return replace(outcome, run=runs[-1])
    finally:
        keeper.close()


@contextmanager
def _said_in(names: Names) -> Iterator[None]:
    """Have errors name flags and settings as they are called here."""
    try:
        yield
    except RalphError as error:
        error.args = tuple(names.said(str(part)) for part in error.args)
        if isinstance(error, SettingsWrong):
            error.problems = list(dict.fromkeys(names.said(problem) for problem in error.problems))
            error.args = ("\n".join(error.problems),)
        raise


def _warn(messages: Iterable[str]) -> None:
    """Say what does not hold as it was asked for, at the line of the caller's that asked."""
    import sys
    import warnings

    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    for message in messages:
        warnings.warn(message, RalphWarning, stacklevel=level)


def _wish(prompt: str, options: Options) -> Wish:
    if (task := word("task", options.get("task", ""))) and prompt:
        raise Refused("a task says itself what is to be done; leave the prompt out")
    asked = [*items(options.get("checks")), *filter(None, [options.get("verification_command")])]
    none = options.get("checks") is not None and not asked
    flags = _settings(options) | ({"guardrails": [], "finalChecks": []} if none else {})
    return Wish(
        (word("prompt", prompt), None), flags, _folder(options.get("project_dir")),
        tuple(check for check in asked if isinstance(check, str)),
        tuple(word("protect", path) for path in items(options.get("protect"))),
        options.get("guarded", True), options.get("allow_unknown_cost", False),
        skill=word("skill", options.get("skill", "")), type=word("task_type", options.get("task_type", "")),
        risk=word("risk", options.get("risk", "")), force=options.get("force", False),
        brought=_brought(options, [check for check in asked if not isinstance(check, str)]),
        flags_from=SETTINGS, judge=tuple(word("judge", criterion) for criterion in items(options.get("judge"))),
        task=task, work=task, stories=word("ralph_dir", options.get("ralph_dir", "")), find_checks=True,
        allow_missing_check=options.get("allow_missing_check", False),
    )  # fmt: skip


def _prepared(wish: Wish, resume: str, names: Names) -> tuple[Order, Which]:
    _refuse_ignored_children()
    meant, which = _meant(wish, resume)
    order = prepare(meant)
    _warn(names.said(warning) for warning in order.loaded.warnings)
    return order, which


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

        from ralphproof.cli.interrupts import told
        from ralphproof.cli.signals import SIGNALS

        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
        self._told = told()  # a run may be part of another one: a check or an observer can begin it
        return main

    def __exit__(self, *_: object) -> None:
        import signal

        from ralphproof.cli.interrupts import give_back

        if self._before:
            give_back(self._told)
        for number, action in self._before.items():
            signal.signal(number, action)


def _folder(given: Any, option: str = "project_dir") -> str | None:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise Refused(f"{option} must be a path, not {given!r}")
    return None if given is None else word(option, os.fsdecode(given))


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
            raise HarnessFailed(f"the limit {name_of(given)} cannot be asked: {error_text(error)}") from error
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
    named = {path: options[name] for name, path in RUN.items() if name in options}  # type: ignore[literal-required]
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
