"""Answers: JSON with exact types, and errors as one sentence."""

from __future__ import annotations

import json

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ralphproof.errors import RalphError, Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from ralphproof.value import Json

JSON = "application/json"
FAULT = "a fault of ralph's own; the run is not touched by it"
WORDS = {404: "there is no such page", 405: "this page does not take that method"}


def encoded(data: Json) -> bytes:
    """JSON in ASCII: no line break, and no half of a character, can be in it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def told(data: Json, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(data), headers=headers, media_type=JSON)


def error(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded({"error": words}), status, dict(headers or {}), JSON)


def missing(words: str = WORDS[404]) -> HTTPException:
    """What is not there, or nobody may see."""
    return HTTPException(404, words)


def wrong(words: str) -> HTTPException:
    return HTTPException(400, words)


async def of_http(_: Request, raised: Exception) -> Response:
    """What a page refuses."""
    assert isinstance(raised, HTTPException)
    words = WORDS.get(raised.status_code, raised.detail) if raised.detail in STOCK else raised.detail
    return error(raised.status_code, words, raised.headers)


STOCK = ("Not Found", "Method Not Allowed")  # what Starlette says of its own


async def of_fault(_: Request, __: Exception) -> Response:
    """What must not happen; the guard notes it."""
    return error(500, FAULT)


async def of_ralph(_: Request, raised: Exception) -> Response:
    """What the read model refuses, or cannot do now."""
    assert isinstance(raised, RalphError)
    return error(400 if isinstance(raised, Refused) else 503, str(raised))
