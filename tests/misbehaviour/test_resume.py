"""`ralph run --resume`: a run that lost its harness, or ended in a way that allows it, goes on where it stood."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.processes import process_start_time
from ralphproof.engine.records import RunEnded
from ralphproof.process import turn_journal
from tests.misbehaviour.agents import case, prompt
from tests.misbehaviour.crashing import (
    CHECK,
    COST,
    QUICK,
    RUN,
    START,
    ages,
    at_work,
    begin,
    booked,
    count,
    ended_alone,
    go_on,
    kill,
    kill_both,
    nothing_left,
    resume,
    turn_file,
    turns,
    untouched,
    whys,
)
from tests.misbehaviour.invariants import hold, no_traceback
from tests.misbehaviour.machine import give, recorded, strangers_project
from tests.misbehaviour.streams import Play, plays, refused
from tests.misbehaviour.streams import done as claude_done
from tests.ralph import Live, Ralph, Step, done, say, until, write

THOROUGH = pytest.mark.thorough
MICRO_USD = round(COST * 1_000_000)


def status(ralph: Ralph) -> dict[str, Any]:
    """What `ralph status` tells programs."""
    found: dict[str, Any] = ralph("status", "--json").json
    return found


# What became of the turn


def test_a_turn_that_still_runs_is_followed_to_its_end(ralph: Ralph) -> None:
    """PR-10"""
    kill(at_work(ralph))
    told = status(ralph)
    assert (told["state"], told["interruption"]) == (
        "orphaned", "its harness died while the agent was at iteration 1; the turn is still at work",
    )  # fmt: skip
    people = ralph("status").out
    assert f"found: {told['interruption']}" in people
    assert f"ralph run --resume {told['id']}" in people
    live = ralph.start("run", "--resume")
    until(lambda: "still at work, and is followed" in Path(live.err.name).read_text(), "the turn is taken up")
    go_on(ralph)
    ended = live.end()
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (count(ralph, "starts"), turns(ralph), whys(ralph)) == (1, [(1, 1)], ["exit"])
    assert count(ralph, "checks") == 2, "before the run, and after its turn"
    assert ralph.outcome()["costUSD"] == COST
    assert booked(ralph) == {"agent_001": MICRO_USD}


def test_the_result_of_a_turn_that_ended_while_nobody_looked_is_used(ralph: Ralph) -> None:
    """PR-10"""
    kill(at_work(ralph))
    go_on(ralph)
    ended_alone(ralph)
    told = status(ralph)
    assert told["state"] == "crashed"
    assert told["interruption"].endswith("; the turn has ended since")
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert "the turn ended while nobody looked, and its result is used" in ended.err
    assert (count(ralph, "starts"), turns(ralph), whys(ralph)) == (1, [(1, 1)], ["exit"])
    assert booked(ralph) == {"agent_001": MICRO_USD}


@pytest.mark.parametrize("way_on", ["cancel", "run --resume"])
def test_an_agent_that_outlived_harness_and_keeper_is_named_and_ended(ralph: Ralph, way_on: str) -> None:
    ralph.program("outlives", "sh -c 'touch ../started; while :; do sleep 0.1; done' & wait")
    live = ralph.start("run", "-p", "make it so", "--agent", "outlives", "--check", "true", "-m", "1")
    until((ralph.folder / "started").exists, "the agent works")
    kill_both(ralph, live)
    (run,) = ralph.runs()
    told, said = status(ralph), ralph("status").out
    assert told["state"] == "crashed"
    assert set(told["orphanedProcesses"]) & set(ralph.processes(run.id))
    assert f"its agent still lives (pid {told['orphanedProcesses'][0]}" in said.splitlines()[0]
    assert f"close it: ralph cancel {run.id}; both end what still lives" in said
    ralph(*way_on.split())
    assert (ralph.processes(run.id), status(ralph)["orphanedProcesses"]) == ([], [])


def test_a_turn_that_was_cut_off_is_judged_by_what_it_left(ralph: Ralph) -> None:
    """PR-10: it counts, its work is saved, and the next iteration goes on from there."""
    ralph.commit()
    kill_both(ralph, at_work(ralph, QUICK))
    told = status(ralph)
    assert (told["state"], told["interruption"].rpartition("; ")[2]) == ("crashed", "the turn was cut off")
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert "the turn was cut off, and what it left is judged" in ended.err
    assert (count(ralph, "starts"), turns(ralph), whys(ralph)) == (2, [(1, 1), (2, 1)], ["interrupted", "exit"])
    first = ralph.state().history.iterations[0]
    assert (first.change.paths, first.claim) == (("work",), None)
    assert ralph.git("show", f"{first.snapshot.ref}:work") == "half"
    assert "Your last turn failed" in prompt(ralph, 2)
    assert booked(ralph) == {"agent_001": MICRO_USD, "agent_002": MICRO_USD}
    assert ralph.outcome()["costUSD"] == 2 * COST, "what it had cost when it was cut off counts"
    nothing_left(ralph)


WAIT = "echo x >> ../checking; until test -e ../go; do sleep 0.01; done"
SLOW_CHECK = f"test -e ../starts || exit 1; {WAIT}; echo x >> ../checks"  # fails at once before the first iteration


def checking(ralph: Ralph) -> Live:
    """A run whose check looks at its first iteration."""
    live = begin(ralph, QUICK, flags=("--check", SLOW_CHECK))
    until((ralph.folder / "checking").exists, "the check runs")
    return live


@pytest.mark.parametrize(("dies", "runs"), [(kill, 1), (None, 2)], ids=["harness", "keeper-too"])
def test_a_check_is_asked_once_unless_it_was_cut_off_itself(ralph: Ralph, dies: Any, runs: int) -> None:
    """PR-10: a check is owned as an agent is."""
    live = checking(ralph)
    if dies:
        dies(live)
    else:
        kill_both(ralph, live)
    told = status(ralph)
    assert told["interruption"].startswith(f"its harness died while {SLOW_CHECK} looked at iteration 1")
    go_on(ralph)
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (count(ralph, "starts"), count(ralph, "checking"), count(ralph, "checks")) == (1, runs, 1)


# A plain run beside it


def test_a_plain_run_is_refused_beside_a_live_turn_and_closes_a_dead_one(ralph: Ralph) -> None:
    """EN-20"""
    live = at_work(ralph)
    (first,) = ralph.runs()
    kill(live)
    plain = (*RUN, "--agent", ralph.script([done()], name="next"))
    beside = untouched(ralph, lambda: ralph(*plain))
    assert f"ralph run --resume {first.id}" in beside.err
    assert f"ralph cancel {first.id}" in beside.err
    past = turn_journal.read_turn_file(str(turn_file(ralph, "agent_001")))
    os.kill(past.keeper[0], signal.SIGKILL)
    until(lambda: not process_start_time(past.keeper[0]), "the keeper is gone")
    ended = ralph(*plain)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert f"run {first.id} crashed and is closed" in ended.err


# What cannot be resumed


def test_where_nothing_ran_there_is_nothing_to_resume(ralph: Ralph) -> None:
    ended = resume(ralph)
    assert (ended.code, ended.err) == (2, "ralph: there is no run to resume; begin one: ralph run\n")
    assert not (ralph.root / ".ralph").exists()


AMEND: Step = {"git": ["-c", "user.name=u", "-c", "user.email=u@localhost", "commit", "--amend", "-qm", "other"]}


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        case("completed", [START, done()], 0, "is completed; there is nothing to resume"),
        case("protected", [START, write(guarded="changed"), done()], 1, "ended for good (PROHIBITED_PATH)"),
        case("rewritten", [START, AMEND, done()], 1, "ended for good (HISTORY_REWRITTEN)"),
        case("cancelled", [START, write(at="work"), {"sleep": 60}], 130, "ended for good (CANCELLED)"),
    ],
)  # fmt: skip
def test_a_run_that_is_over_for_good_is_not_resumed(ralph: Ralph, steps: list[Step], code: int, words: str) -> None:
    ralph.write({"guarded": "as it was"})
    ralph.commit()
    live = ralph.start(*RUN, "--agent", ralph.script(steps), "--protect", "guarded")
    if code == 130:
        until((ralph.root / "at").exists, "the agent works")
        assert ralph("cancel", "--no-wait").code == 0
    ended = live.end()
    assert ended.code == code, ended
    refusal = untouched(ralph, lambda: resume(ralph))
    assert words in refusal.err


def working(*more: Step, turns: int = 2) -> list[list[Step]]:
    """So many turns that each change something, and one that claims to be done."""
    return [*([START, write(work=str(number)), *more] for number in range(turns)), [START, done()]]


LIMITS = [
    case("iterations", working(), "MAX_ITERATIONS", ("-m", "2"), ("-m", "3"), "--max-iterations N is the new total"),
    case("cost", working({"cost": 1}), "COST_LIMIT", ("--max-cost-usd", "1.5"), ("--max-cost-usd", "5"),
         "--max-cost-usd is the new total"),
    pytest.param(working({"tokens": 100}), "TOKEN_LIMIT", ("--max-tokens", "150"), ("--max-tokens", "500"),
                 "--max-tokens is the new total", id="tokens", marks=THOROUGH),
    pytest.param(working({"sleep": 0.6}), "TIME_LIMIT", ("--max-minutes", "0.02"), ("--max-minutes", "5"),
                 "--max-minutes is the new total", id="time", marks=THOROUGH),
]  # fmt: skip


@pytest.mark.parametrize(("script", "reason", "flags", "more", "words"), LIMITS)
def test_a_limit_that_stopped_a_run_must_be_raised_and_then_it_goes_on(
    ralph: Ralph, script: list[list[Step]], reason: str, flags: tuple[str, ...], more: tuple[str, ...], words: str
) -> None:
    ended = ralph(*RUN, "--agent", ralph.script(*script), *flags)
    assert (ended.code, ralph.outcome()["reason"]) == (1, reason), ended
    refusal = untouched(ralph, lambda: resume(ralph, *flags))
    assert f"was stopped by {reason}, and still is" in refusal.err
    assert words in refusal.err
    begun = turns(ralph)
    ended = resume(ralph, *more)
    hold(ralph, ended, most=3)
    assert ended.code == 0, ended
    assert f"it had ended with {reason}" in ended.err
    assert (turns(ralph)[: len(begun)], turns(ralph)) == (begun, [(1, 1), (2, 1), (3, 1)])
    assert count(ralph, "starts") == 3
    assert len(recorded(ralph, RunEnded)) == 2


def test_what_a_resume_raised_stays_raised_when_that_is_killed_too(ralph: Ralph) -> None:
    """The next one needs not say it again."""
    waits = [START, write(**{"../working": ""}), {"until": "../go"}, write(work="2")]
    script = ralph.script([START, write(work="1")], waits, [START, done()])
    assert ralph(*RUN, "--agent", script, "-m", "1").code == 1
    live = ralph.start("run", "--resume", "-m", "3")
    until((ralph.folder / "working").exists, "the agent is at work")
    kill(live)
    go_on(ralph)
    ended = resume(ralph)
    hold(ralph, ended, most=3)
    assert (ended.code, turns(ralph), count(ralph, "starts")) == (0, [(1, 1), (2, 1), (3, 1)], 3), ended


@THOROUGH
def test_a_pattern_that_stopped_a_run_must_be_raised_in_the_settings(ralph: Ralph) -> None:
    ralph.settings(limits={"stallIterations": 2})
    idle = [START, say("I see nothing to do.")]
    assert ralph(*RUN, "--agent", ralph.script(idle, idle, QUICK)).code == 1
    refusal = untouched(ralph, lambda: resume(ralph))
    assert "was stopped by STALL, and still is" in refusal.err
    ralph.settings(limits={"stallIterations": 3})
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, count(ralph, "starts")) == (0, 3), ended


# What goes on


def test_a_run_that_was_interrupted_goes_on_where_it_stood(ralph: Ralph) -> None:
    live = at_work(ralph)
    live.process.send_signal(signal.SIGINT)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the signal is heard")
    go_on(ralph)
    assert live.end().code == 130
    assert (ralph.outcome()["reason"], count(ralph, "checks")) == ("INTERRUPTED", 1)
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert "it had ended with INTERRUPTED" in ended.err
    assert (count(ralph, "starts"), turns(ralph), count(ralph, "checks")) == (1, [(1, 1)], 2)


def test_a_login_that_was_missing_is_mended_and_the_same_iteration_taken_again(ralph: Ralph) -> None:
    plays(ralph, "claude", Play(refused("OAuth token has expired · Please run /login"), code=1), claude_done())
    ended = ralph(*RUN, "--agent", "claude", "-m", "1", "--check", "true")
    assert (ended.code, "claude is not logged in" in ended.out) == (2, True), ended
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (0, [(1, 1), (1, 2)]), ended
    assert ralph.outcome()["iterations"] == 1


def test_an_agent_that_was_missing_is_put_back_and_the_run_goes_on(ralph: Ralph) -> None:
    ralph.program("tool", 'rm "$0"; echo start >> ../starts; echo half > work')
    ended = ralph(*RUN, "--agent", "tool", "-m", "2", "--check", CHECK)
    assert (ended.code, ralph.outcome()["status"]) == (2, "ERROR"), ended
    refusal = untouched(ralph, lambda: resume(ralph))
    assert "tool" in refusal.err
    ralph.program("tool", "echo start >> ../starts; echo done > work; echo '<response>DONE</response>'")
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (0, [(1, 1), (2, 1), (2, 2)]), ended
    assert count(ralph, "starts") == 2


def test_an_open_turn_is_not_read_by_another_agent(ralph: Ralph) -> None:
    kill(at_work(ralph))
    ralph.program("tool", "echo start >> ../starts")
    refusal = untouched(ralph, lambda: resume(ralph, "--agent", "tool"))
    assert "was begun by scripted, and the settings name another agent now" in refusal.err
    go_on(ralph)
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, count(ralph, "starts")) == (0, 1), ended


def test_of_two_who_resume_a_run_one_has_it_and_the_other_hears_who(ralph: Ralph) -> None:
    """EN-18"""
    kill(at_work(ralph))
    (row,) = ralph.runs()
    pair = [ralph.start("run", "--resume") for _ in range(2)]
    until(lambda: any(live.process.poll() is not None for live in pair), "one of them is refused")
    beaten, first = sorted(pair, key=lambda live: live.process.poll() is None)
    refusal = beaten.end()
    assert (refusal.code, len(refusal.err.splitlines())) == (2, 1), refusal
    assert re.search(rf"run {row.id} .*pid {first.process.pid}\b", refusal.err)
    until(lambda: "is followed to its end" in Path(first.err.name).read_text(), "the other one has it")
    third = untouched(ralph, lambda: resume(ralph))
    assert f"run {row.id} is running (pid {first.process.pid})" in third.err
    go_on(ralph)
    ended = first.end()
    hold(ralph, ended)
    assert (ended.code, count(ralph, "starts"), len(ages(ralph))) == (0, 1, 1), ended


# RS-01, a new start of the machine, and time

IDLE = [START, {"cost": 0.4}, say("I see nothing to do.")]


def busy(number: int, *more: Step) -> list[Step]:
    return [START, {"cost": 0.4}, write(work=str(number)), *more]


@pytest.mark.parametrize(("reason", "idle"), [("STALL", True), pytest.param("SAME_ERROR_5X", False, marks=THOROUGH)])
def test_a_run_that_crashed_at_its_seventh_iteration_goes_on_with_the_eighth(
    ralph: Ralph, reason: str, idle: bool
) -> None:
    """RS-01: what was spent, and what repeats itself, is counted over the crash."""
    last = say("7") if idle else write(work="7")
    seventh = [START, {"cost": 0.6}, write(**{"../working": ""}), {"until": "../go"}, last]
    later = [IDLE if idle else busy(number) for number in (4, 5, 6, 8)]
    script = [*map(busy, range(1, 4)), *later[:3], seventh, later[3]]
    # From the fourth iteration on it fails in the same way; where files stand still, in another way each time. What it
    # writes itself is no work of the agent's.
    new, few = "date +%N | tr 0-9 a-j", "test $(wc -l < ../starts) -le 3"
    check = f"touch ../starts; date +%N > written; {new if idle else f'{few} && {new}'}; exit 1"
    flags = ("-m", "10", "--max-cost-usd", "5", "--check", check)
    live = ralph.start(*RUN, "--agent", ralph.script(*script), *flags)
    until((ralph.folder / "working").exists, "the seventh iteration works")
    kill(live)
    go_on(ralph)
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, reason), ended
    assert turns(ralph) == [(number, 1) for number in range(1, 9)]
    assert count(ralph, "starts") == 8
    past = ralph.state().history.iterations
    assert sum(one.turn.micro_usd or 0 for one in past[:7]) == 3_000_000
    assert ralph.outcome()["costUSD"] == pytest.approx(3.4)


FOREIGN = "00000000-0000-4000-8000-000000000000"


def test_after_a_new_start_of_the_machine_nobody_is_taken_for_the_processes_of_then(ralph: Ralph) -> None:
    """EN-21: the numbers of harness, keeper and agent belong to others now, who are left alone."""
    kill_both(ralph, at_work(ralph, QUICK))
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        try:
            pid, start = stranger.pid, process_start_time(stranger.pid)
            reborn(ralph, pid, start)
            assert status(ralph)["state"] == "crashed"
            ended = resume(ralph)
            assert stranger.poll() is None
        finally:
            stranger.kill()
    hold(ralph, ended)
    assert (ended.code, whys(ralph)) == (0, ["interrupted", "exit"]), ended
    assert "the turn was cut off, and what it left is judged" in ended.err


def reborn(ralph: Ralph, pid: int, start: str) -> None:
    """Let all records tell of another start of the machine, with the number and the time of a process of this one."""
    (lock,) = (ralph.state_dir / "locks").glob("*.lock")
    facts = json.loads(lock.read_text())
    lock.write_text(json.dumps(facts | {"pid": pid, "start": start, "boot": FOREIGN}) + "\n")
    turn = turn_file(ralph, "agent_001")
    began, agent = (json.loads(line) for line in turn.read_text().splitlines())
    lines = (began | {"began": pid, "start": int(start), "boot": FOREIGN}, agent | {"agent": pid, "start": int(start)})
    turn.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    database = sqlite3.connect(Path(ralph.project.store) / "ledger.db")
    with database:
        database.execute("UPDATE run SET pid = ?, pid_start = ?, boot = ?", (pid, start, FOREIGN))
    database.close()


def test_time_in_which_nobody_is_there_and_nothing_runs_is_no_part_of_a_runs_age(ralph: Ralph) -> None:
    live = at_work(ralph, QUICK)
    began = time.monotonic()
    kill_both(ralph, live)
    worked_s = time.monotonic() - began + 1  # and whatever came before its agent was at work
    time.sleep(1.5)
    ended = resume(ralph, "--max-minutes", "5")
    assert ended.code == 0, ended
    (age_s,) = ages(ralph)
    assert 0 < age_s < worked_s + 0.4
    assert age_s <= ralph.outcome()["durationSeconds"] < time.monotonic() - began


def test_a_turn_that_lost_its_keeper_lasted_as_long_as_it_was_heard_of(ralph: Ralph) -> None:
    """Else what it worked would count against no limit."""
    live = at_work(ralph, QUICK)
    kill_both(ralph, live)
    log = turn_file(ralph, "agent_001").with_suffix(".ndjson")
    heard_s = log.stat().st_mtime + 90
    os.utime(log, (heard_s, heard_s))
    ended = resume(ralph, "--max-minutes", "1")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "TIME_LIMIT"), ended


# Whose work it is


@pytest.mark.parametrize("where", ["in-a-check", "after-the-turn", pytest.param("committed", marks=THOROUGH)])
def test_what_the_user_does_between_crash_and_resume_is_theirs(ralph: Ralph, where: str) -> None:
    ralph.write({"mine": "as committed"})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    if where == "after-the-turn":
        kill(at_work(ralph))
        go_on(ralph)
        ended_alone(ralph)
    else:
        kill_both(ralph, checking(ralph))
        go_on(ralph)
    ralph.write({"mine": "my own work", "new": "mine too"})
    if where == "committed":
        ralph.git("commit", "-qm", "mine", "--", "mine")
    ended = resume(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert ralph.git("log", "-1", "--format=", "--name-only").split() == ["work"]
    assert ((ralph.root / "mine").read_text(), (ralph.root / "new").read_text()) == ("my own work", "mine too")
    assert "so it counts as yours: mine, new" in ended.err
    change = ralph.state().history.latest.change
    assert (change.paths, change.rewritten) == (("work",), False)


# What stands in the way


def test_a_worktree_that_is_gone_is_said_in_one_line(ralph: Ralph) -> None:
    ralph.commit()
    ralph.git("worktree", "add", "-q", "../linked")
    agent = ralph.script([START, write(**{"../working": ""}), {"sleep": 60}])
    live = ralph.start(*RUN, "--agent", agent, "-d", str(ralph.folder / "linked"))
    until((ralph.folder / "working").exists, "the agent is at work")
    kill_both(ralph, live)
    shutil.rmtree(ralph.folder / "linked")
    for name in ((), (ralph.runs()[0].id,)):
        refusal = untouched(ralph, lambda name=name: resume(ralph, *name))  # type: ignore[misc]
        assert f"worked in {ralph.folder / 'linked'}, which is gone" in refusal.err


def test_a_ledger_that_cannot_be_read_is_said_in_one_line(ralph: Ralph) -> None:
    """DB-01, DB-02"""
    kill_both(ralph, at_work(ralph, QUICK))
    path = Path(ralph.project.store) / "ledger.db"
    for other in path.parent.glob("ledger.db-*"):
        other.unlink()
    good = path.read_bytes()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 999")
    database.close()
    foreign = (path.read_bytes(), 2, "a newer version of ralph")
    for damaged, code, words in (foreign, (os.urandom(len(good)), 3, "damaged")):
        path.write_bytes(damaged)
        ended = resume(ralph)
        no_traceback(ended)
        assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended
        assert words in ended.err
        assert path.read_bytes() == damaged
    path.write_bytes(good)
    assert count(ralph, "starts") == 1


@THOROUGH
def test_a_ledger_that_may_not_be_written_is_said_in_one_line() -> None:
    """DB-06"""
    with strangers_project() as (ralph, as_stranger):
        (ralph.folder / "state").mkdir()
        agent = ralph.script([START, write(**{"../working": ""}), {"until": "../go"}, done()])
        give(ralph.folder)
        live = ralph.start(*RUN, "--agent", agent, via=as_stranger)
        until((ralph.folder / "working").exists, "the agent is at work")
        kill(live)
        folder = Path(ralph.project.store)
        folder.chmod(0o500)
        (folder / "ledger.db").chmod(0o400)
        ended = ralph("run", "--resume", via=as_stranger)
        folder.chmod(0o700)
        (folder / "ledger.db").chmod(0o600)
        assert ended.code == 2, ended
        assert len(ended.err.splitlines()) == 1, ended.err
        assert str(folder) in ended.err
        go_on(ralph)
        assert ralph("run", "--resume", via=as_stranger).code == 0
        assert count(ralph, "starts") == 1
