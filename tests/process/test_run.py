"""What a program gets, and what is told of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import HarnessFailed
from ralphproof.engine.sandbox import CONTINUE, KILL
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from tests.process.workbench import RecordingWatcher, Workbench


def test_output_is_seen_by_the_watcher_and_stands_in_the_log(bench: Workbench) -> None:
    seen = RecordingWatcher()
    ended = bench.sh("echo one; echo two", seen, turn="t")
    assert (ended.code, ended.why, ended.out_bytes, ended.clean) == (0, "exit", 8, True)
    assert seen.output_bytes == b"one\ntwo\n"
    assert bench.text("t.out") == "one\ntwo\n"
    assert seen.ticks > 0


def test_the_direct_runner_passes_commands_to_its_keeper(bench: Workbench) -> None:
    sandbox = DirectRunner(bench.keeper())
    assert sandbox.run(bench.command("/bin/sh", "-c", "exit 5"), RecordingWatcher()).code == 5
    assert (sandbox.name, sandbox.strength) == ("direct", "none")


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -9 $$", None, 9),
        ("kill -SEGV $$", None, 11),
    ],
)
def test_exit_codes_and_signals_are_told_apart(
    bench: Workbench, script: str, code: int | None, number: int | None
) -> None:
    ended = bench.sh(script)
    assert (ended.code, ended.signal, ended.why) == (code, number, "exit")


def test_stdin_is_delivered_whole(bench: Workbench) -> None:
    prompt = bench.folder / "prompt"
    prompt.write_bytes(os.urandom(100 << 10).hex().encode())
    seen = RecordingWatcher()
    bench.sh("cat", seen, stdin=str(prompt))
    assert seen.output_bytes == prompt.read_bytes()


def test_without_stdin_reading_ends_at_once(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("read x; echo $?", seen)
    assert seen.output_bytes == b"1\n"


def _no_such(folder: Path) -> str:
    return str(folder / "missing")


def _folder(folder: Path) -> str:
    return str(folder)


def _file(folder: Path, text: str, mode: int) -> str:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (_no_such, "No such file"),
        (_folder, "is a directory"),
        (lambda folder: _file(folder, "echo hi\n", 0o755), "Exec format error"),
        (lambda folder: _file(folder, "#!/bin/sh\n", 0o644), "Permission denied"),
        (lambda folder: _file(folder, "\x7fELF nonsense", 0o755), "Exec format error"),
        (lambda folder: _file(folder, "#!/no/such/interpreter\n", 0o755), "interpreter"),
        (lambda _: "surely-no-such-program", "No such file"),
    ],
)
def test_a_program_that_cannot_start_says_why(bench: Workbench, program: object, said: str) -> None:
    assert callable(program)
    ended = bench.keeper().run(bench.command(program(bench.folder)), RecordingWatcher())
    assert (ended.why, ended.code) == ("unstartable", None)
    assert said in ended.error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cwd": "/no/such/folder"}, "cannot enter"),
        ({"stdin": "/no/such/prompt"}, "No such file"),
        ({"env": (("BAD=NAME", "x"),)}, "cannot start"),
    ],
)
def test_a_missing_folder_or_stdin_makes_a_command_unstartable(
    bench: Workbench, more: dict[str, Any], said: str
) -> None:
    ended = bench.sh("true", **more)
    assert ended.why == "unstartable"
    assert said in ended.error


def test_a_bare_name_is_looked_up_in_the_path_of_the_given_environment(bench: Workbench) -> None:
    program = bench.folder / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    seen = RecordingWatcher()
    bench.keeper().run(bench.command("mine", env=(("PATH", f"/nowhere::{program.parent}:/bin:/usr/bin"),)), seen)
    assert seen.output_bytes == b"found\n"


def test_stderr_has_its_own_log(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("echo out; echo err >&2", seen, turn="t")
    assert (seen.output_bytes, bench.text("t.err")) == (b"out\n", "err\n")


def test_stderr_joins_stdout_in_order(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("echo 1; echo 2 >&2; echo 3", seen, err=None)
    assert seen.output_bytes == b"1\n2\n3\n"


def test_every_line_arrives_once_and_in_order(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", seen)
    assert seen.output_bytes == b"".join(b"line %d\n" % number for number in range(20000))


def test_reopening_stdout_in_the_program_does_not_truncate_the_log(bench: Workbench) -> None:
    bench.sh("echo one; echo two > /dev/stdout; echo three", turn="t")
    assert bench.text("t.out") == "one\ntwo\nthree\n"


def test_the_program_has_exactly_three_descriptors(bench: Workbench) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    seen = RecordingWatcher()
    bench.sh("exec ls /proc/$$/fd", seen)
    os.close(reader)
    os.close(writer)
    assert seen.output_bytes.split() == [b"0", b"1", b"2", b"3"]  # 3 is the listing's own


def test_the_program_leads_a_session_of_its_own(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("echo $$; cut -d' ' -f5,6 /proc/$$/stat", seen)
    assert len(set(seen.output_bytes.split())) == 1


def test_the_program_has_no_terminal(bench: Workbench) -> None:
    assert bench.sh(": < /dev/tty").code != 0


def test_the_program_has_default_signal_handlers(bench: Workbench) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        seen = RecordingWatcher()
        # Not by a shell: dash sets the mask itself.
        bench.keeper().run(bench.command("grep", "-E", "SigBlk|SigIgn", "/proc/self/status"), seen)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGQUIT, before)
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in seen.output_bytes.splitlines()] == [0, 0]


def test_the_mark_is_in_the_environment(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.sh("echo $RALPH_TURN", seen, mark="run-7")
    assert seen.output_bytes == b"run-7\n"


def test_bytes_that_are_no_text_pass_unchanged(bench: Workbench) -> None:
    seen = RecordingWatcher()
    bench.keeper().run(bench.command("/bin/echo", "caf\udce9"), seen)
    assert seen.output_bytes == b"caf\xe9\n"


def test_secrets_are_masked_in_both_logs_even_when_written_in_two_halves(bench: Workbench) -> None:
    bench.keeper(secrets=("hunter2-hunter2",))
    script = "printf hunter2; sleep 0.05; echo -hunter2; echo sk-ant-api03-0123456789abcdef >&2"
    seen = RecordingWatcher()
    bench.sh(script, seen, turn="t")
    assert seen.output_bytes == b"***\n"
    assert (bench.text("t.out"), bench.text("t.err")) == ("***\n", "***\n")


def test_logs_and_journal_are_private(bench: Workbench) -> None:
    bench.sh("echo x", turn="t")
    assert {(bench.folder / f"t.{end}").stat().st_mode & 0o777 for end in ("out", "err", "turn")} == {0o600}


def test_a_planted_link_does_not_lead_the_log_elsewhere(bench: Workbench) -> None:
    victim = bench.folder / "victim"
    victim.write_text("precious")
    (bench.folder / "t.out").symlink_to(victim)
    bench.sh("echo x", turn="t")
    assert (victim.read_text(), bench.text("t.out")) == ("precious", "x\n")


def test_a_hundred_turns_leave_no_descriptor_behind(bench: Workbench) -> None:
    keeper = bench.keeper()

    def is_locked() -> int:
        return len(os.listdir(f"/proc/{keeper.pid}/fd")) + len(os.listdir("/proc/self/fd"))

    bench.sh("true")
    bench.sh("true")
    pid, before = keeper.pid, is_locked()
    for _ in range(100):
        assert bench.sh("true").code == 0
    assert bench.keepers[-1].pid == pid
    assert abs(is_locked() - before) <= 1  # the listing's own moment


def test_a_keeper_that_died_between_turns_is_replaced(bench: Workbench) -> None:
    keeper = bench.keeper()
    bench.sh("true")
    os.kill(keeper.pid, signal.SIGKILL)
    assert bench.sh("exit 4").code == 4


def test_a_command_that_ran_before_is_not_run_again(bench: Workbench) -> None:
    first, again = RecordingWatcher(), RecordingWatcher()
    script = "echo ran >> runs; echo said; exit 6"
    told = bench.sh(script, first, turn="t")
    assert bench.sh(script, again, turn="t") == told
    assert told.code == 6
    assert again.output_bytes == first.output_bytes == b"said\n"
    assert bench.text("runs") == "ran\n"


def test_a_full_disk_under_the_journal_starts_nothing_and_says_so(bench: Workbench) -> None:
    ended = bench.sh("touch ran", turn_file="/dev/full")
    assert ended.why == "unstartable"
    assert "No space left" in ended.error
    assert not (bench.folder / "ran").exists()


def test_a_byte_on_the_wake_descriptor_causes_one_tick_at_once(bench: Workbench) -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    keeper = bench.keeper(wake_fd=reader)
    os.write(writer, b"x")
    began, ticks = time.monotonic(), []

    def note(_: RecordingWatcher) -> int:
        ticks.append(time.monotonic() - began)
        return KILL if ticks[-1] > 1.2 else CONTINUE

    assert keeper.run(bench.command("/bin/sleep", bench.nap), RecordingWatcher(note)).why == "killed"
    assert ticks[0] < 0.4  # sooner than without it
    assert len(ticks) < 8  # and it was read
    os.close(reader)
    os.close(writer)


def test_a_keeper_leaves_when_it_is_closed(bench: Workbench) -> None:
    keeper = KeeperClient()
    keeper.close()
    assert not os.path.exists(f"/proc/{keeper.pid}")


def test_the_result_of_one_command_is_never_used_for_another(bench: Workbench) -> None:
    assert bench.sh("exit 0", turn="t").code == 0
    assert bench.sh("exit 0", turn="t").code == 0  # the same one, asked again: its result is told
    with pytest.raises(HarnessFailed, match="another command"):
        bench.sh("exit 1", turn="t")
