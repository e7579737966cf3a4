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
    """An agent program, the user's flags for it, and its adapter. `cost` prices tokens; `guarded` keeps its own
    permission mode on.
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
        """What it needs of the machine, as far as its adapter knows."""
        requirements: AgentRequirements = getattr(self._adapter, "requirements", AgentRequirements())
        return requirements

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
        if not hasattr(self._adapter, "interactive"):
            return None
        call = self._invocation(brief)
        env = {**self._adapter.updates_off, **dict(brief.env), **self._adapter.environment(call)}
        return (self._program, *self._adapter.interactive(call, resume)), tuple(env.items())

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
        env = {**self._adapter.updates_off, **dict(brief.env), **self._adapter.environment(call)}
        command = Command(
            self.argv(brief), brief.cwd, tuple(env.items()), out=brief.log_base + ".ndjson",
            err=brief.log_base + ".stderr.log", stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.call_id,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.adopt, agent=self.name,
            reads=(self._program, *(brief.log_base + ending for ending in self._extra_files(call))),
        )  # fmt: skip
        end = sandbox.run(command, collector)
        collector.finish()
        reader.close(end)
        self._emit_stderr_events(collector, brief.log_base + ".stderr.log")
        collector.flush_events()
        self._explain(collector, end, brief.log_base + ".stderr.log")
        collector.flush_events()
        return collector.turn_builder.turn(end)

    def _invocation(self, brief: TurnInput) -> AgentInvocation:
        kept = brief if self._adapter.resumes else replace(brief, session=None)
        return AgentInvocation(kept, self._flags, self._model, self._guarded)

    def _extra_files(self, call: AgentInvocation) -> Mapping[str, str]:
        beside: Callable[[AgentInvocation], Mapping[str, str]] = getattr(self._adapter, "extra_files", lambda _: {})
        return beside(call)

    def _write_extra_files(self, call: AgentInvocation) -> str:
        """Write the files that the program reads beside its prompt, by suffix; an error message if that failed."""
        for ending, text in self._extra_files(call).items():
            try:
                with open(call.brief.log_base + ending, "w", encoding="utf-8", opener=_open_private) as file:
                    file.write(text)
            except OSError as error:
                return f"{call.brief.log_base}{ending} cannot be written: {error.strerror}"
        return ""

    def _check_login_prompt(self, collector: EventCollector, line: bytes) -> None:
        """End the turn when the program asks for a login: nobody will answer."""
        if asks_for_login(line):
            collector.emit(failure_event(self._adapter, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))

    def _emit_stderr_events(self, collector: EventCollector, stderr: str) -> None:
        """Emit the events that the program reports on stderr alone."""
        if hasattr(self._adapter, "stderr_events"):
            for event in self._adapter.stderr_events(_read_tail(stderr, STDERR_EVENT_BYTES)):
                collector.emit(event)

    def _explain(self, collector: EventCollector, end: Exit, stderr: str) -> None:
        """Say why a turn failed where the stream did not: by its final message, else by the end of stderr."""
        last, stderr_text = collector.ended, _read_tail(stderr)
        if end.why in ("idle", "timeout") and last is None and asks_for_login(stderr_text.encode()):
            collector.emit(failure_event(self._adapter, FailureReason(LOGIN_ERROR, "it asks somebody to log in")))
        if end.why not in ("exit", "lingered") or (last is not None and (last.blame or (last.ok and end.clean))):
            return
        said = (
            (last.error or "") if last else collector.unparsed_text
        )  # without a result, what it printed last is its message
        found = find_failure_reason(said, self._now()) or find_failure_reason(stderr_text, self._now())
        if found is not None:
            if found.kind == LIMIT_ERROR or (found.kind == OUTAGE_ERROR and found.resets_at is not None):
                collector.emit(Limited(found.message, found.resets_at))
            collector.emit(failure_event(self._adapter, found, last.text if last else None))
        elif last is None and not (
            collector.printed_nothing and end.clean
        ):  # that is an empty reply, which is asked for again
            collector.emit(
                Ended(
                    False,
                    None,
                    self._describe_missing_result(
                        collector.turn_builder.turn(end), stderr_text or collector.unparsed_text
                    ),
                )
            )

    def _describe_missing_result(self, turn: Turn, stderr_text: str) -> str:
        """The error of a turn that ended without a result."""
        end = turn.exit
        how = f"by signal {end.signal}" if end.signal else f"with exit code {end.code or 0}"
        understood = not turn.unparsed or turn != Turn(end, unparsed=turn.unparsed)
        foreign = "" if understood else f"; what it printed is not what {self.name} prints"
        last = next((line for line in reversed(stderr_text.splitlines()) if line.strip()), "")
        return f"the agent ended {how} and without its result{foreign}" + (f": {one_line(last)}" if last else "")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read_tail(path: str, most_bytes: int = STDERR_TAIL_BYTES) -> str:
    """The end of a log file; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
