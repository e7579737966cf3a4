"""`ralph work --parallel` where an agent ruins what is its own: nobody else pays for it, and nothing is called done."""

from __future__ import annotations

import os
import signal

import pytest

from tests.landing import tasking
from tests.landing.tasking import flags, green, landed, own_trees, prepared, tasks, work
from tests.misbehaviour.crashing import nothing_left
from tests.misbehaviour.tasks import status
from tests.ralph import Ralph, until

AGENT = r"""
echo x > "lib/$RALPH_TASK"
case $RALPH_TASK in
  taken) git checkout -q --detach; git branch -q -D ralph/taken; git branch -q ralph/taken/below;;
  bare) rm .git;;
esac
echo "<promise>CODED</promise>"
"""


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    prepared(ralph)
    (ralph.folder / "agent.sh").write_text(AGENT, encoding="utf-8")
    return ralph


def test_work_lands_from_its_refs_where_its_agent_removed_the_worktrees_git(project: Ralph) -> None:
    tasks(project, "bare")
    ended = work(project)
    assert ended.code == 0, ended
    assert landed(project) == ["bare"]
    assert status(project, "bare")["status"] == "done"
    green(project)


@pytest.mark.thorough
def test_work_that_cannot_be_put_on_its_branch_is_one_tasks_failure_and_no_others(project: Ralph) -> None:
    tasks(project, "taken", "other")
    ended = work(project)
    assert ended.code == 1, ended
    assert "task taken cannot land" in ended.err
    assert landed(project) == ["other"]
    assert status(project, "taken")["status"] == "failed"
    nothing_left(project)
    again = work(project)
    assert again.code == 1
    assert "task taken cannot land" in again.err, "it is tried again, and in nobody's way"


def test_a_task_whose_setup_failed_begins_by_the_settings_that_were_mended(project: Ralph) -> None:
    tasks(project, "one")
    project.settings(setup=["exit 3"])
    refused = work(project)
    assert refused.code == 2
    assert "setup command" in refused.err
    assert own_trees(project) == [], "nothing was begun there"
    project.settings(setup=["true"])
    assert work(project, "--dry-run").code == 0
    ended = work(project)
    assert ended.code == 0, ended
    assert landed(project) == ["one"]


def test_a_second_call_at_the_same_time_is_refused_and_takes_nothing_from_the_first(project: Ralph) -> None:
    (project.folder / "agent.sh").write_text(tasking.AGENT, encoding="utf-8")
    tasks(project, "slow", "other")
    live = project.start(*flags(project))
    until((project.folder / "working").exists, "an agent works")
    second = work(project)
    assert second.code == 2, second
    assert "another ralph work --parallel is at work" in second.err
    (project.folder / "go").touch()
    ended = live.end(60)
    assert ended.code == 0, ended
    assert sorted(landed(project)) == ["other", "slow"]


@pytest.mark.thorough
def test_a_task_that_was_resumed_by_itself_lands_with_the_next_call(project: Ralph) -> None:
    (project.folder / "agent.sh").write_text(tasking.AGENT, encoding="utf-8")
    tasks(project, "slow")
    live = project.start(*flags(project))
    until((project.folder / "working").exists, "an agent works")
    for _ in range(2):
        os.kill(live.process.pid, signal.SIGINT)
    assert live.end().code == 130
    (project.folder / "go").touch()
    resumed = project("run", "--resume", project.runs()[0].id)
    assert resumed.code == 0, resumed
    assert own_trees(project) == []
    ended = work(project)
    assert ended.code == 0, ended
    assert landed(project) == ["slow"]
    assert status(project, "slow")["status"] == "done"
