"""`ralph init` and sandboxes: it tries what holds, asks last, and writes the answer."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.boxes import needs
from tests.cli.terminal import Terminal
from tests.ralph import Ralph

QUESTIONS = [
    ("Agent command", "tool"), ("Agent flags", ""), ("Maximum iterations", ""), ("Completion response", ""),
    ("Add guardrail command", ""), ("Configure SCM? (y/N): ", ""),
]  # fmt: skip
LAST = "Run agents and checks in a sandbox (bubblewrap, strong)? (y/N): "


@pytest.fixture(autouse=True)
def _bubblewrap(ralph: Ralph) -> None:
    needs("bubblewrap")
    (ralph.bin / "bwrap").symlink_to(next(p for p in ("/usr/bin/bwrap", "/bin/bwrap") if os.path.exists(p)))
    ralph.env["PATH"] = str(ralph.bin)


def settings(ralph: Ralph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ralph.root / ".ralph/settings.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(("answer", "backend"), [("y", "auto"), ("", None), ("n", None)])
def test_the_last_question_is_for_a_sandbox_and_its_answer_is_written(
    ralph: Ralph, answer: str, backend: str | None
) -> None:
    at = Terminal(ralph, "init")
    at.answer(*QUESTIONS, (LAST, answer))
    assert at.end() == 0
    assert settings(ralph)["sandbox"] == {"backend": backend}
    assert ralph("config", "show", "--json").code == 0


def test_where_nothing_strong_holds_nobody_is_asked(ralph: Ralph) -> None:
    (ralph.bin / "bwrap").unlink()
    at = Terminal(ralph, "init")
    at.answer(*QUESTIONS)
    assert at.end() == 0
    assert "sandbox" not in settings(ralph)


def test_whoever_is_asked_nothing_is_told_what_holds(ralph: Ralph) -> None:
    told = ralph("init", "--yes", "--agent", "tool")
    assert "Sandbox: bubblewrap (strong) holds here; ralph run --sandbox uses it\n" in told.out
    assert "sandbox" not in settings(ralph)


def test_leaving_at_the_last_question_writes_nothing(ralph: Ralph) -> None:
    at = Terminal(ralph, "init")
    at.answer(*QUESTIONS)
    at.expect(LAST)
    at.type("\x03")
    assert at.end() == 130
    assert not (ralph.root / ".ralph/settings.json").exists()
