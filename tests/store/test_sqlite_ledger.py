"""The ledger's file: damage, other versions, other processes, full and read-only disks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, HarnessFailed, LedgerBroken, RalphError, Refused
from ralphproof.engine import records as told
from ralphproof.store import database, ledger
from ralphproof.store.ledger import SELECT_RUNS, SqliteLedger
from tests.needs import require
from tests.store.samples import end, notices, one_of_each
from tests.store.subprocesses import python, said, until


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def filled(folder: Path, count: int = 200) -> Path:
    """A ledger of some pages, closed; its file."""
    ledger = SqliteLedger.open(str(folder))
    ledger.append("r", notices(count))
    ledger.close()
    return folder / "ledger.db"


def run_sql(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def integrity(file: Path) -> str:
    connection = sqlite3.connect(file)
    found = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    connection.close()
    return found


def test_it_is_opened_with_nothing_left_to_chance(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    ask = ledger._database.execute
    found = {name: ask(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")}
    ledger.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


@pytest.mark.parametrize("folder", ["a b%20c?x=1#y", "caf\udce9", "ü/deep/er"])
def test_any_folder_name_will_do(tmp_path: Path, folder: str) -> None:
    path = os.path.join(tmp_path, folder)
    ledger = SqliteLedger.open(path)
    ledger.append("r", notices(1))
    reader = SqliteLedger.open(path, read_only=True)
    assert reader.records("r") == notices(1)
    reader.close()
    ledger.close()
    assert "ledger.db" in os.listdir(path)


# DB-01

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "random bytes": lambda data: os.urandom(len(data)),
    "random short": lambda data: os.urandom(50),
    "random after the header": lambda data: data[:100] + os.urandom(len(data) - 100),
    "a damaged page": lambda data: data[:8192] + os.urandom(4096) + data[12288:],
    "truncated in a page": lambda data: data[: len(data) // 2 + 100],
    "truncated to one page": lambda data: data[:4096],
    "text": lambda data: b"not a database at all\n" * 500,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_kept_aside_byte_for_byte_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    file = filled(tmp_path)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    before = digests(tmp_path)["ledger.db"]
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.append("s", notices(1))
    assert ledger.records("s") == notices(1)
    assert ledger.records("r") == ()
    ledger.close()
    (kept,) = [path for path in tmp_path.glob("ledger.db.corrupt-*") if not path.name.endswith(("-wal", "-shm"))]
    assert digests(tmp_path)[kept.name] == before
    assert str(kept) in ledger.repaired
    assert "\n" not in ledger.repaired
    again = SqliteLedger.open(str(tmp_path))
    assert again.repaired == ""
    assert again.records("s") == notices(1)
    again.close()


def torn_off(tmp_path: Path) -> Path:
    """A copy of a ledger with its write-ahead log, as a crash leaves it."""
    living, copy = tmp_path / "living", tmp_path / "copy"
    filled(living, 40)
    ledger = SqliteLedger.open(str(living))
    ledger.append("r", notices(10, first=40))
    copy.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copy(living / name, copy / name)
    ledger.close()
    return copy


@pytest.mark.parametrize("data", [b"", b"no database\n" * 2000], ids=["empty", "text"])
def test_a_damaged_file_takes_its_write_ahead_log_along(tmp_path: Path, data: bytes) -> None:
    copy = torn_off(tmp_path)
    (copy / "ledger.db").write_bytes(data)
    before = digests(copy)
    SqliteLedger.open(str(copy)).close()
    after = digests(copy)
    (log,) = [name for name in after if name.endswith("-wal")]
    assert ".corrupt-" in log
    assert after[log] == before["ledger.db-wal"]
    assert after[log.removesuffix("-wal")] == before["ledger.db"]


def test_a_log_whose_file_was_deleted_is_kept_aside(tmp_path: Path) -> None:
    copy = torn_off(tmp_path)
    before = digests(copy)["ledger.db-wal"]
    (copy / "ledger.db").unlink()
    ledger = SqliteLedger.open(str(copy))
    assert ledger.repaired
    ledger.close()
    assert before in digests(copy).values()


def test_a_sound_log_is_taken_in(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(torn_off(tmp_path)))
    assert ledger.repaired == ""
    assert ledger.records("r") == notices(50)
    ledger.close()


def test_a_reader_of_a_damaged_file_says_so_and_moves_nothing(tmp_path: Path) -> None:
    file = filled(tmp_path)
    file.write_bytes(b"junk" * 4096)
    before = digests(tmp_path)["ledger.db"]
    with pytest.raises(LedgerBroken, match=r"damaged"):
        SqliteLedger.open(str(tmp_path), read_only=True)
    assert digests(tmp_path)["ledger.db"] == before


def test_damage_met_in_use_of_a_large_file_stops_the_run_and_is_repaired_at_the_next(tmp_path: Path) -> None:
    file = filled(tmp_path)
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.append("large", (told.Noticed(1, 0, "x" * 6_000_000),))
    ledger.close()
    data = file.read_bytes()
    behind_schema = 25 * 4096  # opening meets damage in the pages before, and says so then
    file.write_bytes(data[:behind_schema] + bytes(65536) + data[behind_schema + 65536 :])
    ledger = SqliteLedger.open(str(tmp_path))
    assert ledger.repaired == ""
    with pytest.raises(LedgerBroken, match=r"ledger\.db is damaged"):
        ledger.records("r")
    ledger.close()
    again = SqliteLedger.open(str(tmp_path))
    assert again.repaired
    again.close()
    assert not (tmp_path / "ledger.db.suspect").exists()


def test_a_false_suspicion_is_forgotten(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "ledger.db.suspect").touch()
    ledger = SqliteLedger.open(str(tmp_path))
    assert ledger.records("r") == notices(200)
    ledger.close()
    assert os.listdir(tmp_path) == ["ledger.db"]


REPAIR = """
import sys
from ralphproof.store.ledger import SELECT_RUNS, SqliteLedger
from tests.store.samples import notices
print("ready", flush=True); sys.stdin.readline()
ledger = SqliteLedger.open(sys.argv[1])
ledger.append(sys.argv[2], notices(3))
print(ledger.repaired); ledger.close()
"""


def begin(children: list[subprocess.Popen[str]]) -> None:
    """Let all go on at the same time."""
    assert {said(child) for child in children} == {"ready"}
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_of_many_processes_that_find_damage_one_repairs(tmp_path: Path) -> None:
    require(os.path.exists("/proc/locks"), "the kernel shows who waits for a lock")
    filled(tmp_path).write_bytes(b"junk" * 4096)
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    children = [python(REPAIR, str(tmp_path), f"r{number}") for number in range(6)]
    begin(children)
    until(lambda: all(f" -> FLOCK  ADVISORY  WRITE {child.pid} " in locks() for child in children))
    os.close(folder)
    results = [child.communicate(timeout=30) for child in children]
    assert [child.returncode for child in children] == [0] * 6, results
    assert len([out for out, _ in results if out.strip()]) == 1
    assert len([name for name in os.listdir(tmp_path) if ".corrupt-" in name]) == 1
    ledger = SqliteLedger.open(str(tmp_path))
    assert sorted(row.id for row in ledger.runs()) == [f"r{number}" for number in range(6)]
    ledger.close()


# DB-02


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("number", [database.LEDGER_SCHEMA.version - 1, 999])
def test_another_schema_version_is_refused_and_not_one_byte_changes(
    tmp_path: Path, read_only: bool, crashed: bool, number: int
) -> None:
    living, copy = tmp_path / "living", tmp_path / "copy"
    copy.mkdir()
    file = filled(living)
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {number}")
    for name in ("ledger.db", "ledger.db-wal") if crashed else ():
        shutil.copy(living / name, copy / name)
    connection.close()
    if not crashed:
        shutil.copy(file, copy / "ledger.db")
    before = digests(copy)
    with pytest.raises(
        Refused,
        match=rf"^{copy} was written by an? (older|newer) version of ralph; .*move it away: mv {copy} {copy}\.old$",
    ):
        SqliteLedger.open(str(copy), read_only=read_only)
    assert {name: digest for name, digest in digests(copy).items() if name in before} == before


# Questions


@pytest.mark.parametrize(
    ("question", "values", "found"),
    [
        (ledger.SELECT_RUN_END, ("r",), ["SEARCH record USING COVERING INDEX record_of_run (run=?)"]),
        (ledger.SELECT_RUNS, (9,), ["SEARCH record USING COVERING INDEX record_of_run (run=?)"]),
        (ledger.SELECT_CHILDREN, ("r",), ["SEARCH run USING INDEX run_of_parent (parent=?)"]),
        (ledger.SELECT_DESCENDANTS, ("r",), ["SEARCH run USING INDEX run_of_parent (parent=?)", "run_1 (id=?)"]),
        (
            ledger.SELECT_USER_MESSAGES, ("r", 1),
            ["SEARCH user_message USING INDEX user_message_of_run (run=? AND rowid>?)"],
        ),
        (
            ledger.SELECT_CONTROL_REQUEST, ("r",),
            ["SEARCH control_request USING INDEX control_request_of_run (run=?)"],
        ),
    ],
)  # fmt: skip
def test_no_question_reads_all_rows(
    tmp_path: Path, question: str, values: tuple[object, ...], found: list[str]
) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    plan = [str(row[3]) for row in ledger._database.execute(f"EXPLAIN QUERY PLAN {question}", values)]
    ledger.close()
    assert all(any(wanted in step for step in plan) for wanted in found), plan
    scans = ["SCAN run"] if question == SELECT_RUNS else ["SCAN below", "SCAN CONSTANT ROW"]
    assert [step for step in plan if step.startswith("SCAN") and step not in scans] == []


def test_the_end_of_a_long_run_among_many_is_found_at_once(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(str(tmp_path))
    for number in range(20):
        ledger.append(f"r{number}", (*notices(400), end()))
    steps: list[int] = []
    ledger._database.set_progress_handler(lambda: steps.append(1), 1)
    assert ledger.run_end("r7") == end()
    few = len(steps)
    assert all(row.ended for row in ledger.runs(5))
    ledger._database.set_progress_handler(None, 1)
    ledger.close()
    assert few < 60
    assert len(steps) - few < 5 * 60


# The chain


@pytest.mark.parametrize(
    ("tampering", "place"),
    [
        ("UPDATE record SET data = replace(data, 'notice 3', 'notice X') WHERE seq = 4", "record 4 of run r"),
        ("UPDATE record SET turn = 7 WHERE seq = 2", "record 2 of run r"),
        ("UPDATE record SET at = at + 1 WHERE seq = 5", "record 5 of run r"),
        ("UPDATE record SET data = x'ff00' WHERE seq = 3", "record 3 of run r"),
        ("DELETE FROM record WHERE seq = 1", "record 2 of run r"),
        ("DELETE FROM record WHERE seq = 3", "record 4 of run r"),
        ("UPDATE record SET digest = 'aa' WHERE seq = 3", "record 3 of run r"),
    ],
)
def test_the_chain_names_the_first_place_that_was_tampered_with(tmp_path: Path, tampering: str, place: str) -> None:
    file = filled(tmp_path, 6)
    run_sql(file, tampering)
    ledger = SqliteLedger.open(str(tmp_path))
    found = ledger.verify_chain("r")
    ledger.close()
    assert found is not None
    assert found.startswith(place)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("{", LedgerBroken, "cannot be read"),
        ('{"is": "Noticed"}', LedgerBroken, "cannot be read"),
        ('{"is": "Foretold", "by": 1}', Refused, "newer ralph"),
        ('{"is": "Exit", "code": 1}', Refused, "newer ralph"),
    ],
)
def test_a_record_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, data: str, error: type[RalphError], message: str
) -> None:
    file = filled(tmp_path, 3)
    run_sql(file, f"UPDATE record SET data = '{data}' WHERE seq = 2")
    ledger = SqliteLedger.open(str(tmp_path))
    with pytest.raises(error, match=f"record 2 of run r .*{message}"):
        ledger.records("r")
    ledger.close()


def test_words_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    file = filled(tmp_path, 1)
    ledger = SqliteLedger.open(str(tmp_path))
    ledger.add_user_message("r", "first")
    ledger.add_user_message("r", "second")
    run_sql(file, "UPDATE user_message SET data = '{' WHERE seq = 2")
    with pytest.raises(LedgerBroken, match="word 2 to run r cannot be read"):
        ledger.user_messages("r", 0)
    ledger.close()


# Readers


def test_a_reader_makes_nothing_where_there_is_no_ledger(tmp_path: Path) -> None:
    reader = SqliteLedger.open(str(tmp_path / "none"), read_only=True)
    assert (reader.runs(), reader.records("r"), reader.requested_control("r")) == ((), (), "")
    with pytest.raises(Refused, match="no run yet"):
        reader.find("latest")
    with pytest.raises(Refused, match="cannot use"):
        reader.append("r", notices(1))
    reader.close()
    assert os.listdir(tmp_path) == []


def test_a_reader_of_a_file_that_was_just_created_sees_an_empty_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    reader = SqliteLedger.open(str(tmp_path), read_only=True)
    assert reader.runs() == ()
    reader.close()


def test_a_reader_sees_what_is_committed_while_a_writer_is_in_the_middle(tmp_path: Path) -> None:
    writer = SqliteLedger.open(str(tmp_path))
    writer.append("r", notices(2))
    writer._database.execute("BEGIN IMMEDIATE")
    writer._database.execute("DELETE FROM record")
    reader = SqliteLedger.open(str(tmp_path), read_only=True, busy_s=0.05)
    assert reader.records("r") == notices(2)
    with pytest.raises(Refused):
        reader.append("r", notices(1, first=9))
    writer._database.execute("ROLLBACK")
    writer.append("r", notices(1, first=2))
    assert reader.records("r") == notices(3)
    reader.close()
    writer.close()


# DB-03

ENDLESS = """
import sys
from ralphproof.store.ledger import SELECT_RUNS, SqliteLedger
from tests.store.samples import notices
ledger = SqliteLedger.open(sys.argv[1])
print("ready", flush=True)
for number in range(0, 10**9, 5):
    ledger.append("r", notices(5, first=number))
