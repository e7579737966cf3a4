"""A Python function as an agent, or as the supervised program, called in a thread of this process.

The function can be asked to return, but not be forced to: a thread cannot be ended from outside.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread
from types import MappingProxyType

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    Ended,
    Event,
    Said,
    Spent,
    Started,
    Turn,
    TurnBuilder,
    TurnInput,
    TurnWatcher,
    Usage,
)
from ralphproof.engine.sandbox import KILL, STOP, Exit, Sandbox

if TYPE_CHECKING:
    import inspect


MAX_USD = 1_000_000.0  # a higher reported cost counts as unknown
POLL_S = 0.1
MAX_LOG_BYTES = 64 << 20
BAD_AGENT_SIGNATURE = "agent must be a function of (prompt) or (prompt, context)"
GENERATOR_REFUSED = "{} is a generator function, which does nothing when it is called; return a text or an AgentReply"


@value
class AgentReply:
    """The reply of a function, with its cost, which may be returned instead of a text. None is unknown, not zero."""

    text: str
    cost_usd: float | None = None
    tokens: int | None = None
    error: str | None = None


@value
class RunAccess:
    """Access of a function to the run that calls it.

    `stop_requested` returns why the run should end, empty if it should not; `interrupt` ends it as Ctrl-C does. `mask`
    hides secrets.
    `post` puts a message on the task's bus: its type, its text, and the iteration.
    """

    stop_requested: Callable[[], str] = str
    interrupt: Callable[[], None] = lambda: None
    mask: Callable[[str], str] = str
    post: Callable[[str, str, int], None] = lambda *_: None


@value
class FunctionResult:
    """The result of a call: the reply, its exit code, and `blame` as in `Ended`."""

    reply: AgentReply = AgentReply("")
    code: int = 0
    blame: str = ""


class FunctionCall:
    """One call of a function, shared by its thread and the loop's thread, which forwards the function's messages."""

    def __init__(self) -> None:
        self.cancelled, self.wake = Flag(), Flag()
        self.finished = self.abandoned = False
        self.result = FunctionResult(AgentReply("", error="what came of the call is not known"))
        self.error: BaseException | None = None
        self._texts: deque[str] = deque()

    def say(self, text: str) -> None:
        if text and not self.abandoned:
            self._texts.append(text)
            self.wake.set()

    def take_text(self) -> str:
        """The text since the last call of this method."""
        return "".join(self._texts.popleft() for _ in range(len(self._texts)))

    def run(self, function: Callable[[], FunctionResult]) -> None:
        """Call the function. No exception leaves the thread: it is kept in `error`."""
        try:
            self.result = function()
        except BaseException as error:  # noqa: BLE001 (the thread's end; Ctrl-C is passed on by the loop's thread)
            self.error = error
        self.finished = True
        self.wake.set()


@value
class AgentContext:
    """The context of a function's turn besides the prompt. Any thread may use it.

    `folder` is the project, `run_dir` the folder of the run's logs, `task_folder` the one for markers such as DONE.
    `env` is the environment for programs that the function starts: with it, `ralph bus post` knows which run posts.
    """

    folder: str
    run: str = ""
    iteration: int = 1
    max_iterations: int | None = None
    run_dir: str = ""
    task_folder: str = ""
    env: Mapping[str, str] = MappingProxyType({})
    _call: FunctionCall | None = None
    _access: RunAccess = RunAccess()

    def cancelled(self) -> bool:
        """Whether the function should return: the run is to end, or the turn's time or money is used up."""
        return self._call is not None and self._call.cancelled.is_set()

    def say(self, text: str) -> None:
        """Add to the agent's message. Observers see it at once, and it is in the turn's log."""
        if self._call is not None:
            self._call.say(str(text))

    def post(self, kind: str, text: str) -> None:
        """Put a message on the task's bus. One of the type WAIT makes the run wait for an answer after this turn."""
        self._access.post(kind, text, self.iteration)


def make_agent_context(brief: TurnInput, call: FunctionCall, access: RunAccess) -> AgentContext:
    env = dict(brief.env)
    max_iterations = env.get("RALPH_MAX_ITERATIONS")
    return AgentContext(
        brief.cwd, env.get("RALPH_RUN_ID", ""), int(env.get("RALPH_ITERATION", "1")),
        int(max_iterations) if max_iterations else None,
        os.path.dirname(brief.prompt_file), env.get("TASK_FOLDER", ""), MappingProxyType(env), call, access,
    )  # fmt: skip


