"""Another machine, another user, with nothing in common but the remote: what is left of a loop there is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.conftest import Making
from tests.fleet.machines import Remote, git, kill_all, order_for, processes_of, script, wait
from tests.fleet.test_steps import counted, in_second_turn, starts
from tests.ralph import done, say, write

ONE, OTHER = 61_001, 61_002


def test_a_machine_that_went_down_in_mid_turn_is_followed_by_another(
    served: Remote, machine: Making, room: Path
) -> None:
    a, b = machine("a", ONE), machine("b", OTHER)
    order = order_for(served, counted(room))
    kill_all(in_second_turn(a, order, room), served)
    (room / "go").touch()
    first = b.step(order, epoch=2)
    assert first["type"] == "rest", (first, b.log)
    assert starts(room) == 2  # the cut off turn was judged by what is known of it, and not begun again
    assert (b.tree / "done").read_text() == "1"
    ends = [data["reply"]["exit"].get("why", "exit") for kind, data in served.records() if kind == "TurnEnded"]
    assert ends == ["exit", "interrupted"]
    said = b.to_the_end(order, epoch=2)
    assert said[-1]["end"]["status"] == "COMPLETED"
    assert served.kinds().count("TurnBegan") == starts(room) == 3
    assert served.show(f"ralph/{served.loop}", "done") == "3"
    last = a.step(order, epoch=1)
    assert last["type"] == "fenced"
    assert not a.tree.exists()


def test_of_two_that_have_the_loop_one_goes_on_and_nothing_is_lost(served: Remote, machine: Making, room: Path) -> None:
    a, b = machine("a", ONE), machine("b", OTHER)
    order = order_for(served, counted(room))
    live = in_second_turn(a, order, room)
    assert b.step(order, epoch=2)["type"] == "rest", b.log
    (room / "go").touch()
    assert live.end() == {"type": "fenced"}, a.log
    assert not processes_of(served)
    lost = {ref: commit for ref, commit in served.refs().items() if ref.startswith("lost/a-1-")}
    work = next(commit for ref, commit in lost.items() if ref.endswith("-2"))
    assert served.show(work, "done") == "2"
    assert a.to_the_end(order, epoch=3)[-1]["next"] == "Finish"
    assert served.kinds().count("RunEnded") == 1
    assert served.show(f"ralph/{served.loop}", "done") == "3"
    assert b.step(order, epoch=2) == {"type": "fenced"}
    mirror = next((a.work / "mirrors").iterdir())
    git("-c", "safe.directory=*", "fsck", "--connectivity-only", cwd=mirror)  # it has lost nothing with the clone


def test_one_who_cannot_reach_the_remote_is_not_fenced_and_begins_nothing(
    remote: Remote, machine: Making, room: Path
) -> None:
    a, order = machine(), order_for(remote, counted(room))
    a.step(order)
    aside = remote.folder / "elsewhere.git"
    remote.bare.rename(aside)
    last = a.step(order)
    assert (last["type"], last["exitCode"]) == ("failed", 3)
    assert starts(room) == 1
    aside.rename(remote.bare)
    (room / "go").touch()
    assert a.step(order)["next"] == "PickNextJob"
    wait(lambda: starts(room) == 2, "the second turn")


@pytest.mark.thorough
def test_a_commit_of_the_loop_is_there_on_the_next_machine(remote: Remote, machine: Making, room: Path) -> None:
    a, b = machine("a"), machine("b")
    for one in (a, b):
        (one.home / ".gitconfig").write_text("[user]\nname = somebody\nemail = somebody@localhost\n")
    agent = script(room, [write(done="3")], [write(more="x"), done()], message=[say("Make it so")])
    order = order_for(remote, agent, flags={"scm": {"command": "git", "tasks": ["commit"]}})
    a.step(order)
    said = b.to_the_end(order, epoch=2)
    assert said[-1]["end"]["status"] == "COMPLETED", b.log
    log = git("log", "--format=%an: %s", f"ralph/{remote.loop}", cwd=remote.bare).splitlines()
    assert log == ["somebody: Make it so", "somebody: Make it so", "user: the beginning"]


def test_a_record_that_somebody_changed_is_not_gone_on_with(remote: Remote, machine: Making, room: Path) -> None:
    a, b, order = machine("a"), machine("b"), order_for(remote, script(room, [write(done="1")]))
    assert a.step(order)["next"] == "PickNextJob"
    ref, clone = "/".join(("refs/ralph/fleet", remote.loop, "record")), room / "meddler"
    git("clone", "-q", str(remote.bare), str(clone), cwd=room)
    git("fetch", "-q", "origin", ref, cwd=clone)
    git("checkout", "-q", "FETCH_HEAD", cwd=clone)
    page = clone / "records" / "00001.jsonl"
    page.write_text(page.read_text().replace('\\"passed\\": false', '\\"passed\\": true'))
    git("commit", "-qam", "better", cwd=clone)
    git("push", "-q", "origin", f"HEAD:{ref}", cwd=clone)
    last = b.step(order, epoch=2)
    assert last["type"] == "failed"
    assert "on the remote was changed" in last["message"]
    assert not b.tree.exists()


@pytest.mark.thorough
def test_who_is_fenced_leaves_another_worker_of_the_same_user_alone(
    remote: Remote, machine: Making, room: Path
) -> None:
    a, b, order = machine("a"), machine("b"), order_for(remote, counted(room))
    a.step(order)
    live = b.start(order, epoch=2)
    wait(lambda: starts(room) == 2 and (b.tree / "half").exists(), "the second turn is at work")
    assert a.step(order, epoch=1) == {"type": "fenced"}
    assert processes_of(remote)
    (room / "go").touch()
    assert live.end()["next"] == "PickNextJob"
    assert remote.show(remote.saved("2"), "done") == "2"
