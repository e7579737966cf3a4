"""What commands of a run printed, as parts of files: named by their commands, never by a path."""

from __future__ import annotations

import os

from ralphproof.errors import NotThere
from ralphproof.keeper import journal
from ralphproof.keeper.log import opened
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.gc_note import refuse_swept
from ralphproof.views.standing import Log, logs_of

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.value import Json
    from ralphproof.views.project import Project

OUT, STDERR, PROMPT = "out", "stderr", "prompt"
MOST_BYTES = 256 * 1024  # of one answer
AGENTS = ("agent", "judge", "scm")


def logs_json(project: Project, row: RunRow) -> list[Json]:
    """Every command of a run in the order in which they ran, and how much there is of it."""
    return [_listed(project, row, log) for log in logs_of(project, row.id)]


def _listed(project: Project, row: RunRow, log: Log) -> dict[str, Json]:
    live = journal.read(log.turn_file).result is None  # asked first: what has ended has all of its bytes
    return {
        "name": log.name, "kind": log.kind, "iteration": log.iteration,
        "bytes": _size(_path(project, row, log, OUT)) or 0, "stderr": _size(_path(project, row, log, STDERR)),
        "prompt": _size(_path(project, row, log, PROMPT)), "live": live,
    }  # fmt: skip


def log_json(
    project: Project, row: RunRow, name: str, part: str, offset: int | None, most: int
) -> dict[str, Json]:  # fmt: skip
    """A piece of what one command printed: the end of it, or from `offset` on. Only names of the list are known."""
    refuse_swept(project, row.id)
    log = next((one for one in logs_of(project, row.id) if one.name == name), None)
    if log is None or part not in (OUT, STDERR, PROMPT):
        raise NotThere(f"run {row.id} has no log of this name")
    data, start, size = _piece(_path(project, row, log, part), offset, max(1, min(most, MOST_BYTES)))
    text = project.mask(data.decode("utf-8", "replace"))
    return {
        "name": name, "part": part, "offset": start, "next": start + len(data), "bytes": size, "text": text,
        "more": start + len(data) < size,
    }  # fmt: skip


def _piece(path: str, offset: int | None, most: int) -> tuple[bytes, int, int]:
    """Bytes of a file, where they begin, and how many there are in all. No letter is cut where that can be told."""
    file = opened(path)
    if file < 0:
        return b"", 0, 0
    try:
        size = os.fstat(file).st_size
        start = max(0, size - most) if offset is None else min(max(0, offset), size)
        data = os.pread(file, most, start)
    finally:
        os.close(file)
    skipped = _continued(data) if start else 0
    whole = data[skipped : len(data) - _unfinished(data)] if start + len(data) < size else data[skipped:]
    return whole or data, start + (skipped if whole else 0), size


def _continued(data: bytes) -> int:
    """How many bytes at the beginning belong to a letter before it, of which there are three at most."""
    return next((place for place in range(min(4, len(data))) if data[place] & 0xC0 != 0x80), 0)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end belong to a letter that is not whole."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return back if length > back else 0
    return 0


def _path(project: Project, row: RunRow, log: Log, part: str) -> str:
    """The file of a part, beside the ledger: its copy in the project is where agents write. Empty where none is."""
    if part == PROMPT:
        return os.path.join(project.store, "runs", row.id, f"{prompt_of(log)}.asked") if log.kind in AGENTS else ""
    if part == STDERR:
        return log.turn_file.removesuffix(".turn") + ".stderr.log" if log.kind in AGENTS else ""
    return log.turn_file.removesuffix(".turn") + (".ndjson" if log.kind in AGENTS else ".log")


def prompt_of(log: Log) -> str:
    """The name of the file that has the prompt of a call."""
    match log.kind:
        case "scm":
            return f"{log.name}_prompt"
        case "judge":
            return log.name
        case _:
            return f"prompt_{log.name.partition('_')[2]}"


def _size(path: str) -> int | None:
    file = opened(path) if path else -1
    if file < 0:
        return None
    try:
        return os.fstat(file).st_size
    finally:
        os.close(file)
