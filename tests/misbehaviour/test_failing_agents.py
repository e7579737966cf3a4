"""Agents that cannot work, will not work, or fail again and again."""

from __future__ import annotations

import json

import pytest

from ralphproof.engine.records import Judged, TurnRetried
from tests.misbehaviour.agents import TAG, case, prompt
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.streams import (
    LONG,
    Line,
    Play,
    call,
    codex_failed,
    done,
    init,
    log,
    message,
    patient,
    plays,
    refused,
    replies,
    result,
    run,
    says,
    told,
)
from tests.ralph import Ended, Ralph

NO_LOGIN = "OAuth token has expired · Please run /login"
NO_CREDIT = "Credit balance is too low"
NO_FLAG = "error: unknown option '--frobnicate'"


@pytest.mark.parametrize(
    ("agent", "play", "words"),
    [
        case("MS-07-exit-0", "claude", Play(refused(NO_LOGIN)), ("claude is not logged in", NO_LOGIN)),
        case("MS-07-exit-1", "claude", Play(refused(NO_LOGIN), code=1), ("claude is not logged in", "run `claude`")),
        case("MS-07-status", "claude", Play(refused("no", api_error_status=401), code=1), ("not logged in",)),
        case("MS-07-stderr", "claude", Play([], err="Invalid API key · Fix it\n", code=1), ("not logged in", "Fix it")),
        case("MS-07-codex", "codex", Play(codex_failed("unexpected status 401 Unauthorized: x"), code=1),
             ("codex is not logged in", "codex login")),
        case("MS-08-claude", "claude", Play(refused(NO_CREDIT), code=1), ("claude has no credit left", "top up")),
        case("MS-08-codex", "codex", Play(codex_failed("Quota exceeded. Check your plan."), code=1),
             ("codex has no credit left",)),
        case("MS-12-claude", "claude", Play([], err=f"{NO_FLAG}\n", code=1), (NO_FLAG, "agent.flags")),
        case("MS-12-codex", "codex", Play([], err="error: unexpected argument '--x' found\n\nUsage: codex\n", code=2),
             ("unexpected argument '--x' found", "agent.flags")),
    ],
)  # fmt: skip
def test_what_no_wait_will_mend_ends_the_run_after_one_turn(
    ralph: Ralph, agent: str, play: Play, words: tuple[str, ...]
) -> None:
    """MS-07, MS-08, MS-12: with the agent's own words."""
    plays(ralph, agent, play)
    ended = run(ralph, agent, most=5)
    error_in_one_turn(ralph, ended, agent, words)


def error_in_one_turn(ralph: Ralph, ended: Ended, agent: str, words: tuple[str, ...]) -> None:
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], len(told(ralph, agent))) == (2, "ERROR", 1), ended
    assert recorded(ralph, Judged) == []
    for word in words:
        assert word in outcome["error"]
        assert word in ended.out


@pytest.mark.thorough
def test_an_agent_that_waits_for_somebody_to_log_in_is_not_waited_for(ralph: Ralph) -> None:
    """MS-07: it is ended when the time is over that an agent has to leave."""
    asks = "Please visit the following URL to authorize the application:\nhttps://localhost/oauth/authorize?x=1"
    plays(ralph, "gemini", Play([asks, "Enter the authorization code: "], then=LONG, end=b"\n"))
    ended = run(ralph, "gemini")
    error_in_one_turn(ralph, ended, "gemini", ("gemini is not logged in (it asks somebody to log in)",))
    (reply,) = replies(ralph)
    assert (reply.exit.why, reply.exit.seconds < 20) == ("lingered", True)


TOO_LONG = "Prompt is too long · the request is ~250000 tokens"


