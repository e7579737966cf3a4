"""What a receiver of spans was sent, in a form that tests can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent

from tests.reports.post import Server

UNSET, OK, ERROR = 0, 1, 2
INTERNAL, CLIENT = 1, 3


@dataclass(frozen=True)
class Told:
    """One span. `start` and `end` are in nanoseconds since the epoch."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    kind: int
    status: int
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[bytes]


def told_in(body: bytes) -> list[Told]:
    """The spans of a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _told(span)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def told(server: Server) -> list[Told]:
    """All spans that a receiver was sent, in the order in which they began."""
    assert {line for line, _, _ in server.asked} <= {"POST /v1/traces HTTP/1.1"}
    return sorted((span for _, _, body in server.asked for span in told_in(body)), key=lambda span: span.start)


def _told(span: Sent) -> Told:
    assert len(span.trace_id) == 16
    assert len(span.span_id) == 8
    assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
    values = {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}
    return Told(
        span.name, span.trace_id, span.span_id, span.parent_span_id, span.kind, span.status.code,
        span.start_time_unix_nano, span.end_time_unix_nano, values, [link.span_id for link in span.links],
    )  # fmt: skip


def one(spans: list[Told], name: str, where: Callable[[Told], object] = lambda _: True) -> Told:
    """The only span of this name of which `where` holds."""
    (found,) = [span for span in spans if span.name == name and where(span)]
    return found


def tree(spans: list[Told]) -> Any:
    """The names as a tree: each with a list of its children. A parent that was not sent is named `?`."""
    ids = {span.id for span in spans}
    assert len(ids) == len(spans), "two spans have one id"

    def below(parent: bytes) -> list[Any]:
        return [(span.name, below(span.id)) if below(span.id) else span.name for span in spans if span.parent == parent]

    lost = {span.parent for span in spans} - ids - {b""}
    return below(b"") + [("?", below(parent)) for parent in lost]
