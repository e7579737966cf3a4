"""Turn files that are empty, unreadable or of another boot, and disks that are full."""

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

from ralphproof.base.processes import boot_id
from ralphproof.engine.sandbox import CONTINUE, KILL
from ralphproof.process import turn_journal
from ralphproof.process.dead_turns import signal_keeper
from ralphproof.process.tree import is_alive, start_time
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_live_turn
from tests.process.harness_process import PATHS, is_locked
from tests.process.workbench import RecordingWatcher, Workbench, until

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
def test_an_unreadable_turn_file_means_that_the_turn_may_have_run(bench: Workbench, garbage: bytes) -> None:
    (bench.folder / "t.turn").write_bytes(garbage)
    assert bench.sh("touch ran", turn="t").why == "interrupted"
    assert bench.sh("touch ran", turn="t").why == "interrupted"
    assert not (bench.folder / "ran").exists()
    lines = (bench.folder / "t.turn").read_bytes()
    assert lines.startswith(garbage)
    assert lines.count(b'"interrupted"') == 1


def test_a_fifo_in_place_of_a_turn_file_does_not_block(bench: Workbench) -> None:
    os.mkfifo(bench.folder / "t.turn")
    with pytest.raises(OSError, match="Illegal seek"):
        turn_journal.read_turn_file(str(bench.folder / "t.turn"))


def test_two_readers_do_not_take_each_other_for_a_keeper(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(str(bench.folder), str(bench.folder), str(bench.folder), ())
    file = bench.folder / "runs" / "r" / "agent_001.turn"
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


def test_is_turn_locked_creates_no_file(bench: Workbench) -> None:
    file = bench.folder / "t.turn"
    assert not turn_journal.is_turn_locked(str(file))
    assert not file.exists()
    lock = turn_journal.lock_turn_file(str(file))
    assert lock is not None
    assert turn_journal.is_turn_locked(str(file))
    os.close(lock)
    assert not turn_journal.is_turn_locked(str(file))


def test_a_turn_begins_as_soon_as_no_reader_holds_its_file(bench: Workbench) -> None:
    (bench.folder / "t.turn").touch()
    with (bench.folder / "t.turn").open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)

        def look_away(seen: RecordingWatcher) -> int:
            if seen.ticks == 2:
                fcntl.flock(look, fcntl.LOCK_UN)
            return CONTINUE

        assert bench.sh("exit 5", RecordingWatcher(look_away), turn="t").code == 5


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


def test_a_process_with_the_pid_of_one_from_before_a_reboot_is_left_alone(
    bench: Workbench, bystander: subprocess.Popen[bytes]
) -> None:
    (bench.folder / "t.turn").write_text(_lines(bystander, boot="another"))
    past = turn_journal.read_turn_file(str(bench.folder / "t.turn"))
    assert (past.began, past.agent, is_alive(*past.keeper)) == (True, (0, 0), False)
    signal_keeper(past, KILL)
    assert bench.sh("touch ran", turn="t").why == "interrupted"
    assert bystander.poll() is None
    assert not (bench.folder / "ran").exists()


@pytest.mark.parametrize("more", [{}, {"boot": boot_id()}])  # older files do not say
def test_a_process_of_this_boot_is_recognised(
    bench: Workbench, bystander: subprocess.Popen[bytes], more: dict[str, str]
) -> None:
    (bench.folder / "t.turn").write_text(_lines(bystander, **more))
    past = turn_journal.read_turn_file(str(bench.folder / "t.turn"))
    assert past.keeper == past.agent == (bystander.pid, start_time(bystander.pid))
    assert is_alive(*past.keeper)
    assert bench.sh("touch ran", turn="t").why == "interrupted"
    assert bystander.wait() == -9


def test_a_turn_file_names_the_boot(bench: Workbench) -> None:
    bench.sh("true", turn="t")
    first = json.loads(bench.text("t.turn").splitlines()[0])
    assert first["boot"] == boot_id() != ""


def _fill(bench: Workbench, keeper: int, room: int) -> None:
    """Let the keeper's disk have room for so many bytes more of the turn file."""
    limit = (bench.folder / "t.turn").stat().st_size + room
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize("room", [0, 30])
def test_a_result_that_cannot_be_written_is_reported_and_the_turn_is_not_run_again(bench: Workbench, room: int) -> None:
    keeper = bench.keeper()

    def fill(seen: RecordingWatcher) -> int:
        if seen.output_bytes and not (bench.folder / "go").exists():
            _fill(bench, keeper.pid, room)
            (bench.folder / "go").touch()
        return CONTINUE

    script = "echo ran >> runs; echo up; until [ -e go ]; do sleep 0.01; done; exit 3"
    ended = bench.sh(script, RecordingWatcher(fill), turn="t")
    assert (ended.code, ended.why) == (3, "exit")
    assert "the result could not be recorded: " in ended.error
    assert bench.sh(script, turn="t").why == "interrupted"
    assert bench.sh(script, turn="t").why == "interrupted"
    assert bench.text("runs") == "ran\n"


@pytest.mark.parametrize("room", [0, 30])
def test_a_result_that_was_neither_received_nor_written_is_an_interruption(
    bench: Workbench, start_harness: Any, room: int
) -> None:
    script = "echo ran >> runs; echo up; setsid sleep $NAP & until [ -e go ]; do sleep 0.01; done; exit 3"
    harness = start_harness(script)
    until(lambda: harness.said and bench.sleepers())
    _fill(bench, harness.keeper, room)
    harness.kill()
    (bench.folder / "go").touch()
    until(harness.keeper_is_gone)
    seen = RecordingWatcher()
    ended = harness.next(seen)
    assert (ended.why, ended.code, seen.output_bytes) == ("interrupted", None, b"up\n")
    assert (bench.text("runs"), bench.sleepers(), harness.next().why) == ("ran\n", [], "interrupted")


def test_a_harness_whose_disk_is_full_reports_an_interruption_and_runs_nothing(bench: Workbench) -> None:
    (bench.folder / "t.turn").write_bytes(BEGAN)
    code = (
        "import resource, sys; from pathlib import Path; from tests.process.workbench import Workbench\n"
        "bench = Workbench(Path(sys.argv[1])); bench.keeper(); size = (bench.folder / 't.turn').stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "ended = bench.sh('touch ran', turn='t'); print(ended.why, '|', ended.error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(bench.folder)], capture_output=True, env={**os.environ, "PYTHONPATH": PATHS}
    )
    assert told.stdout.startswith(b"interrupted | the result could not be recorded: "), told.stderr
    assert not (bench.folder / "ran").exists()
    assert not is_locked(str(bench.folder / "t.turn"))
