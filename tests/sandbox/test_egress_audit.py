"""The log of who was called, and what is read back from it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ralphproof.sandbox.egress_proxy import MAX_BLOCKED, MAX_BYTES, EgressAudit, read_blocked_hosts


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "agent_001.egress.ndjson"


def test_a_call_is_written_at_once(log: Path) -> None:
    audit = EgressAudit(str(log))
    audit.record("allowed.test", 443, "CONNECT", True)
    audit.record("other.test", 80, "GET", False, "is not on the allow-list")
    lines = told(log)
    assert all(isinstance(line.pop("at"), float) for line in lines)
    assert lines == [
        {"host": "allowed.test", "port": 443, "how": "CONNECT", "allowed": True, "why": ""},
        {"host": "other.test", "port": 80, "how": "GET", "allowed": False, "why": "is not on the allow-list"},
    ]
    audit.close()
    assert len(told(log)) == 2


def test_the_same_call_is_written_once_and_counted_at_the_end(log: Path) -> None:
    audit = EgressAudit(str(log))
    for _ in range(1000):
        audit.record("other.test", 443, "CONNECT", False, "no")
    audit.record("other.test", 80, "CONNECT", False, "no")
    assert len(told(log)) == 2
    audit.close()
    assert [(line["host"], line["port"], line.get("count")) for line in told(log)] == [
        ("other.test", 443, None), ("other.test", 80, None), ("other.test", 443, 1000),
    ]  # fmt: skip
    assert read_blocked_hosts(str(log)) == ("other.test:443", "other.test:80")


def test_only_its_owner_can_read_it(log: Path) -> None:
    log.touch(0o644)
    EgressAudit(str(log)).close()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_it_is_not_written_through_a_link(log: Path, tmp_path: Path) -> None:
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        EgressAudit(str(log))
    assert read_blocked_hosts(str(log)) == ()


def test_a_second_log_in_the_same_file_adds_to_it(log: Path) -> None:
    for host in ("a.test", "b.test"):
        audit = EgressAudit(str(log))
        audit.record(host, 443, "CONNECT", False, "no")
        audit.close()
    assert read_blocked_hosts(str(log)) == ("a.test:443", "b.test:443")


def test_it_stays_small_and_says_what_it_left_out(log: Path) -> None:
    audit = EgressAudit(str(log))
    for _ in range(2):
        for number in range(8000):
            audit.record(f"{number}.test" + "x" * 10_000, 443, "GET" * 1000, False, "why " * 1000)
    assert log.stat().st_size <= MAX_BYTES
    audit.close()
    assert log.stat().st_size <= 3 * MAX_BYTES
    lines = told(log)
    written = sum("count" not in line for line in lines)
    assert (lines[-1]["host"], lines[-1]["count"]) == ("", 2 * (8000 - written))
    assert written > 500


def test_many_threads_write_whole_lines(log: Path) -> None:
    audit = EgressAudit(str(log))

    def write(thread: int) -> None:
        for number in range(100):
            audit.record(f"{number}.{thread}.test", 443, "CONNECT", False, "no")
            audit.record("same.test", 443, "CONNECT", False, "no")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit.close()
    lines = told(log)
    assert len(lines) == 8 * 100 + 2
    assert lines[-1]["count"] == 800


def test_nothing_is_written_after_the_end_and_nothing_raises(log: Path) -> None:
    audit = EgressAudit(str(log))
    audit.close()
    audit.record("a.test", 443, "CONNECT", False, "no")
    audit.close()
    assert log.read_bytes() == b""


def test_a_disk_that_takes_nothing_disturbs_no_call(log: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "from ralphproof.sandbox.egress_proxy import EgressAudit\n"
        "audit = EgressAudit(sys.argv[1])\n"
        "[audit.record(f'{n % 3}.test', 443, 'CONNECT', False) for n in range(9)]; audit.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(log)], check=True, timeout=60)
    assert read_blocked_hosts(str(log)) == ()


def line(**more: object) -> str:
    return json.dumps({"at": 1.0, "host": "a.test", "port": 443, "how": "CONNECT", "allowed": False, "why": "", **more})


@pytest.mark.parametrize(
    ("text", "blocked"),
    [
        (line(), ("a.test:443",)),
        (line(allowed=True), ()),
        (line(allowed=None), ()),
        (line(allowed=0), ()),
        (line(port=0), ()),
        (line(port=70_000), ()),
        (line(port="443"), ()),
        (line(host=""), ()),
        (line(host=["a"]), ()),
        (line(host="a\x1b[2J\n\u202eb.test\0"), ("a[2Jb.test:443",)),
        (line(host="::1"), ("[::1]:443",)),
        (line(host="x" * 5000), ("x" * 300 + ":443",)),
        ("", ()),
        ("not json", ()),
        ("[" * 100_000, ()),
        ("7", ()),
        (line()[:-5] + "\n" + line(host="b.test"), ("b.test:443",)),
        ("\ufffd\n" + line(), ("a.test:443",)),
    ],
)
def test_what_was_refused_is_read_back_clean(log: Path, text: str, blocked: tuple[str, ...]) -> None:
    log.write_text(text)
    assert read_blocked_hosts(str(log)) == blocked


def test_each_place_is_named_once_in_the_order_of_its_first_refusal_and_not_too_many(log: Path) -> None:
    hosts = [f"{number}.test" for number in (3, 1, 2, 1, 3, *range(4, 200))]
    log.write_text("\n".join(line(host=host) for host in hosts))
    found = read_blocked_hosts(str(log))
    assert found[:4] == ("3.test:443", "1.test:443", "2.test:443", "4.test:443")
    assert len(found) == MAX_BLOCKED


def test_no_file_means_that_nothing_was_refused(log: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert [read_blocked_hosts(str(path)) for path in (log, tmp_path, tmp_path / "fifo")] == [(), (), ()]
