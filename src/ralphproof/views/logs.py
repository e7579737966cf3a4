"""Logs of a run's commands, finished or growing, read in chunks and masked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator

from ralphproof.base.errors import NotThere, Refused
from ralphproof.base.redaction import MASK, find_secret_spans
from ralphproof.base.value import Json, unpack, value
from ralphproof.display.phrases import describe_iteration
from ralphproof.engine.agent import Ended, Event, Said, ToolStarted
from ralphproof.engine.outcome import published
from ralphproof.process import turn_journal
from ralphproof.process.output import (
    LOG_SIZES,
    LogReader,
    list_segments,
    open_log,
    parse_truncation_notice,
    segment_path,
    truncation_notice,
)
from ralphproof.process.turn_journal import read_turn_file
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import (
    ORPHANED,
    RUNNING,
    CommandLog,
    list_command_logs,
    public_run_folder,
    refuse_collected_run,
    run_state,
)

# Reading logs in chunks.


READ_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20  # a longer line is shown in parts


def read_finished_log(path: str, start: int = 0) -> Iterator[bytes]:
    """A finished log from `start` to its end, in chunks."""
    file = open_log(path)
    if file < 0:
        return
    try:
        while piece := os.pread(file, READ_BYTES, start):
            start += len(piece)
            yield piece
    finally:
        os.close(file)


class GrowingLog:
    """A log that is read while its command still writes it."""

    def __init__(self, path: str, turn_file: str) -> None:
        self.path, self._turn_file = path, turn_file
        self._tail = LogReader(path, LOG_SIZES)

    def more(self) -> Iterator[bytes]:
        """What was written since the last call."""
        return self._tail.read_new()

    def rest(self) -> Iterator[bytes]:
        """The rest, once the command has ended and its log was assembled."""
        if self._tail.offset <= LOG_SIZES[0]:  # up to there the file and the stream are the same
            self._tail.close()
            return read_finished_log(self.path, self._tail.offset)
        counts = read_turn_file(self._turn_file).result or {}
        lost = int(counts.get("lost_bytes", 0))
        stored, evicted = int(counts.get("out_bytes", 0)) - lost, int(counts.get("dropped_bytes", 0)) - lost
        return self._tail.read_rest(stored, evicted)


class LineSplitter:
    """Splits a stream into lines; a line longer than the limit comes in parts."""

    def __init__(self) -> None:
        self._part = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that this chunk completes, with their newlines."""
        *lines, self._part = (self._part + piece).split(b"\n")
        for line in lines:
            yield _decode_line(line) + "\n"
        while len(self._part) > MAX_LINE_BYTES:
            part, self._part = self._part[:MAX_LINE_BYTES], self._part[MAX_LINE_BYTES:]
            yield _decode_line(part)

    def end(self) -> Iterator[str]:
        """What is left without a newline."""
        if self._part:
            yield _decode_line(self._part) + "\n"
        self._part = b""


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def format_scripted_event(line: str) -> str:
    """A line of the scripted agent's log for people: what it said and did; other lines stay as they are."""
    try:
        event = unpack(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return line
    match event:
        case Said(str(text)):
            return text if text.endswith("\n") else text + "\n"
        case ToolStarted(_, name, summary):
            return f"> {name} {summary}".rstrip() + "\n"
        case Ended(_, _, error):
            return f"error: {error}\n" if error else ""
        case _:
            return "" if isinstance(event, Event) else line


# Where the bytes of a log are: in one file, and while it is written in several. Offsets count the bytes as they were
# printed, so each keeps its offset when the log is assembled.


@value
class LogSegment:
    """The bytes from `start` to `end`, in a file from `at` on; without a path they were dropped."""

    start: int
    end: int
    path: str = ""
    at: int = 0


@value
class LogLayout:
    """All segments of a log, in order. While it is being assembled only its head can be read: then it is `coming`."""

    stretches: tuple[LogSegment, ...] = ()
    coming: bool = False

    @property
    def size(self) -> int:
        return self.stretches[-1].end if self.stretches else 0

    def dropped_at(self, place: int) -> LogSegment | None:
        """The dropped segment at this offset, if any."""
        return next((one for one in self.stretches if not one.path and one.start <= place < one.end), None)

    def bounds(self, place: int) -> tuple[int, int]:
        """The range around this offset in which nothing was dropped."""
        gaps = [one for one in self.stretches if not one.path]
        low = max((one.end for one in gaps if one.end <= place), default=0)
        return low, min((one.start for one in gaps if one.start >= place), default=self.size)

    def read(self, low: int, high: int) -> bytes:
        """The bytes of a range without dropped ones; fewer where a file was removed at this moment."""
        data = b""
        for one in self.stretches:
            if one.path and one.end > low + len(data) and low + len(data) < high:
                begin = low + len(data)
                data += _read_file(one.path, one.at + begin - one.start, min(high, one.end) - begin)
        return data


def locate_log(path: str, live: bool, sizes: tuple[int, int, int] = LOG_SIZES) -> LogLayout | None:
    """The layout of a log; None where there is none."""
    file = open_log(path) if path else -1
    if file < 0:
        return None
    head = sizes[0]
    try:
        size = os.fstat(file).st_size
        dropped = parse_truncation_notice(os.pread(file, 64, head)) if size > head and not live else 0
    finally:
        os.close(file)
    if live and size >= head:
        return _locate_growing_log(path, size, sizes)
    if not dropped:
        return LogLayout((LogSegment(0, size, path),))
    rest, again = head + len(truncation_notice(dropped)), head + dropped
    ends = LogSegment(head, again), LogSegment(again, again + size - rest, path, rest)
    return LogLayout((LogSegment(0, head, path), *ends))


def _locate_growing_log(path: str, size: int, sizes: tuple[int, int, int]) -> LogLayout:
    """A log that is longer than its head: the rest is in segments, the first of which may be gone."""
    head, each, _ = sizes
    segments = [LogSegment(0, head, path)]
    if size > head:
        return LogLayout((*segments,), coming=True)
    for number in list_segments(path):
        start, name = head + (number - 1) * each, segment_path(path, number)
        if start > segments[-1].end:
            segments.append(LogSegment(segments[-1].end, start))
        segments.append(LogSegment(start, start + _file_size(name), name))
    return LogLayout((*segments,))


def _file_size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:  # it went while we looked
        return 0


def _read_file(path: str, at: int, most: int) -> bytes:
    file = open_log(path)
    if file < 0:
        return b""
    try:
        return os.pread(file, most, at)
    finally:
        os.close(file)


# Chunks of a log that cut no character and no secret.


MASK_MARGIN_BYTES = 64 * 1024  # that are read on both sides of a piece, so that a secret which it cuts is known as one


@value
class LogChunk:
    """A chunk of a log from one offset to another, and the size of the log."""

    offset: int
    next: int
    size: int
    text: str
    more: bool  # there is more of it to be had now


def read_log_chunk(
    path: str, offset: int | None, most: int, live: bool, secrets: tuple[str, ...],
    sizes: tuple[int, int, int] = LOG_SIZES,
) -> LogChunk:  # fmt: skip
    """The end of a log, or a chunk from `offset` on; a dropped range is one line at the start of what follows it.

    Of a growing log, half a character and what may become a secret are held back until more comes.
    """
    log = locate_log(path, live, sizes) or LogLayout()
    size = log.size
    if log.coming and offset is not None and offset >= size:
        return LogChunk(offset, offset, offset, "", True)
    start = max(0, size - most) if offset is None else min(max(0, offset), size)
    dropped = log.dropped_at(start)
    if dropped is None:
        return _read_range(log, start, start + most, live, secrets)
    rest = _read_range(log, dropped.end, max(dropped.end, start + most), live, secrets)
    marked = truncation_notice(dropped.end - dropped.start).decode() + rest.text
    return LogChunk(dropped.start, rest.next, size, marked, rest.next < size)


def _read_range(log: LogLayout, start: int, end: int, live: bool, secrets: tuple[str, ...]) -> LogChunk:
    """A range, up to where something was dropped."""
    size, (first, after) = log.size, log.bounds(start)
    end = min(end, after)
    low, high = max(first, start - MASK_MARGIN_BYTES), min(end + MASK_MARGIN_BYTES, after)
    data = log.read(low, high)
    if len(data) < high - low:  # a file went while we read: whoever asks again is told that
        return LogChunk(start, start, size, "", True)
    open_end = live and high == size
    begin, stop = _align_to_characters(data, start - low, end - low, open_end)
    hidden, decided = find_secret_spans(data, secrets, last=not open_end)
    stop = max(begin, min(stop, decided))
    more = log.coming or (end < size and low + stop < size)
    return LogChunk(low + begin, low + stop, size, _mask_range(data, begin, stop, hidden), more)


def _mask_range(data: bytes, begin: int, end: int, hidden: list[tuple[int, int]]) -> str:
    """A range without secrets. A secret that began before it was masked in the chunk before."""
    told: list[bytes] = []
    at = begin
    for first, after in hidden:
        if after > begin and first < end:
            told += (data[at:first], MASK.encode() if first >= begin else b"")
            at = after
    return b"".join((*told, data[at:end])).decode("utf-8", "replace")


def _align_to_characters(data: bytes, begin: int, end: int, live: bool) -> tuple[int, int]:
    """The range without characters that its ends cut."""
    if _character_start(data, begin, unfinished=False) < begin:
        while begin < len(data) and _is_continuation_byte(data, begin):
            begin += 1
    stop = max(begin, _character_start(data, end, unfinished=live))
    if stop == begin < end and end < len(data):  # not even one: whoever asks for less gets that one
        stop += 1
        while stop < len(data) and _is_continuation_byte(data, stop):
            stop += 1
    return begin, stop


def _character_start(data: bytes, place: int, *, unfinished: bool) -> int:
    """Where the character begins that an offset cuts, else the offset.

    At the end of the data it is unknown whether the last character is complete: not where it may be `unfinished`.
    """
    if not (_is_continuation_byte(data, place) if place < len(data) else unfinished):
        return place
    for begin in range(place - 1, max(place - 4, -1), -1):
        if not _is_continuation_byte(data, begin):
            return begin if _character_length(data[begin]) > place - begin else place
    return place


def _is_continuation_byte(data: bytes, place: int) -> bool:
    return data[place] & 0xC0 == 0x80


def _character_length(first: int) -> int:
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1


# Logs for programs, named by their commands and never by a path.


OUT_PART, STDERR_PART, PROMPT_PART = "out", "stderr", "prompt"
MAX_CHUNK_BYTES = 256 * 1024  # of one answer
AGENT_KINDS = ("agent", "judge", "scm")


def logs_json(project: Project, row: RunRow) -> list[Json]:
    """Every command of a run in order, with the sizes of its logs."""
    return [_log_entry(project, row, log) for log in list_command_logs(project, row.id)]


def _log_entry(project: Project, row: RunRow, log: CommandLog) -> dict[str, Json]:
    live = _is_live(log)  # asked first: what has ended has all of its bytes
    return published("log", {
        "name": log.name, "kind": log.kind, "iteration": log.iteration,
        "bytes": _part_size(_part_path(project, row, log, OUT_PART), live) or 0,
        "stderrBytes": _part_size(_part_path(project, row, log, STDERR_PART), live),
        "promptBytes": _part_size(_part_path(project, row, log, PROMPT_PART), False), "live": live,
    })  # fmt: skip


def log_json(
    project: Project, row: RunRow, name: str, part: str, offset: int | None, most: int
) -> dict[str, Json]:  # fmt: skip
    """A chunk of one command's log: its end, or from `offset` on. Only names of the list are accepted."""
    refuse_collected_run(project, row.id)
    log = next((one for one in list_command_logs(project, row.id) if one.name == name), None)
    if log is None or part not in (OUT_PART, STDERR_PART, PROMPT_PART):
        raise NotThere(f"run {row.id} has no log of this name")
    live = part != PROMPT_PART and _is_live(log)
    path, most = _part_path(project, row, log, part), max(1, min(most, MAX_CHUNK_BYTES))
    piece = read_log_chunk(path, offset, most, live, project.secrets)
    return published("log", {
        "run": row.id, "name": name, "kind": log.kind, "iteration": log.iteration, "live": live, "part": part,
        "offset": piece.offset, "nextOffset": piece.next, "bytes": piece.size, "text": piece.text, "more": piece.more,
    })  # fmt: skip


def _is_live(log: CommandLog) -> bool:
    return os.path.exists(log.turn_file) and turn_journal.read_turn_file(log.turn_file).result is None


def _part_path(project: Project, row: RunRow, log: CommandLog, part: str) -> str:
    """The file of a part in the store: the copy in the project can be written by agents. Empty where there is none."""
    if part == PROMPT_PART:
        return (
            os.path.join(project.store, "runs", row.id, f"{prompt_file_name(log)}.asked")
            if log.kind in AGENT_KINDS
            else ""
        )
    if part == STDERR_PART:
        return log.turn_file.removesuffix(".turn") + ".stderr.log" if log.kind in AGENT_KINDS else ""
    return log.turn_file.removesuffix(".turn") + (".ndjson" if log.kind in AGENT_KINDS else ".log")


def prompt_file_name(log: CommandLog) -> str:
    """The name of the file with the prompt of a call."""
    match log.kind:
        case "scm":
            return f"{log.name}_prompt"
        case "judge":
            return log.name
        case _:
            return f"prompt_{log.name.partition('_')[2]}"


def _part_size(path: str, live: bool) -> int | None:
    found = locate_log(path, live)
    return None if found is None else found.size


# The logs of a run that `ralph logs` shows, finished or followed.


POLL_S = 0.2
MAX_JSON_BYTES = 64 * 1024  # of the end of each log are in --json; the paths are there for the rest


@value
class LogFilter:
    """Which logs of a run are wanted; without a kind all but prompts and standard error."""

    iteration: int | None = None
    agent: bool = False
    checks: bool = False
    prompt: bool = False
    stderr: bool = False

    @property
    def every_kind(self) -> bool:
        return not (self.agent or self.checks or self.prompt or self.stderr)


@value
class LogPart:
    """One file of a run. `turn_file` is empty for a prompt, which never grows."""

    log: CommandLog
    what: str
    path: str
    turn_file: str
    part: str = OUT_PART

    @property
    def heading(self) -> str:
        return f"==> {describe_iteration(self.log.iteration)}, {self.what}: {os.path.basename(self.path)} <=="


@value
class LogOutput:
    """Some output of a log: the first of it where it is `opened`, the last where it is `finished`."""

    part: LogPart
    chunks: Iterable[bytes]
    opened: bool = True
    finished: bool = True


class RunLogs:
    """The logs of one run, in the order in which its commands started."""

    def __init__(self, ledger: SqliteLedger, project: Project, row: RunRow, wanted: LogFilter) -> None:
        self._ledger, self._project, self._row, self._wanted = ledger, project, row, wanted
        self._folder = public_run_folder(project, row)

    @property
    def active(self) -> bool:
        """Whether more may come."""
        return run_state(self._ledger, self._row, self._project) in (RUNNING, ORPHANED)

    @property
    def scripted(self) -> bool:
        """Whether the agent's log holds our own events, as that of the scripted agent does."""
        began = next(iter(self._ledger.records(self._row.id)), None)
        return getattr(began, "facts", {}).get("agent") == "scripted"

    def refuse_missing_iteration(self) -> None:
        """Raise Refused where the wanted iteration was never begun."""
        begun = {log.iteration for log in list_command_logs(self._project, self._row.id)}
        if self._wanted.iteration is not None and self._wanted.iteration not in begun:
            begun.discard(0)
            known = f"{min(begun)} to {max(begun)}" if begun else "none"
            raise Refused(f"run {self._row.id} has no iteration {self._wanted.iteration}; there are: {known}")

    def parts(self) -> list[LogPart]:
        """The wanted files."""
        logs, wanted = list_command_logs(self._project, self._row.id), self._wanted.iteration
        return [part for log in logs if wanted in (None, log.iteration) for part in self._parts_of(log)]

    def _parts_of(self, log: CommandLog) -> Iterator[LogPart]:
        wanted = self._wanted
        match log.kind:
            case "guardrail" | "setup":
                if wanted.checks or wanted.every_kind:
                    what = "setup" if log.kind == "setup" else "check"
                    yield LogPart(log, what, self._path(log, ".log"), log.turn_file)
            case "hook":
                if wanted.every_kind:
                    yield LogPart(log, log.name.split("_")[2], self._path(log, ".log"), log.turn_file)
            case "task":
                if wanted.every_kind:
                    yield LogPart(log, f"scm {log.name.split('_', 2)[2]}", self._path(log, ".log"), log.turn_file)
            case kind:
                who = {"scm": "commit message", "judge": "judge"}.get(kind, "agent")
                if wanted.prompt:
                    path = os.path.join(self._folder, f"{prompt_file_name(log)}.txt")
                    yield LogPart(log, f"prompt of the {who}", path, "", PROMPT_PART)
                if wanted.agent or wanted.every_kind or (wanted.checks and kind == "judge"):
                    yield LogPart(log, who, self._path(log, ".ndjson"), log.turn_file)
                if wanted.stderr:
                    path = self._path(log, ".stderr.log")
                    yield LogPart(log, f"standard error of the {who}", path, log.turn_file, STDERR_PART)

    def _path(self, log: CommandLog, ending: str) -> str:
        """The log beside its turn file, or, where that was removed, the copy in the run's public folder."""
        path, copy = log.turn_file.removesuffix(".turn") + ending, os.path.join(self._folder, log.name + ending)
        return copy if os.path.isfile(copy) and not os.path.lexists(path) else path

    def read(self) -> Iterator[LogOutput]:
        """Everything that is there now."""
        return (LogOutput(part, read_finished_log(part.path)) for part in self.parts())

    def follow(self) -> Iterator[LogOutput]:
        """Everything until the run is over. The output of commands that run at the same time comes one by one."""
        finished: set[LogPart] = set()
        current: tuple[LogPart, GrowingLog] | None = None
        while True:
            over = not self.active
            parts = [part for part in self.parts() if part not in finished and (over or _has_begun(part.log))]
            latest = parts[-1].log if parts else None
            parts.sort(key=lambda part: current is None or part != current[0])  # the one that is shown stays so
            for part in parts:
                opened = current is None or current[0] != part
                if current is None or opened:
                    current = part, GrowingLog(part.path, part.turn_file)
                last = over or not part.turn_file or _has_ended(part.log, latest)
                yield LogOutput(part, current[1].rest() if last else current[1].more(), opened, last)
                if not last:
                    break
                finished.add(part)
            if over:
                return
            time.sleep(POLL_S)


def _has_begun(log: CommandLog) -> bool:
    """Whether a command has begun: until then a log of that name is an older one."""
    return not os.path.exists(log.turn_file) or turn_journal.read_turn_file(log.turn_file).began


def _has_ended(log: CommandLog, latest: CommandLog | None) -> bool:
    """Whether a command has ended: its result is recorded, or no keeper holds its lock.

    The latest command may lack a keeper because that died, and be taken over: it has not ended.
    """
    if turn_journal.read_turn_file(log.turn_file).result is not None:
        return True
    return log != latest and not turn_journal.is_turn_locked(log.turn_file)


def log_part_json(part: LogPart) -> dict[str, Json]:
    """A log for programs, with its end."""
    try:
        size = os.lstat(part.path).st_size
    except OSError:
        size = 0
    text = next(read_finished_log(part.path, max(0, size - MAX_JSON_BYTES)), b"")[:MAX_JSON_BYTES]
    return published("log", {
        "name": part.log.name, "kind": part.log.kind, "iteration": part.log.iteration, "part": part.part,
        "live": _is_live(part.log), "path": part.path, "bytes": size, "text": text.decode("utf-8", "replace"),
        "truncated": size > MAX_JSON_BYTES,
    })  # fmt: skip
