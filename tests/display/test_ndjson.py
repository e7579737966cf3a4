"""What programs read of a run: every field, named as settings are, one object a line."""

from __future__ import annotations

import io
import json

import pytest

from ralphproof.display.ndjson import RECORD_TYPES, NdjsonObserver
from ralphproof.engine import records as told
from ralphproof.engine.budget import Spend
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.events import (
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
    Unparsed,
    Usage,
)
from ralphproof.engine.limits import Breach
from ralphproof.engine.metrics import Metrics, StoryReview
from ralphproof.engine.outcome import Aborted, Passed, Retry
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.workspace import Change, Snapshot

SNAPSHOT = {"id": "c1", "tree": "t1", "ref": None, "head": None, "leftOut": ["big"], "problem": ""}


def line_of(record: told.Record) -> dict[str, object]:
    out = io.StringIO()
    NdjsonObserver(out, "run-1").on_record(record)
    (line,) = out.getvalue().splitlines()
    data: dict[str, object] = json.loads(line)
    assert (data.pop("v"), data.pop("run")) == (1, "run-1")
    assert str(data.pop("at")).endswith("Z")
    return data


def test_every_kind_of_record_has_a_published_name() -> None:
    assert set(RECORD_TYPES) == set(told.Record.__args__)
    assert len(set(RECORD_TYPES.values())) == len(RECORD_TYPES)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            told.RunBegan("run-1", Snapshot("c1", "t1", left_out=("big",)), {"agent": "x"}),
            {"type": "run.began", "snapshot": SNAPSHOT, "facts": {"agent": "x"}},
        ),
        (
            told.BaselineSaved(Snapshot("c1", "t1", left_out=("big",)), ("log",)),
            {"type": "checks.before", "snapshot": SNAPSHOT, "written": ["log"]},
        ),
        (
            told.CheckBegan(2, 1, "make test"),
            {"type": "check.began", "iteration": 2, "turn": 1, "check": "make test", "round": 1},
        ),
        (told.Resumed(2, 0.0, 9.5), {"type": "run.resumed", "session": 2, "elapsedS": 9.5, "sandbox": None}),
        (told.Paused(2, 0), {"type": "run.paused", "iteration": 2, "number": 0}),
        (
            told.UserChangesSaved(2, 0, Snapshot("c1", "t1", left_out=("big",)), ("mine",)),
            {
                "type": "work.regained", "iteration": 2, "number": 0, "snapshot": SNAPSHOT, "paths": ["mine"],
                "replanned": False,
            },
        ),
        (told.UserMessageAdded(2, 7, "hi"), {"type": "words.told", "iteration": 2, "number": 7, "text": "hi"}),
        (told.ClaimFound(2, 1), {"type": "claim.found", "iteration": 2, "turn": 1}),
        (
            told.ChildRunsAwaited(2, 1, ("a",), 9.5),
            {"type": "children.awaited", "iteration": 2, "turn": 1, "children": ["a"], "elapsedS": 9.5},
        ),
        (told.Noticed(1, 0, "look"), {"type": "notice", "iteration": 1, "number": 0, "message": "look"}),
    ],
)  # fmt: skip
def test_a_record_is_a_line_with_all_its_fields(record: told.Record, expected: dict[str, object]) -> None:
    assert line_of(record) == expected


def test_a_verdict_says_which_kind_it_is() -> None:
    passed = line_of(told.Judged(1, 1, Passed(CheckReport((Finding("c", True),))), 2.5))
    retry = line_of(told.Judged(2, 1, Retry(Feedback()), 3.0))
    assert passed["elapsedS"] == 2.5
    assert [passed["verdict"]["kind"], retry["verdict"]["kind"]] == ["passed", "retry"]  # type: ignore[index]


def test_a_choice_says_which_kind_it_is() -> None:
    picked = line_of(told.Picked(1, Job(Task("t", ""), Stage("work"))))
    assert picked["choice"]["kind"] == "job"  # type: ignore[index]
    assert picked["choice"]["task"]["dependsOn"] == []  # type: ignore[index]


