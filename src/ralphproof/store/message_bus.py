"""The message bus: append-only markdown files that loops, agents and people post to and follow.

Sandboxed agents, which may only write their task folder, post to a spool there that the loop forwards.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time

from ralphproof.base.errors import RalphError, Refused, wrap_os_error
from ralphproof.base.files import explain_os_error, open_subfolder, sync_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.store.run_folder import GITIGNORE_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ralphproof.base.value import Json


# Files are in folders that an agent may write to: no link is followed, nothing blocks, and reads are bounded.


CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
LAST_BYTES = 256  # compared, to detect a truncated file
LONG_LINE = b"\0"  # replaces a line that is too long to keep
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.0005, 0.02  # between two attempts at a lock


def open_bus_folder(path: str, make: bool) -> int:
    """A descriptor of a folder. Neither the folder itself nor, below `.ralph`, any folder may be a symbolic link."""
    before, mark, inner = (path + os.sep).rpartition("/.ralph/")
    names = [".ralph", *filter(None, inner.split(os.sep))] if mark else [os.path.basename(path)]
    above = before if mark else os.path.dirname(path)
    opened = [os.open(above or os.sep, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for name in names:
            inside, made = open_subfolder(opened[-1], name) if make else (_open_subfolder(opened[-1], name), False)
            opened.append(inside)
            if made and name == ".ralph":
                write_atomically(inside, ".gitignore", GITIGNORE_TEXT.encode())
        return opened.pop()
    finally:
        for folder in opened:
            os.close(folder)


def _open_subfolder(folder: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def open_bus_file(folder: int, name: str, path: str, write: bool) -> int:
    """A descriptor of a regular file; anything else is refused. A writer creates a missing one."""
    try:
        _require_regular_file(os.stat(name, dir_fd=folder, follow_symlinks=False), path, write)
    except FileNotFoundError:
        if not write:
            raise
    mode = os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    file = os.open(name, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _require_regular_file(os.fstat(file), path, write)
    except Refused:
        os.close(file)
        raise
    return file


def _require_regular_file(found: os.stat_result, path: str, write: bool) -> None:
    """A file to write may have no second hard link either: an agent could have made it from any file."""
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path} is not a file; move it away")
    if write and found.st_nlink > 1:
        raise Refused(f"{path} is a file that has another name as well; move it away")


def lock_bus_file(file: int, path: str, until: float) -> None:
    """Keep other writers out until the file is closed; refused if another process holds it until then (monotonic)."""
    import fcntl

    wait_s = _MIN_PAUSE_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None  # such a file system still appends a single write in one piece
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= until:
                raise Refused(f"{path} is locked by another process; try again") from None
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _MAX_PAUSE_S)


def is_still_named(file: int, folder: int, name: str) -> bool:
    """Whether an open file still has this name."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def append_lines(file: int, data: bytes) -> None:
    """Append whole lines; a line that was cut off is ended first."""
    size = os.fstat(file).st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    left = memoryview(b"\n" + data if torn else data)
    while left:  # more than once only if the disk is full
        left = left[os.write(file, left) :]


class LineReader:
    """The lines of an open file from an offset on, in bounded memory. `place` is the offset after the last one read.

    `inside`: the offset may be in the middle of a line, which is skipped then.
    """

    def __init__(self, file: int, place: int = 0, inside: bool = False) -> None:
        self.file, self.place = file, place
        self._read = place
        self._partial = b""  # the beginning of a line whose end is not written yet
        self._too_long = inside
        self._last_read = b""

    @property
    def torn(self) -> bool:
        """Whether the last line has no end."""
        return bool(self._partial) or self._too_long

    @property
    def lost(self) -> bool:
        """Whether the file no longer has what was read of it last: it was truncated, and may have grown again."""
        return os.pread(self.file, len(self._last_read), self._read - len(self._last_read)) != self._last_read

    def lines(self, end: int | None = None) -> Iterator[bytes]:
        """The lines that are there now, without their breaks; nothing after `end`."""
        last = os.fstat(self.file).st_size if end is None else end
        while self._read < last and (piece := os.pread(self.file, min(CHUNK_BYTES, last - self._read), self._read)):
            self._read += len(piece)
            self._last_read = (self._last_read + piece)[-LAST_BYTES:]
            *whole, rest = piece.split(b"\n")
            for line in whole:
                full, long = self._partial + line, self._too_long
                self.place += len(full) + 1
                self._partial, self._too_long = b"", False
                yield LONG_LINE if long or len(full) > MAX_LINE_BYTES else full
            self._partial += rest
            if len(self._partial) > MAX_LINE_BYTES:
                self.place += len(self._partial)
                self._partial, self._too_long = b"", True


