"""A session that begins anew is told anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hooks.session import CLAUDE, CODEX, Session, module, verb
from tests.hooks.test_post_tool_use import WINDOW, after, used


@pytest.fixture
def told(session: Session) -> Session:
    """A session that was told, and whose end was refused."""
    name = session.stop()["session_id"]
    (session.tmp / f"claude-context-alerts-{name}").write_text("50\n60\n70\n80\n90\n")
    (session.tmp / f"ralph-stop-blocks-{name}").write_text("one\nanother")
    session.transcript.write_bytes(used(WINDOW))
    return session


@pytest.mark.parametrize(
    ("at", "source", "forgets"),
    [
        (0, "startup", {"claude-context-alerts", "ralph-stop-blocks"}),
        (1, "resume", set()),  # its context is still there
        (2, "compact", {"claude-context-alerts"}),  # it has room again, and may be in the middle of an end
    ],
)
@pytest.mark.parametrize("way", [module, verb])
def test_what_real_programs_say_of_a_beginning(
    told: Session, at: int, source: str, forgets: set[str], way: Any
) -> None:
    event = told.event(CLAUDE, "SessionStart", at)
    assert event["source"] == source
    before = {path.name for path in told.tmp.iterdir()}
    answer = told.call(way("session_start"), event)
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    left = before - {path.name for path in told.tmp.iterdir()}
    assert left == {f"{kind}-{event['session_id']}" for kind in forgets}
    assert bool(after(told)) is ("claude-context-alerts" in forgets)


def test_a_cleared_session_has_a_new_name(told: Session) -> None:
    event = told.event(CLAUDE, "SessionStart", 3)
    assert event["source"] == "clear"
    assert told.call(module("session_start"), event).code == 0
    assert len(list(told.tmp.iterdir())) == 2
    assert after(told, session_id=event["session_id"]) != ""


@pytest.mark.parametrize(("at", "again"), [(0, True), (1, False)])
def test_codex_begins_and_goes_on_in_the_same_words(session: Session, at: int, again: bool) -> None:
    session.transcript.write_bytes(used(WINDOW))
    call = session.event(CODEX, "PostToolUse")
    assert session.call(module("post_tool_use"), call).told != ""
    session.call(module("session_start"), session.event(CODEX, "SessionStart", at))
    assert bool(session.call(module("post_tool_use"), call).told) is again


@pytest.mark.parametrize("source", [None, "tomorrow", ["resume"]])
def test_a_beginning_of_an_unknown_kind_is_one(told: Session, source: Any) -> None:
    assert told.call(module("session_start"), told.event(CLAUDE, "SessionStart", source=source)).code == 0
    assert list(told.tmp.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}"])
def test_an_event_that_says_nothing_forgets_nothing(told: Session, data: bytes) -> None:
    """HK-01."""
    answer = told.call(module("session_start"), data)
    assert (answer.code, answer.out) == (0, "")
    assert len(list(told.tmp.iterdir())) == 2


@pytest.mark.parametrize("name", ["../../victim", "", "nul\0", "\ud800", 7])
def test_only_notes_of_hooks_are_forgotten(told: Session, name: Any) -> None:
    (told.root.parent / "victim").write_text("mine")
    before = set(told.root.parent.rglob("*"))
    assert told.call(module("session_start"), told.event(CLAUDE, "SessionStart", session_id=name)).code == 0
    assert set(told.root.parent.rglob("*")) == before


def test_a_link_in_the_place_of_a_note_is_removed_and_not_followed(told: Session) -> None:
    event = told.event(CLAUDE, "SessionStart", session_id="linked")
    victim = told.root.parent / "victim"
    victim.write_text("mine")
    (told.tmp / "claude-context-alerts-linked").symlink_to(victim)
    told.call(module("session_start"), event)
    assert victim.read_text() == "mine"
    assert not (told.tmp / "claude-context-alerts-linked").is_symlink()
