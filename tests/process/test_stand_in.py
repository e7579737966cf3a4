"""The stand-in: the program that the keeper starts when its harness dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.engine.sandbox import Command, Exit
from ralphproof.process.tree import find_marked_processes
from tests.process.harness_process import ROOT, Harness
from tests.process.workbench import ObeyingWatcher, RecordingWatcher, Workbench, running, until

NOTE = "import os; note = os.open(FOLDER + '/stood_in', 1 | 64 | 1024, 0o600); os.write(note, b'%d\\n' % os.getpid())\n"
SLEEP = "import time; time.sleep(60)\n"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pthread_sigmask(0, range(1, 32))\n"
METER = """
import sys
from ralphproof.process.keeper_client import TurnFollower
from ralphproof.engine.sandbox import STOP, CONTINUE, Command
class Meter:
    spent = False
    def output(self, chunk): self.spent = self.spent or b"SPENT" in chunk
    def tick(self): return STOP if self.spent else CONTINUE
command = Command(("?",), "/", (), FOLDER + "/t.out", FOLDER + "/t.turn", "")
TurnFollower(lambda: False, steering=True).run(command, Meter())
"""


def _stand_in(bench: Workbench, *code: str) -> tuple[str, ...]:
    return sys.executable, "-c", f"FOLDER = {str(bench.folder)!r}\n" + "".join(code)


def _stood_in(bench: Workbench) -> list[int]:
    path = bench.folder / "stood_in"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _nothing_is_left(bench: Workbench, harness: Harness) -> None:
    until(harness.keeper_is_gone)
    assert (running(str(bench.folder)), find_marked_processes(harness.mark), bench.sleepers()) == ([], [], [])


def test_the_stand_in_is_started_once_when_the_harness_dies(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(
        "until [ -e go ]; do sleep 0.02; echo; done; exit 3", stand_in=_stand_in(bench, NOTE, SLEEP)
    )
    until(lambda: len(harness.said) > 5)
    assert _stood_in(bench) == []
    harness.kill()
    (pid,) = until(lambda: _stood_in(bench))
    assert find_marked_processes(harness.mark).count(pid) == 1  # whoever finds the keeper dead can end it
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1)] == ["/dev/null", "/dev/null"]
    assert not [path for path in _open_files(pid) if path.endswith(".turn") or path.startswith(("pipe:", "socket:"))]
    (bench.folder / "go").touch()
    assert (harness.next().code, len(_stood_in(bench))) == (3, 1)
    _nothing_is_left(bench, harness)


def _open_files(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]


def test_there_is_no_stand_in_while_the_harness_lives(bench: Workbench) -> None:
    keeper, asked = bench.keeper(), list[Command]()

    def stand_in(command: Command) -> tuple[tuple[str, ...], dict[str, str]]:
        asked.append(command)
        return _stand_in(bench, NOTE), dict(os.environ)

    keeper.options.stand_in = stand_in
    commands = [bench.command("/bin/sh", "-c", "echo; exit 4"), bench.command("/bin/sh", "-c", "exit 5")]
    assert [keeper.run(command, RecordingWatcher()).code for command in commands] == [4, 5]
    assert asked == commands
    assert _stood_in(bench) == []


def test_a_command_may_have_no_stand_in(bench: Workbench) -> None:
    keeper = bench.keeper()
    keeper.options.stand_in = lambda _: None
    assert bench.sh("exit 5").code == 5


def test_the_stand_in_can_stop_the_turn(bench: Workbench, start_harness: Any) -> None:
    tidy = "trap 'echo tidy; exit 7' TERM; echo up; until [ -e go ]; do sleep 0.02; done; echo SPENT; sleep $NAP & wait"
    harness = start_harness(tidy, stand_in=_stand_in(bench, NOTE, METER))
    until(lambda: harness.said)
    harness.kill()
    until(lambda: _stood_in(bench))
    (bench.folder / "go").touch()
    until(harness.keeper_is_gone)
    seen = RecordingWatcher()
    ended = harness.next(seen)
    assert (ended.why, ended.code, seen.output_bytes) == ("stopped", 7, b"up\nSPENT\ntidy\n")
    _nothing_is_left(bench, harness)


PATIENT_DOOR = """
import sys
sys.path += [{root!r} + "/src"]
from ralphproof.process import keeper
keeper.LEFTOVER_GRACE_S = 60.0
keeper.serve(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", ["", DEAF, "import os, subprocess; subprocess.Popen(['sleep', '60'])\n"])
def test_the_result_is_the_programs_and_nobody_waits_for_the_stand_in(
    bench: Workbench, start_harness: Any, code: str
) -> None:
    keeper_script = bench.folder / "keeper.py"
    keeper_script.write_text(PATIENT_DOOR.format(root=str(ROOT)))
    more = {"stand_in": _stand_in(bench, code, NOTE, SLEEP), "keeper_script": str(keeper_script)}
    harness = start_harness("until [ -e go ]; do sleep 0.01; done; exit 3", **more)
    until(lambda: harness.past.agent[0])
    harness.kill()
    until(lambda: _stood_in(bench))
    seen = ObeyingWatcher()
    (bench.folder / "go").touch()
    ended: Exit = harness.next(seen)
    assert (ended.why, ended.code, ended.survivors) == ("exit", 3, ())
    assert ended.seconds < 30  # even where leftovers get a minute
    _nothing_is_left(bench, harness)


@pytest.mark.parametrize("code", ["", "raise SystemExit(9)\n", "import os; os.kill(os.getpid(), 9)\n"])
def test_a_stand_in_that_dies_changes_nothing(bench: Workbench, start_harness: Any, code: str) -> None:
    script = "until [ -e go ]; do sleep 0.01; done; echo went on; exit 3"
    harness = start_harness(script, stand_in=_stand_in(bench, NOTE, code))
    until(lambda: harness.past.agent[0])
    harness.kill()
    (pid,) = until(lambda: _stood_in(bench))
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    (bench.folder / "go").touch()
    seen = RecordingWatcher()
    assert (harness.next(seen).code, seen.output_bytes, _stood_in(bench)) == (3, b"went on\n", [pid])


def test_a_program_that_ends_when_its_harness_dies_keeps_its_code(bench: Workbench, start_harness: Any) -> None:
    script = "while kill -0 $(cat harness) 2>/dev/null; do :; done; exit 6"
    harness = start_harness(f"until [ -s harness ]; do :; done; {script}", stand_in=_stand_in(bench, NOTE, SLEEP))
    (bench.folder / "harness").write_text(str(harness.process.pid))
    until(lambda: harness.past.agent[0])
    harness.kill()
    assert (harness.next().why, harness.next().code) == ("exit", 6)
    _nothing_is_left(bench, harness)


def test_a_stand_in_that_cannot_be_started_changes_nothing(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("until [ -e go ]; do sleep 0.01; done; exit 3", stand_in=("/no/such/program",))
    until(lambda: harness.past.agent[0])
    harness.kill()
    (bench.folder / "go").touch()
    assert harness.next().code == 3


def test_a_turn_that_is_being_ended_gets_no_stand_in(bench: Workbench, start_harness: Any) -> None:
    tidy = "echo tidy; until [ -e go ]; do sleep 0.02; done; exit 7"
    script = f"trap '{tidy}' TERM; echo STOP; while :; do sleep 0.02; done"
    harness = start_harness(script, stand_in=_stand_in(bench, NOTE, SLEEP), grace_s=20.0)
    until(lambda: "tidy" in harness.said)
    harness.kill()
    time.sleep(0.2)  # in which there is nothing to see
    (bench.folder / "go").touch()
    assert (harness.next().code, _stood_in(bench)) == (7, [])


def test_both_harness_and_keeper_dead_the_next_harness_ends_it_too(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("echo up; sleep $NAP", stand_in=_stand_in(bench, NOTE, SLEEP))
    until(bench.sleepers)
    harness.kill()
    (pid,) = until(lambda: _stood_in(bench))
    os.kill(harness.keeper, signal.SIGKILL)
    until(harness.keeper_is_gone)
    assert pid in find_marked_processes(harness.mark)
    assert harness.next().why == "interrupted"
    _nothing_is_left(bench, harness)
