"""Turn files that tell nothing, nonsense, or of another start of the machine; and disks that take no result."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ralphproof.engine.sandbox import CONTINUE, KILL
from ralphproof.process import turn_journal
from ralphproof.process.cleanup import signal_keeper
from ralphproof.process.tree import current_boot_id, is_alive, start_time
from ralphproof.runs.recovery import find_live_turn
from ralphproof.store.project import Project
from tests.process.desk import Desk, Seen, until
from tests.process.victim import PATHS, held

BEGAN = b'{"began":1,"start":1}\n'
GARBAGE = [
    b"\0" * 4096,
    b"\0" * 100 + b"\n",
    b"\n",
    b"\xff\xfe\n\xff\n",
    b"[" * 200_000 + b"\n",
    b"null\n[]\n7\n",
    b'{"began":"7","start":null}\n',
    b'{"began":-5,"start":3}\n',
    b'{"began":%s,"start":1}\n' % (b"9" * 5000),
    BEGAN + b'{"agent":-1,"start":1}\n',
    BEGAN + b'{"agent":0,"start":0}\n',
    BEGAN + b'{"result":true}\n',
    BEGAN + b'{"result":1,"code":0,"why":"exit"}\n',
    BEGAN + b'{"result":true,"code":"0","why":"exit"}\n',
    BEGAN + b'{"result":true,"code":0,"why":["exit"]}\n',
    BEGAN + b'{"result":true,"code":0,"why":"exit","survivors":7}\n',
    BEGAN + b'{"result":true,"code":0,"why":"exit","out_bytes":"many"}\n',
    BEGAN + b'{"result":true,"code":0,"why":"exit"}',
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_nonsense_means_that_it_may_have_run_and_it_is_not_run_again(desk: Desk, garbage: bytes) -> None:
    (desk.folder / "t.turn").write_bytes(garbage)
    assert desk.sh("touch ran", turn="t").why == "interrupted"
    assert desk.sh("touch ran", turn="t").why == "interrupted"
    assert not (desk.folder / "ran").exists()
    lines = (desk.folder / "t.turn").read_bytes()
    assert lines.startswith(garbage)
    assert lines.count(b'"interrupted"') == 1


def test_a_pipe_in_the_place_of_a_turn_file_does_not_hold_us_up(desk: Desk) -> None:
    os.mkfifo(desk.folder / "t.turn")
    with pytest.raises(OSError, match="Illegal seek"):
        turn_journal.read_turn_file(str(desk.folder / "t.turn"))


def test_two_who_look_at_once_do_not_take_each_other_for_a_keeper(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(str(desk.folder), str(desk.folder), str(desk.folder), ())
    file = desk.folder / "runs" / "r" / "agent_001.turn"
    file.parent.mkdir(parents=True)
    file.write_bytes(BEGAN)
    lock, seen = fcntl.flock, list[object]()

    def look_meanwhile(descriptor: int, how: int) -> None:
        lock(descriptor, how)
        if not seen:
            seen.append("looking")
            seen.append(find_live_turn(project, "r"))

    monkeypatch.setattr(fcntl, "flock", look_meanwhile)
    assert find_live_turn(project, "r") is None
    assert seen == ["looking", None]


def test_a_look_tells_who_is_responsible_and_makes_no_file(desk: Desk) -> None:
    file = desk.folder / "t.turn"
    assert not turn_journal.is_turn_locked(str(file))
    assert not file.exists()
    lock = turn_journal.lock_turn_file(str(file))
    assert lock is not None
    assert turn_journal.is_turn_locked(str(file))
    os.close(lock)
    assert not turn_journal.is_turn_locked(str(file))


def test_a_turn_begins_as_soon_as_nobody_looks_at_its_file(desk: Desk) -> None:
    (desk.folder / "t.turn").touch()
    with (desk.folder / "t.turn").open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)

        def look_away(seen: Seen) -> int:
            if seen.ticks == 2:
                fcntl.flock(look, fcntl.LOCK_UN)
            return CONTINUE

        assert desk.sh("exit 5", Seen(look_away), turn="t").code == 5


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def _lines(process: subprocess.Popen[bytes], **more: str) -> str:
    start = start_time(process.pid)
    began = {"began": process.pid, "start": start, **more}
    return "".join(json.dumps(line) + "\n" for line in (began, {"agent": process.pid, "start": start}))


def test_who_has_the_number_of_a_process_from_before_a_reboot_is_left_alone(
    desk: Desk, bystander: subprocess.Popen[bytes]
) -> None:
    (desk.folder / "t.turn").write_text(_lines(bystander, boot="another"))
    past = turn_journal.read_turn_file(str(desk.folder / "t.turn"))
    assert (past.began, past.agent, is_alive(*past.keeper)) == (True, (0, 0), False)
    signal_keeper(past, KILL)
    assert desk.sh("touch ran", turn="t").why == "interrupted"
    assert bystander.poll() is None
    assert not (desk.folder / "ran").exists()


@pytest.mark.parametrize("more", [{}, {"boot": current_boot_id()}])  # older files do not say
def test_who_is_of_this_start_of_the_machine_is_known(
    desk: Desk, bystander: subprocess.Popen[bytes], more: dict[str, str]
) -> None:
    (desk.folder / "t.turn").write_text(_lines(bystander, **more))
    past = turn_journal.read_turn_file(str(desk.folder / "t.turn"))
    assert past.keeper == past.agent == (bystander.pid, start_time(bystander.pid))
    assert is_alive(*past.keeper)
    assert desk.sh("touch ran", turn="t").why == "interrupted"
    assert bystander.wait() == -9


def test_a_turn_says_which_start_of_the_machine_it_is_of(desk: Desk) -> None:
    desk.sh("true", turn="t")
    first = json.loads(desk.text("t.turn").splitlines()[0])
    assert first["boot"] == current_boot_id() != ""


def _fill(desk: Desk, keeper: int, room: int) -> None:
    """Let the keeper's disk have room for so many bytes more of the turn file."""
    limit = (desk.folder / "t.turn").stat().st_size + room
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize("room", [0, 30])
def test_a_result_that_the_disk_does_not_take_is_told_and_the_turn_is_not_run_again(desk: Desk, room: int) -> None:
    keeper = desk.keeper()

    def fill(seen: Seen) -> int:
        if seen.output_bytes and not (desk.folder / "go").exists():
            _fill(desk, keeper.pid, room)
            (desk.folder / "go").touch()
        return CONTINUE

    script = "echo ran >> runs; echo up; until [ -e go ]; do sleep 0.01; done; exit 3"
    ended = desk.sh(script, Seen(fill), turn="t")
    assert (ended.code, ended.why) == (3, "exit")
    assert "the result could not be recorded: " in ended.error
    assert desk.sh(script, turn="t").why == "interrupted"
    assert desk.sh(script, turn="t").why == "interrupted"
    assert desk.text("runs") == "ran\n"


