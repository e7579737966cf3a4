"""The agent of a program with a known adapter, started anew for each turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

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
from ralphproof.agents.event_collector import EventCollector, turn_command
from ralphproof.base.value import replace
from ralphproof.engine.agent import Ended, Limited, Spent, Turn, TurnInput, TurnWatcher, Usage
from ralphproof.engine.sandbox import AgentRequirements, Exit, Sandbox

STDERR_TAIL_BYTES = 16 * 1024  # of its end, read when a turn failed
STDERR_EVENT_BYTES = 1 << 20  # of its end, read for events that are not in the stream
NOTHING_SPENT = Spent(0, Usage())


class CliAgent:
    """An agent program with its adapter and the user's flags. `cost` prices tokens; `guarded` keeps its permission mode
    on.
    """

    def __init__(
        self, adapter: AgentAdapter, program: str, flags: tuple[str, ...] = (), *, model: str | None = None,
        guarded: bool = True, cost: Callable[[str | None, Usage], int | None] = lambda *_: None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.name = adapter.name
        self._adapter, self._program, self._flags, self._model = adapter, program, flags, model
        self._guarded, self._cost, self._now = guarded, cost, now

    @property
    def requirements(self) -> AgentRequirements:
        return self._adapter.requirements

    @property
    def reports_cost(self) -> bool:
        """Whether a cost limit can be enforced: the agent reports its cost, or its tokens have a price."""
        if self._adapter.cost == COST_COMPUTED:
            return self._cost(self._adapter.model(self._flags, self._model), Usage(1, 1)) is not None
        return self._adapter.cost == COST_REPORTED

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return (self._program, *self._adapter.arguments(self._invocation(brief)))

    def interactive_command(
        self, brief: TurnInput, resume: bool
    ) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
        """Arguments and environment of an interactive session at a terminal, with the prompt as its first message.

        With `resume` it continues the session of `brief` where the program can. None where the adapter does not support
        it.
        """
        call = self._invocation(brief)
        arguments = self._adapter.interactive(call, resume)
        return None if arguments is None else ((self._program, *arguments), self._environment(call))

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Run the program to its end. The turn succeeded only if the program says so and everything else agrees."""
        call, collector = self._invocation(brief), EventCollector(watch)
        if problem := self._write_extra_files(call):
            return Turn(Exit(None, why="unstartable", error=problem))
        billed = (call.brief.session and brief.session_spent) or NOTHING_SPENT
        model = self._adapter.model(self._flags, self._model)
        context = ReaderContext(collector.emit, self._cost, self._now, billed, model, collector.on_idle)
        reader = self._adapter.reader(context)
        collector.set_reader(reader.read_line, lambda line: self._check_login_prompt(collector, line))
        reads = (self._program, *(brief.log_base + suffix for suffix in self._adapter.extra_files(call)))
        command = turn_command(self.name, self.argv(brief), brief, reads)
        end = sandbox.run(replace(command, env=self._environment(call)), collector)
        collector.finish()
        reader.close(end)
        for event in self._adapter.stderr_events(_read_tail(brief.log_base + ".stderr.log", STDERR_EVENT_BYTES)):
            collector.emit(event)
        collector.flush_events()
        self._explain(collector, end, brief.log_base + ".stderr.log")
        collector.flush_events()
        return collector.turn_builder.turn(end)

    def _invocation(self, brief: TurnInput) -> AgentInvocation:
        if not self._adapter.resumes:
            brief = replace(brief, session=None)
        return AgentInvocation(brief, self._flags, self._model, self._guarded)

    def _environment(self, call: AgentInvocation) -> tuple[tuple[str, str], ...]:
        env = {**self._adapter.updates_off, **dict(call.brief.env), **self._adapter.environment(call)}
        return tuple(env.items())

    def _write_extra_files(self, call: AgentInvocation) -> str:
        """Write these files; an error message if that failed."""
        for suffix, text in self._adapter.extra_files(call).items():
            try:
                with open(call.brief.log_base + suffix, "w", encoding="utf-8", opener=_open_private) as file:
                    file.write(text)
            except OSError as error:
                return f"{call.brief.log_base}{suffix} cannot be written: {error.strerror}"
        return ""

    def _check_login_prompt(self, collector: EventCollector, line: bytes) -> None:
        """End the turn when the program asks for a login, since nobody will answer."""
        if asks_for_login(line):
            collector.emit(failure_event(self._adapter, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))

    def _explain(self, collector: EventCollector, end: Exit, stderr: str) -> None:
        """Emit the reason of a failed turn that the stream did not give: by its last message, else by stderr."""
        last, stderr_text = collector.ended, _read_tail(stderr)
        if end.why in ("idle", "timeout") and last is None and asks_for_login(stderr_text.encode()):
            collector.emit(failure_event(self._adapter, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))
        if end.why not in ("exit", "lingered") or (last is not None and (last.blame or (last.ok and end.clean))):
            return
        message = (last.error or "") if last else collector.unparsed_text
        reason = find_failure_reason(message, self._now()) or find_failure_reason(stderr_text, self._now())
        empty_reply = collector.printed_nothing and end.clean  # the turn is taken again
        if reason is not None:
            if reason.kind == LIMIT_ERROR or (reason.kind == OUTAGE_ERROR and reason.resets_at is not None):
                collector.emit(Limited(reason.message, reason.resets_at))
            collector.emit(failure_event(self._adapter, reason, last.text if last else None))
        elif last is None and not empty_reply:
            turn = collector.turn_builder.turn(end)
            error = self._describe_missing_result(turn, stderr_text or collector.unparsed_text)
            collector.emit(Ended(False, None, error))

    def _describe_missing_result(self, turn: Turn, stderr_text: str) -> str:
        """The error of a turn that ended without a result."""
        end = turn.exit
        how = f"by signal {end.signal}" if end.signal else f"with exit code {end.code or 0}"
        parsed_some = not turn.unparsed or turn != Turn(end, unparsed=turn.unparsed)
        foreign = "" if parsed_some else f"; what it printed is not what {self.name} prints"
        last = next((line for line in reversed(stderr_text.splitlines()) if line.strip()), "")
        return f"the agent ended {how} and without its result{foreign}" + (f": {one_line(last)}" if last else "")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read_tail(path: str, max_bytes: int = STDERR_TAIL_BYTES) -> str:
    """The end of a log file; empty where there is none."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - max_bytes))
            return file.read(min(size, max_bytes)).decode("utf-8", "replace")
    except OSError:
        return ""
