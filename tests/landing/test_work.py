"""`ralph work --parallel`: tasks side by side, landed one after the other on a branch that is always green."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.landing.tasking import (
    TARGET,
    flags,
    green,
    landed,
    landed_or_nothing,
    own_trees,
    prepared,
    starts,
    tasks,
    work,
)
from tests.misbehaviour.crashing import nothing_left
from tests.misbehaviour.tasks import external, keep, skipped, status
from tests.ralph import Ralph, until


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    return prepared(ralph)


def test_eight_tasks_land_with_a_conflict_and_a_merge_that_is_red_together(project: Ralph) -> None:
    names = ("conflict_1", "conflict_2", "alpha", "beta", "five", "six", "seven", "needs_five")
    tasks(project, *names, after={"needs_five": ("five",)})
    project.write({"shared.txt": "mine, not committed\n"})
    index = (project.root / ".git/index").read_bytes()
    ended = work(project)
    assert ended.code == 0, ended.err
    assert sorted(landed(project)) == sorted(names)
    assert landed(project).index("five") < landed(project).index("needs_five")
    green(project)
    assert project.git("show", f"{TARGET}:shared.txt").split() in (
        ["conflict_1", "conflict_2"],
        ["conflict_2", "conflict_1"],
    ), "both changes are there"
    again = [name for name in set(starts(project)) if starts(project).count(name) > 1]
    assert len(again) == 2, "one of each pair had one more iteration"
    assert own_trees(project) == []
    assert (project.root / "shared.txt").read_text(encoding="utf-8") == "mine, not committed\n"
    assert (project.root / ".git/index").read_bytes() == index
    assert project.git("rev-parse", "HEAD") == project.git("rev-parse", "main")
    assert all(status(project, name)["status"] == "done" for name in names)
    nothing_left(project)


def test_what_cannot_be_mended_stays_on_its_branch_and_is_no_success(project: Ralph) -> None:
    tasks(project, "stubborn", "conflict_1")
    live = project.start(*flags(project))
    until(lambda: "conflict_1" in landed_or_nothing(project), "the other one has landed", 60)
    (project.folder / "go").touch()
    ended = live.end(120)
    assert ended.code == 1, ended
    assert landed(project) == ["conflict_1"]
    assert starts(project).count("stubborn") == 2, "one more iteration, and no more"
    assert status(project, "stubborn")["status"] == "failed"
    assert own_trees(project) == ["stubborn"]
    first = next(row.id for row in reversed(project.runs()) if row.directory.endswith("stubborn"))
    assert project.git("show", f"refs/ralph/{first}/1:shared.txt") == "stubborn\n", "what it had done is kept"
    green(project)


def test_a_liar_lands_nothing(project: Ralph) -> None:
    tasks(project, "liar", check="test -f lib/liar")
    ended = work(project, "-m", "2")
    assert ended.code == 1
    assert landed(project) == []
    assert status(project, "liar")["status"] == "failed"
    assert own_trees(project) == ["liar"], "its work tree stays: it is not landed"


def test_work_of_which_the_landing_was_cut_off_lands_with_the_next_call(project: Ralph) -> None:
    tasks(project, "one", "two")
    landing = project.program("git", _dying_git())
    first = project(*flags(project), via=("sh", "-c", 'exec "$@"', "sh"))
    assert first.code == -signal.SIGKILL, first
    assert landed(project) == []
    landing.unlink()
    assert {status(project, name)["status"] for name in ("one", "two")} != {"done"}
    ended = work(project)
    assert ended.code == 0, ended.err
    assert sorted(landed(project)) == ["one", "two"]
    assert starts(project) == ["one", "two"], "no finished turn ran again"
    green(project)
    assert own_trees(project) == []


def _dying_git() -> str:
    """A git that kills who called it before it moves the target; to make it is no move."""
    real = shutil.which("git")
    at = '*0000000) ;; *"--create-reflog refs/heads/ralph/main"*) kill -9 $PPID; exit 1;;'
    return f'#!/bin/sh\ncase "$*" in {at} esac\nexec {real} "$@"\n'


def test_money_that_tasks_share_stops_all_of_them(project: Ralph) -> None:
    for name in ("one", "two", "three"):
        keep(project, name, coder=external("false"))
    agent = project.script([{"cost": 0.5}, {"write": {"x": "x"}}, {"text": "<promise>CODED</promise>"}])
    ended = project(
        "work", "--parallel", "3", "--agent", agent, *skipped("coder"), "--check", "false", "--total-cost-usd", "2"
    )
    assert ended.code == 1
    assert "COST_LIMIT" in ended.out
    assert "together" in ended.out
    spent = sum(_cost(project, row.id) for row in project.runs())
    assert 1.5 <= spent <= 3.5, "bounded by the budget and the turns that were under way"


def _cost(ralph: Ralph, run: str) -> float:
    return ralph.state(run).spend.micro_usd / 1_000_000


def test_ctrl_c_ends_all_and_the_next_call_goes_on(project: Ralph) -> None:
    tasks(project, "slow", "one")
    live = project.start(*flags(project))
    until((project.folder / "working").exists, "slow is at work")
    until(lambda: "one" in landed_or_nothing(project), "the other one has landed", 60)
    os.kill(live.process.pid, signal.SIGINT)
    os.kill(live.process.pid, signal.SIGINT)
    ended = live.end()
    assert ended.code == 130, ended
    nothing_left(project)
    assert own_trees(project) == ["slow"]
    (project.folder / "go").touch()
    again = work(project)
    assert again.code == 0, again.err
    assert sorted(landed(project)) == ["one", "slow"]


def test_what_the_user_committed_meanwhile_is_below_new_work(project: Ralph) -> None:
    tasks(project, "one")
    assert work(project).code == 0
    project.write({"lib/mine": "x"})
    project.commit()
    tasks(project, "needs_mine")
    ended = work(project)
    assert ended.code == 0, ended.err
    assert project.git("show", f"{TARGET}:lib/mine") == "x"
    green(project)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--parallel", "0"), "above zero"),
        (("--parallel", "many"), "above zero"),
        (("--onto", "x"), "--onto goes with --parallel"),
        (("--parallel", "2", "--onto", "main"), "checked out"),
        (("--parallel", "2", "--onto", "nowhere"), "there is no branch nowhere"),
        (("--parallel", "2", "nobody"), "there is no task nobody"),
    ],
)
def test_bad_flags_get_one_clear_line(project: Ralph, given: tuple[str, ...], says: str) -> None:
    tasks(project, "one")
    ended = project("work", *given)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err


def test_programs_are_told_where_it_landed(project: Ralph) -> None:
    tasks(project, "one")
    ended = work(project, "--json")
    last = ended.lines[-1]
    assert (last["type"], last["exitCode"], last["target"]) == ("work", 0, TARGET)
    assert last["tip"] == project.git("rev-parse", TARGET).strip()
    assert last["tasks"] == [{"task": "one", "end": f"done, verified; landed on {TARGET}"}]