# The form of a message, in a file that people read as markdown:
#
#     ### QUESTION 20261115-210507-048213-k3f9x2ab <!-- lines=2 bytes=36 run=20261115-210455-9xq2 iteration=3 -->
#     > Which parser?
#     > The old one is faster.
#
# Every line of a body is quoted, so none can pass for the beginning of another message. `lines` and `bytes` tell a
# whole message from one that was cut off.


INFO, FACT, PROGRESS, DECISION, QUESTION = "INFO", "FACT", "PROGRESS", "DECISION", "QUESTION"
ANSWER, WARNING, ERROR, WAIT = "ANSWER", "WARNING", "ERROR", "WAIT"
TYPES = (INFO, FACT, PROGRESS, DECISION, QUESTION, ANSWER, WARNING, ERROR, WAIT)
_TYPE_ALIASES = {"WAIT_WITHOUT_RESTART": WAIT}

MAX_BODY_BYTES = 64 * 1024
MAX_HEAD_BYTES = 16 * 1024
MAX_TAG_CHARS = 200  # of the names of a run, a project, a task
MAX_PARENTS = 16

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = r"\d{8}-\d{6}-\d{6}-[0-9a-z]{8}"
_HEAD = rf"### (\w+) ({_ID}) <!-- ((?:[a-z]+=\S* )+)-->"
_PLAIN = "-_.,:/@+"  # not escaped, beside letters and digits; other characters are percent-encoded

# Terminal escape sequences of more than one character.
_SEQUENCES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}


@value
class Message:
    """A message on a bus. `parents` are the messages that it answers; "" and None mean unknown.

    The id starts with the time, so that ids sort by time.
    """

    id: str
    kind: str
    body: str
    run: str = ""
    iteration: int | None = None
    project: str = ""
    task: str = ""
    parents: tuple[str, ...] = ()

    @property
    def at(self) -> str:
        """When it was posted, in UTC."""
        day, clock, part = self.id[:8], self.id[9:15], self.id[16:22]
        return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}.{part}Z"

    def published(self) -> dict[str, Json]:
        """The message as JSON for programs."""
        return {
            "id": self.id, "kind": self.kind, "at": self.at, "run": self.run or None, "iteration": self.iteration,
            "project": self.project or None, "task": self.task or None, "parents": [*self.parents], "body": self.body,
        }  # fmt: skip


def new_message_id(second: str, microsecond: int, random: bytes) -> str:
    """A message id, e.g. `20261115-210507-048213-k3f9x2ab`, of a second in UTC and five random bytes."""
    number = int.from_bytes(random[:5], "big")
    letters = "".join(_LETTERS[number >> shift & 31] for shift in range(35, -1, -5))
    return f"{second}-{microsecond:06d}-{letters}"


def is_message_id(text: str) -> bool:
    """Whether a text has the form of a message id."""
    return re.fullmatch(_ID, text, re.ASCII) is not None


def parse_message_type(word: str) -> str | None:
    """The type that a word means, in any case; None if it means none."""
    upper = word.upper()
    return upper if upper in TYPES else _TYPE_ALIASES.get(upper)


def unknown_type_message(word: str) -> str:
    """The refusal of a word that is no type."""
    return f"{word!r} is no type of message; there are: {', '.join(TYPES)}"


