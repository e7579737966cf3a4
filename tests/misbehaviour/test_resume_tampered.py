"""Leftovers of an agent, a crash or a user that must not mislead a resumed run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.engine.outcome import Failed
from ralphproof.engine.records import RunEnded, Saved
from ralphproof.process import turn_journal
from ralphproof.process.keeper_client import TICK_S
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.run_state import find_live_turn
from tests.misbehaviour.agents import case
from tests.misbehaviour.crashing import (
    CHECK,
    QUICK,
    RUN,
    START,
    at_work,
    begin,
    count,
    ended_alone,
    go_on,
    kill,
    kill_both,
    resume,
    turn_file,
    turns,
    untouched,
    whys,
)
from tests.misbehaviour.invariants import hold, no_traceback
from tests.misbehaviour.machine import command_line, recorded
from tests.ralph import Live, Ralph, Step, done, until, write

SETTINGS, LOCAL, SKILL = ".ralph/settings.json", ".ralph/settings.local.json", ".ralph/skills/mine/SKILL.md"
HARD, WEAK = json.dumps({"guardrails": [{"command": "false"}]}), json.dumps({"guardrails": [{"command": "true"}]})
MINE = "---\nname: mine\ndescription: d\nverification: '{}'\n---\nDo it well.\n"
WORKING = write(**{"../working": ""})


def working(ralph: Ralph, *before: Step, flags: tuple[str, ...] = (), after: tuple[Step, ...] = ()) -> Live:
    """A run whose agent has done this, and waits until it may go on."""
    steps = [START, *before, WORKING, {"until": "../go"}, *after, write(work="done"), done()]
    live = begin(ralph, steps, [START, done()], flags=flags)
    until((ralph.folder / "working").exists, "the agent is at work")
    return live


def ended_unseen(ralph: Ralph, live: Live) -> None:
    kill(live)
    go_on(ralph)
    ended_alone(ralph)


# Settings that the agent wrote


@pytest.mark.parametrize("dies", [ended_unseen, kill_both], ids=["ended", "cut-off"])
@pytest.mark.parametrize(
    ("path", "was", "becomes", "flags"),
    [
        case("settings", SETTINGS, HARD, WEAK, ()),
        case("local", LOCAL, None, WEAK, ()),
        case("skill", SKILL, MINE.format("false"), MINE.format("true"), ("--skill", "mine")),
    ],
)
def test_a_run_is_not_judged_by_what_its_agent_wrote_before_the_harness_died(
    ralph: Ralph, dies: Callable[[Ralph, Live], None], path: str, was: str | None, becomes: str, flags: tuple[str, ...]
) -> None:
    """RH-05, RH-06: the resumed run reads them first, and must not go on with what it read."""
    ralph.write({SETTINGS: HARD} if path == LOCAL else {})
    ralph.write({path: was} if was is not None else {})
    dies(ralph, working(ralph, write(**{path: becomes}), flags=("-m", "2", *flags)))
    refusal = untouched(ralph, lambda: resume(ralph))
    assert f"{path} had been changed by the agent of run" in refusal.err
    assert refusal.err.endswith("this run had read that already: start it again\n")
    there = ralph.root / path
    assert (there.read_text() if there.exists() else None) == was
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert [one.path for one in recorded(ralph, Saved)[0].sprung.touched] == [path], "and it is told"
    assert not any(past.report.verified for past in ralph.state().history.iterations)


def test_what_an_agent_wrote_is_not_read_while_it_is_at_work(ralph: Ralph) -> None:
    ralph.write({SETTINGS: HARD})
    kill(working(ralph, write(**{SETTINGS: WEAK}), flags=("-m", "1")))
    refusal = untouched(ralph, lambda: resume(ralph))
    assert f"{SETTINGS} had been changed when this was begun" in refusal.err
    go_on(ralph)
    ended_alone(ralph)
    assert "start it again" in untouched(ralph, lambda: resume(ralph)).err
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], count(ralph, "starts")) == (1, "MAX_ITERATIONS", 1), ended


def test_checks_that_were_found_are_not_looked_for_again_where_the_agent_was(ralph: Ralph) -> None:
    """RH-05: it takes the check away that it cannot pass."""
    ralph.write({"Makefile": "test:\n\ttrue\nlint:\n\tfalse\n"})
    flags = ("--check", "auto", "-m", "2", "--may-change", "Makefile")
    kill_both(ralph, working(ralph, write(Makefile="test:\n\ttrue\n"), flags=flags))
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended


def in_a_check(ralph: Ralph) -> None:
    wait = "test -e ../starts || exit 1; touch ../checking; until test -e ../go; do sleep 0.01; done; exit 1"
    ralph.settings(guardrails=[{"command": wait}])
    live = begin(ralph, QUICK, flags=())
    until((ralph.folder / "checking").exists, "the check runs")
    kill_both(ralph, live)
    go_on(ralph)


def behind_a_turn(ralph: Ralph) -> None:
    ralph.settings(guardrails=[{"command": "false"}])
    ended_unseen(ralph, working(ralph))


@pytest.mark.parametrize("lost", [in_a_check, behind_a_turn])
def test_settings_that_the_user_changes_when_the_turn_is_over_are_theirs_and_hold(
    ralph: Ralph, lost: Callable[[Ralph], None]
) -> None:
    lost(ralph)
    ralph.settings(guardrails=[{"command": "grep -q done work"}])
    ended = resume(ralph)
    no_traceback(ended)
    assert (ended.code, count(ralph, "starts")) == (0, 1), ended
    assert "grep" in (ralph.root / SETTINGS).read_text()
    assert recorded(ralph, Saved)[0].sprung.touched == ()


# Other flags than then


def test_a_turn_is_taken_up_although_its_agent_has_other_flags_now(ralph: Ralph) -> None:
    body = "echo start >> ../starts; touch ../working; until test -e ../go; do sleep 0.01; done; echo done > work"
    ralph.program("tool", f"{body}; echo '<response>DONE</response>'")
    live = ralph.start(*RUN, "--agent", "tool --one", "--check", CHECK)
    until((ralph.folder / "working").exists, "the agent is at work")
    kill(live)
    again = ralph.start("run", "--resume", "--agent", "tool --other")
    until(lambda: "is followed to its end" in Path(again.err.name).read_text(), "the turn is taken up")
    go_on(ralph)
    ended = again.end()
    hold(ralph, ended)
    assert (ended.code, count(ralph, "starts"), whys(ralph)) == (0, 1, ["exit"]), ended


def test_flags_that_broke_a_resume_are_not_kept(ralph: Ralph) -> None:
    ralph.program("broken", "#!/nowhere/to/be/found\n")
    agent = ralph.script([START, write(work="1")], QUICK)
    assert ralph(*RUN, "--agent", agent, "-m", "1", "--check", CHECK).code == 1
    assert resume(ralph, "-m", "2", "--agent", "broken").code == 2
    ended = resume(ralph, "-m", "2")
    hold(ralph, ended, most=2)
    assert (ended.code, count(ralph, "starts")) == (0, 2), ended


@pytest.mark.parametrize("later", [["a"], ["b"], ["b", "a", "c"]])
def test_a_turn_is_judged_by_the_paths_that_were_protected_when_it_began(ralph: Ralph, later: list[str]) -> None:
    """With fewer of them, others or more, the file is put back and the right rule named."""
    ralph.write({"a": "as it was", "b": "as it was"})
    ralph.settings(protectedPaths=["a", "b"])
    ended_unseen(ralph, working(ralph, write(b="hacked"), flags=("--check", "true")))
    ralph.settings(protectedPaths=later)
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "PROHIBITED_PATH"), ended
    assert (ralph.root / "b").read_text() == "as it was"
    assert [(one.path, one.rule) for one in recorded(ralph, Saved)[0].sprung.touched] == [("b", "protectedPaths: b")]


# Beside a living turn


def test_no_run_begins_beside_a_turn_whose_run_is_over(ralph: Ralph) -> None:
    kill(at_work(ralph))
    (row,) = ralph.runs()
    ledger = ralph.project.ledger(read_only=False)
    ledger.append(row.id, (RunEnded(Failed("given up", 1)),))
    ledger.close()
    plain = (*RUN, "--agent", ralph.script([START, done()], name="next"), "--check", "true")
    refusal = untouched(ralph, lambda: ralph(*plain))
    assert f"run {row.id} is over, and its agent is still at work here; end it: ralph cancel {row.id}" in refusal.err
    assert ralph("cancel", row.id).code == 0
    assert find_live_turn(ralph.project, row.id) is None
    ended = ralph(*plain)
    assert (ended.code, count(ralph, "starts")) == (0, 2), ended


def test_a_cancel_is_heard_by_whoever_is_about_to_take_the_run_up(ralph: Ralph) -> None:
    """It has the directory, and has not said yet that it has the run."""
    kill_both(ralph, at_work(ralph))
    (row,) = ralph.runs()
    lock = DirectoryLock(ralph.project.state_dir, str(ralph.root), row.id)
    lock.take()
    asked = ralph("cancel", "--no-wait")
    assert (asked.code, asked.out) == (0, f"run {row.id} is asked to end\n"), asked
    lock.release()
    ended = resume(ralph)
    assert (ended.code, ralph.outcome()["reason"], count(ralph, "starts")) == (130, "CANCELLED", 1), ended


# Money while nobody looks

RICH, BROKEN = json.dumps({"limits": {"maxCostUsd": 1000}}), "{"


def spends(ralph: Ralph, *before: Step, flags: tuple[str, ...] = ()) -> Live:
    """A run whose agent will spend more than it may, as soon as it may go on."""
    return working(ralph, {"cost": 0.5}, *before, flags=("--check", "true", *flags), after=({"cost": 3}, {"sleep": 60}))


def is_ended_for_its_cost(ralph: Ralph) -> None:
    go_on(ralph)
    file = str(turn_file(ralph, "agent_001"))
    until(lambda: turn_journal.read_turn_file(file).result, "the agent is ended", 30)
    result = turn_journal.read_turn_file(file).result
    assert result is not None
    assert result["why"] == "stopped"


@pytest.mark.parametrize("becomes", [RICH, BROKEN])
def test_an_agent_does_not_raise_its_own_limit_when_the_harness_is_dead(ralph: Ralph, becomes: str) -> None:
    """PR-10, RH-05: the limit that holds is the one that the harness wrote down."""
    ralph.settings(limits={"maxCostUsd": 1})
    kill(spends(ralph, write(**{SETTINGS: becomes})))
    is_ended_for_its_cost(ralph)


def looking_on(ralph: Ralph) -> list[int]:
    """Whoever stands in for the harness, as soon as it reads the record."""
    pids = [pid for pid in ralph.processes(ralph.runs()[0].id) if b"orphan_monitor" in command_line(pid)]
    return [
        pid for pid in pids if any("ledger.db" in os.path.realpath(file) for file in Path(f"/proc/{pid}/fd").iterdir())
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("raised", [(), ("--max-cost-usd", "2")])
def test_what_an_agent_spends_is_seen_also_when_the_second_harness_dies(ralph: Ralph, raised: tuple[str, ...]) -> None:
    """PR-10: whoever stands in goes on when nobody has the run any more, with the limit that holds then."""
    kill(spends(ralph, flags=("--max-cost-usd", "1")))
    until(lambda: looking_on(ralph), "somebody stands in")
    again = ralph.start("run", "--resume", *raised)
    until(lambda: "is followed to its end" in Path(again.err.name).read_text(), "the turn is taken up")
    time.sleep(3 * TICK_S)  # so that whoever stands in sees it
    kill(again)
    is_ended_for_its_cost(ralph)


# Markers


def supervised(ralph: Ralph, text: str) -> Live:
    ralph.write({"agent.sh": text})
    flags = ("--restart-delay", "0", "--task-folder", str(ralph.folder / "task"), "-m", "2")
    live = ralph.start("supervise", *flags, "--", "sh", "agent.sh")
    until((ralph.folder / "working").exists, "the program is at work")
    return live


def test_a_marker_of_a_run_that_crashed_completes_no_other(ralph: Ralph) -> None:
    """FC-12: nobody had judged it when the harness died."""
    kill_both(ralph, supervised(ralph, 'touch "$TASK_FOLDER/DONE" ../working; exec sleep 60'))
    ralph.write({"agent.sh": "touch started"})
    flags = ("--restart-delay", "0", "--task-folder", str(ralph.folder / "task"), "-m", "1")
    ended = ralph("supervise", *flags, "--", "sh", "agent.sh")
    assert (ended.code, len(turns(ralph))) == (1, 1), ended
    assert (ralph.root / "started").exists()
    assert "a marker of an earlier run was put away" in ended.err


def test_a_wish_to_wait_that_nobody_has_judged_is_judged_before_it_is_answered(ralph: Ralph) -> None:
    text = 'echo x >> ../starts; echo why > "$TASK_FOLDER/WAIT_WITHOUT_RESTART"; touch ../working; '
    live = supervised(ralph, f'{text}until test -e ../go; do sleep 0.01; done; rm agent.sh; echo "exit 0" > agent.sh')
    ended_unseen(ralph, live)
    ended = resume(ralph)
    hold(ralph, ended)
    assert (ended.code, count(ralph, "starts"), ralph.outcome()["reason"]) == (4, 1, "WAITING"), ended
    ended = resume(ralph)
    assert "the marker that asked to wait was put away as WAIT_WITHOUT_RESTART.answered" in ended.err
    assert (len(turns(ralph)), (ralph.folder / "task/WAIT_WITHOUT_RESTART").exists()) == (2, False), ended


def test_a_keeper_that_is_killed_with_its_harness_leaves_nobody(ralph: Ralph) -> None:
    """A stand-in that looks on idly is no leftover either."""
    kill(at_work(ralph))
    again = ralph.start("run", "--resume")
    until(lambda: "is followed to its end" in Path(again.err.name).read_text(), "the turn is taken up")
    (row,) = ralph.runs()
    past = find_live_turn(ralph.project, row.id)
    assert past is not None
    os.kill(past.keeper[0], signal.SIGKILL)
    go_on(ralph)
    ended = again.end()
    assert ended.code == 0, ended
    until(lambda: not ralph.processes(row.id), "all of them are gone")
