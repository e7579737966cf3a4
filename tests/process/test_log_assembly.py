"""Assembly of a bounded log, also after a crash in the middle of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ralphproof.process.output import BoundedLog, LogReader, assemble_abandoned_log, truncation_notice

SMALL = (1000, 100, 3)
LINES = b"".join(b"line %06d\n" % number for number in range(400))
FITS, OVER = 1370, 3070  # without and with segments that are gone


class Killed(BaseException):
    """Nothing of ours catches this."""


@contextmanager
def killed_at(instant: int) -> Iterator[list[int]]:
    """Die before, in the middle of, or after a call that changes a file. The instants that came are counted."""
    passed, real = [0], {name: getattr(os, name) for name in ("write", "unlink", "ftruncate")}

    def strike() -> None:
        passed[0] += 1
        if passed[0] == instant:
            raise Killed

    def write(fd: int, data: Any) -> int:
        strike()
        half = len(data) // 2
        real["write"](fd, data[:half])
        strike()
        real["write"](fd, data[half:])
        strike()
        return len(data)

    def around(name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            strike()
            real[name](*args)
            strike()

        return call

    os.write, os.unlink, os.ftruncate = write, around("unlink"), around("ftruncate")
    try:
        yield passed
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def _written(path: Path, size: int) -> BoundedLog:
    log = BoundedLog(str(path), SMALL)
    for at in range(0, size, 70):
        log.write(LINES[at : min(at + 70, size)])
    return log


def _deaths(call: Callable[[], object], instant: int) -> bool:
    """Whether it died."""
    with killed_at(instant):
        try:
            call()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("size", [900, 1000, 1050, FITS, OVER])
def test_a_log_is_assembled_the_same_after_its_keeper_died_in_mid_assembly(tmp_path: Path, size: int) -> None:
    whole = _written(tmp_path / "whole", size)
    whole.close()
    text, instant, died = (tmp_path / "whole").read_bytes(), 0, True
    while died:
        instant += 1
        path = tmp_path / str(instant)
        died = _deaths(_written(path, size).close, instant)
        second = instant * 7 % 11 + 1  # and so may whoever comes after it
        _deaths(lambda path=path: assemble_abandoned_log(str(path), SMALL), second)  # type: ignore[misc]
        assert assemble_abandoned_log(str(path), SMALL) == (whole.stored, whole.evicted)
        assert path.read_bytes() == text
        assert sorted(tmp_path.glob(f"{instant}.*")) == []
        assert b"".join(LogReader(str(path), SMALL).read_rest(whole.stored, whole.evicted)) == text
    assert size <= 1000 or instant > 4


@pytest.mark.parametrize("size", [1050, FITS, OVER])
def test_a_reader_of_a_dying_keepers_log_misses_nothing(tmp_path: Path, size: int) -> None:
    instant, died = 0, True
    while died:
        instant += 1
        path = tmp_path / str(instant)
        log, tail, seen = BoundedLog(str(path), SMALL), LogReader(str(path), SMALL), b""
        for at in range(0, size, 70):
            log.write(LINES[at : min(at + 70, size)])
            if at < size - 150:
                seen += b"".join(tail.read_new())
        died = _deaths(log.close, instant)
        seen += b"".join(tail.read_new())
        seen += b"".join(tail.read_rest(*assemble_abandoned_log(str(path), SMALL)))
        assert seen == LINES[:size]


def test_a_disk_that_refuses_a_segment_keeps_it(tmp_path: Path) -> None:
    _written(tmp_path / "log", FITS)
    (tmp_path / "log.2").unlink()
    (tmp_path / "log.2").mkdir()
    with pytest.raises(IsADirectoryError):
        assemble_abandoned_log(str(tmp_path / "log"), SMALL)
    assert (tmp_path / "log").read_bytes() == LINES[:1100]
    (tmp_path / "log.2").rmdir()
    (tmp_path / "log.2").write_bytes(LINES[1100:1200])
    assert assemble_abandoned_log(str(tmp_path / "log"), SMALL) == (FITS, 0)
    assert (tmp_path / "log").read_bytes() == LINES[:FITS]


def test_an_inconsistent_head_is_cut_to_what_is_known(tmp_path: Path) -> None:
    _written(tmp_path / "log", OVER)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"x" * 500)
    stored, evicted = assemble_abandoned_log(str(tmp_path / "log"), SMALL)
    assert (stored, evicted) == (OVER, 1700)
    assert (tmp_path / "log").read_bytes() == LINES[:1000] + truncation_notice(1700) + LINES[2700:OVER]


def test_a_segment_that_comes_while_it_is_looked_for_is_not_skipped(tmp_path: Path) -> None:
    log = _written(tmp_path / "log", 1000)

    class Slow(LogReader):
        def _closing(self) -> bool:
            closing = super()._closing()
            if log.stored == 1000:
                for at in range(1000, 1250, 50):
                    log.write(LINES[at : at + 50])
            return closing

    tail = Slow(str(tmp_path / "log"), SMALL)
    seen = b"".join(tail.read_new())
    assert log.stored == 1250
    assert seen + b"".join(tail.read_new()) == LINES[:1250]
