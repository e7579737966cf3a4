"""What a real agent is started with, and the call that asks it for a commit message."""

from __future__ import annotations

import os
import shlex

import pytest

from ralphproof.agents.environment import AGENT_SESSION_VARIABLES
from ralphproof.engine.records import ScmEnded, TurnEnded
from tests.real_agents.conftest import DONE, Real, runs, says

pytestmark = pytest.mark.thorough


def test_the_marks_of_other_agents_and_stray_keys_do_not_reach_it(real: Real) -> None:
    real.env |= dict.fromkeys(AGENT_SESSION_VARIABLES, "another-agent") | {
        "STRAY_KEY": "stray",
        "KEPT": "kept",
        "IS_SANDBOX": "",
    }
    real.ralph.settings(agent={"env": {"STRAY_KEY": None, "ADDED": "added"}})
    told = real.ralph.folder / "environ"
    # Its own, not what it gives to a command; in a script, as the command guard lets nobody read that.
    real.ralph.write({"look.sh": f"cat /proc/$1/environ > {shlex.quote(str(told))}"})
    real.ralph.commit()
    ended = real.run([runs("sh look.sh $PPID"), *DONE], "--no-sandbox")
    assert ended.code == 0, ended
    found = dict(pair.split("=", 1) for pair in os.fsdecode(told.read_bytes()).split("\0") if pair)
    assert "another-agent" not in found.values()
    assert "STRAY_KEY" not in found
    assert (found["KEPT"], found["ADDED"], found["RALPH_ITERATION"]) == ("kept", "added", "1")
    if real.agent == "claude":
        assert found["DISABLE_AUTOUPDATER"] == "1"
        assert found["IS_SANDBOX"] == ("1" if os.geteuid() == 0 else ""), "else it refuses root"


def test_the_call_for_a_commit_message_counts_and_keeps_the_work(real: Real) -> None:
    real.ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    real.ralph.git("config", "user.name", "user")
    real.ralph.git("config", "user.email", "user@localhost")
    ended = real.run([*DONE, says("Add the file that was missing")])
    assert (ended.code, real.answered()) == (0, [0, 1, 2]), ended
    (kept,) = real.recorded(ScmEnded)
    assert kept.committed.commit is not None
    assert (kept.message, kept.committed.error) == ("Add the file that was missing", "")
    assert real.ralph.git("log", "-1", "--format=%s").strip() == "Add the file that was missing"
    assert real.ralph.git("show", "HEAD:done.txt") == "x\n"
    (turn,) = [record.reply for record in real.recorded(TurnEnded)]
    assert kept.reply is not None
    assert kept.reply.usage is not None
    assert turn.usage is not None
    assert kept.reply.usage.total == 1860
    assert real.ralph.state().spend.tokens == turn.usage.total + kept.reply.usage.total
    if real.agent == "claude":
        assert turn.micro_usd is not None
        assert kept.reply.micro_usd is not None
        assert real.ralph.outcome()["costUSD"] == (turn.micro_usd + kept.reply.micro_usd) / 1_000_000
        assert len(real.printed("scm_001")) == 1
