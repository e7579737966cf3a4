"""Public Python API: run and supervise agents with functions as agents, checks, limits and observers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

from ralphproof.agents.function import (
    AgentContext,
    create_function_agent,
    create_root_agent,
    error_text,
    run_if_coroutine,
)
from ralphproof.base.errors import HarnessFailed, RalphError, RalphWarning, Refused, SettingsWrong
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.checks.function import FunctionCheck
from ralphproof.engine.agent import Agent
from ralphproof.engine.check import Check, Inspection
from ralphproof.engine.environment import Observer
from ralphproof.engine.limits import CUSTOM_LIMIT, Breach
from ralphproof.engine.outcome import Failed, Outcome
from ralphproof.engine.records import Record
from ralphproof.engine.state import State
from ralphproof.runs.execute import execute
from ralphproof.runs.request import CustomComponents, RunRequest
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.runs.target import FRESH_RUN, RunTarget

if TYPE_CHECKING:
    from ralphproof.engine.events import Event
    from ralphproof.runs.context import RunContext


# Functions that a caller brings along, as parts of a run.


class FunctionObserver:
    """A function as an observer."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self._function = function

    def on_record(self, record: Record) -> None:
        try:
            run_if_coroutine(self._function(record))
        except SystemExit:
            pass  # who only looks on ends nothing; other exceptions are ignored wherever observers are told

    def on_events(self, events: list[Event]) -> None:
        """Records alone are told."""

    def tick(self) -> None:
        """Time is not told."""


def as_tuple(given: Any) -> tuple[Any, ...]:
    """What was given as several; one alone is one, whatever can be taken to pieces in it."""
    if given is None:
        return ()
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    return (given,) if alone else tuple(given)


def require_text(option: str, given: object) -> str:
    """The same; raises Refused where it is no text, or one that no file, program or prompt may hold."""
    if not isinstance(given, str):
        raise Refused(f"{option} must be text, not {given!r}")
    if "\0" in given:
        raise Refused(f"{option} holds a NUL character; remove it")
    return given


def as_agent(agent: Any) -> Agent:
    """An agent, or a function as one."""
    return (
        agent
        if hasattr(agent, "take_turn")
        else create_function_agent(require_callable("agent", agent, "a command line"))
    )


def as_check(check: Any) -> Check:
    """A check, or a function as one."""
    if hasattr(check, "run"):
        require_text("a check's name", getattr(check, "name", None))
        return check  # type: ignore[no-any-return]
    function = require_callable("a check", check, "a shell command")
    return FunctionCheck(lambda inspection: run_if_coroutine(function(inspection)), function_name(function))


def as_observer(observer: Any) -> Observer:
    """An observer, or a function as one."""
    return (
        observer
        if hasattr(observer, "on_record")
        else FunctionObserver(require_callable("an observer", observer, "an Observer"))
    )


def require_callable(what: str, given: Any, other: str) -> Callable[..., object]:
    """The same; raises Refused where it cannot be called. `other` is what may stand in its place."""
    if not callable(given):
        raise Refused(f"{what} must be {other} or a function, not {given!r}")
    return given  # type: ignore[no-any-return]


def function_name(function: object) -> str:
    """How a function is called in messages."""
    return str(getattr(function, "__name__", type(function).__name__))


# What flags and settings are called for who uses this from Python: one table, for every message that names them.


SETTINGS_ARGUMENT = "settings"  # how messages name the place that arguments come from

# Arguments that are settings, and where they stand there.
RUN_ARGUMENTS = {
    "preset": "preset", "model": "agent.model", "max_iterations": "maximumIterations",
    "max_cost_usd": "limits.maxCostUsd", "daily_cost_usd": "limits.dailyCostUsd", "max_tokens": "limits.maxTokens",
    "max_minutes": "limits.maxMinutes", "completion_promise": "completionResponse",
    "stall_detection_threshold": "limits.stallIterations", "same_error_threshold": "limits.sameErrorIterations",
    "escalate_to_deep_debug": "limits.escalateToDeepDebug", "context_injection": "contextInjection",
    "review": "review.enabled", "review_cap": "review.cap",
}  # fmt: skip
SUPERVISE_ARGUMENTS = {
    "max_restarts": "supervise.maxRestarts", "restart_delay_s": "supervise.restartDelaySeconds",
    "wait_timeout_s": "supervise.waitTimeoutSeconds", "poll_interval_s": "supervise.pollIntervalSeconds",
}  # fmt: skip
_OTHER_ARGUMENTS = {"agent": "agent.command", "protect": "protectedPaths", "checks": "guardrails"}

