"""Deaths at chosen instants of a turn, of the keeper or of its harness. A keeper imports this, so it is small."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

ROOT = str(Path(__file__).parents[2])
DOOR = """
import sys
sys.path += [{root!r}, {root!r} + "/src"]
from tests.process.curse import curse_keeper
curse_keeper({label!r}, {struck!r}, both={both})
from ralphproof.process.server import serve
serve(int(sys.argv[1]))
"""


def door(folder: Path, label: str, *, both: bool) -> str:
    """A door to a keeper that dies once at this instant, its harness with it if `both`."""
    path = folder / "door.py"
    path.write_text(DOOR.format(root=ROOT, label=label, struck=str(folder / "struck"), both=both))
    return str(path)


def curse_keeper(label: str, struck: str, *, both: bool) -> None:
    def fall() -> None:
        if os.path.exists(struck):  # the keeper after it lives
            return
        os.close(os.open(struck, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if both:
            os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)

    _KEEPERS[label](fall)


def curse_harness(label: str) -> None:
    from ralphproof.process import protocol

    def fall() -> None:
        os.kill(os.getpid(), 9)

    if label == "half of START":
        _half_sent(protocol, fall)
    else:
        _at(protocol, "send_frame", 1, fall, before=label == "before START")


def _at(owner: Any, name: str, nth: int, fall: Callable[[], None], *, before: bool = False) -> None:
    """Fall at the nth call."""
    call, calls = getattr(owner, name), [0]

    def counted(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == nth:
            fall()
        told = call(*args, **more)
        if not before and calls[0] == nth:
            fall()
        return told

    setattr(owner, name, counted)


def _half_sent(frame: Any, fall: Callable[[], None]) -> None:
    dumps = frame.marshal.dumps

    def send(sock: Any, thing: Any, descriptors: tuple[int, ...]) -> None:
        body = dumps(thing)
        packed = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
        data = len(body).to_bytes(4, "little") + body[: len(body) // 2]
        sock.sendmsg([data], [(frame._socket.SOL_SOCKET, frame._socket.SCM_RIGHTS, packed)])
        fall()

    frame.send_frame = send


def _torn_result(fall: Callable[[], None]) -> None:
    from ralphproof.process import turn_journal

    append = turn_journal.append_entry

    def torn(lock: int, fields: Any) -> bytes:
        if "result" in fields:
            os.write(lock, turn_journal.encode_entry(fields)[:40])
            fall()
        return append(lock, fields)

    turn_journal.append_entry = torn


def _in_a_segment(fall: Callable[[], None]) -> None:
    from ralphproof.process import output

    pieces = output._read_chunks

    def cut(path: str) -> Iterator[bytes]:
        for piece in pieces(path):
            if path.endswith(".2"):
                yield piece[: len(piece) // 2]
                fall()
            else:
                yield piece

    output._read_chunks = cut


def _append(nth: int, *, before: bool) -> Callable[[Callable[[], None]], None]:
    def curse(fall: Callable[[], None]) -> None:
        from ralphproof.process import turn_journal

        _at(turn_journal, "append_entry", nth, fall, before=before)

    return curse


def _method(module: str, owner: str, name: str, nth: int = 1, *, before: bool) -> Callable[[Callable[[], None]], None]:
    def curse(fall: Callable[[], None]) -> None:
        found = __import__(f"ralphproof.process.{module}", fromlist=["it"])
        _at(getattr(found, owner) if owner else found, name, nth, fall, before=before)

    return curse


_KEEPERS: dict[str, Callable[[Callable[[], None]], None]] = {
    "before began": _append(1, before=True),
    "after began": _append(1, before=False),
    "after fork": _method("turn", "", "spawn_program", before=False),
    "after agent": _append(2, before=False),
    "before the logs are closed": _method("output", "OutputDrain", "finish", before=True),
    "in a segment": _in_a_segment,
    "before a segment goes": _method("output", "", "_append_all", 2, before=False),
    "after the logs are closed": _method("output", "OutputDrain", "finish", before=False),
    "in the result": _torn_result,
    "after the result": _append(3, before=False),
    "before the report": _method("protocol", "HarnessLink", "report", before=True),
}
KEEPERS = tuple(_KEEPERS)
HARNESSES = ("before START", "half of START", "after START")
