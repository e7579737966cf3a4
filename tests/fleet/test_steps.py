"""One step after the other: a loop goes on from where it rested, on the same machine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import NotThere
from ralphproof.fleet.artifacts import ArtifactFolder
from tests.fleet.conftest import Making
from tests.fleet.machines import Machine, Remote, git, order_for, processes_of, script, wait
from tests.ralph import Step, done, say, write

COUNTED = [[write(done="1")], [write(done="2")], [write(done="3"), done()]]


def counted(folder: Path, *steps: dict[str, Any]) -> str:
    """An agent that notes each start, and waits in its second iteration for a file, before it does anything."""
    (folder / "started").touch()
    (folder / "started").chmod(0o666)
    started = {"append": {str(folder / "started"): "x\n"}}
    waits = [started, write(half="half"), {"until": str(folder / "go")}, *steps]
    return script(folder, [started, *COUNTED[0]], [*waits, *COUNTED[1]], [started, *COUNTED[2]])


def starts(folder: Path) -> int:
    return len((folder / "started").read_text().splitlines())


def in_second_turn(machine: Machine, order: Any, room: Path, **more: Any) -> Any:
    """A step that is in the midst of its turn, after one that came to its end."""
    first = machine.step(order)
    assert first["next"] == "PickNextJob", (first, machine.log)
    live = machine.start(order, **more)
    live.until("begun")
    half = machine.tree / "half"
    wait(lambda: starts(room) == 2 and half.exists() and half.read_text() == "half", "the second turn is at work")
    return live


def test_a_loop_goes_to_its_end_step_by_step_and_its_branch_is_green(
    served: Remote, machine: Making, room: Path
) -> None:
    secret = "sk-very-secret-0123456789"
    leaks = [[say(f"the key is {secret}"), *COUNTED[0]], *COUNTED[1:]]
    order, a = order_for(served, script(room, *leaks), artifacts=f"file://{room}/kept"), machine()
    a.env["SOME_API_KEY"] = secret
    said = a.to_the_end(order)
    assert [one["next"] for one in said] == ["PickNextJob", "PickNextJob", "PickNextJob", "Finish"]
    assert [one["iterations"] for one in said] == [1, 2, 3, 3]
    kinds = served.kinds()
    assert [kinds.count(kind) for kind in ("RunBegan", "TurnBegan", "TurnEnded", "Judged", "RunEnded")] == [
        1,
        3,
        3,
        3,
        1,
    ]
    assert said[-1]["head"] == served.refs()["record"]
    git("clone", "-q", "-b", f"ralph/{served.loop}", str(served.bare), "fresh", cwd=room)
    assert os.system(f"cd {room / 'fresh'} && sh check.sh") == 0
    assert git("log", "--format=%s", cwd=room / "fresh").splitlines() == ["make it so", "the beginning"]
    logs = room / "kept" / served.loop
    assert secret not in json.dumps(said) + str(served.records()) + (logs / "agent_001.ndjson").read_text()
    assert json.loads((logs / "outcome.json").read_text())["status"] == "COMPLETED"
    kept = ArtifactFolder(order.artifacts, served.loop)
    assert {"agent_001.ndjson", "guardrail_003_sh_check_sh.log", "proof/proof.json"} <= {*kept.names()}
    assert kept.read("outcome.json", 0, 1) == b"{"
    assert not [name for name in kept.names() if name.endswith((".turn", ".asked", ".tmp"))]
    with pytest.raises(NotThere):
        kept.read("../../remote/seed/check.sh")


def test_a_step_that_was_killed_is_followed_by_one_that_adopts_its_turn(
    remote: Remote, machine: Making, room: Path
) -> None:
    a, order = machine(), order_for(remote, counted(room))
    live = in_second_turn(a, order, room)
    live.kill()
    assert processes_of(remote)
    again = a.start(order, epoch=2)
    again.until("begun")
    (room / "go").touch()
    assert again.end()["next"] == "PickNextJob"
    assert starts(room) == 2
    assert remote.kinds().count("TurnBegan") == 2
    assert all(reply["exit"].get("why", "exit") == "exit" for reply in remote.ended_turns())
    assert remote.show(remote.saved("2"), "done") == "2"


def test_what_nobody_heard_of_is_reported_before_more_of_the_same_money_is_spent(
    remote: Remote, machine: Making, room: Path
) -> None:
    turns: list[list[Step]] = [[{"cost": 0.02}, *steps] for steps in COUNTED]
    a, order = machine(), order_for(remote, script(room, *turns))
    asked: dict[str, Any] = {"allot": 30_000, "spent": 0}
    first = a.step(order, **asked)
    again = a.step(order, **asked)  # the first answer was lost
    assert (first["spend"]["micro_usd"], again["spend"]["micro_usd"]) == (20_000, 20_000)
    assert remote.kinds().count("TurnBegan") == 1
    assert again["next"] == "PickNextJob"
    assert a.step(order, **{**asked, "spent": 20_000})["spend"]["micro_usd"] == 40_000


def test_without_its_worker_a_step_dies_and_leaves_the_agent_at_work(
    remote: Remote, machine: Making, room: Path
) -> None:
    a, order = machine(), order_for(remote, counted(room))
    live = in_second_turn(a, order, room)
    live.process.stdin.close()
    assert live.process.wait(20) == -signal.SIGKILL
    assert processes_of(remote)
    (room / "go").touch()
    wait(lambda: not processes_of(remote), "the agent ends by itself")
    assert a.step(order, epoch=2)["next"] == "PickNextJob"
    assert starts(room) == 2


def test_cancel_ends_the_agent_and_the_run(remote: Remote, machine: Making, room: Path) -> None:
    a, order = machine(), order_for(remote, counted(room))
    live = in_second_turn(a, order, room)
    live.say("cancel")
    last = live.end()
    assert last["next"] == "Finish"
    assert not processes_of(remote)
    assert (last["end"]["status"], last["end"]["reason"]) == ("ABORTED", "CANCELLED")
    assert remote.kinds()[-1] == "RunEnded"
    assert remote.show(remote.saved("2"), "half") == "half"
    assert f"refs/heads/ralph/{remote.loop}" not in remote.refs()


@pytest.mark.parametrize("word", ["stop", pytest.param("kill", marks=pytest.mark.thorough)])
def test_a_step_can_be_stopped_and_the_run_goes_on(remote: Remote, machine: Making, room: Path, word: str) -> None:
    a, order = machine(), order_for(remote, counted(room), user={"shutdownGraceSeconds": 0})
    live = in_second_turn(a, order, room)
    live.say(word)
    last = live.end()
    assert last["next"] == "PickNextJob", (last, a.log)
    assert not processes_of(remote)
    kinds = remote.kinds()
    assert kinds[-1] in ("Saved", "Noticed")
    assert "RunEnded" not in kinds
    assert remote.ended_turns()[-1]["exit"]["why"] in ("stopped", "killed")
    a.step(order)
    assert remote.kinds()[-1] == "Judged"


def test_a_check_that_was_stopped_is_asked_again(room: Path, machine: Making, remote: Remote) -> None:
    waits = f"touch {room}/asked; until [ -e {room}/go ]; do sleep 0.02; done; test -e done"
    order = order_for(remote, script(room, [write(done="3"), done()]), check=f"sh -c '{waits}'")
    a = machine()
    live = a.start(order)
    wait(lambda: (room / "asked").exists(), "the check is asked")
    live.say("kill")
    assert live.end()["next"] == "PickNextJob", a.log
    assert "CheckEnded" not in remote.kinds()
    (room / "go").touch()
    last = a.step(order)
    assert last["type"] == "rest"
    found = [data["finding"] for kind, data in remote.records() if kind == "CheckEnded"]
    assert [(one.get("why", "exit"), one["passed"]) for one in found] == [("exit", False), ("exit", True)]
    assert remote.records()[-1][1]["verdict"]["is"] == "Passed"


def test_an_allotment_holds_in_mid_turn(remote: Remote, machine: Making, room: Path) -> None:
    turns: list[Step] = [{"cost": 0.01}, {"cost": 0.5}, {"until": str(room / "never")}]
    a, order = machine(), order_for(remote, script(room, turns), limits={"maxCostUsd": 5})
    live = a.start(order, allot=100_000)
    last = live.end()
    (ended,) = remote.ended_turns()
    assert (last["next"], ended["micro_usd"]) == ("PickNextJob", 500_000)
    assert any(line["type"] == "spent" for line in live.lines)
    assert "spent all that it may" in ended["error"]


def test_what_the_workers_user_has_set_does_not_count(remote: Remote, machine: Making, room: Path) -> None:
    a = machine()
    own = a.home / ".config" / "ralphproof" / "settings.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"caps": {"costUsd": 0.01}, "preset": "wrapper"}))
    a.env |= {"RALPH__LIMITS__MAX_COST_USD": "0.01", "RALPH_CONFIG_DIR": str(own.parent), "RALPH_RUN_ID": "x"}
    turns: list[Step] = [{"cost": 0.5}, write(done="3"), done()]
    order = order_for(remote, script(room, turns), user={"caps": {"costUsd": 2}})
    said = a.to_the_end(order)
    assert said[-1]["end"]["status"] == "COMPLETED"
    began = next(data for kind, data in remote.records() if kind == "RunBegan")
    assert began["facts"]["preset"] == "harness"


def test_what_cannot_be_done_is_said_in_one_line(remote: Remote, machine: Making, room: Path) -> None:
    a, good = machine(), order_for(remote, script(room, *COUNTED))
    from ralphproof.base.value import replace

    for order, words in (
        (replace(good, repo=f"file://{room}/nothing"), "did not answer"),
        (replace(good, base="nowhere"), "has no branch, tag or commit nowhere"),
        (replace(good, user={"caps": {"costUsd": "much"}, "cap": 1}), "costUsd"),
    ):
        last = a.step(order)
        assert last["type"] == "failed"
        assert words in last["message"]
        assert len(last["message"].splitlines()) == 1


def test_a_broken_folder_for_artifacts_stops_nothing(remote: Remote, machine: Making, room: Path) -> None:
    (room / "file").write_text("no folder")
    a = machine()
    order = order_for(remote, script(room, [say("hello")]), artifacts=f"file://{room}/file/below")
    assert a.step(order)["next"] == "PickNextJob"
    assert "artifacts:" in a.log
    assert "Traceback" not in a.log