@pytest.mark.parametrize(
    ("agent", "lines", "words"),
    [
        case("MS-11-claude", "claude", refused(TOO_LONG, terminal_reason="prompt_too_long"), TOO_LONG),
        case("MS-11-codex", "codex", codex_failed(json.dumps({"error": {
            "code": "context_length_exceeded", "message": "Your input exceeds the context window"}})),
            "Your input exceeds the context window"),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_not_sent_for_ever(
    ralph: Ralph, agent: str, lines: list[Line], words: str
) -> None:
    """MS-11: the next prompt says so; and the same again ends the run, though files change."""
    plays(ralph, agent, Play(lines, code=1, does="date +%N%s > work"))
    ended = run(ralph, agent, most=20)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph, agent))) == (1, "SAME_ERROR_5X", 5), ended
    assert f"Your last turn failed: the prompt of {agent} or its context grew too long: {words}" in prompt(ralph, 2)
    assert recorded(ralph, TurnRetried) == []


def test_a_question_and_a_denial_are_answered_in_the_next_prompt_and_then_end_the_run(ralph: Ralph) -> None:
    """MS-13"""
    denied = result("I could not.", permission_denials=[{"tool_name": "Bash", "tool_use_id": "t-1"}])
    asks = message(call("AskUserQuestion", questions=[{"question": "Tabs or spaces?"}]))
    plays(ralph, "claude", [init(), denied], [init(), asks, result("I wait.")], done("Shall I go on?"))
    ended = run(ralph, "claude", most=20)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (1, "STALL", 5), ended
    assert "not permitted; do the work without them:\n- Bash" in prompt(ralph, 2)
    assert all("You asked a question. Nobody is there to answer" in prompt(ralph, number) for number in (3, 4, 5))
    assert "1 tool call was denied (Bash)" in ended.err
    assert "--no-sandbox" in ended.err


def test_a_turn_whose_time_was_up_and_that_made_a_commit_is_progress(ralph: Ralph) -> None:
    """MS-14"""
    ralph.settings(agent={"timeoutSeconds": 1}, limits={"stallIterations": 1})
    ralph.commit()
    who = "git -c user.name=a -c user.email=a@localhost"
    does = f"date +%N%s > work; git add work; {who} commit -qm more"
    plays(ralph, "claude", Play([init()], does=does, then=LONG))
    ended = run(ralph, "claude", most=2)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (1, "MAX_ITERATIONS", 2), ended
    assert [reply.exit.why for reply in replies(ralph)] == ["timeout", "timeout"]
    assert [past.change.paths for past in ralph.state().history.iterations] == [("work",), ("work",)]
    assert "Your last turn failed: the agent was ended: its time was up" in prompt(ralph, 2)


@pytest.mark.parametrize(
    ("does", "reason"), [case("MS-15-idle", ":", "STALL"), case("MS-15-busy", "date +%N%s > work", "SAME_ERROR_5X")]
)
def test_a_program_that_fails_at_once_is_not_started_for_ever(ralph: Ralph, does: str, reason: str) -> None:
    """MS-15"""
    plays(ralph, "claude", Play([], code=1, does=does, err="panic: no\n"))
    ended = run(ralph, "claude", most=50)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (1, reason, 5), ended


def test_where_nothing_else_ends_it_a_failing_program_fills_no_disk(ralph: Ralph) -> None:
    """MS-15"""
    patient(ralph)
    plays(ralph, "claude", Play([], code=1, err="panic: no\n"))
    ended = run(ralph, "claude", most=25)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (1, "MAX_ITERATIONS", 25), ended
    files = [path for path in ralph.run_folder().resolve().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 50_000
    assert log(ralph, "agent_025.stderr.log") == b"panic: no\n"


def test_a_message_of_success_does_not_hide_that_the_service_failed_in_the_end(ralph: Ralph) -> None:
    """MS-06, MS-07: the last result counts, in both directions."""
    plays(ralph, "claude", [init(), says(TAG), result(TAG), *refused(NO_LOGIN)[1:]])
    error_in_one_turn(ralph, run(ralph, "claude", most=3), "claude", ("claude is not logged in",))
