"""`ralph work --parallel`: tasks run side by side and land on a branch whose checks always pass."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.landing.parallel_work import (
    TARGET,
    assert_every_commit_passes,
    create_project,
    create_tasks,
    landed_tasks,
    landed_tasks_if_any,
    started_tasks,
    work,
    work_arguments,
    worktree_names,
)
from tests.misbehaviour.crashing import nothing_left
from tests.misbehaviour.tasks import external, keep, skipped, status
from tests.ralph import Ralph, until


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    return create_project(ralph)


def test_eight_tasks_land_with_a_conflict_and_a_failing_merge(project: Ralph) -> None:
    names = ("conflict_1", "conflict_2", "alpha", "beta", "five", "six", "seven", "needs_five")
    create_tasks(project, *names, after={"needs_five": ("five",)})
    project.write({"shared.txt": "mine, not committed\n"})
    index = (project.root / ".git/index").read_bytes()
    ended = work(project)
    assert ended.code == 0, ended.err
    assert sorted(landed_tasks(project)) == sorted(names)
    assert landed_tasks(project).index("five") < landed_tasks(project).index("needs_five")
    assert_every_commit_passes(project)
    assert project.git("show", f"{TARGET}:shared.txt").split() in (
        ["conflict_1", "conflict_2"],
        ["conflict_2", "conflict_1"],
    ), "both changes are there"
    again = [name for name in set(started_tasks(project)) if started_tasks(project).count(name) > 1]
    assert len(again) == 2, "one of each pair had one more iteration"
    assert worktree_names(project) == []
    assert (project.root / "shared.txt").read_text(encoding="utf-8") == "mine, not committed\n"
    assert (project.root / ".git/index").read_bytes() == index
    assert project.git("rev-parse", "HEAD") == project.git("rev-parse", "main")
    assert all(status(project, name)["status"] == "done" for name in names)
    nothing_left(project)


def test_work_that_rework_cannot_fix_stays_on_its_branch_and_fails(project: Ralph) -> None:
    create_tasks(project, "stubborn", "conflict_1")
    live = project.start(*work_arguments(project))
    until(lambda: "conflict_1" in landed_tasks_if_any(project), "the other one has landed", 60)
    (project.folder / "go").touch()
    ended = live.end(120)
    assert ended.code == 1, ended
    assert landed_tasks(project) == ["conflict_1"]
    assert started_tasks(project).count("stubborn") == 2, "one more iteration, and no more"
    assert status(project, "stubborn")["status"] == "failed"
    assert worktree_names(project) == ["stubborn"]
    first = next(row.id for row in reversed(project.runs()) if row.directory.endswith("stubborn"))
    assert project.git("show", f"refs/ralph/{first}/1:shared.txt") == "stubborn\n", "what it had done is kept"
    assert_every_commit_passes(project)


def test_a_false_claim_lands_nothing(project: Ralph) -> None:
    create_tasks(project, "liar", check="test -f lib/liar")
    ended = work(project, "-m", "2")
    assert ended.code == 1
    assert landed_tasks(project) == []
    assert status(project, "liar")["status"] == "failed"
    assert worktree_names(project) == ["liar"], "its work tree stays: it is not landed"


def test_an_interrupted_landing_is_finished_by_the_next_call(project: Ralph) -> None:
    create_tasks(project, "one", "two")
    landing = project.program("git", _dying_git())
    first = project(*work_arguments(project), via=("sh", "-c", 'exec "$@"', "sh"))
    assert first.code == -signal.SIGKILL, first
    assert landed_tasks(project) == []
    landing.unlink()
    assert {status(project, name)["status"] for name in ("one", "two")} != {"done"}
    ended = work(project)
    assert ended.code == 0, ended.err
    assert sorted(landed_tasks(project)) == ["one", "two"]
    assert started_tasks(project) == ["one", "two"], "no finished turn ran again"
    assert_every_commit_passes(project)
    assert worktree_names(project) == []


def _dying_git() -> str:
    """A git that kills its caller before it moves the target; creating the target is allowed."""
    real = shutil.which("git")
    at = '*0000000) ;; *"--create-reflog refs/heads/ralph/main"*) kill -9 $PPID; exit 1;;'
    return f'#!/bin/sh\ncase "$*" in {at} esac\nexec {real} "$@"\n'


def test_the_shared_budget_stops_all_tasks(project: Ralph) -> None:
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


def test_ctrl_c_ends_all_tasks_and_the_next_call_resumes(project: Ralph) -> None:
    create_tasks(project, "slow", "one")
    live = project.start(*work_arguments(project))
    until((project.folder / "working").exists, "slow is at work")
    until(lambda: "one" in landed_tasks_if_any(project), "the other one has landed", 60)
    os.kill(live.process.pid, signal.SIGINT)
    os.kill(live.process.pid, signal.SIGINT)
    ended = live.end()
    assert ended.code == 130, ended
    nothing_left(project)
    assert worktree_names(project) == ["slow"]
    (project.folder / "go").touch()
    again = work(project)
    assert again.code == 0, again.err
    assert sorted(landed_tasks(project)) == ["one", "slow"]


def test_commits_of_the_user_land_before_new_work(project: Ralph) -> None:
    create_tasks(project, "one")
    assert work(project).code == 0
    project.write({"lib/mine": "x"})
    project.commit()
    create_tasks(project, "needs_mine")
    ended = work(project)
    assert ended.code == 0, ended.err
    assert project.git("show", f"{TARGET}:lib/mine") == "x"
    assert_every_commit_passes(project)


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
    create_tasks(project, "one")
    ended = project("work", *given)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err


def test_json_names_the_target_and_its_tip(project: Ralph) -> None:
    create_tasks(project, "one")
    ended = work(project, "--json")
    last = ended.lines[-1]
    assert (last["type"], last["exitCode"], last["target"]) == ("work", 0, TARGET)
    assert last["tip"] == project.git("rev-parse", TARGET).strip()
    assert last["tasks"] == [{"task": "one", "end": f"done, verified; landed on {TARGET}"}]
