"""A run as versioned JSON lines."""

from __future__ import annotations

import json
import time

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine import records
from ralphproof.engine.events import Event
from ralphproof.engine.metrics import outcome_with_metrics
from ralphproof.engine.outcome import Passed, Retry, SentBack, Stopped, Waiting, outcome_json
from ralphproof.engine.plan import AllDone, Blocked, Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from ralphproof.base.value import Json

VERSION = 1
RECORD_TYPES = {
    records.RunBegan: "run.began",
    records.Resumed: "run.resumed",
    records.UserChangesSaved: "work.regained",
    records.Paused: "run.paused",
    records.UserMessageAdded: "words.told",
    records.ClaimFound: "claim.found",
    records.ChildRunsAwaited: "children.awaited",
    records.ChildWorkJoined: "children.joined",
    records.BaselineSaved: "checks.before",
    records.Warned: "warning",
    records.Escalated: "escalated",
    records.Picked: "iteration.picked",
    records.TurnBegan: "turn.began",
    records.TurnEnded: "turn.ended",
    records.Saved: "work.saved",
    records.TurnRetried: "turn.again",
    records.CheckBegan: "check.began",
    records.CheckEnded: "check.ended",
    records.CheckStopped: "check.stopped",
    records.Judged: "iteration.judged",
    records.ScmBegan: "scm.began",
    records.ScmEnded: "scm.ended",
    records.Noticed: "notice",
    records.HookBegan: "hook.began",
    records.HookEnded: "hook.ended",
    records.RunEnded: "run.ended",
}


# Where a field may hold one of several kinds, `kind` says which.
TAGGED_TYPES = (Passed, Retry, SentBack, Waiting, Stopped, Job, AllDone, Blocked)


def published_fields(thing: Any) -> dict[str, Json]:
    """The fields of a value in their published form: all of them, named as settings are."""
    return {camel_case(name): published_json(getattr(thing, name)) for name in thing.__match_args__}


def published_json(thing: Any) -> Json:
    """A value as programs read it."""
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if isinstance(thing, tuple | list):
        return [published_json(item) for item in thing]
    if isinstance(thing, dict):
        return {str(name): published_json(item) for name, item in thing.items()}
    kind: dict[str, Json] = {"kind": camel_case(type(thing).__name__)} if isinstance(thing, TAGGED_TYPES) else {}
    return kind | published_fields(thing)


def camel_case(name: str) -> str:
    """`left_out` as `leftOut`."""
    first, *rest = name.split("_")
    return first[:1].lower() + first[1:] + "".join(word.capitalize() for word in rest)


class NdjsonObserver:
    """Every record as a line, once it is durable; with `events` also what the agent says and does as it happens."""

    def __init__(self, out: TextIO, run: str, events: bool = False, mask: Callable[[str], str] = str) -> None:
        self._out, self._run, self._events, self._mask = out, run, events, mask
        self._unsent = False

    def on_record(self, record: records.Record) -> None:
        if isinstance(record, records.RunEnded):
            self._put(
                RECORD_TYPES[records.RunEnded], outcome_with_metrics(outcome_json(record.outcome), record.metrics)
            )
        else:
            self._put(RECORD_TYPES[type(record)], published_fields(record))
        self._send()

    def on_events(self, events: list[Event]) -> None:
        for event in events if self._events else ():
            self._put("agent." + type(event).__name__.lower(), published_fields(event))

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
