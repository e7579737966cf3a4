"""A program's output: draining stdout and stderr through the secret masker into bounded logs, and reading these logs.

A log is bounded: its head, its last segments, and a notice of how much was dropped between. Past the head the stream
goes to numbered segment files of which only the last few are kept; at the end they are appended to the head. A reader
that follows the log has time to read a segment before it is deleted.
"""

from __future__ import annotations

import os
import select
import stat

from ralphproof.base.redaction import StreamMasker
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.process.protocol import HarnessLink, StartMessage


_NOTICE_START, _NOTICE_END = b"\n... [truncated] ", b" bytes dropped\n"


def truncation_notice(dropped: int) -> bytes:
    """What stands in a log, and in what a reader gets, where bytes were dropped."""
    return b"%s%d%s" % (_NOTICE_START, dropped, _NOTICE_END)


def segment_path(path: str, number: int) -> str:
    """The file of a segment; the first is number 1."""
    return f"{path}.{number}"


def list_segments(path: str) -> list[int]:
    """The numbers of segments that are on disk, in order."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    numbers = (other[len(name) + 1 :] for other in names if other.startswith(name + "."))
    return sorted(int(number) for number in numbers if number.isdigit())


def append_segments(head_fd: int, segments: list[str], evicted: int) -> None:
    """Move the segments to the end of the head, one after the other. If the disk refuses one, it and the rest stay."""
    if evicted:
        _append_all(head_fd, [truncation_notice(evicted)])
    for path in segments:
        _append_all(head_fd, _read_chunks(path))
        os.unlink(path)


def _append_all(to: int, pieces: Iterable[bytes]) -> None:
    """All of it or nothing."""
    size = os.fstat(to).st_size
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(to, view) :]
    except OSError:
        os.ftruncate(to, size)
        raise


def _read_chunks(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while data := os.read(fd, 1 << 20):
            yield data
    finally:
        os.close(fd)


def assemble_abandoned_log(path: str, sizes: tuple[int, int, int]) -> tuple[int, int]:
    """Assemble a dead keeper's log: how many bytes it had stored, and how many were evicted.

    The keeper may have died while it did this itself, and so may another process that did it afterwards.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return 0, 0
        numbers, (head, each, _) = list_segments(path), sizes
        evicted, noted = _repair_head(fd, head, each, numbers)
        if numbers:
            append_segments(fd, [segment_path(path, number) for number in numbers], 0 if noted else evicted)
        size = os.fstat(fd).st_size
        return (size if size <= head else size + evicted - len(truncation_notice(evicted)) * bool(evicted)), evicted
    finally:
        os.close(fd)


def _repair_head(fd: int, head: int, each: int, numbers: list[int]) -> tuple[int, bool]:
    """How many bytes were evicted, and whether the log has the notice already. A partly appended segment is cut off."""
    missing = (numbers[0] - 1) * each if numbers else 0
    if (size := os.fstat(fd).st_size) <= head:
        return missing, False
    evicted = parse_truncation_notice(os.pread(fd, 64, head))
    moved = head + len(truncation_notice(evicted)) * bool(evicted) + missing - evicted
    if not numbers:
        return evicted, True
    if head <= moved <= size <= moved + each:
        os.ftruncate(fd, moved)
        return evicted, moved > head
    os.ftruncate(fd, head)  # no keeper leaves it so: what is not in a segment is lost
    return missing, False


def parse_truncation_notice(text: bytes) -> int:
    """How many bytes were dropped by the notice at the start of this text; 0 if it is none."""
    number, _, _ = text.removeprefix(_NOTICE_START).partition(_NOTICE_END)
    return int(number) if number.isdigit() and text.startswith(truncation_notice(int(number))) else 0


# Bytes of the head, bytes of a segment, how many full segments stay.
LOG_SIZES = (32 << 20, 8 << 20, 4)


