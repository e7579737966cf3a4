"""A step's process as its worker sees it: its log, and what it cost."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from ralphproof.fleet.worker import StepProcess, StepResult


def result_of(code: str) -> StepResult:
    async def through() -> StepResult:
        return await StepProcess((sys.executable, "-c", code), "folder", {"spec": {"loop": "one"}}).done

    return asyncio.run(through())


def test_what_a_step_has_to_tell_is_in_the_worker_s_log(capfd: pytest.CaptureFixture[str]) -> None:
    said = "import sys; print('artifacts: no \\x1b store', file=sys.stderr); print('{\"type\": \"fenced\"}')"
    assert result_of(said).report == {"type": "fenced"}
    assert capfd.readouterr().err == "one: artifacts: no   store\n"


def test_a_turn_whose_end_nobody_reports_has_no_known_cost() -> None:
    words = [{"type": "begun"}, {"type": "spent", "microUsd": 7, "tokens": 3}, {"type": "failed", "message": "x"}]
    done = result_of(f"print({chr(10).join(map(json.dumps, words))!r})")
    assert (done.micro_usd, done.tokens) == (None, 3)
