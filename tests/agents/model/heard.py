"""What a client of each API makes of an answer; for tests of the model."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.agents.model.script import Json

TOOL: Json = {"type": "object", "properties": {"file_path": {}, "content": {}}}


@dataclass
class Answer:
    """An answer over HTTP as it came."""

    status: int
    headers: dict[str, str]
    raw: str

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        """The data of each event of a stream."""
        lines = [line.removeprefix("data: ") for line in self.raw.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class Heard:
    """The parts of an answer, whichever API said it."""

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    stop: str = ""
    tokens: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Client:
    """How to ask in one API, and how to understand what comes back."""

    path: str
    stream_path: str
    tools: list[Json]

    def ask(self, port: int, stream: bool = False, tools: bool = True, headers: Json | None = None) -> Answer:
        body = {"model": "m", "stream": stream, "prompt": "do it", **({"tools": self.tools} if tools else {})}
        return post(port, self.stream_path if stream else self.path, json.dumps(body).encode(), headers)


def post(port: int, path: str, body: bytes | Iterator[bytes], headers: Json | None = None) -> Answer:
    """One request, answered to the end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body, headers or {}, encode_chunked=not isinstance(body, bytes))
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


CLIENTS = {
    "anthropic": Client("/v1/messages?beta=true", "/v1/messages?beta=true", [{"name": "Write", "input_schema": TOOL}]),
    "responses": Client("/v1/responses", "/v1/responses", [{"type": "function", "name": "Write", "parameters": TOOL}]),
    "chat": Client(
        "/v1/chat/completions", "/v1/chat/completions", [{"function": {"name": "Write", "parameters": TOOL}}]
    ),
    "gemini": Client(
        "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse",
        [{"functionDeclarations": [{"name": "Write", "parametersJsonSchema": TOOL}]}],
    ),
}  # fmt: skip


def heard(api: str, answer: Answer, stream: bool) -> Heard:
    """The parts of this API's answer."""
    match api:
        case "anthropic":
            return _anthropic_stream(answer.events) if stream else _anthropic(answer.json)
        case "responses":
            return _responses(answer.events[-1]["response"] if stream else answer.json)
        case "chat":
            return _chat(answer.events if stream else [answer.json])
        case _:
            return _gemini(answer.events if stream else [answer.json])


def _anthropic(message: Json) -> Heard:
    found = Heard(stop=message["stop_reason"])
    found.tokens = (message["usage"]["input_tokens"], message["usage"]["output_tokens"])
    for block in message["content"]:
        found.text += block.get("text", "")
        found.thinking += block.get("thinking", "")
        if block["type"] == "tool_use":
            found.calls.append((block["name"], block["input"]))
    return found


def _anthropic_stream(events: list[Json]) -> Heard:
    """The message that the deltas make; it must close what it opens."""
    blocks: list[Json] = []
    closed: list[int] = []
    end: Json = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append({**block, "json": ""})
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                for key, said in delta.items():
                    key = {"partial_json": "json"}.get(key, key)
                    if key != "type":
                        blocks[index][key] += said
            case {"type": "content_block_stop", "index": index}:
                closed.append(index)
            case {"type": "message_delta"}:
                end = {**event["delta"], "usage": event["usage"]}
    assert closed == list(range(len(blocks)))
    assert events[-1] == {"type": "message_stop"}
    whole = [{**block, "input": json.loads(block["json"])} if block["json"] else block for block in blocks]
    return _anthropic({**end, "content": whole})


def _responses(response: Json) -> Heard:
    found = Heard(stop=response.get("incomplete_details", {}).get("reason", response["status"]))
    found.tokens = (response["usage"]["input_tokens"], response["usage"]["output_tokens"])
    for item in response["output"]:
        match item:
            case {"type": "message", "content": [part]}:
                found.text += part.get("text", "") + part.get("refusal", "")
            case {"type": "reasoning", "summary": [part]}:
                found.thinking += part["text"]
            case {"type": "function_call"}:
                found.calls.append((item["name"], json.loads(item["arguments"])))
    return found


def _chat(answers: list[Json]) -> Heard:
    usage = answers[-1]["usage"]
    found = Heard(tokens=(usage["prompt_tokens"], usage["completion_tokens"]))
    for choice in [choice for answer in answers for choice in answer["choices"]]:
        said = choice.get("delta") or choice.get("message") or {}
        found.text += (said.get("content") or "") + (said.get("refusal") or "")
        found.stop = choice["finish_reason"] or found.stop
        for call in said.get("tool_calls", []):
            found.calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
    return found


def _gemini(answers: list[Json]) -> Heard:
    usage = answers[-1]["usageMetadata"]
    found = Heard(tokens=(usage["promptTokenCount"], usage["candidatesTokenCount"]))
    for candidate in [candidate for answer in answers for candidate in answer["candidates"]]:
        found.stop = candidate.get("finishReason", found.stop)
        for part in candidate["content"]["parts"]:
            if "functionCall" in part:
                found.calls.append((part["functionCall"]["name"], part["functionCall"]["args"]))
            elif part.get("thought"):
                found.thinking += part["text"]
            else:
                found.text += part["text"]
    return found