# Flags, and what says the same here; one that ends with `=` takes a value.
_FLAG_ARGUMENTS = {
    "--project-dir": "project_dir=", "--agent": "agent=", "--model": "model=", "--check": "checks=",
    "--judge": "judge=", "--protect": "protect=",
    "--skill": "skill=", "--preset": "preset=", "--type": "task_type=", "--risk": "risk=", "--resume": "resume=",
    "--max-iterations": "max_iterations=", "--max-cost-usd": "max_cost_usd=",
    "--max-tokens": "max_tokens=", "--max-minutes": "max_minutes=",
    "--task-folder": "run_dir=", "--ralph-dir": "ralph_dir=", "--review-cap": "review_cap=",
    "--skip-review": "review=False", "--force": "force=True", "--allow-unknown-cost": "allow_unknown_cost=True",
    "--allow-missing-check": "allow_missing_check=True", "--no-check": "checks=()", "--no-sandbox": "guarded=False",
    "--explain": "ralph run --explain",
    "--sandbox": 'settings={"sandbox": {"backend": "auto"}}', "--allow-host": 'settings={"sandbox": {"allowHosts": …}}',
}  # fmt: skip
_COMMAND = r"\bralph [a-z]+(?: [^;,()\n]*)?"  # for a terminal: left as it is, and so is what is quoted
_QUOTED = r"(?<!\w)'[^'\n]*'|(?<!\w)\"[^\"\n]*\""
_FLAG = rf"(?<![\w-])(?P<flag>--[a-z][a-z-]*)(?: (?P<value>[A-Z][A-Z.]*\b|auto\b|stories\b|{_QUOTED}))?(?![\w-])"
_NAMES = re.compile(f"{_COMMAND}|{_QUOTED}|{_FLAG}")


class PythonNames:
    """Python's names for flags and settings. Those `given` as settings keep the names that the caller used."""

    def __init__(self, given: object, supervised: bool = False) -> None:
        arguments = SUPERVISE_ARGUMENTS if supervised else RUN_ARGUMENTS
        named = {path: name for name, path in (arguments | _OTHER_ARGUMENTS).items()}
        named |= {"maximumIterations": "max_restarts"} if supervised else {}  # one limit
        self._named = {path: name for path, name in named.items() if not _has_path(given, path.split("."))}

    def said(self, text: str) -> str:
        """A message in these names."""
        paths = "|".join(re.escape(path) for path in sorted(self._named, key=len, reverse=True))
        if paths:
            setting = rf"(?:\b{SETTINGS_ARGUMENT}: )?(?<![\w.])({paths})(?!\w|\.\w)"
            text = re.sub(setting, lambda found: self._named[found[1]], text)
        return _NAMES.sub(_replace_flag, text)


def _replace_flag(found: re.Match[str]) -> str:
    argument = _FLAG_ARGUMENTS.get(found["flag"] or "")
    if argument is None:
        return found[0]
    value = found["value"]
    if value is None:
        return argument
    return argument + (value if value[0] in "'\"" else f'"{value}"')


def _has_path(given: Any, path: Iterable[str]) -> bool:
    """Whether settings say something at a path."""
    for name in path:
        if not isinstance(given, dict) or name not in given:
            return False
        given = given[name]
    return True


# Loops from Python, with functions for agent, checks, limits and observers wherever settings name programs.


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
    names = PythonNames(settings, supervised=True)
    with _errors_in_api_terms(names):
        return _supervise(
            run_root, run_dir, project_task, resume, names,
            {"max_restarts": max_restarts, "wait_timeout_s": wait_timeout_s, "poll_interval_s": poll_interval_s,
             "restart_delay_s": restart_delay_s},
            {"checks": checks, "observers": observers, "settings": {} if settings is None else settings,
             **({} if project_dir is None else {"project_dir": project_dir})},
        )  # fmt: skip


