"""A Python function in the place of a program that is started again and again: it is called once for every attempt."""

from __future__ import annotations

from ralphproof.agents.callable import (
    AgentContext,
    AgentReply,
    FunctionAgent,
    FunctionResult,
    error_text,
    refuse_generator,
    replied,
)
from ralphproof.errors import Refused
from ralphproof.event import THE_CONFIGURATION
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NO_ROOT = "run_root must be a function of (context, attempt), or of (attempt)"


def root_runner(run_root: Callable[..., object], resumed: bool = False) -> FunctionAgent:
    """A function of (context, attempt) or (attempt) as an agent. Attempts count from 0; a resumed run goes on counting.

    A number that it returns is its exit code; an AgentReply tells its cost. What it raises is a failure; that a
    program is not there, or something not permitted, is a fatal one.
    """
    refuse_generator("run_root", run_root)
    attempts, following = _arguments(run_root), [] if resumed else [0]

    def call(_: str, context: AgentContext) -> object:
        attempt = following.pop() if following else context.iteration - 1
        following.append(attempt + 1)
        return run_root(*(context, attempt)[2 - attempts :])

    return FunctionAgent(str(getattr(run_root, "__name__", type(run_root).__name__)), call, _answered, _failed)


def _arguments(run_root: Callable[..., object]) -> int:
    """How many arguments a function is called with: context and attempt, or the attempt alone."""
    import inspect

    try:
        signature = inspect.signature(run_root)
    except (TypeError, ValueError):  # some that are written in C do not tell
        return 2
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise Refused(NO_ROOT)


def _answered(said: object) -> FunctionResult:
    if isinstance(said, int) and not isinstance(said, bool):
        return FunctionResult(code=said)
    return FunctionResult(replied(said if isinstance(said, AgentReply | str) else ""))


def _failed(raised: BaseException) -> FunctionResult:
    """Who exits says so by a code, or in words."""
    if isinstance(raised, SystemExit):
        if isinstance(raised.code, str):
            return FunctionResult(AgentReply("", error=raised.code), 1)
        return _answered(raised.code)
    return FunctionResult(AgentReply("", error=error_text(raised)), blame=THE_CONFIGURATION if fatal(raised) else "")


def fatal(error: BaseException) -> bool:
    """Whether no other attempt would fare better: no such program, no permission, something that we refuse."""
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        if isinstance(cause, PermissionError | Refused):
            return True
        if isinstance(cause, FileNotFoundError) and _of_a_program(cause):
            return True
        seen.append(cause)
        cause = cause.__cause__
    return False


def _of_a_program(error: FileNotFoundError) -> bool:
    """Whether it was a program that was not found: said in so many words, or by what starts programs."""
    if error.errno is None:
        return True
    frame, starters = error.__traceback__, ("_execute_child", "_posix_spawn", "_execvpe", "_spawnvef")
    while frame is not None:
        if frame.tb_frame.f_code.co_name in starters:
            return True
        frame = frame.tb_next
    return False
