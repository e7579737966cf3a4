"""An agent program with a known adapter, started anew for each turn."""

from __future__ import annotations

import os
import time

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    COST_REPORTED,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
    one_line,
)
from ralphproof.agents.error_messages import (
    LIMIT_ERROR,
    LOGIN_ERROR,
    OUTAGE_ERROR,
    FailureReason,
    asks_for_login,
    failure_event,
    find_failure_reason,
)
from ralphproof.agents.event_collector import EventCollector
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.agent import Turn, TurnInput, TurnWatcher
from ralphproof.engine.events import Ended, Limited, Spent, Usage
from ralphproof.engine.sandbox import AgentRequirements, Command, Exit, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STDERR_TAIL_BYTES = 16 * 1024  # of its end, looked at when a turn went wrong
STDERR_EVENT_BYTES = 1 << 20  # of its end, where a program says there what its stream does not
NOTHING_SPENT = Spent(0, Usage())


class CliAgent:
    """A program, the user's flags for it, and its dialect. `cost` prices tokens; `guarded` keeps its own guard on."""

    def __init__(
        self, dialect: AgentAdapter, program: str, flags: tuple[str, ...] = (), *, model: str | None = None,
        guarded: bool = True, cost: Callable[[str | None, Usage], int | None] = lambda *_: None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.name = dialect.name
        self._dialect, self._program, self._flags, self._model = dialect, program, flags, model
        self._guarded, self._cost, self._now = guarded, cost, now

    @property
    def lodging(self) -> AgentRequirements:
        """What it needs of the machine, as far as its dialect tells."""
        lodging: AgentRequirements = getattr(self._dialect, "lodging", AgentRequirements())
        return lodging

    @property
    def reports_cost(self) -> bool:
        """Whether a limit on cost can be held: it says what it costs, or its tokens have a price."""
        if self._dialect.cost == COST_COMPUTED:
            return self._cost(self._dialect.model(self._flags, self._model), Usage(1, 1)) is not None
        return self._dialect.cost == COST_REPORTED

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return (self._program, *self._dialect.arguments(self._call(brief)))

    def attended(self, brief: TurnInput, again: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
        """Arguments and environment of a session with somebody at a terminal, who sees the prompt as its first message.

        One that is held `again` goes on with the brief's session where the program can. None: nobody knows how.
        """
        if not hasattr(self._dialect, "interactive"):
            return None
        call = self._call(brief)
        env = {**self._dialect.updates_off, **dict(brief.env), **self._dialect.environment(call)}
        return (self._program, *self._dialect.interactive(call, again)), tuple(env.items())

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Run the program to its end. It succeeded only if it says so itself and everything else agrees."""
        call, ear = self._call(brief), EventCollector(watch)
        if problem := self._lay_out(call):
            return Turn(Exit(None, why="unstartable", error=problem))
        billed = (call.brief.session and brief.billed) or NOTHING_SPENT
        model = self._dialect.model(self._flags, self._model)
        hearing = ReaderContext(ear.tell, self._cost, self._now, billed, model, ear.pause)
        reader = self._dialect.reader(hearing)
        ear.listen(reader.hear, lambda line: self._ask_nobody(ear, line))
        env = {**self._dialect.updates_off, **dict(brief.env), **self._dialect.environment(call)}
        command = Command(
            self.argv(brief), brief.cwd, tuple(env.items()), out=brief.base + ".ndjson",
            err=brief.base + ".stderr.log", stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.taken_up, agent=self.name,
            reads=(self._program, *(brief.base + ending for ending in self._beside(call))),
        )  # fmt: skip
        end = sandbox.run(command, ear)
        ear.finish()
        reader.close(end)
        self._overhear(ear, brief.base + ".stderr.log")
        ear.hand_on()
        self._explain(ear, end, brief.base + ".stderr.log")
        ear.hand_on()
        return ear.fold.turn(end)

    def _call(self, brief: TurnInput) -> AgentInvocation:
        kept = brief if self._dialect.resumes else replace(brief, session=None)
        return AgentInvocation(kept, self._flags, self._model, self._guarded)

    def _beside(self, call: AgentInvocation) -> Mapping[str, str]:
        beside: Callable[[AgentInvocation], Mapping[str, str]] = getattr(self._dialect, "beside", lambda _: {})
        return beside(call)

    def _lay_out(self, call: AgentInvocation) -> str:
        """Write what the program reads beside its prompt, by the ending of each file; why that failed, if it did."""
        for ending, text in self._beside(call).items():
            try:
                with open(call.brief.base + ending, "w", encoding="utf-8", opener=_open_private) as file:
                    file.write(text)
            except OSError as error:
                return f"{call.brief.base}{ending} cannot be written: {error.strerror}"
        return ""

    def _ask_nobody(self, ear: EventCollector, line: bytes) -> None:
        """A question for a login, which nobody will answer, ends the turn."""
        if asks_for_login(line):
            ear.tell(failure_event(self._dialect, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))

    def _overhear(self, ear: EventCollector, stderr: str) -> None:
        """Tell what the program said beside its stream."""
        if hasattr(self._dialect, "overheard"):
            for event in self._dialect.overheard(_read_tail(stderr, STDERR_EVENT_BYTES)):
                ear.tell(event)

    def _explain(self, ear: EventCollector, end: Exit, stderr: str) -> None:
        """Say why a turn went wrong where its structure did not: by its final message, else by the end of stderr."""
        last, complained = ear.ended, _read_tail(stderr)
        if end.why in ("idle", "timeout") and last is None and asks_for_login(complained.encode()):
            ear.tell(failure_event(self._dialect, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))
        if end.why not in ("exit", "lingered") or (last is not None and (last.blame or (last.ok and end.clean))):
            return
        said = (last.error or "") if last else ear.unread  # without a result, what it printed last is its message
        found = find_failure_reason(said, self._now()) or find_failure_reason(complained, self._now())
        if found is not None:
            if found.kind == LIMIT_ERROR or (found.kind == OUTAGE_ERROR and found.resets_at is not None):
                ear.tell(Limited(found.message, found.resets_at))
            ear.tell(failure_event(self._dialect, found, last.text if last else None))
        elif last is None and not (ear.silent and end.clean):  # that is an empty reply, which is asked for again
            ear.tell(Ended(False, None, self._unexplained(ear.fold.turn(end), complained or ear.unread)))

    def _unexplained(self, turn: Turn, complained: str) -> str:
        """What is known of a turn that ended without its result."""
        end = turn.exit
        how = f"by signal {end.signal}" if end.signal else f"with exit code {end.code or 0}"
        understood = not turn.unparsed or turn != Turn(end, unparsed=turn.unparsed)
        foreign = "" if understood else f"; what it printed is not what {self.name} prints"
        last = next((line for line in reversed(complained.splitlines()) if line.strip()), "")
        return f"the agent ended {how} and without its result{foreign}" + (f": {one_line(last)}" if last else "")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read_tail(path: str, most_bytes: int = STDERR_TAIL_BYTES) -> str:
    """The end of a log; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
