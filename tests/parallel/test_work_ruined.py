"""`ralph work --parallel` where an agent ruins what is its own: nobody else pays for it, and nothing is called done."""

from __future__ import annotations

import pytest

from tests.misbehaviour.crashing import nothing_left
from tests.misbehaviour.tasks import status
from tests.parallel.tasking import green, landed, prepared, tasks, work
from tests.ralph import Ralph

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
