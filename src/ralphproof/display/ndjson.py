"""A run as programs read it: one JSON object a line, versioned."""

from __future__ import annotations

import json
import time

from ralphproof import record as told
from ralphproof.event import Event
from ralphproof.value import TYPE_CHECKING, pack
from ralphproof.verdict import result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.value import Json

VERSION = 1
KINDS = {
    told.RunBegan: "run.began",
    told.Picked: "iteration.picked",
    told.TurnBegan: "turn.began",
    told.TurnEnded: "turn.ended",
    told.Saved: "work.saved",
    told.TurnAgain: "turn.again",
    told.CheckBegan: "check.began",
    told.CheckEnded: "check.ended",
    told.Judged: "iteration.judged",
    told.ScmBegan: "scm.began",
    told.ScmEnded: "scm.ended",
    told.Noticed: "notice",
    told.RunEnded: "run.ended",
}


class Ndjson:
    """Every record as a line, once it is durable; with `events` also what the agent says and does as it happens."""

    def __init__(self, out: TextIO, run: str, events: bool = False, mask: Callable[[str], str] = str) -> None:
        self._out, self._run, self._events, self._mask = out, run, events, mask

    def saw(self, record: told.Record) -> None:
        if isinstance(record, told.RunEnded):
            self._put(KINDS[told.RunEnded], dict(result(record.outcome)))
            return
        data = pack(record)
        assert isinstance(data, dict)
        data.pop("is")
        self._put(KINDS[type(record)], data)

    def heard(self, event: Event) -> None:
        if self._events:
            self._put("agent." + type(event).__name__.lower(), {"event": pack(event)})

    def tick(self) -> None:
        """Programs have clocks of their own."""

    def _put(self, kind: str, data: dict[str, Json]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"v": VERSION, "type": kind, "run": self._run, "at": at} | data)
        self._out.write(self._mask(line) + "\n")
        self._out.flush()
