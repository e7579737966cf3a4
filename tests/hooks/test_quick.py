"""One of the hooks runs after every tool call: none of them loads what takes long to load."""

from __future__ import annotations

import sys

import pytest

from tests.hooks.session import CLAUDE, Json, Session
from tests.hooks.test_post_tool_use import WINDOW, used
from tests.stories.story_documents import document, story, submitted

SLOW = {
    "dataclasses", "typing", "subprocess", "pathlib", "asyncio", "inspect", "logging", "shutil", "tempfile", "hashlib",
    "signal", "threading", "random", "socket", "argparse", "sqlite3", "msgspec",
}  # fmt: skip


def loaded(session: Session, event: Json | str, *argv: str) -> set[str]:
    """The modules that an interpreter has loaded in the end."""
    given = session.event(CLAUDE, event) if isinstance(event, str) else event
    answer = session.call([sys.executable, "-I", "-X", "importtime", *argv], given)
    assert answer.code == 0
    return {line.rsplit("|", 1)[-1].strip() for line in answer.err.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("stop", "Stop"),
        ("post_tool_use", "PostToolUse"),
        ("post_tool_use", "PostToolUseFailure"),
        ("session_start", "SessionStart"),
    ],
)
def test_a_hook_that_does_all_its_work_loads_nothing_slow(session: Session, name: str, event: str) -> None:
    session.mark(story(), pinned=document(story()), story="US-001")
    session.write(submitted())
    session.commit()
    session.transcript.write_bytes(used(WINDOW))
    before = loaded(session, event, "-c", "pass")
    after = loaded(session, event, "-m", f"ralphproof.hooks.{name}")
    assert "ralphproof.hooks.session" in after
    assert (after - before) & SLOW == set()
