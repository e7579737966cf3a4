"""The work is done, and shown to be: by a real agent that first claims too early, or that only ever claims."""

from __future__ import annotations

import json

import pytest

from ralphproof.engine.agent import Usage
from ralphproof.engine.outcome import Passed, Retry
from ralphproof.engine.records import CheckEnded, Judged, RunBegan, TurnBegan, TurnEnded
from tests.agents.real_clis import PINS
from tests.real_agents.conftest import DONE, Real, claims, writes

pytestmark = pytest.mark.thorough

TURN = Usage(2 * 1000, 2 * 50, 2 * 800, 2 * 10)  # two answers of the scripted model
PRICES = {"fake-model": {"input": 2, "output": 10, "cacheRead": 0.2, "cacheWrite": 3}}


def counted(agent: str) -> Usage:
    """A turn of two answers, as this agent counts it: Codex tells a write to the cache as plain input."""
    return TURN if agent == "claude" else Usage(TURN.input + TURN.cache_write, TURN.output, TURN.cache_read)


def test_a_failing_check_is_shown_to_the_agent_which_then_does_the_work(real: Real) -> None:
    config = real.ralph.folder / "config"
    config.mkdir()
    (config / "settings.json").write_text(json.dumps({"prices": PRICES}))
    ended = real.run([writes("wrong.txt"), claims("All done."), *DONE])
    assert (ended.code, real.answered()) == (0, [0, 1, 2, 3]), ended
    assert "MISSING: done.txt" not in real.shown(0)
    assert 'Guardrail "sh check.sh" failed with exit code 1.' in real.shown(2)
    assert "MISSING: done.txt" in real.shown(2)
    first, second = (record.verdict for record in real.recorded(Judged))
    assert isinstance(first, Retry)
    assert first.feedback.refused
    assert isinstance(second, Passed)
    answers = [(record.iteration, record.finding.passed) for record in real.recorded(CheckEnded)]
    assert answers == [(0, False), (1, False), (2, True)]
    outcome = real.ralph.outcome()
    assert (outcome["status"], outcome["iterations"], outcome["proof"]) == ("COMPLETED", 2, "verified")
    assert ended.out.startswith("COMPLETED, verified by its checks: 2 iterations, ")
    assert (real.ralph.root / "done.txt").read_text() == "x\n"
    accounted(real)


def accounted(real: Real) -> None:
    """The record tells what two turns cost, and with whom."""
    pin = PINS[real.agent]
    (began,) = real.recorded(RunBegan)
    assert (began.facts["agent"], began.facts["agentVersion"]) == (pin.program, pin.version)
    assert [record.agent for record in real.recorded(TurnBegan)] == [real.agent] * 2
    replies = [record.reply for record in real.recorded(TurnEnded)]
    assert [reply.usage for reply in replies] == [counted(real.agent)] * 2
    assert [(reply.tools, reply.errors, reply.unparsed, reply.denied) for reply in replies] == [(1, 0, 0, ())] * 2
    assert replies[0].session != replies[1].session
    assert all(reply.session for reply in replies)
    if real.agent == "claude":
        told = [real.printed(f"agent_00{number}")[-1] for number in (1, 2)]
        costs = [round(line["total_cost_usd"] * 1_000_000) for line in told]
        assert {(reply.model, reply.version) for reply in replies} == {(real.printed()[0]["model"], pin.version)}
    else:
        costs = [2 * 1010 * 2 + 2 * 50 * 10 + 2 * 800 // 5] * 2
        assert {reply.model for reply in replies} == {"fake-model"}
    assert all(costs)
    assert [(reply.micro_usd, reply.at_least, reply.notional) for reply in replies] == [
        (cost, False, False) for cost in costs
    ]
    assert real.ralph.outcome()["costUSD"] == sum(costs) / 1_000_000


def test_a_lie_never_completes(real: Real) -> None:
    ended = real.run([], "-m", "2", end=claims("All of it is done."))
    assert ended.code == 1, ended
    outcome = real.ralph.outcome()
    assert (outcome["status"], outcome["reason"], outcome["iterations"]) == ("ABORTED", "MAX_ITERATIONS", 2)
    assert "ABORTED, MAX_ITERATIONS: " in ended.out
    assert "COMPLETED" not in ended.out + ended.err
    assert all(
        isinstance(record.verdict, Retry) and record.verdict.feedback.refused for record in real.recorded(Judged)
    )
