"""Who was called from inside a sandbox, and who could not be: one file of JSON lines for each turn."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 1 << 20  # of lines as they come; the counts at the end are bounded by the number of those
MOST_CHARS = 300
MOST_LINE = 16_384
MOST_BLOCKED = 50
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Audit:
    """Appends to a file that only its owner reads. The same call is written when first seen, and counted at the end."""

    def __init__(self, path: str) -> None:
        import threading

        self._file: int | None = os.open(path, _FLAGS, 0o600)
        os.fchmod(self._file, 0o600)
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str, bool, str], tuple[float, int]] = {}
        self._left = MOST_BYTES - os.fstat(self._file).st_size
        self._unwritten = 0

    def tell(self, host: str, port: int, how: str, allowed: bool, why: str = "") -> None:
        """Note one call. Never raises: a log that the disk does not take must not hold up the calls."""
        import time

        at = time.time()
        call = (host[:MOST_CHARS], port, how[:MOST_CHARS], allowed, why[:MOST_CHARS])
        with self._lock:
            if call in self._seen:
                self._seen[call] = (at, self._seen[call][1] + 1)
            elif self._file is not None and self._write(_line(at, *call)):
                self._seen[call] = (at, 1)
            else:
                self._unwritten += 1

    def close(self) -> None:
        """Write how often each call was repeated, and how many were left out."""
        import time

        with self._lock:
            if self._file is None:
                return
            self._left = MOST_BYTES * 2
            for call, (at, count) in self._seen.items():
                if count > 1:
                    self._write(_line(at, *call, count=count))
            if self._unwritten:
                self._write(_line(time.time(), "", 0, "", False, "not written: the log is full", count=self._unwritten))
            os.close(self._file)
            self._file = None

    def _write(self, line: bytes) -> bool:
        if self._file is None or len(line) > self._left:
            return False
        self._left -= len(line)
        try:
            return os.write(self._file, line) == len(line)
        except OSError:
            return False


def _line(at: float, host: str, port: int, how: str, allowed: bool, why: str, **more: int) -> bytes:
    import json

    told = {"at": round(at, 3), "host": host, "port": port, "how": how, "allowed": allowed, "why": why, **more}
    return json.dumps(told).encode() + b"\n"


def blocked_in(path: str) -> tuple[str, ...]:
    """The distinct `host:port` that were refused, the first ones first; empty where there is no such file."""
    found: dict[str, None] = {}
    for place in _refused(path):
        found[place] = None
        if len(found) == MOST_BLOCKED:
            break
    return tuple(found)


def _refused(path: str) -> Iterator[str]:
    """Every refused place; lines that are not ours, and requests that named none, are passed over."""
    import json

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(file, "rb") as lines:
            while line := lines.readline(MOST_LINE):
                try:
                    told = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(told, dict) and told.get("allowed") is False and (place := _place(told)):
                    yield place
    except OSError:
        return


def _place(told: dict[str, object]) -> str:
    host, port = told.get("host"), told.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65536:
        return ""
    clean = "".join(sign for sign in host[:MOST_CHARS] if sign.isprintable() and not sign.isspace())
    shown = f"[{clean.strip('[]')}]" if ":" in clean else clean
    return f"{shown}:{port}" if clean else ""
