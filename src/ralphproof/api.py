"""Public Python API: run and supervise agents with functions as agents, checks, limits and observers."""

from __future__ import annotations

import copy
import os
import re
import signal
import sys
import threading
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
from ralphproof.base.value import replace
from ralphproof.checks.function import FunctionCheck
from ralphproof.engine.agent import Agent, Event
from ralphproof.engine.check import Check, Inspection
from ralphproof.engine.environment import Observer
from ralphproof.engine.limits import CUSTOM_LIMIT, Breach
from ralphproof.engine.outcome import Failed, Outcome
from ralphproof.engine.records import Record
from ralphproof.engine.state import State
from ralphproof.process.interrupts import SIGNALS, current_signal_listener, restore_signal_listener
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock, ignore_signals
from ralphproof.runs.context import RunContext
from ralphproof.runs.execute import execute, load_resumed_request
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import (
    FRESH_RUN,
    CheckRequest,
    CustomComponents,
    FitnessRequest,
    RunRequest,
    RunTarget,
    StoriesRequest,
    TaskRequest,
    resolve_task_folder,
)
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.settings.declarations import SETTINGS_SCHEMA
from ralphproof.settings.schema import leaf_keys

# Functions as agents, checks and observers


class FunctionObserver:
    """Adapts a function of records to the Observer protocol."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self._function = function

    def on_record(self, record: Record) -> None:
        try:
            run_if_coroutine(self._function(record))
        except SystemExit:
            pass  # an observer cannot end the run; the callers of observers ignore other exceptions

    def on_events(self, events: list[Event]) -> None:
        """Ignored: the function is called with records only."""

    def tick(self) -> None:
        """Ignored."""


def as_tuple(value: Any) -> tuple[Any, ...]:
    """The items of an option that may be one item or several. A string or a callable is one item, even if iterable."""
    if value is None:
        return ()
    alone = isinstance(value, str) or callable(value) or not isinstance(value, Iterable)
    return (value,) if alone else tuple(value)


def require_text(option: str, value: object) -> str:
    """Return the text; raises Refused where it is not a str or holds NUL, which no file, program or prompt may hold."""
    if not isinstance(value, str):
        raise Refused(f"{option} must be text, not {value!r}")
    if "\0" in value:
        raise Refused(f"{option} holds a NUL character; remove it")
    return value


def as_agent(agent: Any) -> Agent:
    """An Agent as it is, or a function wrapped as one."""
    return (
        agent
        if hasattr(agent, "take_turn")
        else create_function_agent(require_callable("agent", agent, "a command line"))
    )


def as_check(check: Any) -> Check:
    """A Check as it is, or a function wrapped as one."""
    if hasattr(check, "run"):
        require_text("a check's name", getattr(check, "name", None))
        return check  # type: ignore[no-any-return]
    function = require_callable("a check", check, "a shell command")
    return FunctionCheck(lambda inspection: run_if_coroutine(function(inspection)), function_name(function))


def as_observer(observer: Any) -> Observer:
    """An Observer as it is, or a function wrapped as one."""
    return (
        observer
        if hasattr(observer, "on_record")
        else FunctionObserver(require_callable("an observer", observer, "an Observer"))
    )


def require_callable(what: str, value: Any, other: str) -> Callable[..., object]:
    """Return the callable; raises Refused where it is none. `other` names what else the option accepts."""
    if not callable(value):
        raise Refused(f"{what} must be {other} or a function, not {value!r}")
    return value  # type: ignore[no-any-return]


def function_name(function: object) -> str:
    """The name of a function in messages."""
    return str(getattr(function, "__name__", type(function).__name__))


# Options


AgentFunction = Callable[[str], object] | Callable[[str, AgentContext], object]
RootFunction = Callable[[AgentContext, int], object] | Callable[[int], object]
CheckFunction = Callable[[Inspection], object]
Limit = Callable[[State], str | Breach | None]
ObserverFunction = Callable[[Record], object]


class Options(TypedDict, total=False):
    """Options of a run. Those that are left out come from the project's and the user's settings.

    `agent` is a command line, a function of (prompt) or (prompt, context) that returns a text or an `AgentReply`, or an
    Agent. `checks` are shell commands, functions from an Inspection to True, False or (passed, why), or Checks;
    `verification_command` is one more. Where they are left out or None, those of the settings apply, else those that
    are detected from the project's files; an empty tuple runs without checks. A check that cannot be run refuses the
    run, unless `allow_missing_check` leaves it to the agent. `limits` are functions from the run's State to None, or to
    a sentence that says why the run must end. `observers` are functions that get every record once it is durable, or
    Observers. `settings` are any other settings, in the shape of the settings file; options that are named here
    override them. Where several are accepted, a single one may be given as it is. `resume` names a run to resume, or
    `latest`; its prompt stays, and functions must be given again. `judge` has criteria that a small model judges.
    `task` names a task of the ledger, in place of a prompt. Stories (`preset="stories"`) are in the folder `ralph_dir`;
    `review=False` turns reviews off, and a story has at most `review_cap` of them.
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