def draft_message(kind: str, body: str, mask: Callable[[str], str] = str) -> Message:
    """A message without id and tags, clean and masked; raises Refused for an invalid one."""
    known = parse_message_type(kind)
    if known is None:
        raise Refused(unknown_type_message(kind))
    text = mask(make_legible(body)).strip("\n")  # in this order: a removed sequence may be in the middle of a secret
    if not text.strip():
        raise Refused("a message needs a text")
    if (size := len(text.encode())) > MAX_BODY_BYTES:
        raise Refused(
            f"a message holds at most {MAX_BODY_BYTES} bytes, and this has {size}; post where a file of it lies"
        )
    return Message("", known, text)


def make_legible(text: str) -> str:
    """Text that is harmless in a terminal: no escape sequences, symbols for other control characters."""
    clean = re.sub(_SEQUENCES, "", text).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\x80-\x9f\ud800-\udfff]", "\ufffd", clean.translate(_CONTROL_PICTURES))


def sanitize_tag(text: str) -> str:
    """The name of a run, project or task as a message has it."""
    return " ".join(make_legible(text).split())[:MAX_TAG_CHARS]


def format_message(message: Message) -> str:
    """The message as it is written to the file, with the empty line after it."""
    lines = message.body.split("\n")
    fields = {
        "lines": str(len(lines)), "bytes": str(len(message.body.encode())), "run": message.run,
        "iteration": "" if message.iteration is None else str(message.iteration), "project": message.project,
        "task": message.task, "parents": ",".join(message.parents),
    }  # fmt: skip
    meta = "".join(f"{name}={_escaped(text)} " for name, text in fields.items() if text)
    quoted = (f"> {line}" if line else ">" for line in lines)
    return "\n".join([f"### {message.kind} {message.id} <!-- {meta}-->", *quoted, "", ""])


def _escaped(text: str) -> str:
    from urllib.parse import quote

    return "".join(char if char.isalnum() else quote(char, safe=_PLAIN) for char in text)


def _unescaped(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text)


class MessageParser:
    """Parses messages from the lines of a file. `skipped` counts lines that belong to none."""

    def __init__(self) -> None:
        self.skipped = 0
        self._head: tuple[Message, int, int] | None = None  # without its body; its lines and bytes
        self._body: list[bytes] = []
        self._size = -1  # the last line's break is not part of the body

    def feed(self, line: bytes) -> Message | None:
        """Take the next line without its break; returns the message that it completes."""
        if self._head is not None and (line == b">" or line.startswith(b"> ")):
            return self._add_body_line(line[2:], *self._head)
        self.end()
        if line.startswith(b"### ") and len(line) <= MAX_HEAD_BYTES:
            self._head = _parse_head(line.decode("utf-8", "replace"))
        if self._head is None and line.strip():
            self.skipped += 1
        return None

    def end(self) -> None:
        """Drop an incomplete message."""
        if self._head is not None:
            self.skipped += 1 + len(self._body)
        self._head, self._body, self._size = None, [], -1

    def _add_body_line(self, line: bytes, head: Message, lines: int, size: int) -> Message | None:
        self._body.append(line)
        self._size += len(line) + 1
        if self._size > size or (len(self._body) == lines and self._size != size):
            self.end()
            return None
        if len(self._body) < lines:
            return None
        body = b"\n".join(self._body).decode("utf-8", "replace")
        self._head, self._body, self._size = None, [], -1
        return replace(head, body=body)


def _parse_head(line: str) -> tuple[Message, int, int] | None:
    found = re.fullmatch(_HEAD, line, re.ASCII)
    kind = parse_message_type(found[1]) if found else None
    if found is None or kind is None:
        return None
    fields = dict.fromkeys(("lines", "bytes", "run", "iteration", "project", "task", "parents"), "")
    for word in found[3].split(" "):
        name, _, text = word.partition("=")
        fields[name] = _unescaped(text)
    parents = tuple(fields["parents"].split(",")) if fields["parents"] else ()
    lines, size, iteration = (
        _parse_number(fields["lines"]),
        _parse_number(fields["bytes"]),
        _parse_number(fields["iteration"]),
    )
    if not lines or not size or size > MAX_BODY_BYTES or lines > size + 1 or not all(map(is_message_id, parents)):
        return None
    run, project, task = (sanitize_tag(fields[name]) for name in ("run", "project", "task"))
    return Message(found[2], kind, "", run, iteration, project, task, parents[:MAX_PARENTS]), lines, size


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


