"""kill -9 after every push: whoever is next, here or elsewhere, goes on, and nothing is done twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fleet.conftest import Making
from tests.fleet.machines import Machine, Remote, kill_all, order_for, script
from tests.ralph import done, write

# A git that ends whoever called it when it has pushed so often; the answer is never heard.
MORTAL = """#!/bin/sh
{git} "$@"
code=$?
for word in "$@"; do
  if [ "$word" = push ]; then
    echo x >> {count}
    [ $(wc -l < {count}) -eq {dies} ] && {{ {what}; }}
  fi
done
exit $code
"""
PUSHES = 8  # of a loop of two iterations whose every step may finish it


def mortal(machine: Machine, dies: int, what: str) -> Path:
    """Let the machine's git do this after the push of this number; the file that counts them."""
    folder, count = machine.folder / "bin", machine.folder / "pushes"
    folder.mkdir()
    count.touch()
    text = MORTAL.format(git=shutil.which("git"), count=count, dies=dies, what=what)
    (folder / "git").write_text(text)
    (folder / "git").chmod(0o755)
    machine.env["PATH"] = f"{folder}:{machine.env['PATH']}"
    return count


def agent(room: Path) -> str:
    """Two iterations, each of which notes that it began."""
    first = [{"append": {str(room / "started"): "1\n"}}, write(done="1")]
    second = [{"append": {str(room / "started"): "2\n"}}, write(done="3"), done()]
    return script(room, first, second)


def test_a_push_whose_answer_got_lost_has_happened(remote: Remote, machine: Making, room: Path) -> None:
    a = machine()
    mortal(a, 2, "code=1")
    last = a.step(order_for(remote, agent(room)))
    assert last["next"] == "PickNextJob", (last, a.log)
    assert last["head"] == remote.refs()["record"]
    assert (room / "started").read_text() == "1\n"


@pytest.mark.thorough
@pytest.mark.parametrize("dies", range(1, PUSHES + 1))
def test_kill_9_after_a_push_costs_nothing(remote: Remote, machine: Making, room: Path, dies: int) -> None:
    a, b = machine("a"), machine("b")
    count = mortal(a, dies, "kill -9 $PPID")
    order = order_for(remote, agent(room))
    here, epoch, killed, ends = a, 1, 0, list[str]()
    while "Finish" not in ends:
        assert len(ends) + killed < 12, (ends, a.log, b.log)
        live = here.start(order, epoch)
        live.process.wait(60)
        if live.process.returncode < 0:
            killed, epoch = killed + 1, epoch + 1
            here = b if dies % 2 else a
            if here is b:
                kill_all(live, remote)
            continue
        assert live.end()["type"] == "rest", (live.lines, here.log)
        ends.append(live.lines[-1]["next"])
    assert killed == 1
    assert here is b or len(count.read_text().split()) >= PUSHES
    records = remote.records()
    ended = [data["outcome"] for kind, data in records if kind == "RunEnded"]
    assert [one["is"] for one in ended] == ["Completed"]
    started = (room / "started").read_text().split()
    assert started.count("1") <= 1
    assert len(started) <= sum(kind == "TurnBegan" for kind, _ in records)
    assert here is b or started == ["1", "2"]
    assert remote.show(f"ralph/{remote.loop}", "done") == "3"
