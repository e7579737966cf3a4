"""What the tests of notifications share: a web server, commands that leave traces, and looking for processes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ralphproof.engine.limits import Spend
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import RunEnded, Warned
from ralphproof.reports.notifications import NotificationObserver
from tests.needs import require

ENDED = RunEnded(Completed(3, Spend(120_000), 12.5, "what the agent said", True))
LINUX = sys.platform == "linux"
BEFORE: list[int] = []


def need_apprise() -> None:
    require(find_spec("apprise") is not None, "apprise")


def until(met: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for an event of another process; its value."""
    deadline = time.monotonic() + seconds
    while not (seen := met()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return seen


def notify(*targets: str, environ: Mapping[str, str] = os.environ, root: Path | str = ".") -> NotificationObserver:
    return NotificationObserver(targets, "run-1", "calc", str, environ, str(root))


def warned(number: int) -> Warned:
    return Warned(1, f"what{number}", f"[Ralph] Cost at 80% of limit: {number}")


def writing(path: Path, first: str = ":") -> str:
    """A command that adds its standard input to a file in one piece, a line each time."""
    return f"""sh -c '{first}; event=$(cat); printf "%s\\n" "$event" >> {path}'"""


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def running(words: str) -> list[int]:
    """Processes whose command line holds these words; of a zombie nothing can be read."""
    require(LINUX, "/proc")
    return [pid for pid in _processes() if words.encode() in _read(pid, "cmdline").replace(b"\0", b" ")]


def born(parent: int = 0) -> list[int]:
    """The children of a process, zombies too; those of our own that came since `BEFORE` where none is named."""
    require(LINUX, "/proc")
    wanted = str(parent or os.getpid()).encode()
    found = [pid for pid in _processes() if _read(pid, "stat").rpartition(b")")[2].split()[1:2] == [wanted]]
    return found if parent else [pid for pid in found if pid not in BEFORE]


def open_to_others(pid: int) -> bytes:
    """What can be seen of a process from outside."""
    return _read(pid, "cmdline") + _read(pid, "environ")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


class Server(ThreadingHTTPServer):
    """Keeps what it is asked. It answers with `status`, or not at all until it is closed."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status, self.asked, self.closed = status, list[tuple[str, Mapping[str, str], bytes]](), threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.asked.append((self.requestline, dict(self.headers), body))
        if not self.server.status:
            self.server.closed.wait()
            return
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET = answer

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving(status: int = 204) -> Iterator[Server]:
    """A server on this machine; one with status 0 never answers."""
    server = Server(status)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
