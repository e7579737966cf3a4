"""What programs read of a run: one object a line, each with an object of the published table in it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ralphproof.engine import records as told
from ralphproof.engine.agent import (
    Asked,
    Denied,
    Ended,
    Event,
    Limited,
    Progress,
    Said,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Turn,
    Unparsed,
    Usage,
)
from ralphproof.engine.check import Finding
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Metrics, Retry, StoryReview
from ralphproof.engine.plan import AllDone, Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, CommitResult, Snapshot
from ralphproof.views.events import RECORD_TYPES, NdjsonObserver
from ralphproof.views.published_json import EVENT_TYPES, find_faults, ref

COMMAND = Finding("make test", False, "make test", 1, seconds=0.5)
JOB = Job(Task("T", "", "a title"), Stage("coder"))
BEGAN = told.RunBegan("run-1", Snapshot("c1", "t1"), {"agent": "x", "sandbox": {"name": "direct", "strength": "none"}})
SAVED = told.Saved(1, 1, Snapshot("c", "t"), Change(("a",)), ParsedClaim())


def lines_of(*records: told.Record) -> list[dict[str, Any]]:
    """The lines of a run, each of which is as its schema says."""
    out = io.StringIO()
    observer = NdjsonObserver(out, "run-1")
    for record in records:
        observer.on_record(record)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    for line in lines:
        assert [*find_faults(line, ref("event"), line["type"])] == []
        assert line["data"]["type"] == EVENT_TYPES[line["type"]]
        assert line["run"] == "run-1"
    return lines


def test_every_kind_of_record_has_a_published_name() -> None:
    assert set(RECORD_TYPES) == set(told.Record.__args__)
    assert set(RECORD_TYPES.values()) <= set(EVENT_TYPES)
    assert len(set(RECORD_TYPES.values())) == len(RECORD_TYPES)


def test_a_whole_iteration_is_told_in_published_objects() -> None:
    lines = lines_of(
        BEGAN, told.BaselineSaved(Snapshot("c1", "t1"), ("log",)), told.Picked(1, JOB),
        told.TurnBegan(1, 1, "digest", agent="x"), told.TurnEnded(1, 1, Turn(Exit(0), "words")),
        SAVED, told.CheckBegan(1, 1, "make test"), told.CheckEnded(1, 1, COMMAND),
        told.Judged(1, 1, Retry(Feedback()), 2.5), told.ScmBegan(1), told.ScmEnded(1, CommitResult("abc"), message="m"),
    )  # fmt: skip
    assert [line["type"] for line in lines] == [
        "run.started", "baseline.saved", "iteration.picked", "turn.started", "turn.ended", "work.saved",
        "check.started", "check.ended", "iteration.ended", "commit.started", "commit.ended",
    ]  # fmt: skip
    data = {line["type"]: line["data"] for line in lines}
    assert (data["run.started"]["id"], data["run.started"]["agent"]) == ("run-1", "x")
    assert (data["iteration.picked"]["task"], data["iteration.picked"]["stage"]) == ("T", "coder")
    assert (data["turn.started"]["endedAt"], data["turn.ended"]["text"]) == (None, "words")
    assert (data["check.started"]["state"], data["check.ended"]["state"]) == ("running", "failed")
    assert data["iteration.ended"]["checks"] == [data["check.ended"]]
    assert data["iteration.ended"]["turns"] == [data["turn.ended"]]
    assert data["iteration.ended"]["verdict"]["result"] == "retry"
    assert data["commit.ended"]["commit"] == "abc"


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        (told.Paused(2, 0), "run.paused", "it rests"),
        (told.UserMessageAdded(2, 7, "hi"), "message.added", "you said: hi"),
        (told.Noticed(1, 0, "look"), "notice", "look"),
        (told.Warned(1, "cost", "near"), "warning", "near"),
        (told.Picked(1, AllDone()), "plan.finished", "everything is done"),
        (told.ChildRunsAwaited(2, 1, ("a",), 9.5), "children.awaited", "waits for a run of its own: a"),
    ],
)
def test_other_records_are_notices(record: told.Record, kind: str, message: str) -> None:
    *_, line = lines_of(BEGAN, record)
    assert (line["type"], line["data"]["message"]) == (kind, message)


def test_what_the_user_changed_is_named() -> None:
    *_, line = lines_of(BEGAN, told.UserChangesSaved(2, 0, Snapshot("c1", "t1"), ("mine",)))
    assert (line["type"], line["data"]["files"]) == ("changes.saved", ["mine"])


def test_the_last_line_is_the_outcome_in_its_published_form() -> None:
    (end,) = lines_of(told.RunEnded(Aborted(Breach("STALL", "idle"), 3, Spend(unpriced=1), 1.0, "bye")))
    data = end["data"]
    assert (end["type"], data["status"], data["reason"], data["costUSD"]) == ("run.ended", "ABORTED", "STALL", None)


def test_the_last_line_has_the_stories_of_a_run_that_went_by_them() -> None:
    outcome = Aborted(Breach("STALL", "idle"), 3, Spend(), 1.0, "bye")
    one = StoryReview("A", "hello", "changes_requested", 2, found=("louder",), made=1, requested=1)
    (end,) = lines_of(told.RunEnded(outcome, Metrics("r", 0.0, 1.0, "ABORTED", reviewed=(one,))))
    (story,) = end["data"]["stories"]
    assert (story["id"], story["reviewCount"], story["findings"][0]["message"]) == ("A", 2, "louder")
    assert "stories" not in lines_of(told.RunEnded(outcome, Metrics("r", 0.0, 1.0, "ABORTED")))[0]["data"]


def test_a_secret_is_masked_and_the_line_stays_json() -> None:
    out = io.StringIO()
    lines = NdjsonObserver(out, "r", mask=lambda text: text.replace("hunter2hunter2", "***"))
    lines.on_record(told.Noticed(1, 0, "a hunter2hunter2 b"))
    assert json.loads(out.getvalue())["data"]["message"] == "a *** b"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Started("s", "m", "2.1"), {"kind": "started", "session": "s", "model": "m", "version": "2.1"}),
        (Said("hello"), {"kind": "said", "text": "hello"}),
        (ToolStarted("1", "Read", "/a"), {"kind": "toolStarted", "toolCall": "1", "tool": "Read", "summary": "/a"}),
        (
            ToolEnded("1", True, "x", 45, 1234),
            {"kind": "toolEnded", "toolCall": "1", "ok": True, "output": "x", "lineCount": 45, "charCount": 1234},
        ),
        (Denied("Bash", "no"), {"kind": "denied", "tool": "Bash", "reason": "no"}),
        (Asked("Which?"), {"kind": "asked", "question": "Which?"}),
        (
            TodosChanged((Todo("Test", "done"),)),
            {"kind": "todosChanged", "todos": [{"v": 1, "type": "todo", "text": "Test", "state": "done"}]},
        ),
        (
            Spent(5, Usage(1, 2, 3, 4), True, True),
            {
                "kind": "spent",
                "cost": {"v": 1, "type": "money", "usd": 0.000005, "atLeast": True, "notional": True},
                "usage": {
                    "v": 1, "type": "usage", "inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3,
                    "cacheWriteTokens": 4,
                },
            },
        ),
        (Limited("slow", 5.0), {"kind": "limited", "message": "slow", "resetsAt": "1970-01-01T00:00:05.000Z"}),
        (Progress("retry"), {"kind": "progress", "text": "retry"}),
        (
            Ended(False, "x", "no", "service", 200_000),
            {"kind": "ended", "ok": False, "text": "x", "error": "no", "fault": "service", "contextWindow": 200_000},
        ),
        (Unparsed("?", 1), {"kind": "unparsed", "raw": "?", "bytes": 1}),
    ],
)  # fmt: skip
def test_what_an_agent_does_is_a_line_for_those_who_want_everything(event: Event, expected: dict[str, object]) -> None:
    silent, out = io.StringIO(), io.StringIO()
    NdjsonObserver(silent, "run-1").on_events([event])
    NdjsonObserver(out, "run-1", events=True).on_events([event])
    assert silent.getvalue() == ""
    line = json.loads(out.getvalue())
    assert [*find_faults(line, ref("event"), "line")] == []
    assert line["type"] == f"agent.{expected['kind']}"
    assert expected == {name: item for name, item in line["data"].items() if name not in ("v", "type", "number")}


def test_events_that_come_fast_are_sent_together_and_a_record_at_once() -> None:
    class Sent(io.StringIO):
        sent = 0

        def flush(self) -> None:
            self.sent += 1

    out = Sent()
    lines = NdjsonObserver(out, "run-1", events=True)
    for _ in range(100):
        lines.on_events([Said("x")])
    assert out.sent == 0
    lines.tick()
    lines.tick()
    assert out.sent == 1
    lines.on_events([Said("x")])
    lines.on_record(told.Noticed(1, 0, "look"))
    assert (out.sent, len(out.getvalue().splitlines())) == (2, 102)
