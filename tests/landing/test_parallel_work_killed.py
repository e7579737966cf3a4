"""`ralph work --parallel` killed repeatedly: every task lands once, and no finished turn runs twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter

import pytest

from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import TurnBegan
from tests.landing.parallel_work import (
    assert_every_commit_passes,
    create_project,
    create_tasks,
    landed_tasks,
    landed_tasks_if_any,
    started_tasks,
    work_arguments,
    worktree_names,
)
from tests.misbehaviour.crashing import nothing_left
from tests.ralph import Ralph

pytestmark = pytest.mark.thorough

# Counts its calls; after the given number of calls it kills its caller. Where the caller was killed while this one
# started, its parent is the test itself.
GIT = """#!/bin/sh
case "$*" in *--batch*) exec {git} "$@";; esac
{git} "$@"
code=$?
echo "$*" >> {log}
test "$(wc -l < {log})" -ge "$(cat {number})" && test $PPID != {test} && kill -9 $PPID
exit $code
"""
NAMES = ("conflict_1", "conflict_2", "alpha", "beta", "five", "needs_five")
MOST_KILLS = 40


def _completed(ralph: Ralph, run: str) -> bool:
    return isinstance(getattr(ralph.state(run).phase, "outcome", None), Completed)


@pytest.mark.parametrize("seed", range(3))
def test_killed_after_random_git_commands_every_task_lands_once(ralph: Ralph, seed: int) -> None:
    create_project(ralph)
    create_tasks(ralph, *NAMES, after={"needs_five": ("five",)})
    log, number, kills = ralph.folder / "log", ralph.folder / "number", 0
    git = ralph.folder / "mortal" / "git"
    git.parent.mkdir()
    git.write_text(GIT.format(git=shutil.which("git"), log=log, number=number, test=os.getpid()), encoding="utf-8")
    git.chmod(0o755)
    path = {"PATH": f"{git.parent}{os.pathsep}{ralph.env['PATH']}"}
    chance = random.Random(seed)
    while True:
        log.write_text("", encoding="utf-8")
        number.write_text(str(chance.randint(20, 120) if kills < MOST_KILLS else 10**6), encoding="utf-8")
        ended = ralph(*work_arguments(ralph), env=path, timeout_s=120)
        if landed_tasks_if_any(ralph):
            assert_every_commit_passes(ralph)
        if ended.code != -signal.SIGKILL:
            break
        kills += 1
    assert ended.code == 0, ended
    assert kills > 5, "it was killed often enough to tell something"
    assert sorted(landed_tasks(ralph)) == sorted(NAMES)
    assert worktree_names(ralph) == []
    begun = [record for row in ralph.runs() for record in ralph.records(row.id) if isinstance(record, TurnBegan)]
    assert len(started_tasks(ralph)) <= len(begun), "no turn was started twice"
    ended_well = Counter(row.directory for row in ralph.runs() if _completed(ralph, row.id))
    assert all(times <= 2 for times in ended_well.values()), "a task is finished once, and reworked at most once"
    nothing_left(ralph)
