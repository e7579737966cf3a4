"""A run as programs read it: one JSON object a line, versioned."""

from __future__ import annotations

import json
import time

from ralphproof import record as told
from ralphproof.event import Event
from ralphproof.metric import in_full
from ralphproof.stage import AllDone, Blocked, Job
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Passed, Retry, SentBack, Stopped, Waiting, result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from ralphproof.value import Json

VERSION = 1
KINDS = {
    told.RunBegan: "run.began",
    told.Resumed: "run.resumed",
    told.Regained: "work.regained",
    told.Paused: "run.paused",
    told.Told: "words.told",
    told.Claimed: "claim.found",
    told.Awaited: "children.awaited",
    told.Joined: "children.joined",
    told.Grounded: "checks.before",
    told.Warned: "warning",
    told.Escalated: "escalated",
    told.Picked: "iteration.picked",
    told.TurnBegan: "turn.began",
    told.TurnEnded: "turn.ended",
    told.Saved: "work.saved",
    told.TurnAgain: "turn.again",
    told.CheckBegan: "check.began",
    told.CheckEnded: "check.ended",
    told.CheckStopped: "check.stopped",
    told.Judged: "iteration.judged",
    told.ScmBegan: "scm.began",
    told.ScmEnded: "scm.ended",
    told.Noticed: "notice",
    told.HookBegan: "hook.began",
    told.HookEnded: "hook.ended",
    told.RunEnded: "run.ended",
}


# Where a field may hold one of several kinds, `kind` says which.
UNIONS = (Passed, Retry, SentBack, Waiting, Stopped, Job, AllDone, Blocked)


def fields_of(thing: Any) -> dict[str, Json]:
    """The fields of a value in their published form: all of them, named as settings are."""
    return {camel(name): published(getattr(thing, name)) for name in thing.__match_args__}


def published(thing: Any) -> Json:
    """A value as programs read it."""
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if isinstance(thing, tuple | list):
        return [published(item) for item in thing]
    if isinstance(thing, dict):
        return {str(name): published(item) for name, item in thing.items()}
    kind: dict[str, Json] = {"kind": camel(type(thing).__name__)} if isinstance(thing, UNIONS) else {}
    return kind | fields_of(thing)


def camel(name: str) -> str:
    """`left_out` as `leftOut`."""
    first, *rest = name.split("_")
    return first[:1].lower() + first[1:] + "".join(word.capitalize() for word in rest)


class Ndjson:
    """Every record as a line, once it is durable; with `events` also what the agent says and does as it happens."""

    def __init__(self, out: TextIO, run: str, events: bool = False, mask: Callable[[str], str] = str) -> None:
        self._out, self._run, self._events, self._mask = out, run, events, mask
        self._unsent = False

    def saw(self, record: told.Record) -> None:
        if isinstance(record, told.RunEnded):
            self._put(KINDS[told.RunEnded], in_full(result(record.outcome), record.metrics))
        else:
            self._put(KINDS[type(record)], fields_of(record))
        self._send()

    def heard(self, events: list[Event]) -> None:
        for event in events if self._events else ():
            self._put("agent." + type(event).__name__.lower(), fields_of(event))

    def tick(self) -> None:
        """Programs have clocks of their own; what was said since the last tick reaches them now."""
        if self._unsent:
            self._send()

    def _put(self, kind: str, data: dict[str, Json]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head: dict[str, Json] = {"v": VERSION, "type": kind, "run": self._run, "at": at}
        line = json.dumps(head | data | head)  # whatever a record has in it, a line is of this form
        self._out.write(self._mask(line) + "\n")
        self._unsent = True

    def _send(self) -> None:
        self._unsent = False
        self._out.flush()
