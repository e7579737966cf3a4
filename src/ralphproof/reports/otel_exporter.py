"""OTLP/HTTP exporter: endpoint and headers, encoding of spans, and posting them in a thread of its own."""

from __future__ import annotations

import signal
import socket
import threading
import time
from base64 import b64encode
from collections import deque
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from ralphproof import __version__
from ralphproof.base.redaction import MIN_SECRET_LENGTH
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.reports.otel_spans import ERROR_TYPE
from ralphproof.settings.validation import TRACES_PATH, redact_otel_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    from ralphproof.reports.otel_spans import Attributes, TraceSpan


# Where spans are sent to: an OTLP/HTTP receiver, by its base address or by that of its traces.


HEADERS_VARIABLE = (
    "OTEL_EXPORTER_OTLP_HEADERS"  # the one variable of OpenTelemetry's that is read: keys belong in no file
)
MISSING_OPENTELEMETRY = "otel is set, and to send spans needs opentelemetry: pip install 'ralphproof[otel]'"
OTLP_MODULE = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"


@value
class OtelEndpoint:
    """Parts of the URL. `user` is `name:password`, if the URL has one."""

    secure: bool
    host: str
    port: int
    path: str
    user: str = ""


def parse_otel_endpoint(address: str) -> OtelEndpoint:
    """The parts of an address that `bad_address` accepted."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    path += "" if path.endswith(TRACES_PATH) else TRACES_PATH
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if "@" in parts.netloc else ""
    query = f"?{parts.query}" if parts.query else ""
    secure = parts.scheme == "https"
    return OtelEndpoint(secure, parts.hostname or "", parts.port or (443 if secure else 80), path + query, user)


def otel_endpoint_secrets(address: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets in the address and in its headers."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    hidden = (
        []
        if redact_otel_endpoint(address) == address
        else [address, parts.netloc.rpartition("@")[0], parts.password or ""]
    )
    found = (*hidden, parts.query, *parse_otel_headers(environ).values())
    return tuple(text for text in found if len(text) >= MIN_SECRET_LENGTH)


def parse_otel_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """Headers of the user's variable: `name=text,name=text`, percent-encoded. Invalid ones are dropped."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in environ.get(HEADERS_VARIABLE, "").split(","))
    named = ((name.strip(), unquote(text.strip())) for name, _, text in pairs)
    return {name: text for name, text in named if _is_header_name(name) and text.isascii() and text.isprintable()}


