"""Logs that are bounded, followed while they grow, and kept going by a disk that refuses."""

from __future__ import annotations

import os
import random
import resource
import time
from pathlib import Path

import pytest

from ralphproof.engine.sandbox import CONTINUE
from ralphproof.process.output import BoundedLog, LogReader, assemble_abandoned_log
from tests.process.workbench import RecordingWatcher, Workbench

SMALL = (1000, 100, 3)
LINES = b"".join(b"line %06d\n" % number for number in range(1000))


def _written(path: Path, data: bytes, sizes: tuple[int, int, int] = SMALL) -> BoundedLog:
    log = BoundedLog(str(path), sizes)
    for at in range(0, len(data), 70):
        log.write(data[at : at + 70])
    return log


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 1100, 1399, 1400])
def test_a_log_that_fits_is_whole(tmp_path: Path, size: int) -> None:
    log = _written(tmp_path / "log", LINES[:size])
    log.close()
    assert (tmp_path / "log").read_bytes() == LINES[:size]
    assert (log.stored, log.dropped) == (size, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("size", [1401, 1450, 1500, 1501, 12000])
def test_a_log_past_its_bound_keeps_beginning_and_end_and_counts_the_rest(tmp_path: Path, size: int) -> None:
    log = _written(tmp_path / "log", LINES[:size])
    log.close()
    text = (tmp_path / "log").read_bytes()
    note = b"\n... [truncated] %d bytes dropped\n" % log.dropped
    head, _, end = text.partition(note)
    assert head == LINES[:1000]
    assert LINES[:size].endswith(end)
    assert 300 < len(end) <= 400
    assert len(head) + len(end) + log.dropped == size
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_reader_that_keeps_up_sees_every_byte(tmp_path: Path) -> None:
    log, tail = BoundedLog(str(tmp_path / "log"), SMALL), LogReader(str(tmp_path / "log"), SMALL)
    dice, seen, at = random.Random(7), b"", 0
    while at < len(LINES):
        step = dice.randrange(1, 100)
        log.write(LINES[at : at + step])
        at += step
        if dice.random() < 0.5 or at - tail.offset > 200:
            seen += b"".join(tail.read_new())
    log.close()
    seen += b"".join(tail.read_rest(log.stored, log.evicted))
    assert seen == LINES


@pytest.mark.parametrize("start", [0, 500, 1000, 1050, 5000])
def test_a_reader_that_comes_late_is_told_how_much_it_missed(tmp_path: Path, start: int) -> None:
    path = str(tmp_path / "log")
    log, tail = _written(tmp_path / "log", LINES[:start]), LogReader(path, SMALL)
    seen = b"".join(tail.read_new())
    for at in range(start, len(LINES), 70):
        log.write(LINES[at : at + 70])
    late = b"".join(tail.read_new())
    log.close()
    assert b"... [truncated]" in late
    assert LINES.endswith(late[late.index(b"dropped\n") + 8 :])
    assert b"".join(tail.read_rest(log.stored, log.evicted)) == b""
    assert seen.startswith(LINES[: min(start, 1000)])


@pytest.mark.parametrize("size", [1400, 3000])
def test_a_reader_misses_nothing_while_the_log_is_put_together(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tail, unlink = _written(tmp_path / "log", LINES[:1000]), LogReader(str(tmp_path / "log"), SMALL), os.unlink
    seen = list(tail.read_new())
    for at in range(1000, size, 100):
        log.write(LINES[at : at + 100])
        if at < size - 400:
            seen += tail.read_new()  # to the end of a segment: the next one is not open yet

    def looked_at_once(path: str) -> None:
        unlink(path)
        seen.extend(tail.read_new())

    monkeypatch.setattr(os, "unlink", looked_at_once)
    log.close()
    monkeypatch.undo()
    seen += tail.read_rest(log.stored, log.evicted)
    assert b"".join(seen) == LINES[:size]


def test_a_reader_of_a_closed_log_gets_what_stands_in_it(tmp_path: Path) -> None:
    log = _written(tmp_path / "log", LINES)
    log.close()
    assert (
        b"".join(LogReader(str(tmp_path / "log"), SMALL).read_rest(log.stored, log.evicted))
        == (tmp_path / "log").read_bytes()
    )


def test_a_dead_keepers_log_is_put_together(tmp_path: Path) -> None:
    log = _written(tmp_path / "log", LINES)
    stored, evicted = assemble_abandoned_log(str(tmp_path / "log"), SMALL)
    assert (stored, evicted) == (log.stored, log.evicted)
    assert LINES.endswith((tmp_path / "log").read_bytes().partition(b"dropped\n")[2])
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_what_the_disk_refuses_is_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log = BoundedLog(str(tmp_path / "log"), SMALL)
    log.write(b"x" * 50)
    log.close()
    assert (log.stored, log.lost, log.dropped) == (0, 50, 50)
    assert str(tmp_path / "log") in log.error


def test_a_full_disk_does_not_hold_the_program_up(bench: Workbench) -> None:
    keeper = bench.keeper()
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    ended = bench.sh("head -c 3145728 /dev/zero; echo end >&2; exit 3", turn="t")
    assert (ended.code, ended.out_bytes, ended.dropped_bytes) == (3, 3 << 20, 2 << 20)
    assert "File too large" in ended.log_error
    assert bench.text("t.err") == "end\n"


FLOOD = "i=0; while [ $i -lt 20000 ]; do echo line $i of a flood that is larger than the log; i=$((i+1)); done"
FLOODED = b"".join(b"line %d of a flood that is larger than the log\n" % number for number in range(20000))


def test_a_slow_reader_that_lives_misses_nothing(bench: Workbench) -> None:
    class Slow(RecordingWatcher):
        def output(self, chunk: bytes) -> None:
            time.sleep(0.005)  # slower than the flood
            super().output(chunk)

    seen = Slow(lambda _: CONTINUE)
    bench.keeper(sizes=(64 << 10, 64 << 10, 3))  # a pipe's worth a segment, as small as it can be
    (bench.folder / "flood").write_bytes(FLOODED)
    ended = bench.sh("cat flood", seen, turn="t")
    assert seen.output_bytes == FLOODED
    assert ended.out_bytes == len(FLOODED)
    assert ended.dropped_bytes > 0
    assert (bench.folder / "t.out").stat().st_size < 384 << 10


def test_a_flood_on_stderr_is_bounded_too(bench: Workbench) -> None:
    bench.keeper(sizes=(8192, 4096, 2))
    ended = bench.sh(f"({FLOOD}) >&2; exit 4", turn="t")
    assert ended.code == 4
    text = bench.text("t.err")
    assert len(text) < 24 << 10
    assert "[truncated]" in text
    assert text.endswith("line 19999 of a flood that is larger than the log\n")


def test_something_else_in_the_place_of_the_log_is_named_and_the_program_runs(bench: Workbench) -> None:
    (bench.folder / "t.out").mkdir()
    seen = RecordingWatcher()
    ended = bench.sh("echo lost; exit 3", seen, turn="t")
    assert (ended.code, ended.dropped_bytes, seen.output_bytes) == (3, 5, b"")
    assert "t.out" in ended.log_error


@pytest.mark.parametrize("plant", ["mkfifo {}", "mkdir {}", "ln -s /etc/passwd {}", "ln -s /dev/zero {}"])
def test_something_else_that_takes_the_place_of_the_log_in_mid_turn_is_not_read(bench: Workbench, plant: str) -> None:
    seen = RecordingWatcher()
    ended = bench.sh(f"rm t.out t.err; {plant.format('t.out')}; {plant.format('t.err')}; exit 3", seen, turn="t")
    assert (ended.code, seen.output_bytes) == (3, b"")
    assert assemble_abandoned_log(str(bench.folder / "t.out"), SMALL) == (0, 0)
    tail = LogReader(str(bench.folder / "t.out"), SMALL)
    assert (b"".join(tail.read_new()), b"".join(tail.read_rest(9, 0))) == (b"", b"")
