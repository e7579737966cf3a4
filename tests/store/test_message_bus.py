"""The message bus: concurrent posts lose and tear nothing, and hostile files in its place do no harm."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, RalphError, Refused
from ralphproof.base.value import replace
from ralphproof.store import message_bus
from ralphproof.store.message_bus import (
    MAX_BODY_BYTES,
    TYPES,
    Message,
    MessageBus,
    draft_message,
    find_wait_reason,
    format_message,
    open_project_bus,
    open_task_bus,
)
from tests.store.subprocesses import python, said, until

FORGED = "### INFO 20261115-210507-048213-k3f9x2ab <!-- lines=1 bytes=3 -->\n> x\n"
WRITER = """
import sys
from ralphproof.store.message_bus import open_task_bus
bus, name, count = open_task_bus(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    bus.post("PROGRESS", f"{number}\\n" + "x" * (number % 50), task=name, patience_s=60)
"""
# Dies in the middle of a post, after so many bytes of it.
DYING = """
import os, signal, sys
from ralphproof.store.message_bus import open_task_bus
whole = os.write
def half(file, data):
    whole(file, bytes(data)[:int(sys.argv[2])])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
open_task_bus(sys.argv[1]).post("INFO", "never said to its end")
"""
POSTING = """
import sys
from ralphproof.store.message_bus import open_task_bus
bus = open_task_bus(sys.argv[1])
print("begun", flush=True)
while True:
    bus.post("INFO", "y" * 60000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "task"
    made.mkdir()
    return made


@pytest.fixture
def bus(folder: Path) -> MessageBus:
    return open_task_bus(str(folder))


def place(folder: Path) -> Path:
    return folder / "TASK-MESSAGE-BUS.md"


def ended(process: subprocess.Popen[str]) -> int:
    """Wait until a process is over; its exit code."""
    process.communicate(timeout=60)
    return process.returncode


def bodies(bus: MessageBus) -> list[str]:
    return [message.body for message in bus.messages()]


# What is posted


def test_what_is_posted_is_read_in_the_order_in_which_it_came(bus: MessageBus) -> None:
    first = bus.post("info", "one", run="run-1", iteration=2, project="calc", task="a b")
    second = bus.post("ANSWER", "two\nlines", parents=[first.id], durable=True)
    assert (first.kind, first.body, first.run, first.iteration, first.project, first.task, first.parents) == (
        "INFO", "one", "run-1", 2, "calc", "a b", (),
    )  # fmt: skip
    assert (second.kind, second.body, second.parents) == ("ANSWER", "two\nlines", (first.id,))
    assert list(bus.messages()) == [first, second]
    assert first.id < second.id
    assert bus.skipped == 0


def test_an_id_tells_the_present(bus: MessageBus) -> None:
    before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    at = bus.post("INFO", "x").at
    assert before <= at <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))


