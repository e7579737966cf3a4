"""What agents say that they cost: too much, nonsense, too late, or nothing at all."""

from __future__ import annotations

import json

import pytest

from ralphproof.engine.agent import Usage
from tests.misbehaviour.agents import TAG, case, facts, heard
from tests.misbehaviour.invariants import refusal
from tests.misbehaviour.streams import (
    LONG,
    MODEL,
    Line,
    Play,
    done,
    init,
    message,
    patient,
    plays,
    replies,
    result,
    run,
    says,
    text,
    told,
    turn,
)
from tests.ralph import Ralph

SLOW = "sleep 0.3"  # to leave: time enough to be ended
GIT = {"command": "git", "tasks": ["commit"]}
PRICES = {MODEL: {"input": 2, "output": 10, "cacheRead": 0.2, "cacheWrite": 3}}  # dollars for a million tokens


def priced(ralph: Ralph) -> None:
    """What the model costs, by the user's own settings."""
    (ralph.folder / "config").mkdir()
    (ralph.folder / "config" / "settings.json").write_text(json.dumps({"prices": PRICES}), encoding="utf-8")


def stopped(ralph: Ralph) -> tuple[object, ...]:
    """Why the run was aborted, at which iteration, and whether its checks had passed."""
    outcome = ralph.outcome()
    return outcome["reason"], outcome["iterations"], outcome["details"]["checksPassed"]


def test_one_turn_far_over_the_limit_ends_the_run_and_nothing_is_paid_for_any_more(ralph: Ralph) -> None:
    """RU-01: green and claimed, yet no commit message is asked for, and the real figure is on record."""
    ralph.settings(scm=GIT)
    ralph.commit()
    head = ralph.git("rev-parse", "HEAD")
    plays(ralph, "claude", Play(done(cost=50), does="echo 1 > work", then=SLOW))
    ended = run(ralph, "claude", "--max-cost-usd", "5", check="test -f work", most=3)
    assert (ended.code, *stopped(ralph)) == (1, "COST_LIMIT", 1, True), ended
    assert (ralph.outcome()["costUSD"], len(told(ralph)), ralph.git("rev-parse", "HEAD")) == (50, 1, head)
    assert [reply.exit.why for reply in replies(ralph)] == ["exit"], "it had said its result, and spends no more"
    assert "COST_LIMIT: spent $50.00 of $5.00" in ended.out.splitlines()[-1]


def test_an_agent_that_spends_on_is_ended_in_mid_turn(ralph: Ralph) -> None:
    """RU-02"""
    priced(ralph)
    dear = message(text("on and on"), usage={"input_tokens": 1_000_000, "output_tokens": 1})
    plays(ralph, "claude", Play([init(), dear], does="echo 1 > work", then=LONG))
    ended = run(ralph, "claude", "--max-cost-usd", "1", most=3)
    assert (ended.code, *stopped(ralph)) == (1, "COST_LIMIT", 1, True), ended
    (reply,) = replies(ralph)
    assert (reply.exit.why, reply.micro_usd, reply.at_least) == ("stopped", 2_000_020, True)
    assert reply.exit.seconds < 20
    assert (ralph.outcome()["costUSD"], ralph.outcome()["cost"]["atLeast"]) == (2.00002, True)
    assert ralph.state().history.latest.change.paths == ("work",)


@pytest.mark.parametrize("agent", ["codex", "copilot"])
def test_a_limit_that_could_not_be_held_is_refused_and_an_unknown_cost_is_not_zero(ralph: Ralph, agent: str) -> None:
    """RU-03: Codex tells tokens, and nobody knows the price of its model; Copilot tells nothing."""
    plays(ralph, agent, Play(turn(agent, final=TAG), does="touch started"))
    argv = ("run", "-p", "make it so", "--agent", agent, "--check", "true", "-m", "1", "--max-cost-usd", "1")
    refusal(ralph, ralph(*argv), agent, "--allow-unknown-cost")
    ended = run(ralph, agent, "--max-cost-usd", "1", "--allow-unknown-cost")
    assert (ended.code, ralph.outcome()["costUSD"]) == (0, None), ended
    assert ended.out.endswith("cost unknown\n")
    assert ralph.state().spend.unpriced == 1


