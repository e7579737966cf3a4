"""A new database gets its write-ahead log while other connections read it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from ralphproof.engine.agent import Spent
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.spend import SpendStore


def new_ledger(folder: str) -> None:
    SqliteLedger.open(folder).close()


def new_book(folder: str) -> None:
    book = SpendStore.open(folder)
    book.book("r", "1", Spent(1), 0.0)
    book.close()


@pytest.mark.parametrize(("make", "name"), [(new_ledger, "ledger.db"), (new_book, "spend.db")])
def test_whoever_looks_at_a_new_file_delays_its_maker_and_does_not_stop_it(
    tmp_path: Path, make: Callable[[str], None], name: str
) -> None:
    file = tmp_path / name
    file.touch(0o600)
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM sqlite_master").fetchall()
    with ThreadPoolExecutor() as pool:
        maker = pool.submit(make, str(tmp_path))
        until_busy(maker, tmp_path)
        reader.execute("COMMIT")
        maker.result(timeout=60)
    reader.close()
    assert file.read_bytes()[18:20] == b"\x02\x02"  # SQLite's sign of a file with a write-ahead log


def until_busy(maker: Future[None], folder: Path) -> None:
    """Wait until it is about to begin the log: it holds the folder then."""
    place = os.open(folder, os.O_RDONLY)
    try:
        while not maker.done():
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(place, fcntl.LOCK_UN)
    except BlockingIOError:
        pass
    finally:
        os.close(place)
