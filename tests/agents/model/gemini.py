"""The generateContent API of Gemini."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.agents.model.offer import Offer
from tests.agents.model.script import Json, Limit, Turn
from tests.agents.model.shape import Ask, Failure, Sent, error_body


class Gemini:
    def serves(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent", ":countTokens"))

    def counted(self, path: str) -> Json | None:
        return {"totalTokens": 1000} if path.endswith(":countTokens") else None

    def offer(self, body: Json) -> Offer:
        declared = [tool for group in body.get("tools") or [] for tool in group.get("functionDeclarations") or []]
        return {tool["name"]: tool.get("parametersJsonSchema") or tool.get("parameters") or {} for tool in declared}

    def streams(self, path: str, body: Json) -> bool:
        return path.endswith(":streamGenerateContent")

    def whole(self, turn: Turn, ask: Ask) -> Json:
        return _said(_parts(turn, ask), _finish(turn)) | _usage(turn)

    def stream(self, turn: Turn, ask: Ask) -> Iterator[Sent]:
        if turn.sse_error:
            yield Sent({"error": turn.sse_error})
            return
        for part in _parts(turn, ask):
            yield Sent(_said([part]))
        yield Sent(_said([], _finish(turn)) | _usage(turn), closes=True)

    def limit_reached(self, limit: Limit) -> Failure:
        body = error_body(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.")
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{limit.wait_s}s"}
        body["error"]["details"] = [retry]
        return Failure(429, body)

    def limit_headers(self, limit: Limit) -> Mapping[str, str]:
        return {}


def _parts(turn: Turn, ask: Ask) -> list[Json]:
    parts: list[Json] = []
    if turn.thinking and not turn.empty:
        parts.append({"text": turn.thinking, "thought": True})
    if (text := turn.text or turn.refusal) and not turn.empty:
        parts.append({"text": text})
    # The client refuses a call without a signature when it sends it back (0.61.0).
    calls = [{"functionCall": {"name": name, "args": given}} for name, given in ask.calls(turn)]
    return parts + [{**call, "thoughtSignature": "c2lnbmVk"} for call in calls]


def _said(parts: list[Json], finish: str | None = None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "fake-model"}


def _finish(turn: Turn) -> str:
    return turn.stop_reason or ("SAFETY" if turn.refusal else "STOP")


def _usage(turn: Turn) -> Json:
    used = turn.usage
    counts = {
        "promptTokenCount": used.all_input, "candidatesTokenCount": used.output, "thoughtsTokenCount": used.reasoning,
        "cachedContentTokenCount": used.cache_read, "totalTokenCount": used.all_input + used.output + used.reasoning,
    }  # fmt: skip
    return {"usageMetadata": counts}
