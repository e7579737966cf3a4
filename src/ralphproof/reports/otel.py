"""OpenTelemetry export: spans of runs, and an OTLP/HTTP client that sends them."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from ralphproof import __version__
from ralphproof.agents.selection import agent_traits
from ralphproof.base.redaction import MIN_SECRET_LENGTH
from ralphproof.base.value import Json, Protocol, assert_never, replace, value
from ralphproof.engine.agent import (
    AgentFault,
    ConfigFault,
    Event,
    HarnessFault,
    ServiceFault,
    SignalFault,
    ToolEnded,
    ToolStarted,
    Turn,
    Usage,
    classify_fault,
)
from ralphproof.engine.check import Finding
from ralphproof.engine.limits import CONTINUED_REASONS, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Passed, Stopped, Verdict, verdict_word
from ralphproof.engine.plan import Job
from ralphproof.engine.records import (
    CheckBegan,
    CheckEnded,
    CheckStopped,
    Judged,
    Picked,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    ScmBegan,
    ScmEnded,
    TurnBegan,
    TurnEnded,
)
from ralphproof.reports.addresses import TRACES_PATH, redact_otel_endpoint

Key = tuple[str | int, ...]


# Attributes of spans: OpenTelemetry's names for generative AI, and `ralph.*` for everything else.
#
# They hold names, numbers and our own messages, but no prompt, no output and no message of an agent.


ERROR_TYPE = "error.type"
UNFINISHED_ATTRIBUTES: Attributes = {"ralph.unfinished": True}
FAULT_NAMES = {
    AgentFault: "agent", ServiceFault: "service", ConfigFault: "config", SignalFault: "signal", HarnessFault: "harness"
}  # fmt: skip


def run_attributes(run: str, facts: dict[str, Json], session: int) -> Attributes:
    """Attributes known when a run begins or is resumed."""
    sandbox_fact, directory = facts.get("sandbox"), facts.get("directory")
    sandbox = sandbox_fact if isinstance(sandbox_fact, dict) else {}
    return known_attributes({
        "ralph.run.id": run,
        "ralph.session": session,
        "ralph.project": os.path.basename(directory) if isinstance(directory, str) else "",
        "ralph.preset": facts.get("preset"),
        "ralph.agent": facts.get("agent"),
        "ralph.parent.run.id": facts.get("parent"),
        "ralph.sandbox.name": sandbox.get("name"),
        "ralph.sandbox.strength": sandbox.get("strength"),
    })  # fmt: skip


def outcome_attributes(outcome: Outcome) -> tuple[Attributes, str, bool]:
    """Attributes of an outcome, the error class, and whether it succeeded."""
    attributes: Attributes = {"ralph.outcome": outcome.status, "ralph.exit_code": outcome.exit_code}
    attributes |= {"ralph.iterations": outcome.iterations} | cost_attributes(outcome.spend)
    match outcome:
        case Completed():
            return attributes | {"ralph.proof": outcome.proof}, "", True
        case Aborted(breach):
            attributes |= {"ralph.reason": breach.reason, "ralph.checks_passed": outcome.checks_passed}
            return attributes, "" if breach.reason in CONTINUED_REASONS else breach.reason, False
        case Failed():
            return attributes, "config" if outcome.exit_code == 2 else "harness", False
        case _:
            assert_never(outcome)


def request_attributes(agent: str, facts: dict[str, Json], place: int) -> Attributes:
    """Agent and model. The model is known if the run has one for all turns."""
    single_model = place == 0 and not facts.get("ladder") and not facts.get("rotate")
    return known_attributes({
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.provider.name": agent_traits(agent).provider,
        "gen_ai.request.model": facts.get("model") if single_model else "",
    })  # fmt: skip


def turn_attributes(reply: Turn) -> tuple[Attributes, str]:
    """Attributes of a turn, and the error class if it failed."""
    fault = classify_fault(reply)
    attributes = known_attributes({
        "gen_ai.agent.version": reply.version,
        "gen_ai.response.model": reply.model,
        "gen_ai.conversation.id": reply.session,
        "ralph.exit.why": reply.exit.why,
        "ralph.exit.code": reply.exit.code,
        "ralph.exit.signal": reply.exit.signal,
        "ralph.tools": reply.tools,
        "ralph.tools.failed": reply.errors,
        "ralph.tools.denied": len(reply.denied),
    })  # fmt: skip
    attributes |= cost_attributes(Spend().plus_turn(reply)) | _token_attributes(reply.usage)
    return attributes, FAULT_NAMES[type(fault)] if fault else ""


def verdict_attributes(verdict: Verdict) -> tuple[Attributes, str, bool]:
    """Attributes of a verdict, the error class, and whether it succeeded. A retry is no error."""
    attributes: Attributes = {"ralph.verdict": verdict_word(verdict)}
    if isinstance(verdict, Stopped):
        return attributes | {"ralph.reason": verdict.breach.reason}, verdict.breach.reason, False
    return attributes, "", isinstance(verdict, Passed)


def check_attributes(finding: Finding) -> tuple[Attributes, str]:
    """Attributes of a check, and the error class if it did not pass. Names of held-out checks are not revealed."""
    attributes = known_attributes({
        "ralph.check.name": "" if finding.hidden else finding.check,
        "ralph.check.passed": finding.passed,
        "ralph.check.required": finding.required,
        "ralph.check.judged": finding.judged,
        "ralph.check.held_out": finding.hidden,
        "ralph.check.seconds": finding.seconds,
        "ralph.check.runs": finding.runs,
        "ralph.exit.why": finding.why,
        "ralph.exit.code": finding.code,
    })  # fmt: skip
    attributes |= cost_attributes(Spend.of(finding.spent)) if finding.spent else {}
    return attributes, "" if finding.passed else "errored" if finding.errored else "failed"


def commit_attributes(record: ScmEnded) -> tuple[Attributes, str]:
    """Attributes of a commit in the user's SCM."""
    attributes = known_attributes({"ralph.commit.id": record.committed.commit})
    attributes |= cost_attributes(Spend().plus_turn(record.reply)) if record.reply else {}
    return attributes, "commit" if record.committed.error else ""


