"""The lines of Claude Code's stream, as far as they are used. Fields that may hold nonsense take anything."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct


# No cycles can come of these: the collector need not look at them.
class Usage(Struct, gc=False):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0


class ModelUsage(Struct, gc=False, rename="camel"):
    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0
    context_window: Any = None


class Block(Struct, gc=False):
    type: str = ""
    text: Any = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    content: Raw = Raw()
    is_error: bool | None = None


class Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: list[Block] | str | None = None
    usage: Usage | None = None


class Line(Struct, gc=False):
    """What comes by the thousand. Lines of other types are decoded once more, as what they are."""

    type: str = ""
    message: Message | str | None = None
    parent_tool_use_id: str | None = None
    error: Any = None
    is_api_error_message: bool | None = None


class System(Struct):
    subtype: str | None = None
    session_id: str | None = None
    model: str | None = None
    claude_code_version: str | None = None
    apiKeySource: str | None = None
    attempt: Any = None
    max_retries: Any = None
    retry_delay_ms: Any = None
    error: Any = None
    error_status: Any = None
    tool_name: str = ""
    tool_use_id: str = ""
    message: Any = None


class Limit(Struct):
    status: str = ""
    resetsAt: Any = None
    rateLimitType: str | None = None
    utilization: Any = None


class RateLimit(Struct):
    rate_limit_info: Limit


class Denial(Struct):
    tool_name: Any = ""
    tool_use_id: Any = ""
    tool_input: Raw = Raw()


class Result(Struct):
    subtype: str | None = None
    result: Any = None
    is_error: Any = None
    error: Any = None
    errors: Any = None
    terminal_reason: Any = None
    api_error_status: Any = None
    total_cost_usd: Any = msgspec.UNSET
    usage: Usage | None = None
    modelUsage: dict[str, ModelUsage | None] | None = None
    permission_denials: list[Denial] | None = None
    structured_output: Raw = Raw()


LINES = msgspec.json.Decoder(Line)
SYSTEM, RESULT = msgspec.json.Decoder(System), msgspec.json.Decoder(Result)
RATE_LIMIT = msgspec.json.Decoder(RateLimit)
