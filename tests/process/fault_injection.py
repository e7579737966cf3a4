"""Kills of the keeper or its harness at chosen moments of a turn. A keeper imports this, so it imports little."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

ROOT = str(Path(__file__).parents[2])
SCRIPT = """
import sys
sys.path += [{root!r}, {root!r} + "/src"]
from tests.process.fault_injection import kill_keeper_at
kill_keeper_at({label!r}, {died_file!r}, both={both})
from ralphproof.process.keeper import serve
serve(int(sys.argv[1]))
"""


def keeper_script_that_dies(folder: Path, label: str, *, both: bool) -> str:
    """The path of a program for a keeper that dies once at this moment, its harness with it if `both`."""
    path = folder / "keeper.py"
    path.write_text(SCRIPT.format(root=ROOT, label=label, died_file=str(folder / "died"), both=both))
    return str(path)


def kill_keeper_at(label: str, died_file: str, *, both: bool) -> None:
    def die() -> None:
        if os.path.exists(died_file):  # the keeper after it lives
            return
        os.close(os.open(died_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if both:
            os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)

    _KEEPER_MOMENTS[label](die)


def kill_harness_at(label: str) -> None:
    from ralphproof.process import protocol

    def die() -> None:
        os.kill(os.getpid(), 9)

    if label == "half of START":
        _half_sent(protocol, die)
    else:
        _at(protocol, "send_frame", 1, die, before=label == "before START")


def _at(owner: Any, name: str, nth: int, die: Callable[[], None], *, before: bool = False) -> None:
    """Call `die` at the nth call of a function."""
    call, calls = getattr(owner, name), [0]

    def counted(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == nth:
            die()
        result = call(*args, **more)
        if not before and calls[0] == nth:
            die()
        return result

    setattr(owner, name, counted)


def _half_sent(frame: Any, die: Callable[[], None]) -> None:
    dumps = frame.marshal.dumps

    def send(sock: Any, thing: Any, descriptors: tuple[int, ...]) -> None:
        body = dumps(thing)
        packed = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
        data = len(body).to_bytes(4, "little") + body[: len(body) // 2]
        sock.sendmsg([data], [(frame._socket.SOL_SOCKET, frame._socket.SCM_RIGHTS, packed)])
        die()

    frame.send_frame = send


def _torn_result(die: Callable[[], None]) -> None:
    from ralphproof.process import turn_journal

    append = turn_journal.append_entry

    def torn(lock: int, fields: Any) -> bytes:
        if "result" in fields:
            os.write(lock, turn_journal.encode_entry(fields)[:40])
            die()
        return append(lock, fields)

    turn_journal.append_entry = torn


def _in_a_segment(die: Callable[[], None]) -> None:
    from ralphproof.process import output

    pieces = output._read_chunks

    def cut(path: str) -> Iterator[bytes]:
        for piece in pieces(path):
            if path.endswith(".2"):
                yield piece[: len(piece) // 2]
                die()
            else:
                yield piece

    output._read_chunks = cut


def _append(nth: int, *, before: bool) -> Callable[[Callable[[], None]], None]:
    def kill_at(die: Callable[[], None]) -> None:
        from ralphproof.process import turn_journal

        _at(turn_journal, "append_entry", nth, die, before=before)

    return kill_at


def _method(module: str, owner: str, name: str, nth: int = 1, *, before: bool) -> Callable[[Callable[[], None]], None]:
    def kill_at(die: Callable[[], None]) -> None:
        found = __import__(f"ralphproof.process.{module}", fromlist=["it"])
        _at(getattr(found, owner) if owner else found, name, nth, die, before=before)

    return kill_at


_KEEPER_MOMENTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "before began": _append(1, before=True),
    "after began": _append(1, before=False),
    "after fork": _method("keeper", "", "spawn_program", before=False),
    "after agent": _append(2, before=False),
    "before the logs are closed": _method("output", "OutputDrain", "finish", before=True),
    "in a segment": _in_a_segment,
    "before a segment goes": _method("output", "", "_append_all", 2, before=False),
    "after the logs are closed": _method("output", "OutputDrain", "finish", before=False),
    "in the result": _torn_result,
    "after the result": _append(3, before=False),
    "before the report": _method("protocol", "HarnessLink", "report", before=True),
}
KEEPER_MOMENTS = tuple(_KEEPER_MOMENTS)
HARNESS_MOMENTS = ("before START", "half of START", "after START")
