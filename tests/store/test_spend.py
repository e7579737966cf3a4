"""The spend file: its chain, its head file, other processes, damage, crashes, full and read-only disks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, HarnessFailed, LedgerBroken, Refused
from ralphproof.engine.agent import Spent, Usage
from ralphproof.engine.limits import SECONDS_PER_DAY, DaySpend, Spend, utc_day
from ralphproof.store import spend
from ralphproof.store.spend import SpendStore
from tests.conftest import COUNTED, SAID
from tests.needs import require
from tests.store.subprocesses import environment, python, said
from tests.store.test_sqlite_ledger import DAMAGES, HOLD, begin, digests, integrity, run_sql

NOON = 20_000 * SECONDS_PER_DAY + SECONDS_PER_DAY / 2
TODAY = utc_day(NOON)
YESTERDAYS, SUM = 111_000_000, 111_000_000_000


def filled(folder: Path) -> Path:
    """A closed book: three bookings on each of four days, today is the last. Its file."""
    book = SpendStore.open(str(folder))
    for number in range(12):
        book.book("r", str(number), Spent(10**number, Usage(number)), NOON + (number // 3 - 3) * SECONDS_PER_DAY)
    assert book.day_spend(NOON) == DaySpend(SUM)
    book.close()
    return folder / "spend.db"


def booked(folder: Path, run: str) -> None:
    """One more, by a process that then ends."""
    book = SpendStore.open(str(folder))
    book.book(run, "1", Spent(1), NOON)
    book.close()


def looked(folder: Path, epoch_s: float = NOON) -> DaySpend:
    """What a new process would find."""
    book = SpendStore.open(str(folder))
    found = book.day_spend(epoch_s)
    book.close()
    return found


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def forged(file: Path) -> None:
    """Bind all rows anew, as somebody would who knows how."""
    connection = sqlite3.connect(file, isolation_level=None)
    seq, digest = spend.CHAIN_START
    columns = "run, call, day, at, micro_usd, tokens, at_least, notional, seq"
    for *row, seq in connection.execute(f"SELECT {columns} FROM booking ORDER BY seq").fetchall():
        digest = spend.booking_digest(digest, row)
        connection.execute("UPDATE booking SET digest = ? WHERE seq = ?", (digest, seq))
    connection.close()
    spend.write_head_file(str(file), (seq, digest))


def check_doubt(found: DaySpend, folder: Path, why: str) -> None:
    assert why in found.unknown_reason
    assert str(folder / "spend.db") in found.unknown_reason
    assert f"move spend.head, spend.db and what else begins with spend.db out of {folder}" in found.unknown_reason
    assert "\n" not in found.unknown_reason


# Opening


def test_nothing_is_touched_until_it_is_needed(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path / "state"))
    assert book.days(0, TODAY) == []
    assert book.spend_of(("r",)) == Spend()
    book.close()
    assert os.listdir(tmp_path) == []


def test_it_is_opened_with_nothing_left_to_chance(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path))
    book.day_spend(NOON)
    assert book._database is not None
    ask = book._database.execute
    assert [ask(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")] == ["wal", 2]
    book.close()


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        book = SpendStore.open(str(tmp_path / "a" / "b"))
        book.book("r", "1", Spent(1), NOON)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
        book.close()
    finally:
        os.umask(old)
    private = ("spend.db", "spend.db-wal", "spend.db-shm", "spend.head")
    assert modes == {"a": 0o700, "b": 0o700, **dict.fromkeys(private, 0o600)}


def test_a_closed_book_opens_again(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path))
    for number in range(3):
        book.book("r", str(number), Spent(2), NOON)
        book.close()
        book.close()
    assert book.day_spend(NOON) == DaySpend(6)
    book.close()


def test_another_schema_version_is_refused_in_one_line(tmp_path: Path) -> None:
    run_sql(filled(tmp_path), "PRAGMA user_version = 1")
    book = SpendStore.open(str(tmp_path))
    for _ in range(2):
        with pytest.raises(Refused, match=f"^{tmp_path} was written by an older version of ralph; move it away: mv "):
            book.day_spend(NOON)
        with pytest.raises(Refused, match="an older version of ralph"):
            book.book("r", "new", Spent(1), NOON)


# What is kept


def test_a_booking_is_kept_whole_and_unknown_is_not_zero(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path))
    book.book("r", "1.1", Spent(12, Usage(1, 2, 3, 4), at_least=True), NOON)
    book.book("r", "1.2", Spent(None, notional=True), NOON + 1)
    book.book("r", "1.3", Spent(0, Usage()), NOON + 2)
    book.close()
    connection = sqlite3.connect(tmp_path / "spend.db")
    found = connection.execute("SELECT * FROM booking ORDER BY seq").fetchall()
    connection.close()
    assert [row[:-1] for row in found] == [
        (1, "r", "1.1", TODAY, NOON, 12, 10, 1, 0),
        (2, "r", "1.2", TODAY, NOON + 1, None, None, 0, 1),
        (3, "r", "1.3", TODAY, NOON + 2, 0, 0, 0, 0),
    ]


@pytest.mark.parametrize("figure", [-1, 10**12, 10**30, -(10**30)])
def test_a_figure_that_cannot_be_one_is_unknown(tmp_path: Path, figure: int) -> None:
    book = SpendStore.open(str(tmp_path))
    book.book("r", "1", Spent(figure, Usage(figure)), NOON)
    book.book("r", "2", Spent(3), NOON)
    assert book.day_spend(NOON) == DaySpend(3)
    assert book.days(TODAY, TODAY) == [(TODAY, 3, 1)]
    book.close()
    assert looked(tmp_path) == DaySpend(3)


@pytest.mark.parametrize("epoch_s", [float("nan"), float("inf"), float("-inf"), -1e18, 10**30])
def test_a_clock_that_shows_no_time_is_no_crash(tmp_path: Path, epoch_s: float) -> None:
    book = SpendStore.open(str(tmp_path))
    book.book("r", "1", Spent(3), epoch_s)
    assert (book.day_spend(epoch_s), book.day_spend(NOON)) == (DaySpend(3), DaySpend(0))
    book.close()
    assert looked(tmp_path, epoch_s) == DaySpend(3)


def test_days_are_told_for_reports_with_the_calls_of_unknown_cost(tmp_path: Path) -> None:
    filled(tmp_path)
    book = SpendStore.open(str(tmp_path))
    book.book("r", "unknown", Spent(None), NOON)
    book.book("r", "tomorrow", Spent(None), NOON + SECONDS_PER_DAY)
    expected = [(TODAY - 1, YESTERDAYS, 0), (TODAY, SUM, 1), (TODAY + 1, 0, 1)]
    assert book.days(TODAY - 1, TODAY + 9) == expected
    assert book.days(TODAY + 2, TODAY + 9) == []
    book.close()


# What runs have spent


@pytest.mark.parametrize(
    ("tampering", "left"),
    [
        ("UPDATE booking SET digest = 'aa' WHERE seq = 3", Spend(111_111_111_111, 66)),
        ("DELETE FROM booking WHERE seq < 12", Spend(100_000_000_000, 11)),
        ("UPDATE booking SET micro_usd = 'much' WHERE seq = 12", Spend(11_111_111_111, 66)),
        ("UPDATE booking SET tokens = 9e999 WHERE seq = 12", Spend(111_111_111_111, (1 << 63) - 1)),
        ("UPDATE booking SET notional = 'x', at_least = 'x' WHERE seq = 12", Spend(111_111_111_111, 66)),
    ],
)
def test_what_runs_have_spent_is_what_the_rows_say_whatever_the_doubt(
    tmp_path: Path, tampering: str, left: Spend
) -> None:
    run_sql(filled(tmp_path), tampering)
    book = SpendStore.open(str(tmp_path))
    assert book.spend_of(("r", "s")) == left
    book.day_spend(NOON - 3 * SECONDS_PER_DAY)
    assert book.spend_of(("s", "r")) == left
    book.close()


@pytest.mark.parametrize("figure", [-1, 10**12, 10**30])
def test_a_figure_that_cannot_be_one_is_not_spent(tmp_path: Path, figure: int) -> None:
    book = SpendStore.open(str(tmp_path))
    book.book("r", "1", Spent(figure, Usage(figure)), NOON)
    book.book("r", "2", Spent(3, Usage(4)), NOON)
    assert book.spend_of(("r",)) == Spend(3, 4, 1)
    book.close()


def test_a_book_that_is_deleted_in_use_has_nothing_spent_and_is_a_doubt(tmp_path: Path) -> None:
    filled(tmp_path)
    book = SpendStore.open(str(tmp_path))
    assert book.spend_of(("r",)).tokens == 66
    remove(tmp_path, "spend.db")
    assert book.spend_of(("r",)) == Spend()
    check_doubt(book.day_spend(NOON), tmp_path, "deleted or replaced")
    book.close()


def test_a_book_that_cannot_be_read_is_no_sum(tmp_path: Path) -> None:
    filled(tmp_path).write_bytes(b"no database\n" * 2000)
    book = SpendStore.open(str(tmp_path))
    for _ in range(2):
        with pytest.raises(LedgerBroken, match="damaged"):
            book.spend_of(("r",))
    check_doubt(book.day_spend(NOON), tmp_path, "damaged")
    book.close()


def test_the_calls_of_a_run_are_found_by_an_index(tmp_path: Path) -> None:
    filled(tmp_path)
    connection = sqlite3.connect(tmp_path / "spend.db")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {spend._SPEND}", ("r",))]
    connection.close()
    assert plan == ["SEARCH booking USING INDEX sqlite_autoindex_booking_1 (run=?)"]


# The chain


@pytest.mark.parametrize(
    ("tampering", "why"),
    [
        ("UPDATE booking SET micro_usd = 0 WHERE seq = 12", "booking 12 was changed"),
        ("UPDATE booking SET micro_usd = NULL WHERE seq = 11", "booking 11 was changed"),
        ("UPDATE booking SET micro_usd = 'much' WHERE seq = 11", "booking 11 was changed"),
        ("UPDATE booking SET run = x'ff00' WHERE seq = 11", "booking 11 was changed"),
        ("UPDATE booking SET run = CAST(x'ff00' AS TEXT) WHERE seq = 11", "damaged"),
        ("UPDATE booking SET tokens = 1 WHERE seq = 7", "booking 7 was changed"),
        ("UPDATE booking SET at = at + 1 WHERE seq = 8", "booking 8 was changed"),
        ("UPDATE booking SET day = day - 9 WHERE seq = 7", "booking 7 was changed"),
        ("UPDATE booking SET day = day - 9 WHERE seq > 6", "booking 12 was changed"),
        ("UPDATE booking SET day = day - 9 WHERE seq BETWEEN 7 AND 11", "booking 11 was changed"),
        ("UPDATE booking SET day = 'soon' WHERE seq = 12", "booking 12 was changed"),
        ("UPDATE booking SET call = 'x' WHERE seq = 10", "booking 10 was changed"),
        ("UPDATE booking SET notional = 1 WHERE seq = 10", "booking 10 was changed"),
        ("UPDATE booking SET digest = 'aa' WHERE seq = 10", "booking 10 was changed"),
        ("UPDATE booking SET seq = 99 WHERE seq = 12", "gone or replaced"),
        ("UPDATE booking SET seq = -seq", "gone or replaced"),
        ("DELETE FROM booking WHERE seq = 10", "booking 11 was changed, or one before it is missing"),
        ("DELETE FROM booking WHERE seq = 7", "booking 8 was changed, or one before it is missing"),
        ("DELETE FROM booking WHERE seq = 12", "gone or replaced"),
        ("DELETE FROM booking WHERE seq > 9", "gone or replaced"),
        ("DELETE FROM booking", "gone or replaced"),
        ("INSERT INTO booking SELECT 13, 'x', call, day, 1, 1, 1, 0, 0, digest FROM booking LIMIT 1", "booking 13 was"),
        ("DROP TABLE booking", "no such table"),
        ("DROP INDEX booking_of_day; PRAGMA user_version = 0", "already exists"),
        ("ALTER TABLE booking RENAME COLUMN micro_usd TO usd", "no such column"),
    ],
)
def test_a_change_by_hand_is_a_doubt_when_the_file_is_next_opened(tmp_path: Path, tampering: str, why: str) -> None:
    run_sql(filled(tmp_path), *tampering.split("; "))
    for _ in range(2):
        check_doubt(looked(tmp_path), tmp_path, why)


@pytest.mark.parametrize(
    "change",
    [
        "micro_usd = -1",
        "micro_usd = 0.5",
        "micro_usd = 'much'",
        "micro_usd = x'37'",
        "micro_usd = 1000000000000",
        "micro_usd = 9223372036854775807",
        "day = 'soon'",
        "day = 19999.5",
    ],
)
def test_what_cannot_be_is_a_doubt_even_where_the_chain_is_whole(tmp_path: Path, change: str) -> None:
    file = filled(tmp_path)
    forged(file)
    assert looked(tmp_path) == DaySpend(SUM)
    run_sql(file, f"UPDATE booking SET {change} WHERE seq = 11")
    forged(file)
    check_doubt(looked(tmp_path), tmp_path, "booking 11 has an impossible day or amount")


def test_a_day_of_long_ago_is_verified_only_when_it_is_asked_for(tmp_path: Path) -> None:
    run_sql(filled(tmp_path), "UPDATE booking SET micro_usd = 0 WHERE seq = 2")
    assert looked(tmp_path) == DaySpend(SUM)
    book = SpendStore.open(str(tmp_path))
    assert book.day_spend(NOON) == DaySpend(SUM)
    check_doubt(book.day_spend(NOON - 3 * SECONDS_PER_DAY), tmp_path, "booking 2 was changed")
    book.close()


def test_a_doubt_stays_and_bookings_go_on(tmp_path: Path) -> None:
    run_sql(filled(tmp_path), "DELETE FROM booking WHERE seq = 12")
    book = SpendStore.open(str(tmp_path))
    for number in range(3):
        book.book("s", str(number), Spent(1), NOON)
        book.book("s", str(number), Spent(1), NOON)
        check_doubt(book.day_spend(NOON), tmp_path, "gone or replaced")
    assert book.days(TODAY, TODAY) == [(TODAY, 11_000_000_003, 0)]
    check_doubt(looked(tmp_path), tmp_path, "gone or replaced")
    remove(tmp_path, "spend.db")
    book.book("s", "4", Spent(1), NOON)
    check_doubt(book.day_spend(NOON), tmp_path, "gone or replaced")
    book.close()


# The witness


def test_a_witness_that_lags_is_true(tmp_path: Path) -> None:
    filled(tmp_path)
    witness = (tmp_path / "spend.head").read_bytes()
    booked(tmp_path, "s")
    assert (tmp_path / "spend.head").read_bytes() != witness
    (tmp_path / "spend.head").write_bytes(witness)
    assert looked(tmp_path) == DaySpend(SUM + 1)


@pytest.mark.parametrize(
    "words",
    [None, b"", b"junk", b"\xff" * 86, b"1 2 3", b"9" * 20 + b" " + b"0" * 64 + b"\n", b"%020d %064d\n" % (12, 0)],
)
def test_a_book_without_a_witness_is_a_doubt(tmp_path: Path, words: bytes | None) -> None:
    filled(tmp_path)
    (tmp_path / "spend.head").unlink()
    if words is not None:
        (tmp_path / "spend.head").write_bytes(words)
    why = "gone or replaced" if words and words.startswith(b"0") else f"{tmp_path}/spend.head is missing or damaged"
    check_doubt(looked(tmp_path), tmp_path, why)


def test_a_witness_that_vanishes_in_use_stops_no_booking_and_is_a_doubt_afterwards(tmp_path: Path) -> None:
    book = SpendStore.open(str(tmp_path))
    book.day_spend(NOON)
    remove(tmp_path, "spend.head")
    book.book("s", "1", Spent(1), NOON)
    assert book.day_spend(NOON) == DaySpend(1)
    book.close()
    check_doubt(looked(tmp_path), tmp_path, "spend.head is missing or damaged")


@pytest.mark.parametrize("other", ["none", "empty", "old", "another"])
def test_another_file_in_its_place_is_a_doubt(tmp_path: Path, other: str) -> None:
    file = filled(tmp_path / "state")
    shutil.copy(file, tmp_path / "old")
    booked(tmp_path / "state", "s")
    filled(tmp_path / "more")
    booked(tmp_path / "more", "t")
    shutil.copy(tmp_path / "more" / "spend.db", tmp_path / "another")
    (tmp_path / "empty").touch()
    file.unlink()
    if other != "none":
        shutil.copy(tmp_path / other, file)
    check_doubt(looked(tmp_path / "state"), tmp_path / "state", "gone or replaced")


def test_after_all_files_were_moved_away_a_new_count_begins(tmp_path: Path) -> None:
    run_sql(filled(tmp_path / "state"), "DELETE FROM booking")
    assert looked(tmp_path / "state").unknown_reason
    for path in (tmp_path / "state").glob("spend.*"):
        path.rename(tmp_path / path.name)
    assert looked(tmp_path / "state") == DaySpend(0)


# While it is in use


def test_when_nothing_changed_no_row_is_read(tmp_path: Path) -> None:
    filled(tmp_path)
    book, asked = SpendStore.open(str(tmp_path)), list[str]()
    book.day_spend(NOON)
    book.book("s", "1", Spent(1), NOON)
    assert book._database is not None
    book._database.set_trace_callback(asked.append)
    assert [book.day_spend(NOON), book.day_spend(NOON), book.day_spend(NOON - SECONDS_PER_DAY)] == [
        DaySpend(SUM + 1),
        DaySpend(SUM + 1),
        DaySpend(YESTERDAYS),
    ]
    assert not [question for question in asked if "FROM booking" in question]
    book.close()


def test_what_others_book_is_seen_and_what_was_verified_is_not_read_again(tmp_path: Path) -> None:
    file = filled(tmp_path)
    one, other = SpendStore.open(str(tmp_path)), SpendStore.open(str(tmp_path))
    assert one.day_spend(NOON) == DaySpend(SUM)
    other.book("s", "1", Spent(1), NOON)
    assert one.day_spend(NOON) == DaySpend(SUM + 1)
    run_sql(file, "UPDATE booking SET micro_usd = 0 WHERE seq = 11")
    one.book("s", "2", Spent(2), NOON + SECONDS_PER_DAY)
    one.book("s", "1", Spent(50), NOON)
    for book in (one, other):
        assert book.day_spend(NOON) == DaySpend(SUM + 1)
        assert book.day_spend(NOON + SECONDS_PER_DAY) == DaySpend(2)
        book.close()
    check_doubt(looked(tmp_path), tmp_path, "booking 11 was changed")


@pytest.mark.parametrize(
    "tampering", ["DELETE FROM booking WHERE seq = 12", "UPDATE booking SET digest = 'x'", "DROP TABLE booking"]
)
@pytest.mark.parametrize("reopened", [False, True])
def test_what_vanishes_in_use_is_a_doubt(tmp_path: Path, tampering: str, reopened: bool) -> None:
    file = filled(tmp_path)
    book = SpendStore.open(str(tmp_path))
    assert book.day_spend(NOON) == DaySpend(SUM)
    if reopened:
        book.close()
        (tmp_path / "spend.head").write_bytes(spend._format_head(spend.CHAIN_START))
    run_sql(file, tampering)
    check_doubt(book.day_spend(NOON), tmp_path, "damaged" if "DROP" in tampering else "gone or replaced")
    book.close()


def swap(folder: Path) -> None:
    shutil.copy(folder / "spend.db", folder / "copy")
    (folder / "copy").replace(folder / "spend.db")


@pytest.mark.parametrize(
    "loss",
    [
        lambda folder: remove(folder, "spend.db"),
        lambda folder: remove(folder, "spend.db", "spend.db-wal", "spend.db-shm", "spend.head"),
        lambda folder: shutil.rmtree(folder),
        swap,
    ],
    ids=["file", "files", "folder", "swapped"],
)
@pytest.mark.parametrize("book_first", [False, True])
def test_a_file_that_is_lost_in_use_is_a_doubt_for_this_process_and_the_next(
    tmp_path: Path, loss: Callable[[Path], None], book_first: bool
) -> None:
    state = tmp_path / "state"
    filled(state)
    book = SpendStore.open(str(state))
    book.book("s", "1", Spent(1), NOON)
    loss(state)
    if not book_first:
        check_doubt(book.day_spend(NOON), state, "deleted or replaced while it was in use")
    book.book("s", "2", Spent(2), NOON)
    book.book("s", "2", Spent(2), NOON)
    check_doubt(book.day_spend(NOON), state, "deleted or replaced while it was in use")
    assert book.days(TODAY, TODAY)[0][1] % 10 == (3 if loss is swap else 2)
    book.close()
    assert bool(looked(state).unknown_reason) == (loss is not swap)


# Damage


@pytest.mark.parametrize("damage", [name for name in DAMAGES if "page" not in name])
def test_damage_is_a_doubt_and_the_file_stays_where_it_is(tmp_path: Path, damage: str) -> None:
    file = filled(tmp_path)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    before = digests(tmp_path)
    book = SpendStore.open(str(tmp_path))
    check_doubt(book.day_spend(NOON), tmp_path, "it is damaged")
    with pytest.raises(LedgerBroken, match=r"spend\.db.*it is damaged.*move"):
        book.book("s", "1", Spent(1), NOON)
    check_doubt(book.day_spend(NOON), tmp_path, "it is damaged")
    book.close()
    assert digests(tmp_path) == before


def test_damage_met_in_use_is_a_doubt(tmp_path: Path) -> None:
    file = filled(tmp_path)
    data = file.read_bytes()
    file.write_bytes(data[:4096] + os.urandom(len(data) - 4096))
    check_doubt(looked(tmp_path), tmp_path, "it is damaged")


# Other processes

BOOK = """
import sys
from ralphproof.engine.agent import Spent
from ralphproof.store.spend import SpendStore
book = SpendStore.open(sys.argv[1])
print("ready", flush=True); sys.stdin.readline()
for number in range(int(sys.argv[3])):
    book.book(sys.argv[2], str(number), Spent(10**int(sys.argv[2])), float(sys.argv[4]))
    found = book.day_spend(float(sys.argv[4]))
    assert not found.unknown_reason, found.unknown_reason
    assert found.micro_usd // 10**int(sys.argv[2]) % 100 == number + 1, found
