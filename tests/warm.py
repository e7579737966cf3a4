"""The program, begun by a process that has its modules already: what a test calls costs no imports.

    code, out, err = called(["run", "-p", "make it so"], cwd, env, b"", 60.0)
    process = Begun(["run", "-p", "make it so"], cwd, env, (stdin, out, err))

Each is a process of its own, forked from one that has read the program and done nothing else. What a fresh
interpreter does of its own (read its variables, find its modules, clear them away) does not happen: tests of that
begin real ones.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
CRASH_POINTS = Path(__file__).resolve().parent / "misbehaviour/crash_points.py"
PIPE_BYTES = 32_768  # what a pipe surely takes before anybody reads it
STARTS_WITH = {"PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error", "LANG": "C.UTF-8"}  # what an interpreter reads
BORROWED = ("_ctypes", "_sqlite3", "encodings.ascii")  # what it imports of others when it is at work
DOORS = ("ralphproof.process.__main__", "ralphproof.__main__")  # modules that do something when they are imported

ENGINE = "ralphproof.fleet."  # a fork of what Temporal's client has begun would not live


def suits(env: Mapping[str, str], stdin: bytes) -> bool:
    """A fresh interpreter would begin in the same way, and what it reads can be there before it asks."""
    read = {name: text for name, text in env.items() if name.startswith(("PYTHON", "LANG", "LC_"))}
    return read == STARTS_WITH and len(stdin) <= PIPE_BYTES


def called(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: bytes, timeout_s: float, dies: Sequence[str] = ()
) -> tuple[int, bytes, bytes]:
    """`ralph ARGV` to its end: its exit code, its output and its errors."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _holding(stdin) as given:
            process = Begun(argv, cwd, env, (given, out, err), dies=dies)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


class Begun:
    """`ralph ARGV`, at work: to whoever began it what a `subprocess.Popen` is.

    `dies` names a crash point, see `crash_points`. With `alone` it has a session of its own.
    """

    def __init__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[IO[Any]],
        dies: Sequence[str] = (), alone: bool = False,
    ) -> None:  # fmt: skip
        self.argv = list(argv)
        self.returncode: int | None = None
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {"argv": self.argv, "cwd": str(cwd), "env": dict(env), "dies": list(dies), "alone": alone}
        with theirs, tempfile.TemporaryFile() as told:
            told.write(json.dumps(asked).encode())
            told.seek(0)
            socket.send_fds(_parent(), [b"!"], [theirs.fileno(), told.fileno(), *(one.fileno() for one in files)])
        self.pid = int(self._told.recv(32))

    def poll(self) -> int | None:
        """Its exit code, as far as it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.argv, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = int(self._told.recv(32))
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _holding(content: bytes) -> io.FileIO:
    """A pipe that has this in it, and then its end."""
    reads, writes = os.pipe()
    os.write(writes, content)
    os.close(writes)
    return io.FileIO(reads)


@cache
def _parent() -> socket.socket:
    """The process that all are forked from, by its socket; it ends with us, when the other end is closed."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())]
        env = STARTS_WITH | {"PATH": os.environ["PATH"]}
        process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()])

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


# In the process that is forked


def modules() -> Iterator[str]:
    """All that the program may import of its own."""
    package = importlib.import_module("ralphproof")
    found = pkgutil.walk_packages(package.__path__, "ralphproof.")
    yield from (one.name for one in found if one.name not in DOORS and not one.name.startswith(ENGINE))


def serve(requests: socket.socket) -> None:
    """Fork for every request, and tell of every end; returns in a child that is to be the program."""
    asking: dict[int, socket.socket] = {}
    wakes, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    while True:
        ready = select.select([requests.fileno(), wakes], [], [])[0]
        if wakes in ready:
            os.read(wakes, 4096)
            _tell(asking)
        if requests.fileno() not in ready:
            continue
        message, files, _, _ = socket.recv_fds(requests, 1, 5)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (*asking.values(), requests):
                one.close()
            os.close(wakes)
            os.close(woken)
            return _become(files)
        asking[pid] = socket.socket(fileno=files[0])
        asking[pid].send(b"%d" % pid)
        for file in files[1:]:
            os.close(file)


def _tell(asking: dict[int, socket.socket]) -> None:
    while asking:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with asking.pop(pid) as one:
            try:
                one.send(b"%d" % os.waitstatus_to_exitcode(status))
            except BrokenPipeError:
                continue  # whoever asked gave up


def _become(files: list[int]) -> None:
    """Have the streams, the environment, the place and the arguments of the program."""
    os.close(files[0])
    with open(files[1], "rb") as told:
        asked = json.load(told)
    for number, file in enumerate(files[2:]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    if asked["alone"]:
        os.setsid()
    sys.stdin = _stream(0, "r", "surrogateescape")
    sys.stdout = _stream(1, "w", "surrogateescape")
    sys.stderr = _stream(2, "w", "backslashreplace", by_line=True)
    sys.argv = [str(SOURCE / "ralphproof/__main__.py"), *asked["argv"]]
    if asked["dies"]:
        runpy.run_path(str(CRASH_POINTS))["install_crash_point"](*asked["dies"])


def _stream(number: int, mode: str, errors: str, by_line: bool = False) -> io.TextIOWrapper:
    """One as the interpreter makes it."""
    raw = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - it is there to the end
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=by_line)


def leave(code: int) -> None:
    """End as an interpreter does, but for the clearing away: it would touch all that is shared with the parent."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # the folder of the tests: its modules are not the program's
    for name in (*modules(), *BORROWED):
        importlib.import_module(name)
    from ralphproof.__main__ import main
    from ralphproof.process import interrupts

    interrupts.ORDERLY_EXIT_S = 30.0  # on a machine that is busy with tests an end in good order may take longer
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        leave(main())
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 1)
