"""Metrics of ended runs in `.ralph/metrics/`: a line for each run, and the daily report."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable

from ralphproof.base.files import explain_os_error, open_subfolder, write_atomically
from ralphproof.base.value import Json, Protocol
from ralphproof.engine.agent import Event
from ralphproof.engine.limits import utc_day
from ralphproof.engine.metrics import run_metrics_json
from ralphproof.engine.records import Record, RunEnded
from ralphproof.reports.daily_report import render_markdown_report, report_file_name
from ralphproof.store.run_folder import GITIGNORE_TEXT
from ralphproof.store.serialization import dump_masked_json, encode_text
from ralphproof.store.statistics import PeriodTotals

# The folder. Its contents are derived from the ledger.


LINES_FILE = "loops.jsonl"
MAX_TRIES = 100  # to lock the file, every 10 ms
REMEDY = "make it a directory that you may write to"


class MetricsFolder:
    """`.ralph/metrics/`. It is not written through links inside the project, which an agent could have made."""

    def __init__(self, project_root: str, mask: Callable[[str], str] = str, once: bool = False) -> None:
        """With `once` an existing line is not added again."""
        self._root, self._mask, self._once = os.path.abspath(project_root), mask, once
        self.path = os.path.join(self._root, ".ralph", "metrics")

    def add(self, line: dict[str, Json]) -> None:
        """Append a masked line, on a new line even after one that a crash cut off."""
        data = encode_text(dump_masked_json(line, self._mask) + "\n")
        self._in_folder(lambda folder: _append_line(folder, data, self._once))

    def put(self, name: str, data: str | bytes) -> str:
        """Replace a file atomically; returns its path."""
        raw = data if isinstance(data, bytes) else encode_text(data)
        self._in_folder(lambda folder: write_atomically(folder, name, raw, durable=False))
        return os.path.join(self.path, name)

    def _in_folder(self, work: Callable[[int], None]) -> None:
        opened: list[int] = []
        try:
            opened.append(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY))
            for name in (".ralph", "metrics"):
                inner, made = open_subfolder(opened[-1], name)
                opened.append(inner)
                if made and name == ".ralph":
                    write_atomically(inner, ".gitignore", GITIGNORE_TEXT.encode())
            work(opened[-1])
        except OSError as error:
            raise explain_os_error(error, self.path, REMEDY) from error
        finally:
            for folder in opened:
                os.close(folder)


def _append_line(folder: int, data: bytes, once: bool) -> None:
    file = _open_lines_file(folder)
    try:
        if not _lock_file(file) and once:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if once and _has_line(data, file):
            return
        size = os.fstat(file).st_size
        if not size:
            os.fchmod(file, 0o600)  # whatever the umask
        incomplete = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, b"\n" + data if incomplete else data)
    finally:
        os.close(file)


def _has_line(line: bytes, file: int) -> bool:
    with open(file, "rb", closefd=False) as lines:
        lines.seek(0)
        return any(known == line for known in iter(lambda: lines.readline(len(line) + 1), b""))


def _lock_file(file: int) -> bool:
    """Lock the file against other runs, whose partial line would look incomplete; False if the wait was too long."""
    for _ in range(MAX_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.01)
    return False


def _open_lines_file(folder: int) -> int:
    """The lines file for appending. Anything else of its name, and a file with a second link, is moved aside."""
    try:
        found = os.stat(LINES_FILE, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.rename(LINES_FILE, f"{LINES_FILE}.aside-{os.urandom(4).hex()}", src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        pass
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(LINES_FILE, flags, 0o600, dir_fd=folder)


# The observer that writes the metrics of a run when it ends: a line of JSON, and the report of its day.


class MetricsWriter(Protocol):
    """The place where metrics are written."""

    def add(self, line: dict[str, Json]) -> None:
        """Append a line to the file of all runs."""

    def put(self, name: str, data: str) -> object:
        """Write a file of this name, in place of an older one."""


class MetricsObserver:
    """Writes metrics at the end of a run. `totals` reads the totals of a range of days, both included.

    `limit_micro_usd` is the cost limit of a run. A failure to write one file does not prevent the other.
    """

    def __init__(
        self, writer: MetricsWriter, totals: Callable[[int, int], PeriodTotals], limit_micro_usd: int | None = None
    ) -> None:
        self._writer, self._totals, self._limit = writer, totals, limit_micro_usd

    def on_record(self, record: Record) -> None:
        """Handle a durable record."""
        if not isinstance(record, RunEnded) or record.metrics is None:
            return
        day = utc_day(record.metrics.ended_s)
        try:
            self._writer.add(run_metrics_json(record.metrics))
        finally:
            report = render_markdown_report(self._totals(day, day), self._limit)
            self._writer.put(report_file_name(day, day, "md"), report)

    def on_events(self, events: list[Event]) -> None:
        """Not used."""

    def tick(self) -> None:
        """Not used."""
