"""The Messages API of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tests.agents.model.offer import Offer
from tests.agents.model.script import Json, Limit, Turn
from tests.agents.model.shape import Ask, Failure, Sent, error_body, fresh, named, pieces


class Anthropic:
    def serves(self, path: str) -> bool:
        return path.endswith(("/messages", "/messages/count_tokens"))

    def counted(self, path: str) -> Json | None:
        return {"input_tokens": 1000} if path.endswith("/count_tokens") else None

    def offer(self, body: Json) -> Offer:
        return named(body.get("tools") or [], "input_schema")

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def whole(self, turn: Turn, ask: Ask) -> Json:
        blocks = _blocks(turn, ask)
        return {**_opening(turn, ask), "content": blocks, "stop_reason": _stop(turn, blocks), "usage": _usage(turn)}

    def stream(self, turn: Turn, ask: Ask) -> Iterator[Sent]:
        message = _opening(turn, ask)
        yield _event("message_start", message=message)
        if turn.sse_error:
            yield _event("error", error=turn.sse_error)
            return
        blocks = _blocks(turn, ask)
        for index, block in enumerate(blocks):
            yield from _block_events(index, block)
        yield _event("message_delta", closes=True, delta=_end(turn, blocks), usage=_usage(turn))
        yield _event("message_stop", closes=True)

    def limit_reached(self, limit: Limit) -> Failure:
        body = error_body(429, "rate_limit_error", "This request would exceed your account's rate limit.")
        headers = {**self.limit_headers(limit), "retry-after": str(limit.wait_s), "x-should-retry": "false"}
        return Failure(429, body, headers)

    def limit_headers(self, limit: Limit) -> Mapping[str, str]:
        """Of these Claude Code makes a `rate_limit_event`, if it is logged in with an OAuth token (2.1.325)."""
        status = "rejected" if limit.reached else "allowed_warning"
        told = {
            "status": status, "reset": limit.reset, "representative-claim": "five_hour", "overage-status": "rejected",
            "5h-status": status, "5h-reset": limit.reset, "5h-utilization": limit.used,
        }  # fmt: skip
        if not limit.reached:
            told["5h-surpassed-threshold"] = 0.9
        return {f"anthropic-ratelimit-unified-{name}": str(value) for name, value in told.items()}


def _opening(turn: Turn, ask: Ask) -> Json:
    """The message before its first word; its usage counts one token of output."""
    usage = {**_usage(turn), "output_tokens": 1}
    empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return {"id": fresh("msg_"), "type": "message", "role": "assistant", "model": ask.model, **empty}


def _usage(turn: Turn) -> Json:
    return {
        "input_tokens": turn.usage.input, "output_tokens": turn.usage.output, "service_tier": "standard",
        "cache_read_input_tokens": turn.usage.cache_read, "cache_creation_input_tokens": turn.usage.cache_write,
    }  # fmt: skip


def _blocks(turn: Turn, ask: Ask) -> list[Json]:
    blocks: list[Json] = []
    if turn.thinking and not turn.empty:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "c2lnbmVk"})
    if (text := turn.text or turn.refusal) and not turn.empty:
        blocks.append({"type": "text", "text": text})
    for name, given in ask.calls(turn):
        blocks.append({"type": "tool_use", "id": fresh("toolu_"), "name": name, "input": given})
    return blocks


def _stop(turn: Turn, blocks: list[Json]) -> str:
    if turn.stop_reason:
        return turn.stop_reason
    if turn.refusal:
        return "refusal"
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _end(turn: Turn, blocks: list[Json]) -> Json:
    return {"stop_reason": _stop(turn, blocks), "stop_sequence": None}


def _block_events(index: int, block: Json) -> Iterator[Sent]:
    start, deltas = _unfolded(block)
    yield _event("content_block_start", index=index, content_block=start)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", closes=True, index=index)


def _unfolded(block: Json) -> tuple[Json, list[Json]]:
    """A block's beginning and the deltas that make it whole."""
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in pieces(block["text"])
            ]
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
        case _:
            parts = pieces(json.dumps(block["input"]))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]


def _event(kind: str, closes: bool = False, **data: object) -> Sent:
    return Sent({"type": kind, **data}, kind, closes)