def open_log(path: str) -> int:
    """A descriptor for reading a log; -1 if it is missing, or no regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


class BoundedLog:
    """Accepts every byte and never fails: what the disk refuses is counted in `lost`, and `error` says why."""

    def __init__(self, path: str, sizes: tuple[int, int, int]) -> None:
        self.path = path
        self.stored = 0  # bytes that went to disk, whether or not they are still there
        self.lost = 0
        self.evicted = 0
        self.error = ""
        self._head, self._segment, self._keep = sizes
        self._made = 0
        self._live: list[str] = []
        self._room = self._head
        self._fd = self._head_fd = -1
        try:
            self._fd = self._head_fd = _create_file(path)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    @property
    def dropped(self) -> int:
        """Bytes of the stream that are not in the log."""
        return self.lost + self.evicted

    def write(self, data: bytes) -> None:
        """Append; a disk that is full now may accept the next bytes."""
        view = memoryview(data)
        while view:
            try:
                if self._room == 0:
                    self._next()
                wrote = os.write(self._fd, view[: self._room])
            except OSError as error:
                self.error = self.error or f"{self.path}: {error.strerror}"
                self.lost += len(view)
                return
            self._room -= wrote
            self.stored += wrote
            view = view[wrote:]

    def _next(self) -> None:
        path = segment_path(self.path, self._made + 1)
        fd = _create_file(path)
        if self._fd != self._head_fd:
            os.close(self._fd)
        self._fd, self._room = fd, self._segment
        self._made += 1
        self._live.append(path)
        if len(self._live) > self._keep + 1:
            os.unlink(self._live.pop(0))
            self.evicted += self._segment

    def close(self) -> None:
        """Assemble the log; nothing is written after this."""
        if self._fd != self._head_fd:
            os.close(self._fd)
        if self._live:
            try:
                append_segments(self._head_fd, self._live, self.evicted)
            except OSError as error:
                self.error = self.error or f"{self.path}: {error.strerror}"
                self.evicted = self.stored - self._head
                os.ftruncate(self._head_fd, self._head)
        if self._head_fd >= 0:
            os.close(self._head_fd)


def _create_file(path: str) -> int:
    """A new file in place of whatever was there: a planted link must not redirect our writes."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)


_CHUNK_BYTES = 1 << 18


class LogReader:
    """Reads a log while it grows, each byte once and in order. `offset` is the position in the stream."""

    def __init__(self, path: str, sizes: tuple[int, int, int]) -> None:
        self.path = path
        self.offset = 0
        self._head, self._segment, _ = sizes
        self._number = 0  # of the file that is open: 0 is the head
        self._end = self._head  # where in the stream that file ends
        self._fd = -1

    def read_new(self) -> Iterator[bytes]:
        """What was written since, while the keeper writes."""
        # The head is never read past its own size: segments may be appended to it at any time.
        while True:
            if self.offset == self._end:
                self._turn_to(self._number + 1)
            if self._fd < 0 and not self._open():
                skipped = self._skip()
                if not skipped:
                    return
                yield skipped
                continue
            data = self._read()
            if not data:
                return
            self.offset += len(data)
            yield data

    def read_rest(self, stored: int, evicted: int) -> Iterator[bytes]:
        """What is left, once the log is closed and assembled."""
        self.close()
        self._fd = open_log(self.path)
        if self._fd < 0:
            return
        yield from self._until(min(stored, self._head), self.offset)
        if self._head <= self.offset < self._head + evicted:
            yield truncation_notice(self._head + evicted - self.offset)
            self.offset = self._head + evicted
        if self.offset < stored:
            yield from self._until(stored, os.fstat(self._fd).st_size - (stored - self.offset))
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _until(self, end: int, position: int) -> Iterator[bytes]:
        while self.offset < end and (data := os.pread(self._fd, min(_CHUNK_BYTES, end - self.offset), position)):
            self.offset += len(data)
            position += len(data)
            yield data

    def _open(self) -> bool:
        self._fd = open_log(segment_path(self.path, self._number) if self._number else self.path)
        return self._fd >= 0

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, min(_CHUNK_BYTES, self._end - self.offset))
        except OSError:  # of a disk that fails; `rest` tries again
            return b""

    def _turn_to(self, number: int) -> None:
        self.close()
        self._number = number
        self._end = self._head + number * self._segment

    def _skip(self) -> bytes:
        """Go on at the next segment that still exists, if ours was deleted before we read it."""
        if self._closing():
            return b""  # ours is on its way to the head, where `rest` will find it
        later = [number for number in list_segments(self.path) if number >= self._number] if self._number else []
        if not later or later[0] == self._number:  # it came while we looked
            return b""
        before = self.offset
        self._turn_to(later[0])
        self.offset = self._end - self._segment
        return truncation_notice(self.offset - before)

    def _closing(self) -> bool:
        """Whether the keeper is assembling the log: the head grows past its size before a segment is deleted."""
        try:
            return os.stat(self.path, follow_symlinks=False).st_size > self._head
        except OSError:
            return False