def test_the_last_line_is_the_outcome_in_its_published_form() -> None:
    end = line_of(told.RunEnded(Aborted(Breach("STALL", "idle"), 3, Spend(unpriced=1), 1.0, "bye")))
    assert (end["type"], end["status"], end["reason"], end["costUSD"]) == ("run.ended", "ABORTED", "STALL", None)


def test_the_last_line_has_the_stories_of_a_run_that_went_by_them() -> None:
    outcome = Aborted(Breach("STALL", "idle"), 3, Spend(), 1.0, "bye")
    one = StoryReview("A", "hello", "changes_requested", 2, found=("louder",), made=1, requested=1)
    end = line_of(told.RunEnded(outcome, Metrics("r", 0.0, 1.0, "ABORTED", reviewed=(one,))))
    assert end["stories"] == [{
        "id": "A", "title": "hello", "status": "changes_requested", "reviewCount": 2, "cappedApproval": False,
        "reviewsInRun": 1, "changesRequested": 1, "doneInRun": False, "found": ["louder"],
    }]  # fmt: skip
    assert "stories" not in line_of(told.RunEnded(outcome, Metrics("r", 0.0, 1.0, "ABORTED")))


def test_a_secret_is_masked_and_the_line_stays_json() -> None:
    out = io.StringIO()
    record = told.Saved(1, 1, Snapshot("c", "t"), Change(("a hunter2hunter2 b",)), ParsedClaim())
    NdjsonObserver(out, "r", mask=lambda text: text.replace("hunter2hunter2", "***")).on_record(record)
    assert json.loads(out.getvalue())["change"]["paths"] == ["a *** b"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Started("s", "m", "2.1"), {"type": "agent.started", "session": "s", "model": "m", "version": "2.1"}),
        (Said("hello"), {"type": "agent.said", "text": "hello"}),
        (ToolStarted("1", "Read", "/a"), {"type": "agent.toolstarted", "id": "1", "name": "Read", "summary": "/a"}),
        (
            ToolEnded("1", True, "x", 45, 1234),
            {"type": "agent.toolended", "id": "1", "ok": True, "output": "x", "lines": 45, "chars": 1234},
        ),
        (Denied("Bash", "no"), {"type": "agent.denied", "tool": "Bash", "why": "no"}),
        (Asked("Which?"), {"type": "agent.asked", "question": "Which?"}),
        (
            TodosChanged((Todo("Test", "done"),)),
            {"type": "agent.todoschanged", "items": [{"text": "Test", "state": "done"}]},
        ),
        (
            Spent(5, Usage(1, 2, 3, 4), True, True),
            {
                "type": "agent.spent", "microUsd": 5, "atLeast": True, "notional": True,
                "usage": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
            },
        ),
        (Limited("slow", 5.0), {"type": "agent.limited", "message": "slow", "resetsAt": 5.0}),
        (Progress("retry"), {"type": "agent.progress", "text": "retry"}),
        (
            Ended(False, "x", "no", "service", 200_000),
            {
                "type": "agent.ended", "ok": False, "text": "x", "error": "no", "blame": "service", "window": 200_000,
            },
        ),
        (Unparsed("?", 1), {"type": "agent.unparsed", "raw": "?", "size": 1}),
    ],
)  # fmt: skip
def test_what_an_agent_does_is_a_line_for_those_who_want_everything(event: Event, expected: dict[str, object]) -> None:
    silent, out = io.StringIO(), io.StringIO()
    NdjsonObserver(silent, "run-1").on_events([event])
    NdjsonObserver(out, "run-1", events=True).on_events([event])
    assert silent.getvalue() == ""
    data = json.loads(out.getvalue())
    assert expected == {name: item for name, item in data.items() if name not in ("v", "run", "at")}


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