"""


@pytest.mark.parametrize("wait_ms", [0, 3, 11, 40])
def test_after_a_kill_transactions_are_whole_or_absent(tmp_path: Path, wait_ms: int) -> None:
    """DB-03"""
    child = python(ENDLESS, str(tmp_path))
    assert said(child) == "ready"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(wait_ms / 1000)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    ledger = SqliteLedger.open(str(tmp_path))
    count = len(ledger.records("r"))
    assert ledger.repaired == ""
    assert count % 5 == 0
    assert ledger.records("r") == notices(count)
    assert ledger.verify_chain("r") is None
    ledger.append("r", notices(1, first=count))
    ledger.close()
    assert integrity(tmp_path / "ledger.db") == "ok"


# DB-05

HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.stdin.readline()))
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the write lock until it has heard for how many seconds more."""
    file = filled(tmp_path, 1)
    process = python(HOLD, str(file))
    assert said(process) == "held"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_held_past_the_timeout_is_waited_for_again(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphproof.store.database.MAX_TRIES", 400)
    ledger = SqliteLedger.open(str(tmp_path), busy_s=0.05)
    assert holder.stdin is not None
    holder.stdin.write("0.2\n")
    holder.stdin.flush()
    began = time.monotonic()
    ledger.append("r", notices(1, first=1))
    assert time.monotonic() - began > 0.1
    assert ledger.records("r") == notices(2)
    ledger.close()


def test_a_lock_held_for_too_long_is_one_clear_line(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    ledger = SqliteLedger.open(str(tmp_path), busy_s=0.02)
    with pytest.raises(HarnessFailed, match="locked by another process"):
        ledger.append("r", notices(1, first=1))
    assert ledger.records("r") == notices(1)
    ledger.close()


def test_many_writers_of_one_new_ledger_all_get_through(tmp_path: Path) -> None:
    children = [python(REPAIR, str(tmp_path), f"r{number}") for number in range(6)]
    begin(children)
    results = [child.communicate(timeout=30) for child in children]
    assert [(child.returncode, *result) for child, result in zip(children, results, strict=True)] == [(0, "\n", "")] * 6
    ledger = SqliteLedger.open(str(tmp_path))
    assert all(ledger.records(f"r{number}") == notices(3) for number in range(6))
    ledger.close()


# DB-06, EN-01


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(disk)]
    mounted = os.geteuid() == 0 and not subprocess.run(["mount", *options], capture_output=True).returncode
    require(mounted, "a small file system can only be mounted by root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        file.writelines(bytes(4096) for _ in range(1000))


def test_a_full_disk_is_said_and_loses_nothing(small_disk: Path) -> None:
    ledger = SqliteLedger.open(str(small_disk))
    ledger.append("r", notices(1))

    def go_on() -> None:
        for number in range(1, 10_000, 20):
            ledger.append("r", notices(20, first=number))

    with pytest.raises(DiskFull, match=r"ledger\.db: no space left"):
        go_on()
    written = len(ledger.records("r"))
    assert written % 20 == 1
    assert written > 1
    assert ledger.records("r") == notices(written)
    ledger.close()
    again = SqliteLedger.open(str(small_disk), read_only=True)
    assert again.records("r") == notices(written)
    assert again.verify_chain("r") is None
    again.close()


def test_a_disk_that_is_full_from_the_start_is_said(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(DiskFull):
        SqliteLedger.open(str(small_disk))
    with pytest.raises(DiskFull):
        SqliteLedger.open(str(small_disk / "inner"))


def test_a_read_only_disk_is_refused_with_what_to_do(small_disk: Path) -> None:
    filled(small_disk, 5)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for path in (small_disk, small_disk / "other"):
        with pytest.raises(Refused, match="RALPH_STATE_DIR"):
            SqliteLedger.open(str(path))
    with pytest.raises(Refused, match="RALPH_STATE_DIR"):
        SqliteLedger.open(str(small_disk), read_only=True)


# EN-30


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        ledger = SqliteLedger.open(str(tmp_path / "a" / "b"))
        ledger.append("r", one_of_each())
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
        ledger.close()
    finally:
        os.umask(old)
    private = {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert modes == {"a": 0o700, "b": 0o700, **private}