def _supervise(
    run_root: Any, run_dir: Any, project_task: Any, resume: Any, names: PythonNames, numbers: dict[str, float | None],
    options: Options,
) -> Outcome:  # fmt: skip
    runner = create_root_agent(require_callable("run_root", run_root, "a coroutine function"), bool(resume))
    request = _build_request("", {**options, "preset": "supervise", "agent": runner})
    if not isinstance(project_task, tuple | list) or len(project_task) != 2:
        raise Refused(f"project_task must be two names, not {project_task!r}")
    project, task = (require_text("project_task", name) for name in project_task)
    request = replace(
        request, flags=_with_restart_settings(request.flags, numbers), program=(runner.name,),
        task_folder=_task_folder(run_dir),
        project=project, task=task,
    )  # fmt: skip
    return _run_loop(*_prepare(request, require_text("resume", resume), names), names)


def _with_restart_settings(flags: dict[str, Any], numbers: dict[str, float | None]) -> dict[str, Any]:
    """The settings with those of the restart manager, as far as they are given."""
    given = {
        SUPERVISE_ARGUMENTS[name].rpartition(".")[2]: number for name, number in numbers.items() if number is not None
    }
    own = flags.get("supervise", {})
    made = {**flags, "supervise": {**own, **given}} if isinstance(own, dict) else flags  # else it will be told
    most = numbers["max_restarts"]  # one limit under two names; told once where it is none
    return {**made, "maximumIterations": most} if isinstance(most, int) and most > 0 else made


def _task_folder(run_dir: Any) -> str:
    from ralphproof.runs.request import resolve_task_folder

    folder = _path_option(run_dir, "run_dir")
    return "" if folder is None else resolve_task_folder(folder)


class Loop:
    """A run that is ready to begin: everything is read and checked, nothing is touched or started yet."""

    def __init__(self, prompt: str = "", **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(Options.__annotations__)):
            raise Refused(f"no such option: {', '.join(unknown)}; see ralphproof.Options")
        self._names = names = PythonNames(options.get("settings"))
        with _errors_in_api_terms(names):
            resume = require_text("resume", options.get("resume", ""))
            self._spec, self._which = _prepare(_build_request(prompt, options), resume, names)

    def run(self) -> Outcome:
        """Go on until the run is over; Ctrl-C ends it in good order where this is the main thread."""
        with _errors_in_api_terms(self._names):
            return _run_loop(self._spec, self._which, self._names)


def _run_loop(spec: RunSpec, target: RunTarget, names: PythonNames) -> Outcome:
    from ralphproof.process.client import Keeper
    from ralphproof.process.signals import RunClock, ignore_signals

    keeper, runs = Keeper(), list[str]()

    def tell(begun: RunContext, outcome: Outcome) -> None:
        runs.append(begun.run)
        begun.notifiers.deliver(outcome)

    try:
        with _SignalRestorer() as main:
            hear = RunClock.listen_without_exit if main else ignore_signals
            outcome = execute(spec, keeper, lambda *_: (), tell, hear, target)
            if isinstance(outcome, Failed) and outcome.exit_code == Refused.exit_code:
                outcome = replace(outcome, error=names.said(outcome.error))
            return replace(outcome, run=runs[-1])
    finally:
        keeper.close()


@contextmanager
def _errors_in_api_terms(names: PythonNames) -> Iterator[None]:
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


def _build_request(prompt: str, options: Options) -> RunRequest:
    if (task := require_text("task", options.get("task", ""))) and prompt:
        raise Refused("a task says itself what is to be done; leave the prompt out")
    asked = [*as_tuple(options.get("checks")), *filter(None, [options.get("verification_command")])]
    none = options.get("checks") is not None and not asked
    flags = _option_settings(options) | ({"guardrails": [], "finalChecks": []} if none else {})
    return RunRequest(
        (require_text("prompt", prompt), None), flags, _path_option(options.get("project_dir")),
        tuple(check for check in asked if isinstance(check, str)),
        tuple(require_text("protect", path) for path in as_tuple(options.get("protect"))),
        options.get("guarded", True), options.get("allow_unknown_cost", False),
        skill=require_text("skill", options.get("skill", "")),
        task_type=require_text("task_type", options.get("task_type", "")),
        risk=require_text("risk", options.get("risk", "")), force=options.get("force", False),
        custom=_custom_components(options, [check for check in asked if not isinstance(check, str)]),
        flags_source=SETTINGS_ARGUMENT,
        judge=tuple(require_text("judge", criterion) for criterion in as_tuple(options.get("judge"))),
        task=task, task_id=task, story_folder=require_text("ralph_dir", options.get("ralph_dir", "")), find_checks=True,
        allow_missing_check=options.get("allow_missing_check", False),
    )  # fmt: skip


