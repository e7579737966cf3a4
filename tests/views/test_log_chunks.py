"""Logs that are longer than their head: read in pieces while they are written, and after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.process.output import BoundedLog, truncation_notice
from ralphproof.views.logs import LogChunk, locate_log, read_log_chunk

SIZES = (100, 50, 2)  # bytes of the head, bytes of a segment, how many full ones stay
TEXT = "".join(f"line {number:04d}\n" for number in range(60))


def written(folder: Path, count: int) -> tuple[BoundedLog, str]:
    """A log with so many bytes of the text in it, which is still written."""
    log = BoundedLog(str(folder / "x.log"), SIZES)
    log.write(TEXT[:count].encode())
    return log, log.path


def piece(path: str, offset: int | None, most: int = 1000, live: bool = True, secret: str = "") -> LogChunk:
    return read_log_chunk(path, offset, most, live, (secret,) if secret else (), SIZES)


def whole(path: str, most: int, live: bool, secret: str = "") -> str:
    text, at = "", 0
    while True:
        found = piece(path, at, most, live, secret)
        assert found.offset == at
        text, at = text + found.text, found.next
        if not found.more:
            return text


def expected(count: int, evicted: int) -> str:
    return TEXT[:100] + truncation_notice(evicted).decode() + TEXT[100 + evicted : count] if evicted else TEXT[:count]


@pytest.mark.parametrize(("count", "evicted"), [(40, 0), (100, 0), (101, 0), (230, 0), (270, 50), (600, 350)])
@pytest.mark.parametrize("most", [7, 33, 1000])
def test_all_that_is_kept_of_a_log_is_read_while_it_grows_and_after_it(
    tmp_path: Path, count: int, evicted: int, most: int
) -> None:
    """What was dropped is told in its place, and no byte has another number when the log is put together."""
    log, path = written(tmp_path, count)
    for live in (True, False):
        if not live:
            log.close()
        assert whole(path, most, live) == expected(count, evicted)
        end = piece(path, None, 20, live)
        assert (end.size, end.next, end.more, end.text) == (count, count, False, TEXT[count - 20 : count])
        found = locate_log(path, live, SIZES)
        assert found is not None
        assert found.size == count


def test_what_was_dropped_is_one_step_back_from_what_follows_it(tmp_path: Path) -> None:
    """Whoever reads backwards asks for a place in it, and is told of all of it at once."""
    log, path = written(tmp_path, 600)
    back = piece(path, 440, 10)
    assert (back.offset, back.next, back.text) == (100, 450, truncation_notice(350).decode())
    back = piece(path, 441, 10)
    assert (back.offset, back.next, back.text) == (100, 451, truncation_notice(350).decode() + TEXT[450])
    log.close()


def test_a_follower_whose_place_was_dropped_is_told_so_and_goes_on(tmp_path: Path) -> None:
    log, path = written(tmp_path, 130)
    at = piece(path, 0).next
    assert at == 130
    log.write(TEXT[130:600].encode())
    found = piece(path, at, 20)
    assert (found.text, found.next, found.more) == (truncation_notice(350).decode(), 450, True)
    assert piece(path, found.next).text == TEXT[450:600]
    log.close()


def test_while_a_log_is_put_together_nothing_is_told_twice_and_more_is_coming(tmp_path: Path) -> None:
    log, path = written(tmp_path, 230)
    Path(path).write_bytes(Path(path).read_bytes() + TEXT[100:150].encode())
    assert (piece(path, 0).text, piece(path, 0).more) == (TEXT[:100], True)
    found = piece(path, 180)
    assert (found.offset, found.next, found.text, found.more) == (180, 180, "", True)
    log.close()


@pytest.mark.parametrize("most", [1, 9, 1000])
def test_a_secret_across_two_files_of_a_log_is_masked(tmp_path: Path, most: int) -> None:
    log, path = written(tmp_path, 230)
    secret = TEXT[95:112]
    assert whole(path, most, True, secret) == TEXT[:95] + "***" + TEXT[112:230]
    log.close()