def cost_attributes(spend: Spend) -> Attributes:
    """Cost in dollars. Unknown is not zero; a partial cost is a lower bound."""
    if spend.unpriced and not spend.micro_usd:
        return {}
    attributes: Attributes = {"ralph.cost.usd": spend.micro_usd / 1_000_000}
    attributes |= {"ralph.cost.at_least": True} if spend.unpriced else {}
    return attributes | ({"ralph.cost.notional_usd": spend.notional / 1_000_000} if spend.notional else {})


def _token_attributes(usage: Usage | None) -> Attributes:
    """Tokens as OpenTelemetry counts them: input includes cache reads and writes."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }


def known_attributes(attributes: dict[str, Json]) -> Attributes:
    """Attributes without unknown values."""
    return {
        name: attribute
        for name, attribute in attributes.items()
        if isinstance(attribute, str | bool | int | float) and attribute != ""
    }


# Spans, and ids that every process of the same run derives alike.


Attributes = dict[str, str | bool | int | float]


@value
class TraceSpan:
    """A span; open while `end_ns` is 0. Times are in nanoseconds since the epoch.

    `error` is an error class. `good` is known success; most spans are neither. `client`: another process did the work.
    `after` is the span that this one continues.
    """

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    start_ns: int
    end_ns: int = 0
    attributes: Attributes = {}  # noqa: RUF012 (never changed)
    error: str = ""
    good: bool = False
    client: bool = False
    after: bytes = b""


def trace_id(run: str) -> bytes:
    """The trace of a run, the same in every process."""
    return sha256(f"ralph run {run}".encode("utf-8", "surrogatepass")).digest()[:16]


def span_id(run: str, *key: object) -> bytes:
    """The span with this key in a run, the same in every process."""
    return sha256(repr((run, *key)).encode("utf-8", "surrogatepass")).digest()[:8]


# Spans of the tool calls of one turn.


MAX_TOOL_CALLS = 500  # calls of a turn that become spans; the others are counted


class ToolCallSpans:
    """Collects spans of the tool calls of a turn. Arguments and output are not kept."""

    def __init__(self, run: str, parent: bytes) -> None:
        self._run, self._parent = run, parent
        self._spans: list[TraceSpan] = []
        self._open: dict[str, int] = {}  # the index in `_spans` of each call that has not ended
        self.left_out = 0

    def add(self, events: list[Event], now_ns: Callable[[], int]) -> None:
        """Add events of the turn."""
        for event in events:
            kind = type(event)  # a stream may hold a million of them
            if kind is ToolStarted:
                assert isinstance(event, ToolStarted)
                self._began(event, now_ns())
            elif kind is ToolEnded:
                assert isinstance(event, ToolEnded)
                self._ended(event, now_ns())

    def spans(self, at_ns: int) -> list[TraceSpan]:
        """The spans of all calls at the end of the turn; unfinished calls are marked."""
        for index in self._open.values():
            span = self._spans[index]
            self._spans[index] = replace(span, end_ns=at_ns, attributes=span.attributes | UNFINISHED_ATTRIBUTES)
        return self._spans

    def _began(self, event: ToolStarted, at_ns: int) -> None:
        index = len(self._spans)
        if index == MAX_TOOL_CALLS:
            self.left_out += 1
            self._open.pop(event.id, None)  # an end with this id is not that of the earlier call
            return
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name}
        attributes |= {"gen_ai.tool.call.id": event.id} if event.id else {}
        own_id = span_id(self._run, self._parent, "tool", index)  # an agent's ids need not be unique
        name, trace = f"execute_tool {event.name}", trace_id(self._run)
        self._spans.append(TraceSpan(name, trace, own_id, self._parent, at_ns, attributes={**attributes}))
        self._open[event.id] = index

    def _ended(self, event: ToolEnded, at_ns: int) -> None:
        index = self._open.pop(event.id, None)
        if index is not None:
            span = self._spans[index]
            self._spans[index] = replace(span, end_ns=max(at_ns, span.start_ns), error="" if event.ok else "tool")


# The observer that makes spans of a run, its iterations, turns, tool calls and checks.
#
# All spans of a run have one trace, whichever process sends them. A span is sent once, when its end is recorded. A span
# that a dead process began is ended by the next process, under the same id.


CLOSE_GRACE_S = 3.0  # time for the last spans at the end of a run
ROOT_KEY: Key = ("run",)


class SpanExporter(Protocol):
    """Exports spans without blocking."""

    @property
    def failures(self) -> list[str]:
        """A line about spans that could not be sent."""

    def put(self, span: TraceSpan) -> None:
        """Queue a span."""

    def close(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Send the rest within this time."""