# Names of flags and settings in the Python API, for messages


SETTINGS_ARGUMENT = "settings"  # the source that messages name for arguments
# Arguments that are settings and are called neither like them nor like a flag of theirs.
_RENAMED_SETTINGS = {
    "completion_promise": "completionResponse", "stall_detection_threshold": "limits.stallIterations",
    "same_error_threshold": "limits.sameErrorIterations", "review": "review.enabled", "checks": "guardrails",
}  # fmt: skip
# Flags that have another name here; one that ends with `=` takes a value.
_RENAMED_FLAGS = {
    "--check": "checks=", "--no-check": "checks=()", "--type": "task_type=", "--task-folder": "run_dir=",
    "--skip-review": "review=False", "--no-sandbox": "guarded=False", "--explain": "ralph run --explain",
    "--sandbox": 'settings={"sandbox": {"backend": "auto"}}', "--allow-host": 'settings={"sandbox": {"allowHosts": …}}',
}  # fmt: skip


def _paths_of(arguments: Iterable[str]) -> dict[str, str]:
    """The paths of those arguments that are settings, called like the setting or like one of its flags."""
    paths = {name: path for name, path in _RENAMED_SETTINGS.items() if name in arguments}
    for path, key in leaf_keys(SETTINGS_SCHEMA):
        own = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", path.rpartition(".")[2])
        flags = (name[2:].replace("-", "_") for flag in key.flags for name in flag.names)
        for name in (own.replace("_seconds", "_s"), *flags):
            if name in arguments:
                paths.setdefault(name, path)
    return paths


RUN_ARGUMENTS = _paths_of(Options.__annotations__)
SUPERVISE_ARGUMENTS = _paths_of(("max_restarts", "restart_delay_s", "wait_timeout_s", "poll_interval_s", "checks"))
_COMMAND = r"\bralph [a-z]+(?: [^;,()\n]*)?"  # a command for a terminal is not translated, nor is quoted text
_QUOTED = r"(?<!\w)'[^'\n]*'|(?<!\w)\"[^\"\n]*\""
_FLAG = rf"(?<![\w-])(?P<flag>--[a-z][a-z-]*)(?: (?P<value>[A-Z][A-Z.]*\b|auto\b|stories\b|{_QUOTED}))?(?![\w-])"
_NAMES = re.compile(f"{_COMMAND}|{_QUOTED}|{_FLAG}")


class PythonNames:
    """Translates flags and settings in messages to arguments of this API, except paths in the given settings."""

    def __init__(self, settings: object, supervised: bool = False) -> None:
        arguments = SUPERVISE_ARGUMENTS if supervised else RUN_ARGUMENTS
        arguments_by_path = {path: name for name, path in arguments.items()}
        arguments_by_path |= {"maximumIterations": "max_restarts"} if supervised else {}  # the same limit
        self._arguments_by_path = {
            path: name for path, name in arguments_by_path.items() if not _has_path(settings, path.split("."))
        }

    def translate(self, text: str) -> str:
        """The message with flags and settings replaced."""
        paths = "|".join(re.escape(path) for path in sorted(self._arguments_by_path, key=len, reverse=True))
        if paths:
            setting = rf"(?:\b{SETTINGS_ARGUMENT}: )?(?<![\w.])({paths})(?!\w|\.\w)"
            text = re.sub(setting, lambda match: self._arguments_by_path[match[1]], text)
        return _NAMES.sub(_replace_flag, text)


def _replace_flag(match: re.Match[str]) -> str:
    flag, given = match["flag"] or "", match["value"]
    name = flag[2:].replace("-", "_")
    if flag in _RENAMED_FLAGS:
        argument = _RENAMED_FLAGS[flag]
    elif name in Options.__annotations__:
        argument = f"{name}={'True' if Options.__annotations__[name].__forward_arg__ == 'bool' else ''}"
    else:
        return match[0]
    if given is None:
        return argument
    return argument + (given if given[0] in "'\"" else f'"{given}"')


def _has_path(settings: Any, path: Iterable[str]) -> bool:
    """Whether nested settings have a value at a path."""
    for name in path:
        if not isinstance(settings, dict) or name not in settings:
            return False
        settings = settings[name]
    return True


# Entry points


