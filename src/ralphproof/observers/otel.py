"""Sends a run to an OpenTelemetry receiver as spans: the run, its iterations, turns, tool calls and checks.

All spans of a run have one trace, whichever process sends them. A span is sent when its end is on record, and never
again: what a dead process had begun is ended by the next one, under the same id.
"""

from __future__ import annotations

import time

from ralphproof.budget import Spend
from ralphproof.observers import otel_told
from ralphproof.observers.otel_span import TraceSpan, span_id, trace_id
from ralphproof.observers.otel_tools import ToolCalls
from ralphproof.record import (
    CheckBegan,
    CheckEnded,
    CheckStopped,
    Judged,
    Picked,
    Resumed,
    RunBegan,
    RunEnded,
    ScmBegan,
    ScmEnded,
    TurnBegan,
    TurnEnded,
)
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, Protocol, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.event import Event
    from ralphproof.observers.otel_span import Attributes
    from ralphproof.record import Record
    from ralphproof.value import Json

    Key = tuple[str | int, ...]

GRACE_S = 3.0  # what a receiver gets at the end of a run
ROOT: Key = ("run",)


class Post(Protocol):
    """Who brings spans away, and never keeps anybody waiting for it."""

    @property
    def failures(self) -> list[str]:
        """What could not be sent, in a line."""

    def put(self, span: TraceSpan) -> None:
        """Take a span along."""

    def close(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Bring away what there is, for no longer than this."""


class Otel:
    """An observer that makes spans of what it sees. `close` must be called.

    `earlier` are the records of a run that is taken up again, and when each was written, in epoch seconds: what they
    tell was sent then.
    """

    def __init__(
        self, post: Post, run: str, earlier: Iterable[tuple[float, Record]] = (),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self._post, self._run, self._now_ns = post, run, now_ns
        self._facts: dict[str, Json] = {}
        self._open: dict[Key, TraceSpan] = {}  # what began first is first
        self._job: Attributes = {}
        self._picked: dict[int, int] = {}  # when the last iteration was
        self._asked: TurnBegan | None = None  # the turn that is being taken
        self._tools: ToolCalls | None = None  # and what is done in it
        # How often the run has ended. A run may go on after its end, and two spans of one id are one to some receivers
        # and a fault to others: so each end has a root, and ids below it, of its own. A process that died has sent no
        # root; the next one goes on with that which it had.
        self._ends = 0
        self._silent = True
        for at, record in earlier:
            self._take(record, _ns(at))
        self._silent = self._over = False

    @property
    def failures(self) -> list[str]:
        """What could not be sent, in a line without secrets."""
        return self._post.failures

    def saw(self, record: Record) -> None:
        """A record that is now durable."""
        if not self._over:  # an end may be told twice
            self._over = isinstance(record, RunEnded)
            self._take(record, self._now_ns())

    def heard(self, events: list[Event]) -> None:
        """What an agent does. Of a turn that is taken up again all is heard again, at the time of now."""
        if self._tools is not None:
            self._tools.hear(events, self._now_ns)

    def tick(self) -> None:
        """Spans are brought away by somebody else."""

    def close(self, grace_s: float, patience_s: Callable[[], float]) -> None:
        """Bring away what there is: so long at most, and no longer than somebody is willing to wait."""
        self._post.close(min(grace_s, GRACE_S), patience_s)

    def _take(self, record: Record, at: int) -> None:
        match record:
            case RunBegan() | Resumed():
                self._taken_up(record)
            case Picked(iteration, Job() as job):
                self._job = {"ralph.stage": job.stage.name, "ralph.task.id": job.task.id}
                self._picked = {iteration: at}  # no span yet: a limit may keep it from being begun
            case TurnBegan():
                self._turn_began(record, at)
            case TurnEnded():
                self._turn_ended(record, at)
            case CheckBegan(check=check):
                self._check_began(record, check, at)
            case CheckEnded():
                self._check_ended(record, at)
            case CheckStopped():
                self._check_stopped(record)
            case Judged(iteration, _, verdict):
                self._under(iteration, at)
                self._end(("iteration", iteration), at, *otel_told.verdict_told(verdict))
            case ScmBegan(iteration):
                parent = self._id(("iteration", iteration))
                self._begin(("commit", iteration), parent, "ralph.commit", at, {"ralph.iteration": iteration})
            case ScmEnded(iteration):
                self._end(("commit", iteration), at, *otel_told.commit_told(record))
            case RunEnded():
                self._run_ended(record, at)
            case _:
                pass

    def _taken_up(self, record: RunBegan | Resumed) -> None:
        session, at = 1, _ns(record.at) or self._now_ns()
        if isinstance(record, RunBegan):
            self._facts = record.facts
        else:
            session = record.session
            self._facts = self._facts | ({} if record.sandbox is None else {"sandbox": record.sandbox})
        told, after = otel_told.run_told(self._run, self._facts, session), b""
        if self._ends:
            after = span_id(self._run, self._ends - 1, ROOT)
        anew = ROOT not in self._open
        self._begin(ROOT, b"", "ralph.run", at, told)
        self._open[ROOT] = replace(self._open[ROOT], attributes=told, after=after)
        if self._asked and anew:  # the run had ended before this turn did
            self._turn_began(self._asked, at)

    def _run_ended(self, record: RunEnded, at: int) -> None:
        for key in [key for key in reversed(self._open) if key != ROOT]:
            self._end(key, at, otel_told.UNFINISHED)
        self._end(ROOT, at, *otel_told.outcome_told(record.outcome))
        self._ends += 1
        self._picked = {}

    def _turn_began(self, record: TurnBegan, at: int) -> None:
        key: Key = ("turn", record.iteration, record.turn)
        told = otel_told.asked_told(record.agent, self._facts, record.place)
        told |= {"ralph.iteration": record.iteration, "ralph.turn": record.turn}
        name = f"invoke_agent {record.agent}".strip()
        self._begin(key, self._under(record.iteration, at), name, at, told, client=True)
        self._asked, self._tools = record, ToolCalls(self._run, self._id(key))

    def _turn_ended(self, record: TurnEnded, at: int) -> None:
        key: Key = ("turn", record.iteration, record.turn)
        told, error = otel_told.turn_told(record.reply)
        tools, self._tools, self._asked = self._tools, None, None
        for span in tools.spans(at) if tools else ():  # only now: a turn that is taken up again is heard anew
            self._send(span)
        left_out = tools.left_out if tools else 0
        self._end(key, at, told | ({"ralph.tools.left_out": left_out} if left_out else {}), error)

    def _check_began(self, record: CheckBegan | CheckEnded, check: str, at: int) -> Key:
        key: Key = ("check", record.iteration, record.turn, check, record.round)
        parent = self._under(record.iteration, at) if record.iteration else self._id(ROOT)
        self._begin(key, parent, "ralph.check", at, {"ralph.iteration": record.iteration})
        return key

    def _check_ended(self, record: CheckEnded, at: int) -> None:
        found = record.finding
        key = self._check_began(record, found.check, at)  # some have an answer before they are asked
        began = self._open[key]
        self._open[key] = replace(began, name="ralph.check" if found.hidden else f"ralph.check {found.check}")
        # Those that are asked together are recorded together, when the last one has answered.
        took = began.start_ns + _ns(found.seconds) if found.seconds and found.runs == 1 else at
        self._end(key, min(at, took), *otel_told.check_told(found))

    def _check_stopped(self, record: CheckStopped) -> None:
        """It was ended before it answered, and so is the run: its span is sent then."""
        for key, span in self._open.items():
            if key[:4] == ("check", record.iteration, record.turn, record.check):
                told = span.attributes | otel_told.cost_told(Spend.of(record.spent))
                self._open[key] = replace(span, attributes=told)

    def _under(self, iteration: int, at: int) -> bytes:
        """The id of an iteration, which is open from now on."""
        key: Key = ("iteration", iteration)
        began, told = self._picked.get(iteration, at), {"ralph.iteration": iteration, **self._job}
        self._begin(key, self._id(ROOT), "ralph.iteration", began, told)
        return self._id(key)

    def _id(self, key: Key) -> bytes:
        return span_id(self._run, self._ends, key)

    def _begin(
        self, key: Key, parent: bytes, name: str, at: int, told: Attributes, client: bool = False
    ) -> None:  # fmt: skip
        """Open a span, unless it is open."""
        if key not in self._open:
            trace, own = trace_id(self._run), self._id(key)
            self._open[key] = TraceSpan(name, trace, own, parent, at, attributes=told, client=client)

    def _end(self, key: Key, at: int, told: Attributes, error: str = "", good: bool = False) -> None:
        if span := self._open.pop(key, None):
            end = max(at, span.start_ns)  # clocks are set back
            self._send(replace(span, end_ns=end, attributes=span.attributes | told, error=error, good=good))

    def _send(self, span: TraceSpan) -> None:
        if not self._silent:
            self._post.put(span)


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
