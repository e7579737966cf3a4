"""The spool of a task's folder: each message reaches the project's bus once, whatever an agent left there."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.store import message_bus
from ralphproof.store.message_bus import (
    SPOOL_FILE,
    MessageBus,
    SpoolResult,
    drain_spool,
    open_project_bus,
    post_or_spool,
)
from tests.store.subprocesses import python

# Drains, and dies when it comes to this call of the system.
DYING = """
import os, signal, sys
from ralphproof.store.message_bus import open_project_bus
from ralphproof.store.message_bus import drain_spool
call, after = sys.argv[3], sys.argv[4] == "after"
whole = getattr(os, call)
def dies(*args, **more):
    if after:
        whole(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, call, dies)
drain_spool(sys.argv[1], open_project_bus(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "task"
    made.mkdir()
    return made


@pytest.fixture
def bus(tmp_path: Path) -> MessageBus:
    return open_project_bus(str(tmp_path), lambda text: text.replace("hunter22", "***"))


class Unwritable(MessageBus):
    """A bus of a file system that says no."""

    code = errno.EROFS

    def put(self, *_: object, **__: object) -> list[object]:  # type: ignore[override]
        raise OSError(self.code, os.strerror(self.code))


def spooled(folder: Path, *words: str, run: str = "") -> list[str]:
    """Post these into the spool; their ids."""
    kept = MessageBus(str(folder), SPOOL_FILE)
    return [kept.post("INFO", word, run=run).id for word in words]


def told(bus: MessageBus) -> list[tuple[str, str]]:
    return [(message.id, message.body) for message in bus.messages()]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_what_may_not_be_written_is_kept_in_the_task_folder(folder: Path, code: int) -> None:
    bus = Unwritable(str(folder.parent), "x")
    bus.code = code
    message, path = post_or_spool(bus, bus.draft("QUESTION", "which?", project="calc"), str(folder))
    assert path == str(folder / SPOOL_FILE)
    assert list(MessageBus(str(folder), SPOOL_FILE).messages()) == [message]
    with pytest.raises(Refused, match="cannot write"):
        post_or_spool(bus, bus.draft("INFO", "x"), "")


def test_what_can_be_written_is_posted(folder: Path, bus: MessageBus) -> None:
    message, path = post_or_spool(bus, bus.draft("INFO", "x"), str(folder))
    assert (path, list(bus.messages())) == (bus.path, [message])
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_no_reason_for_a_spool(folder: Path) -> None:
    bus = Unwritable(str(folder.parent), "x")
    bus.code = errno.ENOSPC
    with pytest.raises(Exception, match="No space left"):
        post_or_spool(bus, bus.draft("INFO", "x"), str(folder))
    assert list(folder.iterdir()) == []


def test_a_spool_is_moved_to_the_bus_with_its_ids(folder: Path, bus: MessageBus) -> None:
    assert drain_spool(str(folder), bus) == SpoolResult()
    ids = spooled(folder, "one", "two")
    assert drain_spool(str(folder), bus) == SpoolResult(posted=2)
    assert told(bus) == [(ids[0], "one"), (ids[1], "two")]
    assert list(folder.iterdir()) == []
    assert drain_spool(str(folder), bus) == SpoolResult()
    assert len(told(bus)) == 2


def test_all_that_is_known_of_a_message_goes_with_it(folder: Path, bus: MessageBus) -> None:
    kept = MessageBus(str(folder), SPOOL_FILE)
    first = kept.post("QUESTION", "which?", run="r", iteration=2, project="calc", task="t")
    second = kept.post("ANSWER", "this", parents=[first.id])
    drain_spool(str(folder), bus)
    assert list(bus.messages()) == [first, second]


def test_an_agent_speaks_for_its_own_run_alone_and_tells_no_secret(folder: Path, bus: MessageBus) -> None:
    spooled(folder, "it is hunter22 \x1b[31m", run="another")
    drain_spool(str(folder), bus, run="own")
    assert [(message.run, message.body) for message in bus.messages()] == [("own", "it is *** ")]


def test_what_is_on_the_bus_already_is_not_posted_again(folder: Path, bus: MessageBus) -> None:
    ids = spooled(folder, "one", "two")
    (folder / "copy").write_bytes((folder / SPOOL_FILE).read_bytes())
    drain_spool(str(folder), bus)
    (folder / "copy").rename(folder / SPOOL_FILE)
    ids += spooled(folder, "three")
    assert drain_spool(str(folder), bus) == SpoolResult(posted=1)
    assert told(bus) == [(ids[0], "one"), (ids[1], "two"), (ids[2], "three")]


@pytest.mark.parametrize(("call", "moment"), [
    ("write", "before"), ("write", "after"), ("fsync", "after"),
    ("unlink", "before"), ("unlink", "after"),
])  # fmt: skip
def test_a_crash_anywhere_neither_loses_nor_doubles_a_message(
    folder: Path, bus: MessageBus, call: str, moment: str
) -> None:
    bus.post("INFO", "zero")
    ids = spooled(folder, "one", "two")
    dying = python(DYING, str(folder), str(folder.parent), call, moment)
    dying.communicate(timeout=20)
    assert dying.returncode == -signal.SIGKILL
    ids += spooled(folder, "three")
    drain_spool(str(folder), bus)
    assert told(bus)[1:] == list(zip(ids, ("one", "two", "three"), strict=True))
    assert list(folder.iterdir()) == []


def test_what_is_no_message_is_counted(folder: Path, bus: MessageBus) -> None:
    (folder / SPOOL_FILE).write_bytes(b"# notes\n\0\xff\n")
    spooled(folder, "one")
    with (folder / SPOOL_FILE).open("ab") as file:
        file.write(b"### INFO torn")
    assert drain_spool(str(folder), bus) == SpoolResult(posted=1, skipped=3)
    assert list(folder.iterdir()) == []


def test_a_message_that_cannot_be_posted_as_it_is_is_left_out(folder: Path, bus: MessageBus) -> None:
    head = "### INFO 20261115-210507-048213-k3f9x2a{} <!-- lines=1 bytes={} -->\n> {}\n\n"
    grows, empty, good = ("\0" * 60000, "\x1b[0m", "x")
    (folder / SPOOL_FILE).write_text(
        "".join(head.format(n, len(body), body) for n, body in enumerate((grows, empty, good)))
    )
    assert drain_spool(str(folder), bus) == SpoolResult(posted=1, skipped=2)
    assert [body for _, body in told(bus)] == ["x"]


def test_of_a_spool_without_bound_only_a_part_is_taken(folder: Path, bus: MessageBus) -> None:
    spooled(folder, "one", "two")
    with (folder / SPOOL_FILE).open("ab") as file:
        file.truncate(1 << 34)  # sparse
    drained = drain_spool(str(folder), bus)
    assert drained.posted == 2
    assert drained.problem == f"{folder / SPOOL_FILE} was larger than 8 MiB; the rest of it was left out"
    assert list(folder.iterdir()) == []


def test_a_flood_of_small_messages_is_posted_in_one_piece(folder: Path, bus: MessageBus) -> None:
    head = "### INFO 20261115-210507-048213-{:08d} <!-- lines=1 bytes=1 -->\n> x\n"
    (folder / SPOOL_FILE).write_text("".join(head.format(number) for number in range(20_000)))
    assert drain_spool(str(folder), bus) == SpoolResult(posted=20_000)


def as_link(path: Path) -> None:
    MessageBus(str(path.parent.parent), "precious").post("INFO", "not yours")
    path.symlink_to(path.parent.parent / "precious")


@pytest.mark.parametrize("put", [as_link, os.mkfifo, Path.mkdir], ids=lambda put: put.__name__)
def test_what_is_no_file_is_left_alone_and_told(folder: Path, bus: MessageBus, put: Callable[[Path], object]) -> None:
    put(folder / SPOOL_FILE)
    drained = drain_spool(str(folder), bus)
    assert (drained.posted, drained.skipped) == (0, 0)
    assert f"{SPOOL_FILE} is not a file" in drained.problem
    assert told(bus) == []
    assert (folder / SPOOL_FILE).exists()


@pytest.mark.parametrize("link", [True, False])
def test_without_a_task_folder_there_is_nothing_to_do(tmp_path: Path, bus: MessageBus, link: bool) -> None:
    spooled(tmp_path, "one")
    if link:
        (tmp_path / "task").symlink_to(tmp_path)
    assert drain_spool(str(tmp_path / "task"), bus) == SpoolResult()
    assert told(bus) == []


def test_a_spool_that_somebody_still_holds_is_taken_the_next_time(
    folder: Path, bus: MessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_bus, "SPOOL_LOCK_TIMEOUT_S", 0.05)
    spooled(folder, "one")
    with (folder / SPOOL_FILE).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "is locked by another process" in drain_spool(str(folder), bus).problem
        assert told(bus) == []
    assert drain_spool(str(folder), bus) == SpoolResult(posted=1)


def test_what_the_bus_does_not_take_stays(folder: Path, bus: MessageBus) -> None:
    ids = spooled(folder, "one")
    Path(bus.path).mkdir(parents=True)
    assert "is not a file" in drain_spool(str(folder), bus).problem
    Path(bus.path).rmdir()
    assert drain_spool(str(folder), bus) == SpoolResult(posted=1)
    assert told(bus) == [(ids[0], "one")]
