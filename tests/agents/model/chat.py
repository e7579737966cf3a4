"""The Chat Completions API of OpenAI, which many others speak too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from tests.agents.model.offer import Offer
from tests.agents.model.script import Json, Limit, Turn
from tests.agents.model.shape import Ask, Failure, Sent, error_body, fresh, named, pieces


class Chat:
    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def counted(self, path: str) -> Json | None:
        return None

    def offer(self, body: Json) -> Offer:
        return named([tool.get("function") or {} for tool in body.get("tools") or []], "parameters")

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def whole(self, turn: Turn, ask: Ask) -> Json:
        calls = _calls(turn, ask)
        message: Json = {"role": "assistant", "content": _text(turn) or None, "refusal": turn.refusal or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _finish(turn, calls)}
        return {**_head(ask), "object": "chat.completion", "choices": [choice], "usage": _usage(turn)}

    def stream(self, turn: Turn, ask: Ask) -> Iterator[Sent]:
        head = {**_head(ask), "object": "chat.completion.chunk"}
        yield _chunk(head, {"role": "assistant", "content": ""})
        if turn.sse_error:
            yield Sent({"error": turn.sse_error})
            return
        for piece in pieces(_text(turn)):
            yield _chunk(head, {"content": piece})
        if turn.refusal:
            yield _chunk(head, {"refusal": turn.refusal})
        calls = _calls(turn, ask)
        for index, call in enumerate(calls):
            yield _chunk(head, {"tool_calls": [{**call, "index": index}]})
        yield _chunk(head, {}, _finish(turn, calls))
        yield Sent({**head, "choices": [], "usage": _usage(turn)}, closes=True)
        yield Sent("[DONE]", closes=True)

    def limit_reached(self, limit: Limit) -> Failure:
        body = error_body(429, "insufficient_quota", "You exceeded your current quota.")
        return Failure(429, body, {"retry-after": str(limit.wait_s)})

    def limit_headers(self, limit: Limit) -> Mapping[str, str]:
        return {}


def _head(ask: Ask) -> Json:
    return {"id": fresh("chatcmpl-"), "created": int(time.time()), "model": ask.model}


def _chunk(head: Json, delta: Json, finish: str | None = None) -> Sent:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Sent({**head, "choices": [choice]}, closes=finish is not None)


def _text(turn: Turn) -> str:
    return "" if turn.empty else turn.text


def _calls(turn: Turn, ask: Ask) -> list[Json]:
    return [
        {"id": fresh("call_"), "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for name, given in ask.calls(turn)
    ]


def _finish(turn: Turn, calls: list[Json]) -> str:
    if turn.stop_reason:
        return turn.stop_reason
    if turn.refusal:
        return "content_filter"
    return "tool_calls" if calls else "stop"


def _usage(turn: Turn) -> Json:
    used = turn.usage
    return {
        "prompt_tokens": used.all_input, "completion_tokens": used.output,
        "total_tokens": used.all_input + used.output, "prompt_tokens_details": {"cached_tokens": used.cache_read},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }  # fmt: skip