PROJECT_BUS_FILE = "PROJECT-MESSAGE-BUS.md"
TASK_BUS_FILE = "TASK-MESSAGE-BUS.md"
BUS_LOCK_TIMEOUT_S = 5.0
POLL_S = 0.2
BUS_REMEDY = "make it a directory that you may write to"
WAIT_SCAN_BYTES = 8 << 20  # the end of a bus that is searched for WAIT messages
MAX_REASON_CHARS = 500


def open_project_bus(root: str, mask: Callable[[str], str] = str) -> MessageBus:
    """The bus of all runs of a project; its folder is created at the first post."""
    return MessageBus(os.path.join(root, ".ralph", "bus"), PROJECT_BUS_FILE, mask, make=True)


def open_task_bus(task_folder: str, mask: Callable[[str], str] = str) -> MessageBus:
    """The bus of one task, in the task's folder, which must exist."""
    return MessageBus(task_folder, TASK_BUS_FILE, mask)


class MessageBus:
    """One file of messages. Any number of processes may post and read at a time.

    `skipped` counts the lines that the last reading found to belong to no whole message.
    """

    def __init__(self, folder: str, name: str, mask: Callable[[str], str] = str, make: bool = False) -> None:
        self._folder, self._name, self._mask, self._make = os.path.abspath(folder), name, mask, make
        self.path = os.path.join(self._folder, name)
        self._parser = MessageParser()
        self._last_us = 0

    @property
    def skipped(self) -> int:
        return self._parser.skipped

    def post(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        parents: Iterable[str] = (), durable: bool = False, patience_s: float = BUS_LOCK_TIMEOUT_S,
    ) -> Message:  # fmt: skip
        """Post a message; returns it as it is on the bus. `durable` survives a loss of power."""
        draft = self.draft(kind, body, run=run, iteration=iteration, project=project, task=task, parents=parents)
        try:
            return self.put([draft], durable, patience_s)[0]
        except OSError as error:
            raise self.explained(error) from error

    def draft(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        parents: Iterable[str] = (),
    ) -> Message:  # fmt: skip
        """A clean, masked message, to which `put` gives an id."""
        answered = tuple(parents)
        if wrong := next((parent for parent in answered if not is_message_id(parent)), None):
            raise Refused(f"{wrong!r} is no message's id; ralph bus read shows them")
        if len(answered) > MAX_PARENTS:
            raise Refused(f"a message answers at most {MAX_PARENTS} others")
        named = {
            name: self._mask(sanitize_tag(text)) for name, text in (("run", run), ("project", project), ("task", task))
        }
        return replace(draft_message(kind, body, self._mask), iteration=iteration, parents=answered, **named)

    def put(
        self, drafts: Iterable[Message], durable: bool = False, patience_s: float = BUS_LOCK_TIMEOUT_S
    ) -> list[Message]:
        """Append messages in one write; one that has an id keeps it. Raises OSError as it is."""
        until = time.monotonic() + patience_s
        folder = open_bus_folder(self._folder, self._make)
        try:
            while True:
                file = open_bus_file(folder, self._name, self.path, write=True)
                try:
                    lock_bus_file(file, self.path, until)
                    if is_still_named(file, folder, self._name):
                        return self._append(file, folder, drafts, durable)
                finally:
                    os.close(file)
                if time.monotonic() >= until:
                    raise Refused(f"{self.path} is replaced again and again; try again")
        finally:
            os.close(folder)

    def _append(self, file: int, folder: int, drafts: Iterable[Message], durable: bool) -> list[Message]:
        messages = [draft if draft.id else replace(draft, id=self._new_id()) for draft in drafts]
        new = os.fstat(file).st_size == 0
        append_lines(file, "".join(format_message(message) for message in messages).encode())
        if durable:
            sync_file(file)
            if new:
                sync_file(folder)
        return messages

    def _new_id(self) -> str:
        """Called with the lock held: ids in the file are sorted, a writer's own even if the clock is set back."""
        self._last_us = max(time.time_ns() // 1000, self._last_us + 1)
        second, part = divmod(self._last_us, 1_000_000)
        return new_message_id(time.strftime("%Y%m%d-%H%M%S", time.gmtime(second)), part, os.urandom(5))

    def explained(self, error: OSError) -> RalphError:
        """The error for an OSError, in one line."""
        if isinstance(error, FileNotFoundError):
            return Refused(f"{self._folder} is not there")
        return explain_os_error(error, self._folder, BUS_REMEDY)

    def messages(self, since_id: str = "", last_bytes: int | None = None) -> Iterator[Message]:
        """The messages on the bus now, in order: all, or those after a message.

        `last_bytes` reads only the end of the file.
        """
        self._parser = MessageParser()
        file = self._open()
        if file < 0:
            if since_id:
                raise self._unknown(since_id)
            return
        try:
            start = _offset_after(file, since_id) if since_id else 0
            if start is None:
                raise self._unknown(since_id)
            late = 0 if last_bytes is None else os.fstat(file).st_size - last_bytes
            tail = LineReader(file, max(start, late), inside=late > start)
            yield from self._read(tail)
            self._parser.end()
            self._parser.skipped += tail.torn
        finally:
            os.close(file)

    def follow(self, stop: Callable[[], bool], since_id: str = "", poll_s: float = POLL_S) -> Iterator[Message]:
        """The same, and new ones until `stop` returns True; what is there by then comes first.

        A missing file is waited for. One that was replaced or truncated is read on after the last message that was
        returned; from its beginning if it does not have that one.
        """
        self._parser, file, last = MessageParser(), -1, since_id
        tail = LineReader(file)
        try:
            while True:
                stopped = stop()
                if file < 0 and (file := self._open()) >= 0:
                    tail = LineReader(file, _offset_after(file, last) or 0)
                if file >= 0:
                    replaced = not self._is_there(file)  # checked first: what was written to it until then is read now
                    for message in () if tail.lost else self._read(tail):
                        last = message.id
                        yield message
                    if replaced or tail.lost:
                        self._parser.end()
                        os.close(file)
                        file = -1
                if stopped:
                    return
                time.sleep(poll_s)
        finally:
            if file >= 0:
                os.close(file)

    def _read(self, tail: LineReader) -> Iterator[Message]:
        for line in tail.lines():
            if message := self._parser.feed(line):
                yield message

    def _open(self) -> int:
        """A descriptor for reading; -1 if there is no bus yet."""
        try:
            folder = open_bus_folder(self._folder, make=False)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise Refused(f"cannot read {self.path}: {os.strerror(error.errno or 0)}") from error
        try:
            return open_bus_file(folder, self._name, self.path, write=False)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise Refused(f"cannot read {self.path}: {os.strerror(error.errno or 0)}") from error
        finally:
            os.close(folder)

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(file))
        except OSError:
            return False

    def _unknown(self, id: str) -> Refused:
        return Refused(f"no message on {self.path} has the id {id!r}")