def _is_header_name(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum()


def is_opentelemetry_installed() -> bool:
    """Whether spans can be encoded. Loads nothing."""
    from importlib.util import find_spec

    try:
        return find_spec(OTLP_MODULE) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


# One POST to an OTLP/HTTP receiver, and what it answered.
#
# By hand and not by OpenTelemetry's exporter (1.45): that follows redirects, goes by proxies, writes to the log, and is
# steered by two dozen variables. Nothing here is sent to anybody but the address that is set.


POST_TIMEOUT_S = 10.0
RETRYABLE_STATUSES = (429, 502, 503, 504)  # what OTLP says to try again


@value
class PostResult:
    """Result of a POST: `why` it failed, and whether to send it `again` because the receiver cannot have taken it."""

    why: str = ""
    again: bool = False


class OtlpClient:
    """Client of one receiver. One POST at a time; `hang_up` of another thread aborts it."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._end = parse_otel_endpoint(address)
        self._headers = parse_otel_headers(environ)
        self._headers |= {"Content-Type": "application/x-protobuf", "User-Agent": f"ralphproof/{__version__}"}
        if self._end.user:
            self._headers["Authorization"] = f"Basic {b64encode(self._end.user.encode()).decode()}"
        self._line: HTTPConnection | None = None

    def post(self, body: bytes) -> PostResult:
        """Send a body; failures are returned, not raised."""
        kind = HTTPSConnection if self._end.secure else HTTPConnection
        line = self._line = kind(self._end.host, self._end.port, timeout=POST_TIMEOUT_S)
        try:
            try:
                line.connect()
            except (OSError, ValueError):  # also a name that no name server could know
                return PostResult("no connection", again=True)
            line.request("POST", self._end.path, body, self._headers)
            status = line.getresponse().status
        except (OSError, HTTPException, ValueError):
            return PostResult("no answer")  # it may have been taken: sent again, it might be there twice
        finally:
            self._line = None
            line.close()
        return (
            PostResult()
            if 200 <= status < 300
            else PostResult(f"it answered {status}", again=status in RETRYABLE_STATUSES)
        )

    def hang_up(self) -> None:
        """Abort a pending request."""
        line = self._line
        sock = line.sock if line else None
        try:
            if sock is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS has a shutdown of its own, not for two threads
        except OSError:
            pass  # it has just ended by itself


# Brings spans to their receiver, in a thread of its own: whatever that does, nobody else waits for it.


MAX_QUEUED_SPANS = 4096  # spans that wait; the oldest make room
BATCH_SPANS = 512  # spans in a request
BATCH_DELAY_S = 1.0  # so long more spans are waited for
RETRY_DELAY_S = 5.0
POLL_S = 0.05
LATE_REASON, QUEUE_FULL_REASON = "no answer before the end", "too many waited"


class OtlpExporter:
    """Queues spans in bounded memory, and sends them in a thread that starts with the first.

    `address` has passed `bad_address`.
    """

    def __init__(self, address: str, mask: Callable[[str], str], environ: Mapping[str, str]) -> None:
        self._shown, self._mask = redact_otel_endpoint(address), mask
        self._receiver = OtlpClient(address, environ)
        self._waiting: deque[TraceSpan] = deque()
        self._changed = threading.Condition()  # what follows is read and written by both threads
        self._thread: threading.Thread | None = None
        self._closing = self._left = False
        self._under_way = self._lost = 0
        self._why = ""

    @property
    def failures(self) -> list[str]:
        """What could not be sent, in a line without secrets; the first reason stands for all."""
        many = f"{self._lost} spans were" if self._lost > 1 else "a span was"
        return [f"otel: {self._shown}: {many} not sent: {self._why}"] if self._lost else []

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
            last = self._closing  # at the end everybody is asked once more
            answer = self._receiver.post(body)
            if not answer.again or last:
                return answer.why
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY_DELAY_S)

    def _lose(self, count: int, why: str) -> None:
        self._lost += count
        self._why = self._why or (why if count else "")


def _start_thread(work: Callable[[], None]) -> threading.Thread:
    """A thread with signals blocked: one delivered to it would not wake the thread that waits for signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        made = threading.Thread(target=work, name="ralph-otel", daemon=True)
        made.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return made


# Spans in OTLP's own form. What that needs is loaded by the first of them, in the thread that sends it.


MAX_TEXT_CHARS = 200  # of any text: names are an agent's, or a user's command
MAX_INT64 = 2**63 - 1


def encode_spans(spans: Iterable[TraceSpan], mask: Callable[[str], str]) -> bytes:
    """The body of a request. All text in it is masked."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    resource = Resource(attributes=_encode_attributes({"service.name": "ralph", "service.version": __version__}, str))
    scope = InstrumentationScope(name="ralphproof", version=__version__)
    made = otlp.ScopeSpans(scope=scope, spans=[_encode_span(span, mask) for span in spans])
    request = ExportTraceServiceRequest(resource_spans=[otlp.ResourceSpans(resource=resource, scope_spans=[made])])
    body: bytes = request.SerializeToString()
    return body


def _encode_span(span: TraceSpan, mask: Callable[[str], str]) -> otlp.Span:
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    told = span.attributes | ({ERROR_TYPE: span.error} if span.error else {})
    code = otlp.Status.STATUS_CODE_UNSET
    if span.error or span.good:
        code = otlp.Status.STATUS_CODE_ERROR if span.error else otlp.Status.STATUS_CODE_OK
    return otlp.Span(
        trace_id=span.trace,
        span_id=span.id,
        parent_span_id=span.parent,
        name=_mask_and_clip(span.name, mask),
        kind=otlp.Span.SPAN_KIND_CLIENT if span.client else otlp.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_encode_attributes(told, mask),
        links=[otlp.Span.Link(trace_id=span.trace, span_id=span.after)] if span.after else [],
        status=otlp.Status(code=code),
    )


def _encode_attributes(attributes: Attributes, mask: Callable[[str], str]) -> list[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    return [KeyValue(key=name, value=_encode_value(one, mask)) for name, one in attributes.items()]


def _encode_value(one: str | bool | float, mask: Callable[[str], str]) -> AnyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

    match one:
        case str():
            return AnyValue(string_value=_mask_and_clip(one, mask))
        case bool():
            return AnyValue(bool_value=one)
        case int():
            return AnyValue(int_value=max(-MAX_INT64, min(one, MAX_INT64)))  # figures are an agent's word
        case _:
            return AnyValue(double_value=one)


def _mask_and_clip(text: str, mask: Callable[[str], str]) -> str:
    masked = mask(text)
    clipped = masked if len(masked) <= MAX_TEXT_CHARS else masked[: MAX_TEXT_CHARS - 1] + "…"
    return clipped.encode("utf-8", "replace").decode()