class OtelObserver:
    """Makes spans of records and events. `close` must be called.

    `earlier` are the records of a resumed run with their epoch seconds: their spans were sent before.
    """

    def __init__(
        self, exporter: SpanExporter, run: str, earlier: Iterable[tuple[float, Record]] = (),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self._exporter, self._run, self._now_ns = exporter, run, now_ns
        self._facts: dict[str, Json] = {}
        self._open: dict[Key, TraceSpan] = {}  # in the order of their starts
        self._job: Attributes = {}
        self._picked: dict[int, int] = {}  # when the last iteration was picked
        self._turn: TurnBegan | None = None  # the current turn
        self._tools: ToolCallSpans | None = None  # of the current turn
        # How often the run has ended. A run may be resumed after its end, and receivers do not accept two spans of one
        # id. So each end has a root span of its own, and other ids below it. A process that died has sent no root span,
        # so the next process continues with the same one.
        self._ends = 0
        self._replaying = True
        for at, record in earlier:
            self._take(record, _to_nanoseconds(at))
        self._replaying = self._over = False

    @property
    def failures(self) -> list[str]:
        """A line about spans that could not be sent, without secrets."""
        return self._exporter.failures

    def on_record(self, record: Record) -> None:
        """Handle a durable record."""
        if not self._over:  # the end may be recorded twice
            self._over = isinstance(record, RunEnded)
            self._take(record, self._now_ns())

    def on_events(self, events: list[Event]) -> None:
        """Handle events of an agent. Those of an adopted turn come again, with the current time."""
        if self._tools is not None:
            self._tools.add(events, self._now_ns)

    def tick(self) -> None:
        """The exporter sends by itself."""

    def close(self, grace_s: float, patience_s: Callable[[], float]) -> None:
        """Send the rest within this time, or as long as `patience_s` permits."""
        self._exporter.close(min(grace_s, CLOSE_GRACE_S), patience_s)

    def _take(self, record: Record, at: int) -> None:
        match record:
            case RunBegan() | Resumed():
                self._run_began(record)
            case Picked(iteration, Job() as job):
                self._job = {"ralph.stage": job.stage.name, "ralph.task.id": job.task.id}
                self._picked = {iteration: at}  # no span yet: a limit may prevent the iteration
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
                self._iteration_id(iteration, at)
                self._end(("iteration", iteration), at, *verdict_attributes(verdict))
            case ScmBegan(iteration):
                parent = self._id(("iteration", iteration))
                self._begin(("commit", iteration), parent, "ralph.commit", at, {"ralph.iteration": iteration})
            case ScmEnded(iteration):
                self._end(("commit", iteration), at, *commit_attributes(record))
            case RunEnded():
                self._run_ended(record, at)
            case _:
                pass

    def _run_began(self, record: RunBegan | Resumed) -> None:
        session, at = 1, _to_nanoseconds(record.at) or self._now_ns()
        if isinstance(record, RunBegan):
            self._facts = record.facts
        else:
            session = record.session
            self._facts = self._facts | ({} if record.sandbox is None else {"sandbox": record.sandbox})
        attributes, after = run_attributes(self._run, self._facts, session), b""
        if self._ends:
            after = span_id(self._run, self._ends - 1, ROOT_KEY)
        has_new_root = ROOT_KEY not in self._open
        self._begin(ROOT_KEY, b"", "ralph.run", at, attributes)
        self._open[ROOT_KEY] = replace(self._open[ROOT_KEY], attributes=attributes, after=after)
        if self._turn and has_new_root:  # the run ended during this turn
            self._turn_began(self._turn, at)

    def _run_ended(self, record: RunEnded, at: int) -> None:
        for key in [key for key in reversed(self._open) if key != ROOT_KEY]:
            self._end(key, at, UNFINISHED_ATTRIBUTES)
        self._end(ROOT_KEY, at, *outcome_attributes(record.outcome))
        self._ends += 1
        self._picked = {}

    def _turn_began(self, record: TurnBegan, at: int) -> None:
        key: Key = ("turn", record.iteration, record.turn)
        attributes = request_attributes(record.agent, self._facts, record.place)
        attributes |= {"ralph.iteration": record.iteration, "ralph.turn": record.turn}
        name = f"invoke_agent {record.agent}".strip()
        self._begin(key, self._iteration_id(record.iteration, at), name, at, attributes, client=True)
        self._turn, self._tools = record, ToolCallSpans(self._run, self._id(key))

    def _turn_ended(self, record: TurnEnded, at: int) -> None:
        key: Key = ("turn", record.iteration, record.turn)
        attributes, error = turn_attributes(record.reply)
        tools, self._tools, self._turn = self._tools, None, None
        for span in tools.spans(at) if tools else ():  # only now: events of an adopted turn come again
            self._send(span)
        left_out = tools.left_out if tools else 0
        self._end(key, at, attributes | ({"ralph.tools.left_out": left_out} if left_out else {}), error)

    def _check_began(self, record: CheckBegan | CheckEnded, check: str, at: int) -> Key:
        key: Key = ("check", record.iteration, record.turn, check, record.round)
        parent = self._iteration_id(record.iteration, at) if record.iteration else self._id(ROOT_KEY)
        self._begin(key, parent, "ralph.check", at, {"ralph.iteration": record.iteration})
        return key

    def _check_ended(self, record: CheckEnded, at: int) -> None:
        found = record.finding
        key = self._check_began(record, found.check, at)  # some checks have no record of their start
        began = self._open[key]
        self._open[key] = replace(began, name="ralph.check" if found.hidden else f"ralph.check {found.check}")
        # Checks that run in parallel are recorded together, after the last one.
        took = began.start_ns + _to_nanoseconds(found.seconds) if found.seconds and found.runs == 1 else at
        self._end(key, min(at, took), *check_attributes(found))

    def _check_stopped(self, record: CheckStopped) -> None:
        """Add the cost of a stopped check; its span is sent at the end of the run, which was stopped too."""
        for key, span in self._open.items():
            if key[:4] == ("check", record.iteration, record.turn, record.check):
                attributes = span.attributes | cost_attributes(Spend.of(record.spent))
                self._open[key] = replace(span, attributes=attributes)

    def _iteration_id(self, iteration: int, at: int) -> bytes:
        """The id of the iteration's span, which is opened if necessary."""
        key: Key = ("iteration", iteration)
        began, attributes = self._picked.get(iteration, at), {"ralph.iteration": iteration, **self._job}
        self._begin(key, self._id(ROOT_KEY), "ralph.iteration", began, attributes)
        return self._id(key)

    def _id(self, key: Key) -> bytes:
        return span_id(self._run, self._ends, key)

    def _begin(
        self, key: Key, parent: bytes, name: str, at: int, attributes: Attributes, client: bool = False
    ) -> None:  # fmt: skip
        """Open a span, unless it is open."""
        if key not in self._open:
            trace, own_id = trace_id(self._run), self._id(key)
            self._open[key] = TraceSpan(name, trace, own_id, parent, at, attributes=attributes, client=client)

    def _end(self, key: Key, at: int, attributes: Attributes, error: str = "", good: bool = False) -> None:
        if span := self._open.pop(key, None):
            end = max(at, span.start_ns)  # a clock may be set back
            self._send(replace(span, end_ns=end, attributes=span.attributes | attributes, error=error, good=good))

    def _send(self, span: TraceSpan) -> None:
        if not self._replaying:
            self._exporter.put(span)


def _to_nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


# The endpoint of an OTLP/HTTP receiver: its base URL, or the URL of its traces.


HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"  # the only OpenTelemetry variable that is read: it may hold a key
MISSING_OPENTELEMETRY = "otel is set, and to send spans needs opentelemetry: pip install 'ralphproof[otel]'"
OTLP_MODULE = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"


def otel_endpoint_secrets(address: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets in the address and in its headers."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    secrets = [parts.query, *parse_otel_headers(environ).values()]
    if redact_otel_endpoint(address) != address:
        secrets += [address, parts.netloc.rpartition("@")[0], parts.password or ""]
    return tuple(text for text in secrets if len(text) >= MIN_SECRET_LENGTH)


def parse_otel_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """Headers of the user's variable: `name=text,name=text`, percent-encoded. Invalid ones are dropped."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in environ.get(HEADERS_VARIABLE, "").split(","))
    named = ((name.strip(), unquote(text.strip())) for name, _, text in pairs)
    return {
        name: text
        for name, text in named
        if re.fullmatch("[A-Za-z0-9_-]+", name) and text.isascii() and text.isprintable()
    }


def is_opentelemetry_installed() -> bool:
    """Whether spans can be encoded. The package is not imported."""
    from importlib.util import find_spec

    try:
        return find_spec(OTLP_MODULE) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


# The HTTP client. OpenTelemetry's own exporter (1.45) is not used, because it follows redirects, uses proxies, writes
# to the log, and reads two dozen variables. Here spans are sent only to the configured address.


POST_TIMEOUT_S = 10.0
RETRYABLE_STATUSES = (429, 502, 503, 504)  # by the OTLP specification


class OtlpClient:
    """Client of one receiver. One POST at a time; `hang_up` of another thread aborts it."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        """In `address` `otel_endpoint_problem` found no problem. A user name in it becomes basic authentication."""
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(address)
        secure = parts.scheme == "https"
        self._type = HTTPSConnection if secure else HTTPConnection
        self._host, self._port = parts.hostname or "", parts.port or (443 if secure else 80)
        self._path = parts.path.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH
        self._path += f"?{parts.query}" if parts.query else ""
        self._headers = parse_otel_headers(environ)
        self._headers |= {"Content-Type": "application/x-protobuf", "User-Agent": f"ralphproof/{__version__}"}
        if "@" in parts.netloc:
            user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        self._connection: HTTPConnection | None = None

    def post(self, body: bytes) -> tuple[str, bool]:
        """Send a body. Why it failed, and whether to send it again because the receiver cannot have taken it."""
        self._connection = connection = self._type(self._host, self._port, timeout=POST_TIMEOUT_S)
        try:
            try:
                connection.connect()
            except (OSError, ValueError):  # ValueError for an invalid host name
                return "no connection", True
            connection.request("POST", self._path, body, self._headers)
            status = connection.getresponse().status
        except (OSError, HTTPException, ValueError):
            return "no answer", False  # not sent again, because it may have arrived
        finally:
            self._connection = None
            connection.close()
        return ("", False) if 200 <= status < 300 else (f"it answered {status}", status in RETRYABLE_STATUSES)

    def hang_up(self) -> None:
        """Abort a pending request."""
        connection = self._connection
        sock = connection.sock if connection else None
        try:
            if sock is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of a TLS socket is not thread-safe
        except OSError:
            pass  # the connection has just been closed


# The exporter: a queue of spans and a thread that sends them, so that nothing else waits for the receiver.


MAX_QUEUED_SPANS = 4096  # beyond these the oldest are dropped
BATCH_SPANS = 512  # spans in a request
BATCH_DELAY_S = 1.0  # how long a batch waits for more spans
RETRY_DELAY_S = 5.0
POLL_S = 0.05
LATE_REASON, QUEUE_FULL_REASON = "no answer before the end", "too many waited"


class OtlpExporter:
    """Queues spans in bounded memory, and sends them in a thread that starts with the first.

    In `address` `otel_endpoint_problem` found no problem.
    """

    def __init__(self, address: str, mask: Callable[[str], str], environ: Mapping[str, str]) -> None:
        self._shown, self._mask = redact_otel_endpoint(address), mask
        self._receiver = OtlpClient(address, environ)
        self._waiting: deque[TraceSpan] = deque()
        self._changed = threading.Condition()  # guards the following fields, which both threads use
        self._thread: threading.Thread | None = None
        self._closing = self._left = False
        self._under_way = self._lost = 0
        self._why = ""

    @property
    def failures(self) -> list[str]:
        """A line about spans that could not be sent, without secrets; it names only the first reason."""
        spans = f"{self._lost} spans were" if self._lost > 1 else "a span was"
        return [f"otel: {self._shown}: {spans} not sent: {self._why}"] if self._lost else []

    def put(self, span: TraceSpan) -> None:
        """Queue a span."""
        with self._changed:
            self._waiting.append(span)
            if len(self._waiting) > MAX_QUEUED_SPANS:
                self._waiting.popleft()
                self._lose(1, QUEUE_FULL_REASON)
            if self._thread is None:
                self._thread = _start_thread(self._work)
            if len(self._waiting) in (1, BATCH_SPANS):
                self._changed.notify_all()

    def close(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Send the rest within this time, or as long as `patience_s` permits; what remains is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        while self._thread and self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            deadline = min(deadline, time.monotonic() + patience_s())
            self._thread.join(min(left, POLL_S))
        with self._changed:
            self._lose(len(self._waiting) + self._under_way, LATE_REASON)
            self._waiting.clear()
            self._left = True
        self._receiver.hang_up()

    def _work(self) -> None:
        while batch := self._next():
            why = self._send(batch)
            with self._changed:
                self._under_way = 0
                if why and not self._left:
                    self._lose(len(batch), why)

    def _next(self) -> list[TraceSpan]:
        """The next batch, when there is one; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: len(self._waiting) >= BATCH_SPANS or self._closing, BATCH_DELAY_S)
            batch = [self._waiting.popleft() for _ in range(min(BATCH_SPANS, len(self._waiting)))]
            self._under_way = len(batch)
        return batch

    def _send(self, batch: list[TraceSpan]) -> str:
        """Send a batch, retrying while the receiver is unavailable; the reason if it is lost."""
        try:
            body = encode_spans(batch, self._mask)
        except (ImportError, TypeError, ValueError) as error:
            return f"they could not be encoded ({type(error).__name__})"
        while True:
            last = self._closing  # at the end there is one more attempt
            why, again = self._receiver.post(body)
            if not again or last:
                return why
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY_DELAY_S)

    def _lose(self, count: int, why: str) -> None:
        self._lost += count
        self._why = self._why or (why if count else "")