class FunctionAgent:
    """Calls a function with the prompt and a context. `on_result` and `on_error` interpret its result and its error."""

    reports_cost = True  # in an AgentReply; the cost of a turn without one is unknown

    def __init__(
        self, name: str, function: Callable[[str, AgentContext], object],
        on_result: Callable[[object], FunctionResult] | None = None,
        on_error: Callable[[BaseException], FunctionResult] | None = None,
    ) -> None:  # fmt: skip
        self.name, self._function = name, function
        self._on_result, self._on_error = on_result or _result_of_reply, on_error or _result_of_error
        self._access = RunAccess()

    def attach(self, access: RunAccess) -> None:
        """Set the run that calls the function."""
        self._access = access

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return (self.name,)

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Call the function and wait until it returns. A call that died with its process is not repeated."""
        import contextvars

        if brief.adopt:
            return Turn(Exit(None, why="interrupted"))
        call, log, fold = FunctionCall(), FunctionLog(brief.log_base, self._access.mask), TurnBuilder(separator="")
        context = make_agent_context(brief, call, self._access)
        began_s = time.monotonic()
        watch.tick()
        _emit_events([Started(None, None)], watch, fold)
        work = (call.run, lambda: self._on_result(run_if_coroutine(self._function(brief.prompt, context))))
        Thread(target=contextvars.copy_context().run, args=work, name=brief.call_id, daemon=True).start()
        why = self._wait_for_call(call, log, watch, fold, began_s + brief.timeout_s)
        return self._turn(call, why, time.monotonic() - began_s, log, watch, fold)

    def _wait_for_call(
        self, call: FunctionCall, log: FunctionLog, watch: TurnWatcher, fold: TurnBuilder, until_s: float
    ) -> str:
        """Wait for the end of the call; returns how it ended. After KILL the call is abandoned."""
        why = "exit"
        while True:
            call.wake.wait(POLL_S)
            call.wake.clear()
            finished = call.finished
            if text := call.take_text():
                log.add(text)
                _emit_events([Said(text)], watch, fold)
            if finished:
                return why
            urgency = watch.tick()
            if urgency == KILL:
                call.cancelled.set()
                call.abandoned = True
                return "killed"
            if urgency == STOP:
                why = "stopped"
            elif why == "exit" and time.monotonic() >= until_s:
                why = "timeout"
            if why != "exit" or self._access.stop_requested():
                call.cancelled.set()

    def _turn(
        self, call: FunctionCall, why: str, seconds: float, log: FunctionLog, watch: TurnWatcher, fold: TurnBuilder
    ) -> Turn:
        """The turn of this call. A negative code is a signal's, as in `subprocess`."""
        answer = call.result if call.error is None else self._on_error(call.error)
        if call.error is not None and answer.reply.error is not None:
            log.fail(call.error)
        if isinstance(call.error, KeyboardInterrupt):
            self._access.interrupt()
            why = "stopped" if why == "exit" else why
        reply = answer.reply
        log.add(reply.text, new_line=True)
        text = reply.text or fold.turn(Exit(None)).text  # without a returned text, what `say` was given
        _emit_events([reply_cost(reply), Ended(reply.error is None, text, reply.error, answer.blame)], watch, fold)
        watch.tick()
        if why != "exit":
            return fold.turn(Exit(None, why=why, seconds=seconds))
        code, signal = (answer.code, None) if answer.code >= 0 else (None, -answer.code)
        return fold.turn(Exit(code, signal=signal, seconds=seconds))


def _emit_events(events: list[Event], watch: TurnWatcher, fold: TurnBuilder) -> None:
    watch.events(events)
    fold.add(events)


