"""The script of a model: what it answers, one turn for each request that offers tools or is a judge's question.

A script is `{"turns": [turn, ...], "end": turn, "aux": "text"}`. `end` answers what comes after the last turn; without
it such a request fails with status 400. `aux` answers the other requests, such as one for a title.

A turn is any of these, together where that makes sense; `{}` is an answer without content.

    {"text": "..."}  {"thinking": "..."}  {"refusal": "..."}  {"empty": true}
    {"calls": [call, ...]}                     tool calls, after the text
    {"rules": ["a quotation", null]}           a judge's answer: for each criterion what shows that it is met, or null
    {"status": 529, "body": {...} | "...", "headers": {...}}    an HTTP error; headers may go with an answer too
    {"limit": {"resets_in_s": 7200}}           the usage limit is reached; `resets_at` gives the time as an epoch
    {"limit": {"resets_in_s": 7200, "used": 0.93}}    an answer that warns of the limit (Anthropic only)
    {"sse_error": {"type": "...", "message": "..."}}  an error inside a stream that began well
    {"drop": true}                             the stream is cut in mid-answer
    {"stop_reason": "max_tokens"}              why the model stopped, in the API's own word
    {"usage": {"input": 9, "output": 9, "cache_read": 9, "cache_write": 9, "reasoning": 9}}    any of them, in tokens
    {"delay_s": 0.5}  {"hold": "path"}         answer later; answer only when that file exists
    {"times": 3}                               this turn answers three requests; -1: all that follow

A call is {"shell": "command"}, {"write": ["path", "content"]} or {"read": "path"}, said with whatever tool the request
offers for it, or {"tool": "name", "input": {...}}.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer; `input` counts none that came from the cache or went to it."""

    input: int = 1000
    output: int = 50
    cache_read: int = 800
    cache_write: int = 10
    reasoning: int = 7

    @property
    def all_input(self) -> int:
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Limit:
    """How much of a usage limit is used, and when it begins anew."""

    resets_at: int = 0
    resets_in_s: int = 3600
    used: float = 1.0

    @property
    def reached(self) -> bool:
        return self.used >= 1

    @property
    def reset(self) -> int:
        """When the limit begins anew, as an epoch."""
        return self.resets_at or int(time.time()) + self.resets_in_s

    @property
    def wait_s(self) -> int:
        return max(0, self.reset - int(time.time()))


@dataclass(frozen=True)
class Turn:
    """One answer, whichever API asks for it."""

    text: str = ""
    thinking: str = ""
    refusal: str = ""
    empty: bool = False
    calls: Sequence[Json] = ()
    rules: Sequence[str | None] | None = None
    status: int = 200
    body: Json | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: Limit | None = None
    sse_error: Json | None = None
    drop: bool = False
    stop_reason: str = ""
    usage: Usage = Usage()
    delay_s: float = 0
    hold: str = ""
    times: int = 1

    @classmethod
    def of(cls, turn: Mapping[str, Any]) -> Turn:
        """The turn as a script writes it; a word that no turn knows raises `TypeError`."""
        limit, usage = turn.get("limit"), turn.get("usage", {})
        nested = {"usage": Usage(**usage), "limit": None if limit is None else Limit(**limit)}
        return cls(**{**turn, **nested})


NONE_LEFT = Turn(status=400, body={"error": {"type": "invalid_request_error", "message": "no turn left in the script"}})


class Script:
    """Hands out one turn a request, in order, to any number of threads."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._turns = [Turn.of(turn) for turn in script["turns"]]
        self._end = Turn.of(script["end"]) if "end" in script else NONE_LEFT
        self._aux = Turn(text=script.get("aux", "ok"))
        self._next = self._answered = 0
        self._lock = threading.Lock()

    def aux(self) -> Turn:
        """What answers a request beside the script."""
        return self._aux

    def take(self) -> tuple[int | None, Turn]:
        """The next turn and its index; no index once the turns are used up."""
        with self._lock:
            if self._next == len(self._turns):
                return None, self._end
            index = self._next
            turn = self._turns[index]
            self._answered += 1
            if self._answered == turn.times:
                self._next, self._answered = index + 1, 0
            return index, turn
