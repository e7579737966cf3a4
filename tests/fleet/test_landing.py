"""Work of the fleet that is to land on a branch of the remote: with its checks once more, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.value import replace
from ralphproof.fleet.messages import NOT_LANDED
from tests.fleet.conftest import Making
from tests.fleet.machines import Remote, git, order_for, script
from tests.ralph import Step, done, write

QUICK = [[write(done="3"), done()]]


def pushed(remote: Remote, folder: Path, name: str, text: str) -> None:
    """Somebody else pushes to the branch that is to be landed on."""
    git("clone", "-q", "-b", "landing", remote.url, str(folder), cwd=folder.parent)
    (folder / name).write_text(text, encoding="utf-8")
    git("add", "-A", cwd=folder)
    git("commit", "-qm", "meanwhile", cwd=folder)
    git("push", "-q", "origin", "landing", cwd=folder)


def landed_as(end: dict[str, Any], remote: Remote, branch: str = "landing") -> bool:
    """Whether the end of a loop names the commit of the branch that it landed on."""
    tip = git("rev-parse", branch, cwd=remote.bare).strip()
    return end["status"] == "COMPLETED" and str(end["message"]).startswith(f"landed as {tip[:12]}")


def test_a_completed_loop_lands_on_its_target_beside_what_others_landed(
    remote: Remote, machine: Making, room: Path
) -> None:
    git("branch", "landing", "main", cwd=remote.bare)
    pushed(remote, room / "other", "theirs", "x")
    order = replace(order_for(remote, script(room, *QUICK)), target="landing")
    said = machine().to_the_end(order)
    assert landed_as(said[-1]["end"], remote), said[-1]
    assert (remote.show("landing", "done"), remote.show("landing", "theirs")) == ("3", "x")
    assert remote.show("main", "check.sh"), "the branch that it began on is as it was"


@pytest.mark.thorough
def test_the_way_to_the_target_is_the_worker_s_and_not_the_agent_s(remote: Remote, machine: Making, room: Path) -> None:
    git("init", "-q", "--bare", str(room / "elsewhere.git"), cwd=room)
    git("push", "-q", str(room / "elsewhere.git"), "main", cwd=remote.bare)
    diverted = f"url.{room}/elsewhere.git.insteadOf"
    turn: list[Step] = [{"run": ["git", "config", diverted, "https://git.invalid/app.git"]}, *QUICK[0]]
    order, a = order_for(remote, script(room, turn), repo="https://git.invalid/app.git"), machine()
    a.env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{remote.url}.insteadOf"}
    a.env |= {"GIT_CONFIG_VALUE_0": "https://git.invalid/app.git"}
    assert landed_as(a.to_the_end(replace(order, target="main"))[-1]["end"], remote, "main")


def test_what_conflicts_stays_on_its_own_branch_and_is_no_success(remote: Remote, machine: Making, room: Path) -> None:
    git("branch", "landing", "main", cwd=remote.bare)
    pushed(remote, room / "other", "done", "another answer")
    before = git("rev-parse", "landing", cwd=remote.bare)
    order = replace(order_for(remote, script(room, *QUICK)), target="landing")
    end = machine().to_the_end(order)[-1]["end"]
    assert git("rev-parse", "landing", cwd=remote.bare) == before
    assert remote.show(f"ralph/{remote.loop}", "done") == "3", "nothing is lost"
    assert (end["status"], end["reason"], end["exit_code"]) == ("ABORTED", NOT_LANDED, 1)


def test_a_step_that_is_asked_again_lands_nothing_twice(remote: Remote, machine: Making, room: Path) -> None:
    order, a = replace(order_for(remote, script(room, *QUICK)), target="landing"), machine()
    end = a.to_the_end(order)[-1]["end"]
    assert landed_as(end, remote), "a target that nobody made begins at the base"
    assert a.step(order)["end"] == end
    told = git("log", "--format=%(trailers:key=Ralph-Run,valueonly)", "--first-parent", "landing", cwd=remote.bare)
    assert told.split() == [remote.loop]
