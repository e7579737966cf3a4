"""A Python function as a program that is started again and again: it is called once for every attempt.

It runs in a thread of our own process while we look on. It can be asked to leave, and not be made to.
"""

from __future__ import annotations

import time

from ralphproof.agent import Brief, Fold, Turn, TurnWatch
from ralphproof.agents.callable import AgentReply, attempted, awaited, replied, spent
from ralphproof.errors import Refused
from ralphproof.event import THE_CONFIGURATION, Ended, Event, Started
from ralphproof.sandbox import KILL, STOP, Exit, Sandbox
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event as Flag

LOOK_S = 0.1
NO_ROOT = "run_root must be a function of (context, attempt), or of (attempt)"


class RootContext:
    """What an attempt knows: its run, its iteration, the folder for its markers, and whether it should leave."""

    def __init__(self, run: str, iteration: int, task_folder: str, leave: Flag) -> None:
        self.run, self.iteration, self.task_folder = run, iteration, task_folder
        self._leave = leave

    def cancelled(self) -> bool:
        """Whether somebody wants the run to end, or the attempt's time or money is used up. Any thread may ask."""
        return self._leave.is_set()


@value
class Came:
    """What came of a call: its exit code, and what it had to say."""

    code: int = 0
    reply: AgentReply = AgentReply("")
    blame: str = ""


UNKNOWN = Came(0, AgentReply("", error="what came of the call is not known"))


class RootRunner:
    """Calls a function. What it raises is a failure; that a program is not there, or not permitted, is a fatal one.

    A number that it returns is its exit code; an AgentReply tells its cost. A run that is `resumed` goes on counting.
    """

    reports_cost = True  # by its AgentReply; without one that turn's cost is unknown

    def __init__(self, run_root: Callable[..., object], resumed: bool = False) -> None:
        self.name = str(getattr(run_root, "__name__", type(run_root).__name__))
        self._arguments = _arguments(run_root)
        self._run_root, self._next = run_root, None if resumed else 0
        self._wish: Callable[[], str] = str

    def attend(self, wish: Callable[[], str]) -> None:
        """From now on ask this whether somebody wants the run to end: a function is told by no signal."""
        self._wish = wish

    def argv(self, brief: Brief) -> tuple[str, ...]:
        return (self.name,)

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Call it, and look on until it returns. A call that died with its process is not made again."""
        from threading import Event as Flag
        from threading import Thread

        if brief.taken_up:
            return Turn(Exit(None, why="interrupted"))
        leave, done, came = Flag(), Flag(), list[Came]()
        given = self._given(brief, leave)

        def call() -> None:
            try:
                came.append(_came(*attempted(lambda: _said(awaited(self._run_root(*given))))))
            finally:
                done.set()

        began_s = time.monotonic()
        watch.tick()
        watch.events([Started(None, None)])
        Thread(target=call, name=brief.mark, daemon=True).start()
        why = self._looked_on(done, leave, watch, began_s + brief.timeout_s)
        return _turn(came[0] if came else UNKNOWN, why, time.monotonic() - began_s, watch)

    def _given(self, brief: Brief, leave: Flag) -> tuple[object, ...]:
        env = dict(brief.env)
        iteration = int(env.get("RALPH_ITERATION", "1"))
        attempt = iteration - 1 if self._next is None else self._next
        self._next = attempt + 1
        context = RootContext(env.get("RALPH_RUN_ID", ""), iteration, env.get("TASK_FOLDER", ""), leave)
        return (context, attempt)[2 - self._arguments :]

    def _looked_on(self, done: Flag, leave: Flag, watch: TurnWatch, until_s: float) -> str:
        """Wait until it is done; how it ended. What is asked of it twice is not waited for."""
        why = "exit"
        while not done.wait(LOOK_S):
            urgency = watch.tick()
            if urgency == KILL:
                leave.set()
                return "killed"
            if urgency == STOP:
                why = "stopped"
            elif why == "exit" and time.monotonic() >= until_s:
                why = "timeout"
            if why != "exit" or self._wish():
                leave.set()
        return why


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


def _came(said: object, raised: BaseException | None) -> Came:
    """What a call came to. Who exits says so by a code, or in words."""
    if isinstance(said, Came):
        return said
    if isinstance(raised, SystemExit):
        return Came(1, AgentReply("", error=raised.code)) if isinstance(raised.code, str) else _said(raised.code)
    blame = THE_CONFIGURATION if raised is not None and fatal(raised) else ""
    return Came(0, AgentReply("", error=f"{type(raised).__name__}: {raised}"), blame)


def _said(said: object) -> Came:
    if isinstance(said, int) and not isinstance(said, bool):
        return Came(said)
    return Came(0, replied(said if isinstance(said, AgentReply | str) else ""))


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


def _turn(came: Came, why: str, seconds: float, watch: TurnWatch) -> Turn:
    """The turn that this call makes. A negative code is a signal's, as `subprocess` has it."""
    reply, fold = came.reply, Fold()
    events: list[Event] = [spent(reply), Ended(reply.error is None, reply.text, reply.error, came.blame)]
    watch.events(events)
    watch.tick()
    fold.add([Started(None, None), *events])
    if why != "exit":
        return fold.turn(Exit(None, why=why, seconds=seconds))
    code, signal = (came.code, None) if came.code >= 0 else (None, -came.code)
    return fold.turn(Exit(code, signal=signal, seconds=seconds))
