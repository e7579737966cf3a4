"""Spans in OTLP's own form. What that needs is loaded by the first of them, in the thread that sends it."""

from __future__ import annotations

from ralphproof import __version__
from ralphproof.observers.otel_told import ERROR
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    from ralphproof.observers.otel_span import Attributes, TraceSpan

TEXT_CHARS = 200  # of any text: names are an agent's, or a user's command
MOST = 2**63 - 1


def encoded(spans: Iterable[TraceSpan], mask: Callable[[str], str]) -> bytes:
    """The body of a request. Every text in it went through the mask."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    resource = Resource(attributes=_pairs({"service.name": "ralph", "service.version": __version__}, str))
    scope = InstrumentationScope(name="ralphproof", version=__version__)
    made = otlp.ScopeSpans(scope=scope, spans=[_span(span, mask) for span in spans])
    request = ExportTraceServiceRequest(resource_spans=[otlp.ResourceSpans(resource=resource, scope_spans=[made])])
    body: bytes = request.SerializeToString()
    return body


def _span(span: TraceSpan, mask: Callable[[str], str]) -> otlp.Span:
    from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

    told = span.attributes | ({ERROR: span.error} if span.error else {})
    code = otlp.Status.STATUS_CODE_UNSET
    if span.error or span.good:
        code = otlp.Status.STATUS_CODE_ERROR if span.error else otlp.Status.STATUS_CODE_OK
    return otlp.Span(
        trace_id=span.trace,
        span_id=span.id,
        parent_span_id=span.parent,
        name=_text(span.name, mask),
        kind=otlp.Span.SPAN_KIND_CLIENT if span.client else otlp.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_pairs(told, mask),
        links=[otlp.Span.Link(trace_id=span.trace, span_id=span.after)] if span.after else [],
        status=otlp.Status(code=code),
    )


def _pairs(attributes: Attributes, mask: Callable[[str], str]) -> list[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    return [KeyValue(key=name, value=_value(one, mask)) for name, one in attributes.items()]


def _value(one: str | bool | float, mask: Callable[[str], str]) -> AnyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

    match one:
        case str():
            return AnyValue(string_value=_text(one, mask))
        case bool():
            return AnyValue(bool_value=one)
        case int():
            return AnyValue(int_value=max(-MOST, min(one, MOST)))  # figures are an agent's word
        case _:
            return AnyValue(double_value=one)


def _text(text: str, mask: Callable[[str], str]) -> str:
    masked = mask(text)
    clipped = masked if len(masked) <= TEXT_CHARS else masked[: TEXT_CHARS - 1] + "…"
    return clipped.encode("utf-8", "replace").decode()
