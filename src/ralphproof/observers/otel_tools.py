"""The tool calls of one turn, as spans."""

from __future__ import annotations

from ralphproof.event import ToolEnded, ToolStarted
from ralphproof.observers.otel_span import TraceSpan, span_id, trace_id
from ralphproof.observers.otel_told import UNFINISHED
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.event import Event

MOST = 500  # calls of a turn that become spans; the others are counted


class ToolCalls:
    """Hears a turn, and makes a span of each call in it. Arguments and output are not kept."""

    def __init__(self, run: str, parent: bytes) -> None:
        self._run, self._parent = run, parent
        self._spans: list[TraceSpan] = []
        self._open: dict[str, int] = {}  # the place of each call that has not ended
        self.left_out = 0

    def hear(self, events: list[Event], now_ns: Callable[[], int]) -> None:
        """More of the turn."""
        for event in events:
            kind = type(event)  # a stream may hold a million of them
            if kind is ToolStarted:
                assert isinstance(event, ToolStarted)
                self._began(event, now_ns())
            elif kind is ToolEnded:
                assert isinstance(event, ToolEnded)
                self._ended(event, now_ns())

    def spans(self, at_ns: int) -> list[TraceSpan]:
        """All calls, when the turn has ended; one that has not ended never did."""
        for place in self._open.values():
            span = self._spans[place]
            self._spans[place] = replace(span, end_ns=at_ns, attributes=span.attributes | UNFINISHED)
        return self._spans

    def _began(self, event: ToolStarted, at_ns: int) -> None:
        place = len(self._spans)
        if place == MOST:
            self.left_out += 1
            self._open.pop(event.id, None)  # what ends under this id is not the earlier call
            return
        told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name}
        told |= {"gen_ai.tool.call.id": event.id} if event.id else {}
        own = span_id(self._run, self._parent, "tool", place)  # an agent's ids need not be unique
        self._spans.append(
            TraceSpan(f"execute_tool {event.name}", trace_id(self._run), own, self._parent, at_ns, attributes={**told})
        )
        self._open[event.id] = place

    def _ended(self, event: ToolEnded, at_ns: int) -> None:
        place = self._open.pop(event.id, None)
        if place is not None:
            span = self._spans[place]
            self._spans[place] = replace(span, end_ns=max(at_ns, span.start_ns), error="" if event.ok else "tool")