def run(prompt: str = "", **options: Unpack[Options]) -> Outcome:
    """Loop an agent on a project until its checks show that the work is done, or a limit ends the run.

    Raises a RalphError where the run may not begin; any end after that is an Outcome.
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
    """Call a function repeatedly until it leaves the file DONE in `run_dir` and the checks pass.

    It is called with an AgentContext and the number of the attempt, from 0 on, or with that number alone. An exception
    is a failed attempt, and the function is called again; a missing program or a denied permission is fatal. Arguments
    that are left out come from settings. `resume` continues a run that waited.
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
        request,
        flags=_with_restart_settings(request.flags, numbers),
        program=(runner.name,),
        task=TaskRequest(folder=_task_folder(run_dir), project=project, name=task),
    )
    return _run_loop(*_prepare(request, require_text("resume", resume), names), names)


def _with_restart_settings(flags: dict[str, Any], numbers: dict[str, float | None]) -> dict[str, Any]:
    """The settings with the given arguments of the restart manager."""
    given = {
        SUPERVISE_ARGUMENTS[name].rpartition(".")[2]: number for name, number in numbers.items() if number is not None
    }
    own = flags.get("supervise", {})
    settings = (
        {**flags, "supervise": {**own, **given}} if isinstance(own, dict) else flags
    )  # else validation reports it
    max_restarts = numbers["max_restarts"]  # the same limit under two names; a wrong value is reported once
    return (
        {**settings, "maximumIterations": max_restarts}
        if isinstance(max_restarts, int) and max_restarts > 0
        else settings
    )


def _task_folder(run_dir: Any) -> str:
    folder = _path_option(run_dir, "run_dir")
    return "" if folder is None else resolve_task_folder(folder)


class Loop:
    """A run that is ready to begin: everything is read and checked, nothing is changed or started yet."""

    def __init__(self, prompt: str = "", **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(Options.__annotations__)):
            raise Refused(f"no such option: {', '.join(unknown)}; see ralphproof.Options")
        self._names = names = PythonNames(options.get("settings"))
        with _errors_in_api_terms(names):
            resume = require_text("resume", options.get("resume", ""))
            self._spec, self._target = _prepare(_build_request(prompt, options), resume, names)

    def run(self) -> Outcome:
        """Run to the end. In the main thread Ctrl-C stops the run gracefully."""
        with _errors_in_api_terms(self._names):
            return _run_loop(self._spec, self._target, self._names)


def _run_loop(spec: RunSpec, target: RunTarget, names: PythonNames) -> Outcome:
    keeper, runs = KeeperClient(), list[str]()

    def on_end(begun: RunContext, outcome: Outcome) -> None:
        runs.append(begun.run)
        begun.notifiers.deliver(outcome)

    try:
        with _SignalRestorer() as main:
            listen = RunClock.listen_without_exit if main else ignore_signals
            outcome = execute(spec, keeper, lambda *_: (), on_end, listen, target)
            if isinstance(outcome, Failed) and outcome.exit_code == Refused.exit_code:
                outcome = replace(outcome, error=names.translate(outcome.error))
            return replace(outcome, run=runs[-1])
    finally:
        keeper.close()


@contextmanager
def _errors_in_api_terms(names: PythonNames) -> Iterator[None]:
    """Translate flags and settings in errors to arguments of this API."""
    try:
        yield
    except RalphError as error:
        error.args = tuple(names.translate(str(part)) for part in error.args)
        if isinstance(error, SettingsWrong):
            error.problems = list(dict.fromkeys(names.translate(problem) for problem in error.problems))
            error.args = ("\n".join(error.problems),)
        raise


def _warn(messages: Iterable[str]) -> None:
    """Warn with the location of the caller of this API."""
    import warnings

    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    for message in messages:
        warnings.warn(message, RalphWarning, stacklevel=level)


def _build_request(prompt: str, options: Options) -> RunRequest:
    if (task := require_text("task", options.get("task", ""))) and prompt:
        raise Refused("a task says itself what is to be done; leave the prompt out")
    checks = [*as_tuple(options.get("checks")), *filter(None, [options.get("verification_command")])]
    none = options.get("checks") is not None and not checks
    flags = _option_settings(options) | ({"guardrails": [], "finalChecks": []} if none else {})
    return RunRequest(
        (require_text("prompt", prompt), None),
        flags,
        _path_option(options.get("project_dir")),
        SETTINGS_ARGUMENT,
        CheckRequest(
            tuple(check for check in checks if isinstance(check, str)),
            tuple(require_text("judge", criterion) for criterion in as_tuple(options.get("judge"))),
            find=True,
            allow_missing=options.get("allow_missing_check", False),
        ),
        TaskRequest(task, name=task),
        FitnessRequest(
            require_text("task_type", options.get("task_type", "")),
            require_text("risk", options.get("risk", "")),
            options.get("force", False),
        ),
        StoriesRequest(require_text("ralph_dir", options.get("ralph_dir", ""))),
        skill=require_text("skill", options.get("skill", "")),
        custom=_custom_components(options, [check for check in checks if not isinstance(check, str)]),
        protect=tuple(require_text("protect", path) for path in as_tuple(options.get("protect"))),
        guarded=options.get("guarded", True),
        allow_unknown_cost=options.get("allow_unknown_cost", False),
    )


