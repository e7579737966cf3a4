"""`ralph work --parallel` with agents that damage their worktree or branch: other tasks are not affected."""

from __future__ import annotations

import os
import signal

import pytest

from tests.landing import parallel_work
from tests.landing.parallel_work import (
    assert_every_commit_passes,
    create_project,
    create_tasks,
    landed_tasks,
    work,
    work_arguments,
    worktree_names,
)
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
    create_project(ralph)
    (ralph.folder / "agent.sh").write_text(AGENT, encoding="utf-8")
    return ralph


def test_work_lands_from_its_refs_where_its_agent_removed_the_worktrees_git(project: Ralph) -> None:
    create_tasks(project, "bare")
    ended = work(project)
    assert ended.code == 0, ended
    assert landed_tasks(project) == ["bare"]
    assert status(project, "bare")["status"] == "done"
    assert_every_commit_passes(project)


@pytest.mark.thorough
def test_a_branch_that_cannot_be_updated_fails_only_its_task(project: Ralph) -> None:
    create_tasks(project, "taken", "other")
    ended = work(project)
    assert ended.code == 1, ended
    assert "task taken cannot land" in ended.err
    assert landed_tasks(project) == ["other"]
    assert status(project, "taken")["status"] == "failed"
    nothing_left(project)
    again = work(project)
    assert again.code == 1
    assert "task taken cannot land" in again.err, "it is tried again and blocks no other task"


def test_a_task_begins_after_its_failing_setup_was_fixed(project: Ralph) -> None:
    create_tasks(project, "one")
    project.settings(setup=["exit 3"])
    refused = work(project)
    assert refused.code == 2
    assert "setup command" in refused.err
    assert worktree_names(project) == [], "nothing was begun there"
    project.settings(setup=["true"])
    assert work(project, "--dry-run").code == 0
    ended = work(project)
    assert ended.code == 0, ended
    assert landed_tasks(project) == ["one"]


def test_a_concurrent_call_is_refused_without_effect_on_the_first(project: Ralph) -> None:
    (project.folder / "agent.sh").write_text(parallel_work.AGENT, encoding="utf-8")
    create_tasks(project, "slow", "other")
    live = project.start(*work_arguments(project))
    until((project.folder / "working").exists, "an agent works")
    second = work(project)
    assert second.code == 2, second
    assert "another ralph work --parallel is at work" in second.err
    (project.folder / "go").touch()
    ended = live.end(60)
    assert ended.code == 0, ended
    assert sorted(landed_tasks(project)) == ["other", "slow"]


@pytest.mark.thorough
def test_a_task_that_was_resumed_as_a_single_run_lands_with_the_next_call(project: Ralph) -> None:
    (project.folder / "agent.sh").write_text(parallel_work.AGENT, encoding="utf-8")
    create_tasks(project, "slow")
    live = project.start(*work_arguments(project))
    until((project.folder / "working").exists, "an agent works")
    for _ in range(2):
        os.kill(live.process.pid, signal.SIGINT)
    assert live.end().code == 130
    (project.folder / "go").touch()
    resumed = project("run", "--resume", project.runs()[0].id)
    assert resumed.code == 0, resumed
    assert worktree_names(project) == []
    ended = work(project)
    assert ended.code == 0, ended
    assert landed_tasks(project) == ["slow"]
    assert status(project, "slow")["status"] == "done"