def _offset_after(file: int, id: str) -> int | None:
    """The offset after a message in a file; None if it is not there."""
    tail, parser = LineReader(file), MessageParser()
    for line in tail.lines() if id else ():
        message = parser.feed(line)
        if message is not None and message.id == id:
            return tail.place
    return None


def find_wait_reason(bus: MessageBus, run: str, iteration: int) -> str | None:
    """Why the agent of an iteration wants to wait, by its last WAIT message; None if there is none.

    Whatever an agent put in the place of the bus is ignored.
    """
    why = None
    try:
        for message in bus.messages(last_bytes=WAIT_SCAN_BYTES):
            if (message.kind, message.run, message.iteration) == (WAIT, run, iteration):
                why = make_legible(message.body).strip().partition("\n")[0][:MAX_REASON_CHARS]
    except (Refused, OSError):
        return why
    return why


SPOOL_FILE = "PROJECT-MESSAGE-BUS.spool.md"
MAX_SPOOL_BYTES = 8 << 20  # forwarded at a time
SPOOL_LOCK_TIMEOUT_S = 1.0
_NO_PERMISSION = (errno.EACCES, errno.EROFS, errno.EPERM)


@value
class SpoolResult:
    """How many messages were forwarded, how many lines and messages were skipped, and what went wrong."""

    posted: int = 0
    skipped: int = 0
    problem: str = ""


