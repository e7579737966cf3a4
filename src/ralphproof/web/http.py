"""JSON responses and error responses."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from datetime import date

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.engine.outcome import published

if TYPE_CHECKING:
    from starlette.requests import Request


# Responses: JSON with exact types, errors as one sentence.


JSON_TYPE = "application/json"
INTERNAL_ERROR = "a fault of ralph's own; the run is not touched by it"
STATUS_MESSAGES = {404: "there is no such page", 405: "this page does not take that method"}


def encode_json(data: Json) -> bytes:
    """JSON in ASCII: without line breaks and lone surrogates."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def json_response(data: Json, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_json(data), headers=headers, media_type=JSON_TYPE)


def error_response(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_json(published("error", {"error": words})), status, dict(headers or {}), JSON_TYPE)


def not_found(words: str = STATUS_MESSAGES[404]) -> HTTPException:
    """For what does not exist, or may not be seen."""
    return HTTPException(404, words)


def bad_request(words: str) -> HTTPException:
    return HTTPException(400, words)


async def handle_http_error(_: Request, raised: Exception) -> Response:
    """Errors that an endpoint raises."""
    assert isinstance(raised, HTTPException)
    words = STATUS_MESSAGES.get(raised.status_code, raised.detail) if raised.detail in STOCK_MESSAGES else raised.detail
    return error_response(raised.status_code, words, raised.headers)


STOCK_MESSAGES = ("Not Found", "Method Not Allowed")  # what Starlette says of its own


async def handle_internal_error(_: Request, __: Exception) -> Response:
    """Unexpected errors; the guard reports them."""
    return error_response(500, INTERNAL_ERROR)


async def handle_ralph_error(_: Request, raised: Exception) -> Response:
    """Refusals and failures of the read model."""
    assert isinstance(raised, RalphError)
    return error_response(400 if isinstance(raised, Refused) else 503, str(raised))


# Validated request parameters.


RUN_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
LOG_PATTERN = re.compile(r"(?!\.)[\w.-]{1,255}")
DAY_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
LOG_PARTS = ("out", "stderr", "prompt")
MAX_INTEGER = 2**53  # the last whole number that every reader of JSON knows
MAX_BODY_BYTES, BODY_TIMEOUT_S = 68 * 1024, 10.0


def int_parameter(request: Request, name: str, least: int, most: int) -> int | None:
    """An integer within bounds; None if it is absent."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = int(text) if re.fullmatch("[0-9]{1,16}", text) else -1
    if not least <= found <= most:
        raise bad_request(f"{name} must be a whole number from {least} to {most}")
    return found


def run_parameter(request: Request) -> str:
    """The run in the path: an id, a prefix of one, or latest."""
    return _match_name(RUN_PATTERN, request.path_params["run"], "there is no such run")


def before_parameter(request: Request) -> str:
    text = request.query_params.get("before", "")
    if text and not RUN_PATTERN.fullmatch(text):
        raise bad_request("before must be the id of a run")
    return text


def log_parameter(request: Request, name: str = "name") -> str:
    """The name of a log: one plain word, so that it cannot form a path."""
    return _match_name(LOG_PATTERN, request.query_params.get(name, ""), "there is no such log")


def part_parameter(request: Request) -> str:
    part = request.query_params.get("part", LOG_PARTS[0])
    if part not in LOG_PARTS:
        raise bad_request(f"part must be one of {', '.join(LOG_PARTS)}")
    return part


def task_parameter(request: Request) -> str:
    found: str = request.path_params["id"]
    if "\0" in found or len(found) > 1000:
        raise not_found("there is no such task")
    return found


def day_parameter(request: Request, name: str) -> str:
    """A day; by default today in UTC."""
    text = request.query_params.get(name) or time.strftime("%Y-%m-%d", time.gmtime())
    if not DAY_PATTERN.fullmatch(text) or not _is_calendar_day(text):
        raise bad_request(f"{name} must be a day: YYYY-MM-DD")
    return text


def last_event_id(request: Request) -> int:
    """The last record that a client knows: its Last-Event-ID header, else the query."""
    last = request.headers.get("last-event-id", "")
    if re.fullmatch("[0-9]{1,16}", last):
        return min(int(last), MAX_INTEGER)
    return int_parameter(request, "after", 0, MAX_INTEGER) or 0


async def read_body(request: Request) -> bytes:
    """The whole body; raises for one that is too large or does not arrive."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"that is more than {MAX_BODY_BYTES // 1024} KiB")
    except TimeoutError:
        raise HTTPException(408, "the request did not come to its end") from None
    return bytes(body)


def _is_calendar_day(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _match_name(pattern: re.Pattern[str], text: str, otherwise: str) -> str:
    if not pattern.fullmatch(text):
        raise not_found(otherwise)
    return text