@pytest.mark.parametrize("room", [0, 30])
def test_a_result_that_nobody_heard_and_the_disk_did_not_take_is_an_interruption(
    desk: Desk, started: Any, room: int
) -> None:
    script = "echo ran >> runs; echo up; setsid sleep $NAP & until [ -e go ]; do sleep 0.01; done; exit 3"
    harness = started(script)
    until(lambda: harness.said and desk.nappers())
    _fill(desk, harness.keeper, room)
    harness.kill()
    (desk.folder / "go").touch()
    until(harness.keeper_is_gone)
    seen = Seen()
    ended = harness.next(seen)
    assert (ended.why, ended.code, seen.output_bytes) == ("interrupted", None, b"up\n")
    assert (desk.text("runs"), desk.nappers(), harness.next().why) == ("ran\n", [], "interrupted")


def test_a_harness_whose_own_disk_is_full_tells_an_interruption_and_runs_nothing(desk: Desk) -> None:
    (desk.folder / "t.turn").write_bytes(BEGAN)
    code = (
        "import resource, sys; from pathlib import Path; from tests.process.desk import Desk\n"
        "desk = Desk(Path(sys.argv[1])); desk.keeper(); size = (desk.folder / 't.turn').stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "ended = desk.sh('touch ran', turn='t'); print(ended.why, '|', ended.error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(desk.folder)], capture_output=True, env={**os.environ, "PYTHONPATH": PATHS}
    )
    assert told.stdout.startswith(b"interrupted | the result could not be recorded: "), told.stderr
    assert not (desk.folder / "ran").exists()
    assert not held(str(desk.folder / "t.turn"))