def _start_thread(work: Callable[[], None]) -> threading.Thread:
    """A thread with signals blocked: one delivered to it would not wake the thread that waits for signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread = threading.Thread(target=work, name="ralph-otel", daemon=True)
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread


# OTLP encoding of spans. The package is imported with the first span, in the thread that sends it.


MAX_TEXT_CHARS = 200  # of any text: names may come from an agent or a command
MAX_INT64 = 2**63 - 1


def encode_spans(spans: Iterable[TraceSpan], mask: Callable[[str], str]) -> bytes:
    """The body of a request. All text in it is masked."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

    def encode_value(attribute: str | bool | float) -> AnyValue:
        match attribute:
            case str():
                return AnyValue(string_value=_mask_and_clip(attribute, mask))
            case bool():
                return AnyValue(bool_value=attribute)
            case int():
                return AnyValue(int_value=max(-MAX_INT64, min(attribute, MAX_INT64)))  # an agent may report any number
            case _:
                return AnyValue(double_value=attribute)

    def encode_attributes(attributes: Attributes) -> list[KeyValue]:
        return [KeyValue(key=name, value=encode_value(attribute)) for name, attribute in attributes.items()]

    def encode_span(span: TraceSpan) -> Span:
        code = Status.STATUS_CODE_OK if span.good else Status.STATUS_CODE_UNSET
        return Span(
            trace_id=span.trace,
            span_id=span.id,
            parent_span_id=span.parent,
            name=_mask_and_clip(span.name, mask),
            kind=Span.SPAN_KIND_CLIENT if span.client else Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=encode_attributes(span.attributes | ({ERROR_TYPE: span.error} if span.error else {})),
            links=[Span.Link(trace_id=span.trace, span_id=span.after)] if span.after else [],
            status=Status(code=Status.STATUS_CODE_ERROR if span.error else code),
        )

    resource = Resource(attributes=encode_attributes({"service.name": "ralph", "service.version": __version__}))
    scope = InstrumentationScope(name="ralphproof", version=__version__)
    scope_spans = ScopeSpans(scope=scope, spans=[encode_span(span) for span in spans])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope_spans])])
    body: bytes = request.SerializeToString()
    return body


def _mask_and_clip(text: str, mask: Callable[[str], str]) -> str:
    masked = mask(text)
    clipped = masked if len(masked) <= MAX_TEXT_CHARS else masked[: MAX_TEXT_CHARS - 1] + "…"
    return clipped.encode("utf-8", "replace").decode()