book.close()
"""


def test_many_processes_that_book_at_once_in_a_new_book_lose_nothing(tmp_path: Path) -> None:
    children = [python(BOOK, str(tmp_path / "state"), str(number), "25", str(NOON)) for number in (0, 2, 4, 6)]
    begin(children)
    results = [child.communicate(timeout=60) for child in children]
    assert [(child.returncode, *result) for child, result in zip(children, results, strict=True)] == [(0, "", "")] * 4
    file = tmp_path / "state" / "spend.db"
    before = (tmp_path / "state" / "spend.head").read_bytes()
    assert looked(tmp_path / "state") == DaySpend(25_25_25_25)
    forged(file)
    assert integrity(file) == "ok"
    assert looked(tmp_path / "state") == DaySpend(25_25_25_25)
    assert int(before.split()[0]) in range(97, 101)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the write lock."""
    process = python(HOLD, str(filled(tmp_path)))
    assert said(process) == "held"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_held_for_too_long_is_one_clear_line_and_can_be_tried_again(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    book = SpendStore.open(str(tmp_path), busy_s=0.3)
    assert book.day_spend(NOON) == DaySpend(SUM)
    began = time.monotonic()
    with pytest.raises(HarnessFailed, match=r"spend\.db was locked by another process"):
        book.book("s", "1", Spent(1), NOON)
    assert 0.25 < time.monotonic() - began < 5
    holder.kill()
    holder.wait()
    book.book("s", "1", Spent(1), NOON)
    assert book.day_spend(NOON) == DaySpend(SUM + 1)
    book.close()


# The disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(disk)]
    mounted = os.geteuid() == 0 and not subprocess.run(["mount", *options], capture_output=True).returncode
    require(mounted, "a small file system can only be mounted by root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_said_and_what_was_booked_stays(small_disk: Path) -> None:
    book = SpendStore.open(str(small_disk))

    def go_on() -> None:
        for number in range(10_000):
            book.book("r" * 500, str(number), Spent(1), NOON)

    with pytest.raises(DiskFull, match=r"spend\.db: no space left"):
        go_on()
    found = book.day_spend(NOON)
    assert found.micro_usd > 10
    assert found.unknown_reason == ""
    book.close()
    assert looked(small_disk) == found


def test_a_disk_that_is_full_from_the_start_is_said(small_disk: Path) -> None:
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        file.writelines(bytes(4096) for _ in range(1000))
    for folder in (small_disk, small_disk / "inner"):
        with pytest.raises(DiskFull):
            SpendStore.open(str(folder)).day_spend(NOON)


def test_a_read_only_disk_is_refused_with_what_to_do(small_disk: Path) -> None:
    filled(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for folder in (small_disk, small_disk / "inner"):
        book = SpendStore.open(str(folder))
        with pytest.raises(Refused, match="RALPH_STATE_DIR"):
            book.day_spend(NOON)
        with pytest.raises(Refused, match="RALPH_STATE_DIR"):
            book.book("s", "1", Spent(1), NOON)


# Crashes

WRITER = """
import sys
from ralphproof.engine.agent import Spent
from ralphproof.store.spend import SpendStore
book = SpendStore.open(sys.argv[1])
for number in range(2):
    book.book("crash", str(number), Spent(10**number), float(sys.argv[2]))
book.close()
"""
ENDINGS = [0, 1, 11]
CALLS = "pwrite64,write,fsync,fdatasync,rename,renameat,ftruncate,unlink,mkdir,openat"


def run(tmp_path: Path, state: Path, *strace: str) -> int:
    """How the writer ends under strace; -9 where it was killed."""
    env = environment(PYTHONPYCACHEPREFIX=str(tmp_path / "compiled"), PYTHONDONTWRITEBYTECODE="")
    argv = ["strace", "-qq", *strace, sys.executable, "-S", "-c", WRITER, str(state), str(NOON)]
    return subprocess.run(argv, env=env, capture_output=True, timeout=60).returncode


def changes(tmp_path: Path, before: Path) -> list[tuple[str, int]]:
    """Each call by which the writer changes its files, by name and number."""
    for name in ("warm", "counted"):
        shutil.copytree(before, tmp_path / name)
        assert run(tmp_path, tmp_path / name, "-y", "-o", str(tmp_path / "log"), "-e", f"trace={CALLS}") == 0
    made: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    for line in (tmp_path / "log").read_text().splitlines():
        call = line.partition("(")[0]
        counts[call] = counts.get(call, 0) + 1
        if str(tmp_path / "counted") in line and (call != "openat" or "O_CREAT" in line):
            made.append((call, counts[call]))
    return made


@pytest.mark.thorough
@pytest.mark.parametrize(("earlier", "least"), [(False, 40), (True, 15)])
def test_a_kill_at_any_change_leaves_each_booking_whole_or_absent_and_never_twice(
    tmp_path: Path, earlier: bool, least: int, record_property: Callable[[str, object], None]
) -> None:
    require(shutil.which("strace") is not None, "strace kills at a system call")
    before, had = tmp_path / "before", SUM if earlier else 0
    before.mkdir()
    if earlier:
        filled(before)
    walked = changes(tmp_path, before)
    for call, number in walked:
        state = tmp_path / f"{call}-{number}"
        shutil.copytree(before, state)
        rule = f"inject={call}:signal=SIGKILL:when={number}"
        assert run(tmp_path, state, "-o", "/dev/null", "-e", f"trace={call}", "-e", rule) == -9, (call, number)
        assert looked(state) in [DaySpend(had + kept) for kept in ENDINGS], (call, number)
        book = SpendStore.open(str(state))
        for again in range(2):
            book.book("crash", str(again), Spent(10**again), NOON)
        assert book.day_spend(NOON) == DaySpend(had + ENDINGS[-1]), (call, number)
        book.close()
        assert looked(state) == DaySpend(had + ENDINGS[-1]), (call, number)
        assert integrity(state / "spend.db") == "ok"
    record_property(SAID, f"killed at each of {len(walked)} changes of the spend book")
    record_property(COUNTED, len(walked))
    assert len(walked) >= least
