"""Settings with which a real agent cannot work end a run at once, and the message says what to do."""

from __future__ import annotations

import pytest

from ralphproof.engine.records import Judged, TurnEnded
from tests.real_agents.conftest import Json, Real

pytestmark = pytest.mark.thorough

NO_MODEL = {"error": {"code": "model_not_found", "message": "The model `no-such-model` does not exist"}}
NO_CREDIT = {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}}

# The agent and its settings, what its model answers to everything, and what the message must hold.
CASES: dict[str, tuple[str, Json, Json, tuple[str, ...]]] = {
    "claude-no-key": (
        "claude", {"env": {"ANTHROPIC_API_KEY": None}}, {}, ("claude is not logged in", "run `claude` once and log in"),
    ),
    "codex-no-key": ("codex", {"env": {"FAKE_KEY": None}}, {}, ("codex is not logged in", "run `codex login`")),
    "claude-wrong-key": ("claude", {}, {"status": 401}, ("claude is not logged in", "401", "ANTHROPIC_API_KEY")),
    "codex-wrong-key": ("codex", {}, {"status": 401}, ("codex is not logged in", "401", "CODEX_API_KEY")),
    "claude-unknown-flag": ("claude", {"flags": ["--no-such-flag"]}, {}, ("'--no-such-flag'", "agent.flags")),
    "codex-unknown-flag": ("codex", {"flags": ["--no-such-flag"]}, {}, ("'--no-such-flag'", "agent.flags")),
    "claude-unknown-model": ("claude", {"model": "no-such-model"}, {"status": 404}, ("no-such-model", "--model")),
    "codex-unknown-model": (
        "codex", {"model": "no-such-model"}, {"status": 404, "body": NO_MODEL}, ("`no-such-model`", "--model"),
    ),
    "claude-no-credit": ("claude", {}, {"status": 400, "body": NO_CREDIT}, ("claude has no credit left", "top up")),
}  # fmt: skip


@pytest.mark.parametrize(("agent", "settings", "answer", "words"), CASES.values(), ids=CASES)
def test_what_no_wait_and_no_repetition_will_mend_ends_the_run_with_what_to_do(
    real: Real, settings: Json, answer: Json, words: tuple[str, ...]
) -> None:
    real.ralph.settings(agent=settings)
    ended = real.run([], end=answer)
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["status"]) == (2, "ERROR"), ended
    assert len(real.recorded(TurnEnded)) == 1
    assert not real.recorded(Judged)
    assert all(word in outcome["error"] for word in words), outcome["error"]
    assert ended.out == f"ERROR: {outcome['error']}\n"