def post_or_spool(bus: MessageBus, draft: Message, task_folder: str) -> tuple[Message, str]:
    """Post durably; to the task's spool if the bus may not be written. Returns the message, and the file it is in."""
    try:
        return bus.put([draft], durable=True)[0], bus.path
    except OSError as error:
        if error.errno not in _NO_PERMISSION or not task_folder:
            raise bus.explained(error) from error
    spool = MessageBus(task_folder, SPOOL_FILE)
    try:
        return spool.put([draft], durable=True)[0], spool.path
    except OSError as error:
        raise spool.explained(error) from error


def drain_spool(task_folder: str, bus: MessageBus, run: str = "") -> SpoolResult:
    """Move the messages of a task's spool to the project's bus, each once; never raises what an agent could cause.

    The spool is deleted, under its lock, when all of it is on the bus. After a crash in between, what is on the bus is
    not posted again. `run` is set as the sender of all of it.
    """
    path = os.path.join(task_folder, SPOOL_FILE)
    try:
        folder = open_bus_folder(os.path.abspath(task_folder), make=False)
    except OSError:
        return SpoolResult()
    try:
        file = open_bus_file(folder, SPOOL_FILE, path, write=False)
        try:
            return _forward_messages(file, folder, path, bus, run)
        finally:
            os.close(file)
    except FileNotFoundError:
        return SpoolResult()
    except OSError as error:
        return SpoolResult(problem=f"{path}: {wrap_os_error(error)}")
    except RalphError as error:
        return SpoolResult(problem=str(error))
    finally:
        os.close(folder)


def _forward_messages(file: int, folder: int, path: str, bus: MessageBus, run: str) -> SpoolResult:
    lock_bus_file(file, path, time.monotonic() + SPOOL_LOCK_TIMEOUT_S)
    found, skipped = _read_messages(file)
    postable, refused = _select_postable(found, bus, run)
    posted = {message.id for message in bus.messages() if message.id in postable} if postable else set()
    new = [message for id, message in postable.items() if id not in posted]
    if new:
        bus.put(new, durable=True)
    if is_still_named(file, folder, SPOOL_FILE):  # writers look, too, with the lock: none writes to what is deleted
        os.unlink(SPOOL_FILE, dir_fd=folder)
    large = os.fstat(file).st_size > MAX_SPOOL_BYTES
    left_out = f"{path} was larger than {MAX_SPOOL_BYTES >> 20} MiB; the rest of it was left out" if large else ""
    return SpoolResult(len(new), skipped + refused, left_out)


def _read_messages(file: int) -> tuple[list[Message], int]:
    """The whole messages of a file, and how many lines belong to none."""
    tail, parser = LineReader(file), MessageParser()
    end = min(MAX_SPOOL_BYTES, os.fstat(file).st_size)
    found = [message for line in tail.lines(end) if (message := parser.feed(line))]
    parser.end()
    return found, parser.skipped + tail.torn


def _select_postable(found: list[Message], bus: MessageBus, run: str) -> tuple[dict[str, Message], int]:
    """What can be posted, by id, cleaned and masked; and how many cannot."""
    postable: dict[str, Message] = {}
    for message in found:
        try:
            draft = bus.draft(
                message.kind, message.body, run=run or message.run, iteration=message.iteration,
                project=message.project, task=message.task, parents=message.parents,
            )  # fmt: skip
            postable.setdefault(message.id, replace(draft, id=message.id))
        except Refused:
            continue
    return postable, len(found) - len(postable)