def test_the_ids_of_a_writer_sort_though_the_clock_is_set_back(
    bus: MessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [bus.post("INFO", "x").id]
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    ids += [bus.post("INFO", "x").id for _ in range(3)]
    assert ids == sorted(set(ids))


def test_the_buses_lie_where_everybody_looks_for_them(tmp_path: Path, folder: Path) -> None:
    open_project_bus(str(tmp_path)).post("INFO", "x")
    open_task_bus(str(folder)).post("INFO", "x")
    path = tmp_path / ".ralph/bus/PROJECT-MESSAGE-BUS.md"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (path.parent.stat().st_mode & 0o777, place(folder).is_file()) == (0o700, True)
    assert "*" in (tmp_path / ".ralph/.gitignore").read_text()


def test_a_bus_that_is_not_there_is_empty_and_stays_so(tmp_path: Path) -> None:
    for bus in (open_project_bus(str(tmp_path)), open_task_bus(str(tmp_path / "task"))):
        assert list(bus.messages()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_task_folder_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"/task is not there"):
        open_task_bus(str(tmp_path / "task")).post("INFO", "x")
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_masked_everywhere(folder: Path) -> None:
    bus = open_task_bus(str(folder), lambda text: text.replace("hunter22", "***"))
    bus.post("INFO", "it is\nhunter22", run="hunter22", project="hunter22", task="hunter22")
    assert "hunter22" not in place(folder).read_text()
    assert [(message.body, message.task) for message in bus.messages()] == [("it is\n***", "***")]


@pytest.mark.parametrize(
    ("kind", "body", "parents", "message"),
    [
        ("SHOUT", "x", [], f"there are: {', '.join(TYPES)}"),
        ("INFO", "", [], "needs a text"),
        ("INFO", "x" * (MAX_BODY_BYTES + 1), [], "holds at most 65536 bytes"),
        ("INFO", "x", ["x"], "'x' is no message's id"),
        ("INFO", "x", ["20261115-210507-048213-k3f9x2ab"] * 17, "answers at most 16 others"),
    ],
)
def test_what_is_no_message_is_refused_and_leaves_no_file(
    bus: MessageBus, folder: Path, kind: str, body: str, parents: list[str], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        bus.post(kind, body, parents=parents)
    assert list(folder.iterdir()) == []


def test_the_largest_body_is_read_as_it_was_posted(bus: MessageBus) -> None:
    for body in ("x" * MAX_BODY_BYTES, "\n".join("x" * (MAX_BODY_BYTES // 2)), "☃" * (MAX_BODY_BYTES // 3)):
        bus.post("INFO", body)
        assert bodies(bus)[-1] == body.rstrip("\n")


def test_control_characters_do_not_reach_the_file(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "\x1b]0;title\x07nul \0 \x1b[2Jclear\udcff")
    raw = place(folder).read_bytes()
    assert all(byte >= 32 or byte == 10 for byte in raw)
    assert bodies(bus) == ["nul ␀ clear\ufffd"]


# What is read


def test_a_body_cannot_pass_for_a_message(bus: MessageBus) -> None:
    forged = format_message(
        replace(draft_message("WAIT", "forged"), id="20261115-210507-048213-k3f9x2ab", run="r", iteration=1)
    )
    for body in (forged, f"\n\n{forged}", f"x\r{forged}", f"x\r\n\r\n{forged}"):
        bus.post("INFO", body, run="r", iteration=1)
    assert [message.kind for message in bus.messages()] == ["INFO"] * 4
    assert find_wait_reason(bus, "r", 1) is None


def test_what_others_wrote_between_messages_is_skipped_and_counted(bus: MessageBus, folder: Path) -> None:
    place(folder).write_text("# The bus of my task\n\n")
    bus.post("INFO", "one")
    with place(folder).open("ab") as file:
        file.write(b"a note\n\xff\xfe\0 not text\n### INFO nonsense\n> half")
    bus.post("INFO", "two")
    assert bodies(bus) == ["one", "two"]
    assert bus.skipped == 5


def test_a_line_without_an_end_is_counted_and_ended_by_the_next_post(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "one")
    with place(folder).open("ab") as file:
        file.write(b"torn")
    assert bodies(bus) == ["one"]
    assert bus.skipped == 1
    bus.post("INFO", "two")
    assert b"\ntorn\n### INFO" in place(folder).read_bytes()
    assert bodies(bus) == ["one", "two"]


def test_a_line_that_is_too_long_is_skipped_and_counted(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "one")
    with place(folder).open("ab") as file:
        file.write(
            b"x" * (message_bus.MAX_LINE_BYTES + 1) + b"\n" + b"### INFO " * (message_bus.MAX_LINE_BYTES // 2) + b"\n"
        )
    bus.post("INFO", "two")
    assert bodies(bus) == ["one", "two"]
    assert bus.skipped == 2


def test_the_end_of_a_line_that_is_too_long_is_no_line(bus: MessageBus, folder: Path) -> None:
    for pieces in (15, 16, 17, 18, 40):
        place(folder).write_bytes(b"x" * (pieces * message_bus.CHUNK_BYTES) + FORGED.encode())
        assert bodies(bus) == []
        assert bus.skipped == 2


def test_a_line_without_end_is_read_in_bounded_memory(bus: MessageBus, folder: Path) -> None:
    with place(folder).open("wb") as file:
        file.truncate(24 << 20)  # sparse
    bus.post("INFO", "one")
    tracemalloc.start()
    try:
        assert bodies(bus) == ["one"]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_messages_after_one_are_read(bus: MessageBus) -> None:
    ids = [bus.post("INFO", str(number)).id for number in range(4)]
    assert [message.body for message in bus.messages(ids[1])] == ["2", "3"]
    assert list(bus.messages(ids[3])) == []
    for known in (bus, open_task_bus("/nowhere/at/all")):
        with pytest.raises(Refused, match=r"no message on .* has the id '20261115-210507-048213-k3f9x2ab'"):
            list(known.messages("20261115-210507-048213-k3f9x2ab"))


def test_the_end_of_a_bus_is_read_from_the_next_whole_message_on(bus: MessageBus, folder: Path) -> None:
    posted = [bus.post("INFO", f"{number}\n{FORGED}end") for number in range(3)]
    size = place(folder).stat().st_size
    for last in range(size + 9):
        found = list(bus.messages(last_bytes=last))
        assert found == posted[3 - len(found) :]
        assert len(found) <= 3 * last // size
    assert list(bus.messages(last_bytes=size)) == posted


# Following


def follower(bus: MessageBus) -> Iterator[Message]:
    end = time.monotonic() + 20
    return bus.follow(lambda: time.monotonic() > end, poll_s=0.001)


def test_following_waits_for_the_file_and_goes_on(folder: Path, bus: MessageBus) -> None:
    folder.rmdir()
    told = follower(bus)
    assert list(bus.follow(lambda: True)) == []
    folder.mkdir()
    for word in ("one", "two", "three"):
        bus.post("INFO", word)
        assert next(told).body == word


def test_following_ends_when_it_should_and_tells_what_is_there_by_then(bus: MessageBus) -> None:
    for word in ("one", "two"):
        bus.post("INFO", word)
    assert [message.body for message in bus.follow(lambda: True)] == ["one", "two"]
    first = next(iter(bus.messages())).id
    assert [message.body for message in bus.follow(lambda: True, first)] == ["two"]


def test_following_tells_a_message_when_all_of_it_is_there(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "one")
    whole = format_message(replace(draft_message("INFO", "two\nlines"), id="20261115-210507-048213-k3f9x2ab")).encode()
    written_bytes = 0

    def stop() -> bool:
        nonlocal written_bytes
        with place(folder).open("ab") as file:
            file.write(whole[written_bytes : written_bytes + 1])
        written_bytes += 1
        return written_bytes > len(whole)

    assert [message.body for message in bus.follow(stop, poll_s=0)] == ["one", "two\nlines"]
    assert bus.skipped == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: path.unlink(), ["three"]),
        (lambda path: path.rename(path.with_suffix(".old")), ["three"]),
        (lambda path: os.truncate(path, 0), ["three"]),
        (lambda path: path.write_bytes(path.read_bytes()), ["three"]),  # an editor that writes in place
        (lambda path: path.write_bytes(path.read_bytes().partition(b"\n\n")[0] + b"\n\n"), ["one", "three"]),
        (lambda path: [path.with_suffix(".new").write_bytes(path.read_bytes()),
                       path.with_suffix(".new").replace(path)], ["three"]),  # one that replaces the file
    ],
    ids=["removed", "moved", "emptied", "rewritten", "shortened", "replaced"],
)  # fmt: skip
def test_following_survives_that_the_file_changes(
    bus: MessageBus, folder: Path, change: Callable[[Path], object], expected: list[str]
) -> None:
    told = follower(bus)
    for word in ("one", "two"):
        bus.post("INFO", word)
        assert next(told).body == word
    change(place(folder))
    bus.post("INFO", "three")
    assert [next(told).body for _ in expected] == expected


def test_what_was_written_to_a_file_just_before_it_was_replaced_is_told(bus: MessageBus, folder: Path) -> None:
    told = follower(bus)
    bus.post("INFO", "one")
    assert next(told).body == "one"
    bus.post("INFO", "two")
    place(folder).rename(folder / "old")
    bus.post("INFO", "three")
    assert [next(told).body, next(told).body] == ["two", "three"]


# What else may stand there


def as_link(path: Path) -> None:
    (path.parent.parent / "precious").write_text("precious\n")
    path.symlink_to(path.parent.parent / "precious")


def as_second_name(path: Path) -> None:
    (path.parent.parent / "precious").write_text("precious\n")
    path.hardlink_to(path.parent.parent / "precious")


def as_dangling(path: Path) -> None:
    path.symlink_to(path.parent.parent / "made")


def as_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "put", [as_link, as_second_name, as_dangling, as_device, os.mkfifo, Path.mkdir], ids=lambda put: put.__name__
)
def test_nothing_is_written_to_what_is_no_file_of_the_bus(
    bus: MessageBus, folder: Path, put: Callable[[Path], object]
) -> None:
    put(place(folder))
    with pytest.raises(Refused, match=r"TASK-MESSAGE-BUS\.md is .*; move it away") as refused:
        bus.post("INFO", "x")
    assert "\n" not in str(refused.value)
    assert not (folder.parent / "made").exists()
    precious = folder.parent / "precious"
    assert not precious.exists() or precious.read_text() == "precious\n"


@pytest.mark.parametrize("put", [as_link, as_dangling, as_device, os.mkfifo, Path.mkdir], ids=lambda put: put.__name__)
def test_nothing_is_read_from_what_is_no_file(bus: MessageBus, folder: Path, put: Callable[[Path], object]) -> None:
    put(place(folder))
    for read in (bus.messages(), bus.follow(lambda: True)):
        with pytest.raises(Refused, match=r"TASK-MESSAGE-BUS\.md is not a file"):
            list(read)
    assert find_wait_reason(bus, "r", 1) is None


@pytest.mark.parametrize("link", [".ralph", ".ralph/bus", ".ralph/runs", ".ralph/runs/r/task", "own"])
def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path, link: str) -> None:
    """An agent could have led it anywhere."""
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "project"
    for name in ("", "bus", "runs/r/task", "r/task"):
        (elsewhere / name).mkdir(parents=True, exist_ok=True)
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(elsewhere)
    bus = open_project_bus(str(root)) if link in (".ralph", ".ralph/bus") else open_task_bus(
        str(root / ("own" if link == "own" else ".ralph/runs/r/task"))
    )  # fmt: skip
    with pytest.raises(Refused, match="is a symbolic link or not a directory"):
        bus.post("INFO", "x")
    with pytest.raises(Refused, match="cannot read"):
        list(bus.messages())
    assert not list(elsewhere.rglob("*.md"))


def test_a_project_behind_a_link_has_a_bus(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    open_project_bus(str(tmp_path / "link")).post("INFO", "x")
    assert bodies(open_project_bus(str(tmp_path / "real"))) == ["x"]


# Locks and crashes


def test_a_lock_that_somebody_holds_is_not_waited_for_for_long(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "one")
    with place(folder).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(Refused, match=r"TASK-MESSAGE-BUS\.md is locked by another process"):
            bus.post("INFO", "two", patience_s=0.1)
        assert 0.1 <= time.monotonic() - began < 2
        assert bodies(bus) == ["one"]
    bus.post("INFO", "two", patience_s=0)
    assert bodies(bus) == ["one", "two"]


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_is_not_written(bus: MessageBus, folder: Path) -> None:
    bus.post("INFO", "one")
    holder = place(folder).open("rb")
    fcntl.flock(holder, fcntl.LOCK_EX)
    poster = python(WRITER, str(folder), "late", "1")
    wanted = f"{place(folder).stat().st_ino}"
    until(lambda: _waits_for(poster, wanted))
    place(folder).rename(folder / "old")
    holder.close()
    assert ended(poster) == 0
    assert b"late" not in (folder / "old").read_bytes()
    assert [message.task for message in bus.messages()] == ["late"]


def _waits_for(process: subprocess.Popen[str], inode: str) -> bool:
    """Whether a process has opened this file."""
    try:
        names = os.listdir(f"/proc/{process.pid}/fd")
        return any(str(os.stat(f"/proc/{process.pid}/fd/{name}").st_ino) == inode for name in names)
    except OSError:
        return False


@pytest.mark.parametrize("after", [0, 1, 20, 60, 70, 85])
def test_a_writer_that_is_killed_in_mid_post_spoils_no_other_message(bus: MessageBus, folder: Path, after: int) -> None:
    bus.post("INFO", "one")
    size = place(folder).stat().st_size
    assert ended(python(DYING, str(folder), str(after))) == -signal.SIGKILL
    assert place(folder).stat().st_size == size + after
    bus.post("INFO", "two", patience_s=0)
    assert bodies(bus) == ["one", "two"]
    assert bus.skipped == (1 if 0 < after <= 67 else 2 if after else 0)


def test_a_writer_that_is_killed_anywhere_leaves_a_bus_that_works(bus: MessageBus, folder: Path) -> None:
    for _ in range(3):
        writer = python(POSTING, str(folder))
        assert said(writer) == "begun"
        before = place(folder).stat().st_size if place(folder).exists() else 0
        until(lambda before=before: place(folder).exists() and place(folder).stat().st_size > before)  # type: ignore[misc]
        writer.kill()
        assert ended(writer) == -signal.SIGKILL
        bus.post("INFO", "after")
        found = bodies(bus)
        assert found[-1] == "after"
        assert set(found) == {"after", "y" * 60000}


def test_a_full_disk_is_said_and_what_was_cut_off_is_no_message(
    bus: MessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.post("INFO", "one")
    whole = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 40:
            return whole(file, bytes(data)[: len(data) - 40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull, match="cannot write"):
        bus.post("INFO", "y" * 80)
    monkeypatch.undo()
    bus.post("INFO", "two")
    assert bodies(bus) == ["one", "two"]


# Many at a time


@pytest.mark.parametrize(("writers", "posts"), [(4, 100), pytest.param(8, 1000, marks=pytest.mark.thorough)])
def test_nothing_that_a_crowd_posts_is_lost_torn_or_out_of_order_while_somebody_follows(
    bus: MessageBus, folder: Path, writers: int, posts: int
) -> None:
    processes = [python(WRITER, str(folder), f"w{number}", str(posts)) for number in range(writers)]
    end = time.monotonic() + 120
    told: list[Message] = []
    for message in bus.follow(lambda: time.monotonic() > end or len(told) == writers * posts, poll_s=0.01):
        told.append(message)  # noqa: PERF402 (the end depends on it)
    assert [ended(process) for process in processes] == [0] * writers
    assert told == list(bus.messages())
    assert bus.skipped == 0
    assert len({message.id for message in told}) == len(told) == writers * posts
    for number in range(writers):
        own = [message for message in told if message.task == f"w{number}"]
        assert [int(message.body.partition("\n")[0]) for message in own] == list(range(posts))
        assert [message.id for message in own] == sorted(message.id for message in own)


# The wish to wait


def test_the_last_wish_to_wait_of_an_iteration_counts(bus: MessageBus) -> None:
    assert find_wait_reason(bus, "r", 1) is None
    bus.post("WAIT", "too early", run="r", iteration=1)
    bus.post("wait_without_restart", "for a key", run="r", iteration=2)
    bus.post("WAIT", "\nfor the \x1b[31mreview\nof ours", run="r", iteration=2)
    bus.post("WAIT", "another run", run="s", iteration=2)
    bus.post("WAIT", "no iteration", run="r")
    bus.post("INFO", "not a wish", run="r", iteration=2)
    assert find_wait_reason(bus, "r", 2) == "for the review"
    assert find_wait_reason(bus, "r", 3) is None
    bus.post("WAIT", "x" * 9999, run="r", iteration=3)
    assert len(find_wait_reason(bus, "r", 3) or "") == 500


def test_a_wish_to_wait_is_found_at_the_end_of_a_flood(bus: MessageBus, folder: Path) -> None:
    with place(folder).open("wb") as file:
        file.truncate(1 << 34)  # sparse: sixteen gigabytes of nothing
    bus.post("WAIT", "for the review", run="r", iteration=1)
    began = time.monotonic()
    assert find_wait_reason(bus, "r", 1) == "for the review"
    assert time.monotonic() - began < 5


def test_errors_are_of_our_own_tree(folder: Path) -> None:
    folder.joinpath("file").touch()
    with pytest.raises(RalphError, match="symbolic link or not a directory"):
        open_task_bus(str(folder / "file")).post("INFO", "x")
