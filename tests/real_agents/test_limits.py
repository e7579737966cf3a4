"""What a real agent may not do, spend, or leave unsaid."""

from __future__ import annotations

import pytest

from ralphproof.engine.outcome import Retry
from ralphproof.engine.records import Judged, TurnEnded, TurnRetried
from tests.real_agents.conftest import DONE, Real, claims, runs, says

pytestmark = pytest.mark.thorough

only_claude = pytest.mark.parametrize("agent", ["claude"])
DEAR = {"input": 20_000, "output": 1000}


@only_claude
def test_money_that_runs_out_in_the_middle_of_a_turn_ends_it_there(real: Real) -> None:
    held = str(real.ralph.folder / "never")
    turns = [runs("echo one >> work.txt", usage=DEAR) for _ in range(4)]
    ended = real.run([*turns, says("never said", hold=held)], "--no-sandbox", "--max-cost-usd", "0.25")
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["cost"]["atLeast"]) == (1, "COST_LIMIT", True), ended
    assert len(real.answered()) <= 5
    (reply,) = [record.reply for record in real.recorded(TurnEnded)]
    assert (reply.exit.why, reply.at_least) == ("stopped", True)
    assert reply.micro_usd is not None
    assert 250_000 < reply.micro_usd < 600_000
    assert "ABORTED, COST_LIMIT: spent $0." in ended.out
    assert "cost at least $0." in ended.out
    assert (real.ralph.root / "work.txt").exists()


def test_empty_replies_are_taken_again_and_then_end_the_run(real: Real) -> None:
    real.ralph.settings(agent={"retries": 1})
    ended = real.run([], end={"empty": True})
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"]) == (1, "ABORTED", "EMPTY_REPLIES"), ended
    assert [(record.turn, record.empty, record.until) for record in real.recorded(TurnRetried)] == [(1, True, 0.0)]
    assert [record.reply.empty for record in real.recorded(TurnEnded)] == [True, True]
    assert not real.recorded(Judged)


@only_claude
def test_a_call_that_was_denied_is_told_to_the_agent_and_to_the_user(real: Real) -> None:
    ended = real.run([runs("touch ../outside; exit 0"), claims(), *DONE])
    assert ended.code == 0, ended
    first, second = (record.reply for record in real.recorded(TurnEnded))
    assert (len(first.denied), second.denied) == (1, ())
    assert first.denied[0].startswith("Bash: ")
    assert "1 tool call was denied (Bash: " in ended.err
    assert "--no-sandbox" in ended.err
    verdict = real.recorded(Judged)[0].verdict
    assert isinstance(verdict, Retry)
    assert (
        f"These tool calls of yours were not permitted; do the work without them:\n- {first.denied[0]}" in real.shown(2)
    )
    assert not (real.ralph.folder / "outside").exists()


# Codex keeps what git lives on out of reach, within the project too; Claude Code asks before a command that writes.
REACHES, COMMITS = "touch .git/touched", "git -c user.name=u -c user.email=u@h commit -q --allow-empty -m reached"


@pytest.mark.parametrize("agent", ["codex"])
def test_its_own_guard_holds_it_back(real: Real) -> None:
    ended = real.run([runs(REACHES), *DONE])
    assert ended.code == 0, ended
    assert "Read-only file system" in real.shown(1)  # its stream tells of such a call only sometimes (0.166)
    assert not (real.ralph.root / ".git" / "touched").exists()


def test_without_its_own_guard_it_does_more_and_a_command_that_fails_fails_no_turn(real: Real) -> None:
    ended = real.run([runs(f"{COMMITS}; echo oops; exit 3"), *DONE], "--no-sandbox")
    assert (ended.code, real.ralph.outcome()["iterations"]) == (0, 1), ended
    (reply,) = [record.reply for record in real.recorded(TurnEnded)]
    assert (reply.tools, reply.errors, reply.error, reply.denied) == (2, 1, None, ())
    assert f"agent {real.agent} runs as --no-sandbox says: the command guard refuses accidents" in ended.err
    assert "oops" in real.shown(1)
    assert real.ralph.git("log", "-1", "--format=%s") == "reached\n"
