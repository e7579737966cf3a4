"""What nobody has judged does not stand in a file of stories, however its iteration ended."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from typing import Any

import pytest

from tests.misbehaviour.machine import there
from tests.misbehaviour.protected_project import sh
from tests.misbehaviour.stories import (
    APPROVED,
    BLANK,
    NEEDS,
    PRD,
    TASKS,
    US1,
    approved,
    course,
    fields,
    known,
    lay,
    loop,
    requested,
    story,
    subjects,
    submitted,
    text,
    told,
    turn,
)
from tests.misbehaviour.test_crashes import ABOVE_KEEPER
from tests.ralph import Ralph, Step, say, until

SOON = {"RALPH__SHUTDOWN_GRACE_SECONDS": "0.2"}  # nothing that is at work here would end by itself
WRITES = "test ! -f sly || sh sly"  # a check that runs what an agent wrote


def test_what_a_check_wrote_is_gone_when_the_run_is_interrupted_in_it(ralph: Ralph) -> None:
    top: dict[str, Any] = {"verifyCommands": [WRITES]}
    lay(ralph, story(), **top)
    (ralph.folder / "forged").write_text(text(approved(), **top))
    sly = "cp ../forged ralph/tasks.json; touch ../there; exec sleep 60"
    agent = ralph.script(turn(sly=sly))
    live = ralph.start("run", "--preset", "stories", "--agent", agent, env=SOON)
    until((ralph.folder / "there").exists, "the check that writes")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    assert fields(known(ralph)[US1]) == BLANK
    (ralph.root / "sly").unlink()
    assert loop(ralph, turn(), flags=("-m", "1")).code == 1


@pytest.mark.parametrize("by", ["agent", "user"])
def test_what_a_run_could_not_put_back_is_put_back_by_the_next_unless_the_user_wrote_since(
    ralph: Ralph, by: str
) -> None:
    """It ended in the middle of its checks; its file is as nobody judged it, and older than its last record, or not."""
    ralph.write({"done": ""})
    lay(ralph, story(), verifyCommands=["test ! -f wait || { touch ../there; exec sleep 60; }"])
    live = ralph.start("run", "--preset", "stories", "--agent", ralph.script(turn(wait="")), env=SOON)
    until((ralph.folder / "there").exists, "the check that waits")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    (ralph.root / "wait").unlink()
    ralph.write({TASKS: text(approved())})
    if by == "agent":
        (file,) = ralph.state_dir.rglob("ledger.db")
        connection = sqlite3.connect(file)
        connection.execute("UPDATE record SET at = at + 60")  # as if it had been written before the run ended
        connection.commit()
        connection.close()
    ended = ralph("run", "--preset", "stories", "--agent", ralph.script(turn()), "-m", "1")
    if by == "user":
        assert ended.code == 0, ended
        return
    assert ended.code == 1, ended
    assert f"{TASKS} held what run" in ended.err
    assert course(ralph) == [(US1, "implement", "Retry")]
    assert fields(known(ralph)[US1]) == BLANK


@pytest.mark.parametrize("left", [text(approved()), '{"half": '], ids=["forged", "half-written"])
def test_a_plain_run_after_a_kill_in_mid_turn_closes_the_dead_run_and_goes_by_what_was_put_back(
    ralph: Ralph, left: str
) -> None:
    lay(ralph, story())
    forges: list[Step] = [{"write": {TASKS: left}}, sh(f"{ABOVE_KEEPER}; kill -9 $2"), say("ok")]
    agent = ralph.script(forges, turn(submitted(), done=""), turn(approved()))
    assert ralph("run", "--preset", "stories", "--agent", agent).code == -signal.SIGKILL
    until(lambda: not there(ralph.folder), "the keeper ends the turn")
    dead = ralph.runs()[0].id
    ended = loop(ralph, turn(submitted(), done=""), turn(approved()))
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, "implement", "Passed"), (US1, "review", "Passed")]
    assert f"run {dead} crashed and is closed" in ended.err
    assert f"{TASKS} had been changed by its agent, and was put back" in ended.err


def test_an_approval_of_a_review_that_broke_off_is_none(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    ended = loop(ralph, [*turn(approved())[:-1], {"exit": 3}], turn(approved()), flags=("-m", "2"))
    assert ended.code == 0, ended
    assert course(ralph) == [(US1, "review", "Retry"), (US1, "review", "Passed")]
    assert "'approved' was said in a turn that failed" in (ralph.run_folder() / "prompt_002.txt").read_text("utf-8")


def test_what_checks_change_of_the_prd_is_put_back(ralph: Ralph) -> None:
    top: dict[str, Any] = {"verifyCommands": [WRITES]}
    lay(ralph, story(), **top)
    sly = f"echo weaker > {PRD}"
    loop(ralph, turn(submitted(), top=top, sly=sly), flags=("-m", "1"))
    assert (ralph.root / PRD).read_text() == "# What is wanted\n"
    assert f"{PRD} was changed while no agent was at work, and was put back" in told(ralph)
    assert "weaker" not in ralph.git("show", f"HEAD:{PRD}")


def test_a_commit_hook_that_forges_a_verdict_and_kills_the_harness_is_not_believed(ralph: Ralph) -> None:
    lay(ralph, story())
    (ralph.folder / "forged").write_text(text(approved()))
    pid = '$(python3 -c \'import json; print(json.load(open(".ralph-active"))["pid"])\')'
    hook = ralph.root / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntest -f ../once && exit 0\ntouch ../once\ncp ../forged {TASKS}\nkill -9 {pid}\n")
    hook.chmod(0o755)
    agent = ralph.script(turn(submitted(), done=""), turn(approved()))
    assert ralph("run", "--preset", "stories", "--agent", agent).code == -signal.SIGKILL
    resumed = ralph("run", "--resume")
    assert resumed.code == 0, resumed
    assert course(ralph) == [(US1, "implement", "Passed"), (US1, "review", "Passed")]


def test_other_verify_commands_need_a_new_run(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story())
    loop(ralph, turn(submitted()), flags=("-m", "1"))
    ralph.write({TASKS: text(submitted(), verifyCommands=["test -f done", "false"])})
    resumed = ralph("run", "--resume", "-m", "3")
    assert resumed.code == 2, resumed
    assert "verifyCommands were changed, and hold for a whole run; begin a new one: ralph run" in resumed.out
    assert json.loads((ralph.root / TASKS).read_text())["verifyCommands"] == ["test -f done", "false"]


def test_without_reviews_nobody_writes_of_one(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story())
    forged = story(passes=True, reviewStatus=APPROVED, reviewCount=3, notes="made")
    ended = loop(ralph, turn(forged), turn(story(passes=True, notes="made")), flags=("--skip-review", "-m", "2"))
    assert ended.code == 0, ended
    assert [one[2] for one in course(ralph)] == ["Retry", "Passed"]
    assert fields(known(ralph)[US1]) == (True, None, 0)


def test_at_the_cap_nothing_is_said_to_be_sent_back_and_the_commit_says_approved(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    ended = loop(ralph, turn(requested()), flags=("--review-cap", "1"))
    assert ended.code == 0, ended
    assert "sent back" not in ended.err
    assert "changes are requested at the review cap; the checks decide" in told(ralph)
    assert subjects(ralph)[0] == "review: [US-001] - approved"
    assert known(ralph)[US1]["reviewFeedback"] == "[AUTO-APPROVED AT CAP] say it louder"


def test_reviews_that_never_review_end_as_a_pattern(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    ended = loop(ralph, *[turn()] * 15)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "SAME_ERROR_5X"), ended
    assert "the same rules were broken" in ended.out


def test_a_run_by_stories_does_not_begin_inside_another(ralph: Ralph) -> None:
    lay(ralph, story())
    inner = ralph.script(turn(submitted(), done=""))
    nested = f"{sys.executable} -m ralphproof run --preset stories --agent '{inner}'"
    loop(ralph, [sh(f"{{ {nested} || echo $?; }} > ../inner 2>&1"), say("ok")], flags=("-m", "1"))
    said = (ralph.folder / "inner").read_text()
    assert "stories have one loop at a time" in said
    assert said.endswith("2\n")
    assert fields(known(ralph)[US1]) == BLANK


def test_what_we_wrote_last_is_committed_by_whoever_takes_the_run_up(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, submitted())
    costs: Step = {"cost": 2.0}
    loop(ralph, [*turn(approved())[:-1], costs, say("ok")], flags=("--max-cost-usd", "1"))
    assert fields(known(ralph)[US1]) == (False, NEEDS, 0)
    resumed = ralph("run", "--resume", "--max-cost-usd", "5")
    assert resumed.code == 0, resumed
    assert "put back" not in told(ralph)
    assert json.loads(ralph.git("show", f"HEAD:{TASKS}"))["userStories"][0]["reviewStatus"] == APPROVED


def test_a_file_that_a_run_may_write_is_one_that_the_next_run_reads(ralph: Ralph) -> None:
    ralph.write({"done": ""})
    lay(ralph, story(description="long " * 500_000))
    assert loop(ralph, turn(), flags=("-m", "1")).code == 1
