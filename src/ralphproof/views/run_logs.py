"""What commands of a run printed, as parts of files: named by their commands, never by a path."""

from __future__ import annotations

import os

from ralphproof.errors import NotThere
from ralphproof.keeper import journal
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.gc_note import refuse_swept
from ralphproof.views.log_bytes import bytes_of
from ralphproof.views.log_piece import piece_of
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
    live = _live(log)  # asked first: what has ended has all of its bytes
    return {
        "name": log.name, "kind": log.kind, "iteration": log.iteration,
        "bytes": _size(_path(project, row, log, OUT), live) or 0,
        "stderr": _size(_path(project, row, log, STDERR), live),
        "prompt": _size(_path(project, row, log, PROMPT), False), "live": live,
    }  # fmt: skip


def log_json(
    project: Project, row: RunRow, name: str, part: str, offset: int | None, most: int
) -> dict[str, Json]:  # fmt: skip
    """A piece of what one command printed: the end of it, or from `offset` on. Only names of the list are known."""
    refuse_swept(project, row.id)
    log = next((one for one in logs_of(project, row.id) if one.name == name), None)
    if log is None or part not in (OUT, STDERR, PROMPT):
        raise NotThere(f"run {row.id} has no log of this name")
    live = part != PROMPT and _live(log)
    path, most = _path(project, row, log, part), max(1, min(most, MOST_BYTES))
    piece = piece_of(path, offset, most, live, project.secrets)
    return {
        "name": name, "part": part, "offset": piece.offset, "next": piece.next, "bytes": piece.size,
        "text": piece.text, "more": piece.more,
    }  # fmt: skip


def _live(log: Log) -> bool:
    return os.path.exists(log.turn_file) and journal.read(log.turn_file).result is None


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


def _size(path: str, live: bool) -> int | None:
    found = bytes_of(path, live)
    return None if found is None else found.size
