"""How a model answers a judge's question: in the form that the request asks for, with the nonce that it gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.agents.model.script import Json, Turn
from tests.agents.model.shape import Ask, error_body

ANSWERS = "StructuredOutput"  # the tool by which Claude Code takes an answer of a given form
NOT_ASKED = Turn(status=400, body=error_body(400, message="the turn rules, and this is no judge's question"))
_NONCE = re.compile(r"^The nonce of this call is (\S+)\.$", re.MULTILINE)


def texts(value: Any) -> Iterator[str]:
    """All text in a value of JSON."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)


def nonce_in(body: Json) -> str:
    """The nonce of a judge's question; empty where the request holds none."""
    return next((found[1] for text in texts(body) if (found := _NONCE.search(text))), "")


def ruled(turn: Turn, ask: Ask) -> Turn:
    """The turn with its rulings as a call of the tool that takes them, or where there is none as its text."""
    if turn.rules is None or turn.status != 200:
        return turn
    if not (nonce := nonce_in(ask.body)):
        return NOT_ASKED
    answer = {"nonce": nonce, "criteria": [_ruling(*one) for one in enumerate(turn.rules, 1)]}
    if ANSWERS in ask.offer:
        return replace(turn, calls=[*turn.calls, {"tool": ANSWERS, "input": answer}])
    return replace(turn, text=json.dumps(answer))


def _ruling(number: int, quotation: str | None) -> Json:
    met = quotation is not None
    reason = "The diff shows it." if met else "The diff does not show it."
    return {"number": number, "met": met, "evidence": quotation or "", "reason": reason}