def _prepare(request: RunRequest, resume: str, names: PythonNames) -> tuple[RunSpec, RunTarget]:
    _refuse_ignored_sigchld()
    resolved, target = _resolve_target(request, resume)
    spec = prepare_spec(resolved)
    _warn(names.translate(warning) for warning in spec.loaded.warnings)
    return spec, target


def _refuse_ignored_sigchld() -> None:
    """Raise Refused where the calling program ignores SIGCHLD. Signal handling is the program's decision, so it is not
    changed here.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        how = "set it to signal.SIG_DFL"
        raise Refused(f"this process ignores SIGCHLD, so it never learns how a program ended that it started; {how}")


def _resolve_target(request: RunRequest, resume: str) -> tuple[RunRequest, RunTarget]:
    """The request and the run that it is for: a new one, or the one to resume."""
    if not resume:
        return request, FRESH_RUN
    if request.prompt[0]:
        raise Refused("a run that is resumed has its prompt; leave the prompt out")
    row, saved = load_resumed_request(open_project(request.project_dir, os.environ), resume, request)
    return saved, RunTarget(row=row)


class _SignalRestorer:
    """Restores the signal handlers that a run replaces; entering tells whether this is the main thread."""

    def __enter__(self) -> bool:
        main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
        self._listener = current_signal_listener()  # a check or an observer of another run may have begun this one
        return main

    def __exit__(self, *_: object) -> None:
        if self._before:
            restore_signal_listener(self._listener)
        for number, action in self._before.items():
            signal.signal(number, action)


def _path_option(path: Any, option: str = "project_dir") -> str | None:
    if path is not None and not isinstance(path, str | os.PathLike):
        raise Refused(f"{option} must be a path, not {path!r}")
    return None if path is None else require_text(option, os.fsdecode(path))


def _custom_components(options: Options, checks: list[Any]) -> CustomComponents:
    agent = options.get("agent")
    return CustomComponents(
        None if agent is None or isinstance(agent, str) else as_agent(agent),
        tuple(as_check(check) for check in checks),
        tuple(_as_limit(limit) for limit in as_tuple(options.get("limits"))),
        tuple(as_observer(observer) for observer in as_tuple(options.get("observers"))),
    )


def _as_limit(function: Any) -> Callable[[State], Breach | None]:
    if not callable(function):
        raise Refused(f"a limit must be a function, not {function!r}")

    def limit(state: State) -> Breach | None:
        try:
            answer = run_if_coroutine(function(state))
        except (Exception, SystemExit) as error:
            raise HarnessFailed(f"the limit {function_name(function)} cannot be asked: {error_text(error)}") from error
        if answer is None or isinstance(answer, Breach):
            return answer
        if not isinstance(answer, str) or not answer.strip():
            raise HarnessFailed(f"the limit {function_name(function)} must return None or a sentence, not {answer!r}")
        return Breach(CUSTOM_LIMIT, answer)

    return limit


def _option_settings(options: Options) -> dict[str, Any]:
    """The given settings, overridden by the options that are settings."""
    own = options.get("settings", {})
    if not isinstance(own, dict):
        raise Refused(f"settings must be a dict in the shape of the settings' file, not {own!r}")
    _refuse_non_text_keys(own)
    settings: dict[str, Any] = copy.deepcopy(own) | ({"preset": "pipeline"} if options.get("task") else {})
    given = {name: option for name, option in options.items() if name not in ("checks", "protect")}
    if not isinstance(options.get("agent"), str):
        given.pop("agent", None)
    for path, setting in ((RUN_ARGUMENTS[name], option) for name, option in given.items() if name in RUN_ARGUMENTS):
        group, _, name = path.rpartition(".")
        inner = settings.setdefault(group, {}) if group else settings
        if isinstance(inner, dict):  # else validation reports it
            inner[name] = setting
    return settings


def _refuse_non_text_keys(settings: object) -> None:
    """Raise Refused for keys that are not text, which a settings file cannot have."""
    if isinstance(settings, dict):
        for name in settings:
            require_text("a name in settings", name)
    for inner in settings.values() if isinstance(settings, dict) else settings if isinstance(settings, list) else ():
        _refuse_non_text_keys(inner)