_READ_BYTES = 1 << 18


class OutputStream:
    """One output of a program, from its pipe through the masker to its log. Reads without blocking.

    At most a segment at a time, so that a reader is never overrun.
    """

    def __init__(self, fd: int, log: BoundedLog, secrets: tuple[bytes, ...], segment: int) -> None:
        os.set_blocking(fd, False)
        self.log = log
        self._fd = fd
        self._most = min(_READ_BYTES, segment)
        self._masker = StreamMasker(secrets)

    def pump(self) -> bytes | None:
        """Move what is there to the log and return it unmasked: empty at the end, None if there is nothing now."""
        try:
            data = os.read(self._fd, self._most)
        except BlockingIOError:
            return None
        if data:
            self.log.write(self._masker.feed(data))
        return data

    def close(self) -> None:
        """Log what the masker held back."""
        self.log.write(self._masker.flush())


UNREAD_TIMEOUT_S = 30.0  # how long a reader that falls behind may hold the program up


class OutputDrain:
    """Both outputs of a program. Only its living harness can slow it down, by falling behind with reading."""

    def __init__(self, start: StartMessage, link: HarnessLink, poll: select.poll) -> None:
        self.out = BoundedLog(os.fsdecode(start.out), start.sizes)
        self.err = BoundedLog(os.fsdecode(start.err), start.sizes) if start.err else None
        self.held_since = 0.0  # when stdout was held up for a reader that is behind
        self._start, self._link, self._poll = start, link, poll
        self._streams: dict[int, OutputStream] = {}
        self._patient = True

    def pipes(self) -> list[int]:
        """The ends that the program writes to, stdout first, stderr last; the caller closes them."""
        writers: list[int] = []
        try:
            for log in filter(None, (self.out, self.err)):
                writers.append(self._pipe(log))  # noqa: PERF401 (those made before one fails must be closed)
        except OSError:
            for writer in writers:
                os.close(writer)
            raise
        return writers

    def _pipe(self, log: BoundedLog) -> int:
        reader, writer = os.pipe()
        self._streams[reader] = OutputStream(reader, log, self._start.secrets, self._start.sizes[1])
        self._poll.register(reader, select.POLLIN)
        return writer

    def __contains__(self, fd: int) -> bool:
        """Whether this is one of the program's outputs."""
        return fd in self._streams

    def pump(self, fd: int, now: float) -> bool:
        """Take what is there; whether the program printed something."""
        stream = self._streams[fd]
        data = stream.pump()
        if data == b"":
            self._poll.unregister(fd)
            self._streams.pop(fd).close()
            os.close(fd)
        elif data and stream.log is self.out:
            self._link.notify_output()
            if self._unread() > self._start.sizes[1] * (self._start.sizes[2] - 1) and self._patient:
                self._poll.unregister(fd)
                self.held_since = now
        return bool(data)

    def release(self, now: float) -> None:
        """Let stdout flow again when its reader has caught up, is gone, or takes too long."""
        self._patient = now - self.held_since < UNREAD_TIMEOUT_S
        if not self._patient or self._unread() <= self._start.sizes[1]:
            self.held_since = 0.0
            reader = next(fd for fd, stream in self._streams.items() if stream.log is self.out)
            self._poll.register(reader, select.POLLIN)

    def _unread(self) -> int:
        """Bytes past the head that a living reader has yet to read: what may be dropped before it comes."""
        if self.out.stored <= self._start.sizes[0] or not self._link.alive:
            return 0
        return self.out.stored - self._link.acked

    def finish(self) -> None:
        """Drain the pipes to their end, and assemble the logs."""
        for fd, stream in self._streams.items():
            while stream.pump():
                pass
            stream.close()
            os.close(fd)
        self._streams.clear()
        for log in filter(None, (self.out, self.err)):
            log.close()