def test_an_agent_that_tells_no_cost_is_warned_of_under_the_cap(ralph: Ralph) -> None:
    """RU-03"""
    plays(ralph, "copilot", turn("copilot", final=TAG))
    assert "agent copilot cannot report its cost, so caps.costUsd (10) cannot be held" in run(ralph, "copilot").err


COSTS = (
    "NaN", "Infinity", "-Infinity", "1e999", "-5", '"0.5"', "true", "null", "[1]", '{"usd": 1}', "9" * 5000,
    "100000", "1e-400000", "-0.0001",
)  # fmt: skip


def test_a_cost_that_is_no_figure_is_unknown_and_the_limit_goes_on_to_hold(ralph: Ralph) -> None:
    """RU-04: a turn for each of them, then one that costs more than the rest of the limit."""
    patient(ralph)
    plays(ralph, "claude", *(done("working", cost) for cost in COSTS), done("working", 3), done("working", 2.5))
    ended = run(ralph, "claude", "--max-cost-usd", "5", most=30)
    assert (ended.code, *stopped(ralph)) == (1, "COST_LIMIT", len(COSTS) + 2, True), ended
    known = dict(zip(COSTS, (reply.micro_usd for reply in replies(ralph)), strict=False))
    assert {cost: micro for cost, micro in known.items() if micro is not None} == {"1e-400000": 0}
    assert [reply.micro_usd for reply in replies(ralph)][-2:] == [3_000_000, 2_500_000]
    assert {reply.text for reply in replies(ralph)} == {"working"}, "a bad figure costs nothing but itself"
    assert (ralph.outcome()["costUSD"], ralph.outcome()["cost"]["atLeast"]) == (5.5, True)
    assert "cost at least $5.50" in ended.out


def test_the_last_result_counts_and_what_comes_after_it_does_not(ralph: Ralph) -> None:
    """RU-06"""
    plays(
        ralph, "claude",
        [init(), result(TAG, 0.01), result("working", 0.02)],
        [init(), result("working", 0.02), says(TAG)],
        [init(), result("broken", 0.01, is_error=True, subtype="error"), says("so"), result(TAG, 0.04), "the end"],
    )  # fmt: skip
    ended = run(ralph, "claude", most=3)
    assert (ended.code, heard(ralph)) == (0, [None, None, "DONE"]), ended
    assert [reply.micro_usd for reply in replies(ralph)] == [20_000, 20_000, 40_000]
    assert ralph.outcome()["costUSD"] == 0.08


# What an agent counts, and what of it can be counted.
COUNTS: list[tuple[object, Usage | None]] = [
    ({"input_tokens": -5, "output_tokens": 1.5, "cache_read_input_tokens": 1e18}, Usage(0, 1)),
    ({"input_tokens": "7", "output_tokens": True, "cache_creation_input_tokens": None}, Usage()),
    ({"input_tokens": 10**18, "output_tokens": [3], "cache_read_input_tokens": {}}, Usage()),
    ({}, Usage()),
    (None, None),
    ({"input_tokens": 4, "output_tokens": 3, "extra": 10**400}, Usage(4, 3)),
]


def test_counts_of_tokens_that_cannot_be_are_left_out(ralph: Ralph) -> None:
    """RU-07"""
    patient(ralph)
    plays(ralph, "claude", *(done("working", usage=usage) for usage, _ in COUNTS))
    run(ralph, "claude", most=len(COUNTS))
    assert [reply.usage for reply in replies(ralph)] == [usage for _, usage in COUNTS]
    assert ralph.state().spend.tokens == 8
    assert {reply.text for reply in replies(ralph)} == {"working"}


