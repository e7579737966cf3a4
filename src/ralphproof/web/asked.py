"""What a request asks for, checked at the door."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import date

from starlette.exceptions import HTTPException

from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import missing, wrong

if TYPE_CHECKING:
    from starlette.requests import Request

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
LOG = re.compile(r"(?!\.)[\w.-]{1,255}")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
PARTS = ("out", "stderr", "prompt")
LARGEST = 2**53  # the last whole number that every reader of JSON knows
BODY_BYTES, BODY_S = 68 * 1024, 10.0


def number(request: Request, name: str, least: int, most: int) -> int | None:
    """A whole number within its bounds; None where it was not given."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = int(text) if re.fullmatch("[0-9]{1,16}", text) else -1
    if not least <= found <= most:
        raise wrong(f"{name} must be a whole number from {least} to {most}")
    return found


def run_of(request: Request) -> str:
    """The run of the path: an id, a beginning of one, or latest."""
    return _name(RUN, request.path_params["run"], "there is no such run")


def before_of(request: Request) -> str:
    text = request.query_params.get("before", "")
    if text and not RUN.fullmatch(text):
        raise wrong("before must be the id of a run")
    return text


def log_of(request: Request, name: str = "name") -> str:
    """The name of a log: one plain word, so that no path can be made of it."""
    return _name(LOG, request.query_params.get(name, ""), "there is no such log")


def part_of(request: Request) -> str:
    part = request.query_params.get("part", PARTS[0])
    if part not in PARTS:
        raise wrong(f"part must be one of {', '.join(PARTS)}")
    return part


def task_of(request: Request) -> str:
    found: str = request.path_params["id"]
    if "\0" in found or len(found) > 1000:
        raise missing("there is no such task")
    return found


def day_of(request: Request, name: str) -> str:
    """A day; today by UTC where none was given."""
    text = request.query_params.get(name) or time.strftime("%Y-%m-%d", time.gmtime())
    if not DAY.fullmatch(text) or not _in_the_calendar(text):
        raise wrong(f"{name} must be a day: YYYY-MM-DD")
    return text


def since_of(request: Request) -> int:
    """The last record that an onlooker knows: by its own word when it comes again, else as the address says."""
    last = request.headers.get("last-event-id", "")
    if re.fullmatch("[0-9]{1,16}", last):
        return min(int(last), LARGEST)
    return number(request, "after", 0, LARGEST) or 0


async def body_of(request: Request) -> bytes:
    """The whole body; raises for one that is too large, or does not come."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES:
                    raise HTTPException(413, f"that is more than {BODY_BYTES // 1024} KiB")
    except TimeoutError:
        raise HTTPException(408, "the request did not come to its end") from None
    return bytes(body)


def _in_the_calendar(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _name(pattern: re.Pattern[str], text: str, otherwise: str) -> str:
    if not pattern.fullmatch(text):
        raise missing(otherwise)
    return text
