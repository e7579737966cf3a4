"""What the four APIs have in common: an ask comes in, a failure, a whole answer or a stream goes out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

from tests.agents.model.offer import Call, Offer, said
from tests.agents.model.script import Json, Limit, Turn

KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """One request to a model: where it went, what it says, which tools it offers."""

    path: str
    body: Json
    offer: Offer

    @property
    def model(self) -> str:
        return str(self.body.get("model", "fake-model"))

    def calls(self, turn: Turn) -> list[Call]:
        """The turn's tool calls, in the words of this request's tools."""
        return [] if turn.empty else [said(call, self.offer) for call in turn.calls]


@dataclass(frozen=True)
class Sent:
    """One event of a stream. `closes`: with it a part of the answer is whole, so a cut stream ends before it."""

    data: Json | str
    name: str = ""
    closes: bool = False


@dataclass(frozen=True)
class Failure:
    """An answer that is an HTTP error."""

    status: int
    body: Json | str
    headers: Mapping[str, str] = field(default_factory=dict)


class Api(Protocol):
    """How one vendor's clients ask, and how they want to be answered."""

    def serves(self, path: str) -> bool:
        """Whether requests for this path ask a model of this API."""
        ...

    def counted(self, path: str) -> Json | None:
        """The answer to a request that only counts tokens; None if it asks for more."""
        ...

    def offer(self, body: Json) -> Offer: ...

    def streams(self, path: str, body: Json) -> bool: ...

    def whole(self, turn: Turn, ask: Ask) -> Json: ...

    def stream(self, turn: Turn, ask: Ask) -> Iterator[Sent]: ...

    def limit_reached(self, limit: Limit) -> Failure: ...

    def limit_headers(self, limit: Limit) -> Mapping[str, str]:
        """Headers that tell of a limit beside an answer."""
        ...


def failure(api: Api, turn: Turn) -> Failure | None:
    """The error that the turn stands for, if it does."""
    if turn.limit is not None and turn.limit.reached:
        return api.limit_reached(turn.limit)
    if turn.status == 200:
        return None
    return Failure(turn.status, error_body(turn.status) if turn.body is None else turn.body, turn.headers)


def error_body(status: int, kind: str = "", message: str = "") -> Json:
    """An error that clients of every API can read."""
    kind = kind or KINDS.get(status, "api_error")
    error = {"type": kind, "code": status, "status": kind, "message": message or f"scripted {status}"}
    return {"type": "error", "error": error}


def events(api: Api, turn: Turn, ask: Ask) -> Iterator[Sent]:
    """The stream of the turn, cut short where the turn says so."""
    whole = api.stream(turn, ask)
    return takewhile(lambda sent: not sent.closes, whole) if turn.drop else whole


def pieces(text: str, size: int = 40) -> Iterator[str]:
    """The text in the small parts in which a model says it."""
    return (text[start : start + size] for start in range(0, len(text), size))


def fresh(prefix: str) -> str:
    """An identity that no other answer has."""
    return prefix + uuid.uuid4().hex[:20]


def named(tools: list[Any], schema: str) -> dict[str, Json]:
    """An offer from entries with a `name` and a schema under this key."""
    return {tool["name"]: tool.get(schema) or {} for tool in tools if tool.get("name")}