class FunctionLog:
    """The log of a function call: its text and its traceback, in the same files as the output of programs.

    Where the disk is full the log is incomplete, and the turn continues.
    """

    def __init__(self, base: str, mask: Callable[[str], str]) -> None:
        self._base, self._mask, self._bytes = base, mask, 0

    def add(self, text: str, new_line: bool = False) -> None:
        """Write more text, with `new_line` on a line of its own."""
        if not text or self._bytes >= MAX_LOG_BYTES:
            return
        data = (b"\n" if new_line and self._bytes else b"") + _encode(self._mask(text))
        self._bytes += len(data)
        self._write(".ndjson", data if self._bytes < MAX_LOG_BYTES else b"\n... [truncated]\n")

    def fail(self, error: BaseException) -> None:
        """Write the traceback, without our own frames."""
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        from traceback import format_exception

        lines = format_exception(type(error), error, frames)
        self._write(".stderr.log", _encode(self._mask("".join(lines)))[-MAX_LOG_BYTES:])

    def _write(self, suffix: str, data: bytes) -> None:
        try:
            with open(self._base + suffix, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(data)
        except OSError:
            pass


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def error_text(error: BaseException) -> str:
    """An exception's type and message."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 (any error in the exception's own `__str__`)
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _result_of_reply(returned: object) -> FunctionResult:
    return FunctionResult(to_agent_reply(returned))


def _result_of_error(error: BaseException) -> FunctionResult:
    return FunctionResult(AgentReply("", error=error_text(error)))


def to_agent_reply(returned: object) -> AgentReply:
    """The reply of a function, whatever it returned."""
    if not isinstance(returned, AgentReply):
        return AgentReply(_to_text(returned))
    error = None if returned.error is None else str(returned.error)
    return replace(returned, text=_to_text(returned.text), error=error)


def _to_text(returned: object) -> str:
    return "" if returned is None else str(returned)


def reply_cost(reply: AgentReply) -> Spent:
    """The cost of a reply; an impossible figure counts as unknown."""
    cost, tokens = reply.cost_usd, reply.tokens
    plausible = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= MAX_USD
    usage = Usage(output=tokens) if isinstance(tokens, int) and 0 <= tokens < 10**15 else None
    return Spent(round(cost * 1_000_000) if plausible and cost is not None else None, usage)


def create_function_agent(function: Callable[..., object]) -> FunctionAgent:
    """A function of (prompt) or (prompt, context) as an agent; raises Refused where it has another signature."""
    import inspect

    refuse_generator("agent", function)
    name = str(getattr(function, "__name__", type(function).__name__))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return FunctionAgent(name, lambda prompt, _: function(prompt))
    arguments_for = _calling_convention(function, signature)
    try:
        positional, named = arguments_for("", None)
        signature.bind(*positional, **named)
    except TypeError:
        raise Refused(f"{BAD_AGENT_SIGNATURE}, and {name}{signature} is none") from None

    def call(prompt: str, context: AgentContext) -> object:
        positional, named = arguments_for(prompt, context)
        return function(*positional, **named)

    return FunctionAgent(name, call)


def _calling_convention(
    function: object, signature: inspect.Signature
) -> Callable[[str, AgentContext | None], tuple[tuple[object, ...], dict[str, object]]]:
    """Builds the arguments of a call: the context by keyword, as a required second argument, or not at all."""
    import inspect

    bound = isinstance(function, functools.partial) and "context" in function.keywords
    named = None if bound else signature.parameters.get("context")
    if named is not None and named.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        return lambda prompt, context: ((prompt,), {"context": context})
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    required = [each for each in parameters if each.kind in positional and each.default is each.empty]
    if len(required) > 1:
        return lambda prompt, context: ((prompt, context), {})
    return lambda prompt, _: ((prompt,), {})


def refuse_generator(what: str, function: Callable[..., object]) -> None:
    """Raise Refused for generator functions: calling one does nothing."""
    import inspect

    call_method = None if inspect.isclass(function) else type(function).__call__
    for called in (function, call_method):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise Refused(GENERATOR_REFUSED.format(what))


def run_if_coroutine(result: object) -> object:
    """The result itself, or that of the coroutine, also where another event loop runs."""
    import inspect

    if not inspect.iscoroutine(result):
        return result
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:  # a thread, such as that of a notebook, can run only one event loop
        return thread.submit(asyncio.run, result).result()


# Supervised Python functions, called once for each attempt.


BAD_ROOT_SIGNATURE = "run_root must be a function of (context, attempt), or of (attempt)"


def create_root_agent(run_root: Callable[..., object], resumed: bool = False) -> FunctionAgent:
    """A function of (context, attempt) or (attempt) as an agent.

    Attempts are counted from 0, and on in a resumed run. A returned int is an exit code; an AgentReply reports a cost.
    An exception is a failure; a missing program and a missing permission are fatal.
    """
    refuse_generator("run_root", run_root)
    argument_count, next_attempt = _count_arguments(run_root), None if resumed else 0

    def call(_: str, context: AgentContext) -> object:
        nonlocal next_attempt
        attempt = context.iteration - 1 if next_attempt is None else next_attempt
        next_attempt = attempt + 1
        return run_root(*(context, attempt)[2 - argument_count :])

    return FunctionAgent(
        str(getattr(run_root, "__name__", type(run_root).__name__)), call, _result_of_root, _result_of_root_error
    )


def _count_arguments(run_root: Callable[..., object]) -> int:
    """2 for (context, attempt), 1 for (attempt)."""
    import inspect

    try:
        signature = inspect.signature(run_root)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return 2
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise Refused(BAD_ROOT_SIGNATURE)


def _result_of_root(returned: object) -> FunctionResult:
    if isinstance(returned, int) and not isinstance(returned, bool):
        return FunctionResult(code=returned)
    return FunctionResult(to_agent_reply(returned if isinstance(returned, AgentReply | str) else ""))


def _result_of_root_error(error: BaseException) -> FunctionResult:
    """The result of an exception; SystemExit holds an exit code or a message."""
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            return FunctionResult(AgentReply("", error=error.code), 1)
        return _result_of_root(error.code)
    return FunctionResult(
        AgentReply("", error=error_text(error)), blame=THE_CONFIGURATION if is_fatal_error(error) else ""
    )


def is_fatal_error(error: BaseException) -> bool:
    """Whether another attempt would fail too: a missing program, a missing permission, or a Refused error."""
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        if isinstance(cause, PermissionError | Refused):
            return True
        if isinstance(cause, FileNotFoundError) and _is_missing_program(cause):
            return True
        seen.append(cause)
        cause = cause.__cause__
    return False


def _is_missing_program(error: FileNotFoundError) -> bool:
    """Whether a program was not found, and not another file: raised explicitly, or by a function that starts one."""
    if error.errno is None:
        return True
    frame, start_functions = error.__traceback__, ("_execute_child", "_posix_spawn", "_execvpe", "_spawnvef")
    while frame is not None:
        if frame.tb_frame.f_code.co_name in start_functions:
            return True
        frame = frame.tb_next
    return False