def test_more_than_the_caps_allow_is_brought_down_to_them(ralph: Ralph) -> None:
    """RU-11"""
    plays(ralph, "claude", done(cost=10.5))
    ended = run(ralph, "claude", "--max-cost-usd", "100", most=500)
    assert (ended.code, *stopped(ralph)) == (1, "COST_LIMIT", 1, True), ended
    assert "maximumIterations is 500; caps.iterations allows 50, so 50 holds" in ended.err
    assert "limits.maxCostUsd is 100; caps.costUsd allows 10, so 10 holds" in ended.err
    assert facts(ralph)["maximumIterations"] == 50


@pytest.mark.parametrize(
    ("costs", "code", "iterations", "cost"),
    [
        case("RU-12-used-up", (0.1, 0.2), 0, 2, 0.3),
        case("RU-12-used-up-and-not-done", (0.1, 0.2, 0), 1, 2, 0.3),
        case("RU-12-a-millionth-left", (0.1, 0.199999, 0.000001), 0, 3, 0.3),
        case("RU-12-a-millionth-more", (0.1, 0.200001), 1, 2, 0.300001),
        case("RU-12-many-small", (0.01,) * 30, 0, 30, 0.3),
    ],
)
def test_the_limit_may_be_used_up_to_the_last_millionth(
    ralph: Ralph, costs: tuple[float, ...], code: int, iterations: int, cost: float
) -> None:
    """RU-12: and with nothing left of it, no other iteration begins."""
    patient(ralph)
    plays(ralph, "claude", *(done("working", cost) for cost in costs[:-1]), done(cost=costs[-1]))
    ended = run(ralph, "claude", "--max-cost-usd", "0.3", most=30)
    assert (ended.code, ralph.outcome()["iterations"]) == (code, iterations), ended
    assert ralph.outcome()["costUSD"] == cost
    assert ralph.outcome().get("reason") == ("COST_LIMIT" if code else None)


def test_what_a_turn_had_cost_when_its_time_was_up_is_counted(ralph: Ralph) -> None:
    """RU-13: at least so much, and not nothing."""
    priced(ralph)
    ralph.settings(agent={"timeoutSeconds": 1})
    half = message(text("half"), usage={"input_tokens": 500_000, "output_tokens": 10})
    plays(ralph, "claude", Play([init(), half], then=LONG))
    ended = run(ralph, "claude")
    (reply,) = replies(ralph)
    assert (reply.exit.why, reply.micro_usd, reply.at_least) == ("timeout", 1_000_100, True)
    spend = ralph.state().spend
    assert (spend.micro_usd, spend.tokens, spend.unpriced) == (1_000_100, 500_010, 1)
    assert (ended.code, ralph.outcome()["costUSD"], ralph.outcome()["cost"]["atLeast"]) == (1, 1.0001, True)
    assert "cost at least $1.00" in ended.out


def test_the_call_for_a_commit_message_is_paid_for(ralph: Ralph) -> None:
    """RU-14: and may be what costs too much."""
    ralph.settings(scm=GIT)
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    message = Play([result("Add work", 0.5)], then=SLOW)
    plays(ralph, "claude", Play(done(cost=0.25), does="echo 1 > work"), message)
    ended = run(ralph, "claude", "--max-cost-usd", "0.7", check="test -f work", most=2)
    assert (ended.code, *stopped(ralph)) == (1, "COST_LIMIT", 1, True), ended
    assert ralph.outcome()["costUSD"] == 0.75
    assert ralph.git("log", "-1", "--format=%s", "--name-only").split() == ["Add", "work", "work"]


def test_tokens_are_limited_where_money_is_not_known(ralph: Ralph) -> None:
    """RU-03"""
    counted: list[Line] = [*turn("codex")[:-1], {"type": "turn.completed", "usage": {"input_tokens": 900}}]
    plays(ralph, "codex", counted)
    ended = run(ralph, "codex", "--max-tokens", "1000", most=5)
    assert (ended.code, *stopped(ralph)) == (1, "TOKEN_LIMIT", 2, True), ended
    assert ralph.state().spend.tokens == 1800
