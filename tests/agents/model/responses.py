"""The Responses API of OpenAI."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.agents.model.offer import Offer
from tests.agents.model.script import Json, Limit, Turn
from tests.agents.model.shape import Ask, Failure, Sent, fresh


class Responses:
    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def counted(self, path: str) -> Json | None:
        return None

    def offer(self, body: Json) -> Offer:
        return {name: tool.get("parameters") or {} for name, tool in _tools(body).items()}

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def whole(self, turn: Turn, ask: Ask) -> Json:
        return _closing(turn, _opening(ask), _items(turn, ask))

    def stream(self, turn: Turn, ask: Ask) -> Iterator[Sent]:
        for number, sent in enumerate(_events(turn, ask)):
            assert isinstance(sent.data, dict)
            yield replace(sent, data={**sent.data, "sequence_number": number})

    def limit_reached(self, limit: Limit) -> Failure:
        error = {
            "type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus",
            "resets_at": limit.reset, "resets_in_seconds": limit.wait_s,
        }  # fmt: skip
        return Failure(429, {"error": error})

    def limit_headers(self, limit: Limit) -> Mapping[str, str]:
        return {}


def _tools(body: Json) -> dict[str, Json]:
    """All tools on offer; Codex keeps some in a namespace, and built-in ones have a type only."""
    found: dict[str, Json] = {}
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            found |= {inner["name"]: inner for inner in tool.get("tools") or []}
        else:
            found[tool.get("name") or tool["type"]] = tool
    return found


def _opening(ask: Ask) -> Json:
    head = {"id": fresh("resp_"), "object": "response", "created_at": int(time.time()), "model": ask.model}
    return {**head, "status": "in_progress", "output": []}


def _closing(turn: Turn, opening: Json, items: list[Json]) -> Json:
    used = turn.usage
    usage = {
        "input_tokens": used.all_input, "input_tokens_details": {"cached_tokens": used.cache_read},
        "output_tokens": used.output, "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.all_input + used.output,
    }  # fmt: skip
    whole = {**opening, "status": "completed", "output": items, "usage": usage}
    if not turn.stop_reason:
        return whole
    return {**whole, "status": "incomplete", "incomplete_details": {"reason": turn.stop_reason}}


def _items(turn: Turn, ask: Ask) -> list[Json]:
    items: list[Json] = []
    if turn.thinking and not turn.empty:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        items.append({"type": "reasoning", "id": fresh("rs_"), "summary": summary})
    if (turn.text or turn.refusal) and not turn.empty:
        items.append(_message(turn))
    tools = _tools(ask.body)
    return items + [_call(name, given, tools.get(name, {}).get("type")) for name, given in ask.calls(turn)]


def _message(turn: Turn) -> Json:
    part: Json = {"type": "output_text", "text": turn.text, "annotations": []}
    if turn.refusal:
        part = {"type": "refusal", "refusal": turn.refusal}
    return {"type": "message", "id": fresh("msg_"), "role": "assistant", "status": "completed", "content": [part]}


def _call(name: str, given: object, kind: str | None) -> Json:
    """A custom tool takes text as it is; a function takes JSON."""
    identity = {"call_id": fresh("call_"), "name": name}
    if kind == "custom":
        return {"type": "custom_tool_call", "id": fresh("ctc_"), **identity, "input": given}
    said = {"arguments": json.dumps(given), "status": "completed"}
    return {"type": "function_call", "id": fresh("fc_"), **identity, **said}


def _events(turn: Turn, ask: Ask) -> Iterator[Sent]:
    opening = _opening(ask)
    yield _event("response.created", response=opening)
    if turn.sse_error:
        yield _event("response.failed", response={**opening, "status": "failed", "error": turn.sse_error})
        return
    items = _items(turn, ask)
    for index, item in enumerate(items):
        yield from _item_events(index, item)
    closing = _closing(turn, opening, items)
    yield _event(f"response.{closing['status']}", closes=True, response=closing)


def _item_events(index: int, item: Json) -> Iterator[Sent]:
    place = {"item_id": item["id"], "output_index": index}
    yield _event("response.output_item.added", output_index=index, item=_unsaid(item))
    match item:
        case {"type": "message", "content": [{"type": "output_text", "text": text}]}:
            part = {**place, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield _event("response.content_part.added", **part, part=empty)
            yield _event("response.output_text.delta", **part, delta=text)
            yield _event("response.output_text.done", closes=True, **part, text=text)
        case {"type": "function_call", "arguments": arguments}:
            yield _event("response.function_call_arguments.delta", **place, delta=arguments)
            yield _event("response.function_call_arguments.done", closes=True, **place, arguments=arguments)
    yield _event("response.output_item.done", closes=True, output_index=index, item=item)


def _unsaid(item: Json) -> Json:
    """The item as it is announced, before its content."""
    begun = {"status": "in_progress"}
    unsaid: dict[str, Json] = {"message": {**begun, "content": []}, "function_call": {**begun, "arguments": ""}}
    return {**item, **unsaid.get(item["type"], {})}


def _event(kind: str, closes: bool = False, **data: object) -> Sent:
    return Sent({"type": kind, **data}, kind, closes)
