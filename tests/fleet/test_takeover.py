"""Another machine, another user, with nothing in common but the remote: what is left of a loop there is enough."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.conftest import Making
from tests.fleet.machines import Remote, git, kill_all, order_for, processes_of, wait
from tests.fleet.test_steps import counted, in_second_turn, starts

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
    said = b.to_the_end(order, epoch=2, known=len(first["records"]))
    assert said[-1]["records"][-1]["outcome"]["is"] == "Completed"
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
    assert b.to_the_end(order, epoch=2, known=len(served.kinds()))[-1]["next"] == "Finish"
    assert git("for-each-ref", "--format=%(refname:short)", "refs/heads", cwd=served.bare).split() == [
        "main",
        f"ralph/{served.loop}",
    ]
    assert served.kinds().count("RunEnded") == 1


def test_one_who_cannot_reach_the_remote_is_not_fenced_and_begins_nothing(
    remote: Remote, machine: Making, room: Path
) -> None:
    a, order = machine(), order_for(remote, counted(room))
    first = a.step(order)
    aside = remote.folder / "elsewhere.git"
    remote.bare.rename(aside)
    last = a.step(order, known=len(first["records"]))
    assert (last["type"], last["exitCode"]) == ("failed", 3)
    assert starts(room) == 1
    aside.rename(remote.bare)
    (room / "go").touch()
    assert a.step(order, known=len(first["records"]))["next"] == "PickNext"
    wait(lambda: starts(room) == 2, "the second turn")