def _prepare(request: RunRequest, resume: str, names: PythonNames) -> tuple[RunSpec, RunTarget]:
    _refuse_ignored_sigchld()
    meant, target = _resolve_target(request, resume)
    spec = prepare_spec(meant)
    _warn(names.said(warning) for warning in spec.loaded.warnings)
    return spec, target


def _refuse_ignored_sigchld() -> None:
    """What becomes of a signal is the program's to say that uses us: here it must say something else."""
    import signal

    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        how = "set it to signal.SIG_DFL"
        raise Refused(f"this process ignores SIGCHLD, so it never learns how a program ended that it started; {how}")


def _resolve_target(request: RunRequest, resume: str) -> tuple[RunRequest, RunTarget]:
    """What is wanted, and of which run."""
    if not resume:
        return request, FRESH_RUN
    from ralphproof.runs.open_project import open_project
    from ralphproof.runs.resume import load_resumed_request

    if request.prompt[0]:
        raise Refused("a run that is resumed has its prompt; leave the prompt out")
    row, kept = load_resumed_request(open_project(request.project_dir, os.environ), resume, request)
    return kept, RunTarget(row=row)


class _SignalRestorer:
    """Gives the signals back that a run takes over."""

    def __enter__(self) -> bool:
        import signal
        import threading

        from ralphproof.process.interrupts import SIGNALS, current_signal_listener

        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
        self._told = current_signal_listener()  # a run may be part of another one: a check or an observer can begin it
        return main

    def __exit__(self, *_: object) -> None:
        import signal

        from ralphproof.process.interrupts import restore_signal_listener

        if self._before:
            restore_signal_listener(self._told)
        for number, action in self._before.items():
            signal.signal(number, action)


def _path_option(given: Any, option: str = "project_dir") -> str | None:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise Refused(f"{option} must be a path, not {given!r}")
    return None if given is None else require_text(option, os.fsdecode(given))


def _custom_components(options: Options, checks: list[Any]) -> CustomComponents:
    agent = options.get("agent")
    return CustomComponents(
        None if agent is None or isinstance(agent, str) else as_agent(agent),
        tuple(as_check(check) for check in checks),
        tuple(_as_limit(limit) for limit in as_tuple(options.get("limits"))),
        tuple(as_observer(observer) for observer in as_tuple(options.get("observers"))),
    )


def _as_limit(given: Any) -> Callable[[State], Breach | None]:
    if not callable(given):
        raise Refused(f"a limit must be a function, not {given!r}")

    def asked(state: State) -> Breach | None:
        try:
            said = run_if_coroutine(given(state))
        except (Exception, SystemExit) as error:
            raise HarnessFailed(f"the limit {function_name(given)} cannot be asked: {error_text(error)}") from error
        if said is None or isinstance(said, Breach):
            return said
        if not isinstance(said, str) or not said.strip():
            raise HarnessFailed(f"the limit {function_name(given)} must return None or a sentence, not {said!r}")
        return Breach(CUSTOM_LIMIT, said)

    return asked


def _option_settings(options: Options) -> dict[str, Any]:
    """The options that are settings, in the settings' own shape, on top of those that were given in it."""
    import copy

    given = options.get("settings", {})
    if not isinstance(given, dict):
        raise Refused(f"settings must be a dict in the shape of the settings' file, not {given!r}")
    _refuse_non_text_keys(given)
    made: dict[str, Any] = copy.deepcopy(given) | ({"preset": "pipeline"} if options.get("task") else {})
    named = {path: options[name] for name, path in RUN_ARGUMENTS.items() if name in options}  # type: ignore[literal-required]
    if isinstance(command := options.get("agent"), str):
        named["agent.command"] = command
    for path, item in named.items():
        group, _, name = path.rpartition(".")
        inner = made.setdefault(group, {}) if group else made
        if isinstance(inner, dict):  # else it is wrong, and will be told with everything that is
            inner[name] = item
    return made


def _refuse_non_text_keys(given: object) -> None:
    """A file cannot have other names than texts; a dict can."""
    if isinstance(given, dict):
        for name in given:
            require_text("a name in settings", name)
    for inner in given.values() if isinstance(given, dict) else given if isinstance(given, list) else ():
        _refuse_non_text_keys(inner)
