"""`ralph fleet worker` and `ralph fleet dev`: a worker, and a server to try it with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.fleet import add_server_flags, run_and_exit, server_from_flags
from ralphproof.cli.parser import SUPPRESS, Parser, positive_int, seconds
from ralphproof.cli.serve import port_number
from ralphproof.display.output import print_json
from ralphproof.fleet.connection import (
    dev_server_argv,
    find_free_port,
    find_temporal,
    refuse_used_port,
    wait_until_reachable,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.fleet.step_process import StepPool


DEV_ABOUT = """Run a local Temporal server until Ctrl-C. It listens on 127.0.0.1.

It is for experiments; docs/fleet-setup.md explains a production server. Without --db it forgets everything at its end.
Exit codes: 0 ended by a signal, 2 cannot be started, 3 ended by itself."""
DEV_EXAMPLES = ("ralph fleet dev", "ralph fleet dev --db fleet.db", "ralph fleet dev --port 7300 --ui-port 8300")


def dev_parser() -> Parser:
    parser = Parser("fleet dev", DEV_ABOUT, DEV_EXAMPLES)
    add = parser.add_argument
    add("--port", type=port_number, default=7233, metavar="N", help="port; 0 takes a free one (default: 7233)")
    add("--ui-port", type=port_number, metavar="N", help="port of the server's web UI (default: none)")
    add("--db", metavar="FILE", help="database file (default: in memory)")
    return parser


def dev_main(argv: list[str]) -> int:
    args = dev_parser().parse(argv)
    program = find_temporal()
    port = args.port or find_free_port()
    refuse_used_port(port)
    if args.db and not os.path.isdir(os.path.dirname(os.path.abspath(args.db))):
        raise Refused(f"--db {args.db}: no such folder")
    return _run_dev_server(args, dev_server_argv(program, port, args.ui_port, args.db), port)


def _run_dev_server(args: Namespace, argv: list[str], port: int) -> int:
    import signal

    # Its own process group: Ctrl-C reaches only us, and we end the server.
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0)
    signals: list[int] = []

    def end(number: int, _: object) -> None:
        signals.append(number)
        server.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        if wait_until_reachable(server, port) and not signals:
            _print_server_ready(args, port, server.pid)
        errors = server.stderr.read().decode("utf-8", "replace").strip().splitlines() if server.stderr else []
        code = server.wait()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if signals:
        return 0
    print(f"ralph: the server ended with {code}: {errors[-1] if errors else 'no message'}", file=sys.stderr)
    return 3


def _print_server_ready(args: Namespace, port: int, pid: int) -> None:
    if args.json:
        print_json("dev", {"address": f"127.0.0.1:{port}", "pid": os.getpid(), "serverPid": pid})
    else:
        print(f"Temporal server ready at 127.0.0.1:{port}")
    sys.stdout.flush()


WORKER_ABOUT = """Run steps of loops on this machine, as many at once as there are slots, until Ctrl-C or SIGTERM.

Running a worker is consent to the commands of every repository that is submitted to it. At shutdown it takes no new
step and gives running ones --grace seconds; then it leaves them: their agents continue, and a worker started in the
same folder within the heartbeat takes them over, else another one continues the loops from git. A worker that cannot
reach its server for longer than the heartbeat ends its agents itself. Exit codes: 0 ended by a signal, 2 cannot work
here."""
WORKER_EXAMPLES = (
    "ralph fleet worker",
    "ralph fleet worker --slots 4 --work-dir /var/lib/ralph",
    "ralph fleet worker --address temporal.example:7233 --namespace ralph --tls-cert w.pem --tls-key w.key",
)


def worker_parser() -> Parser:
    parser = Parser("fleet worker", WORKER_ABOUT, WORKER_EXAMPLES)
    add = parser.add_argument
    add("--work-dir", metavar="DIR", help="folder for clones and turns (default: fleet in the state directory)")
    add("--slots", type=positive_int, default=2, metavar="N", help="concurrent steps (default: 2)")
    add("--name", metavar="NAME", help="worker name (default: host name and a hash of the folder)")
    add(
        "--grace",
        type=seconds,
        default=10.0,
        metavar="S",
        help="seconds that running steps get at shutdown (default: 10)",
    )
    add("--turn-program", metavar="CMD", help=SUPPRESS)
    add_server_flags(parser)
    return parser


def worker_main(argv: list[str]) -> int:
    args = worker_parser().parse(argv)
    server = server_from_flags(args)
    pool = open_step_pool(args)

    async def run() -> int:
        from ralphproof.fleet.connection import connect
        from ralphproof.fleet.temporal_worker import run_worker

        client = await connect(server)
        shutdown = asyncio.Event()
        _shut_down_on_signal(shutdown, args)
        await run_worker(
            client, pool, args.grace, shutdown, lambda: _print_worker_ready(args, pool.name, server.address)
        )
        return 0

    run_and_exit(lambda: asyncio.run(run()), args.json)


def open_step_pool(args: Namespace) -> StepPool:
    """Lock the worker's folder, choose its name, and return its step pool; refuses a folder of another worker."""
    import shlex

    from ralphproof.base import interpreter
    from ralphproof.fleet.folders import lock_worker_folder, worker_name
    from ralphproof.fleet.step_process import STEP_PROGRAM, StepPool
    from ralphproof.store.project import ensure_state_dir

    folder = os.path.abspath(args.work_dir) if args.work_dir else os.path.join(ensure_state_dir(os.environ), "fleet")
    lock_worker_folder(folder)
    name = worker_name(folder, args.name)
    argv = shlex.split(args.turn_program) if args.turn_program else interpreter.module_command(STEP_PROGRAM)
    return StepPool(name, folder, args.slots, argv)


def _shut_down_on_signal(shutdown: asyncio.Event, args: Namespace) -> None:
    """Shut down at the first signal; exit at once at the second."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if shutdown.is_set():
            os._exit(130)
        if not args.quiet:
            print("ralph: shutting down; running steps get some time to finish", file=sys.stderr, flush=True)
        shutdown.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)


def _print_worker_ready(args: Namespace, name: str, where: str) -> None:
    if args.json:
        print_json("worker", {"name": name, "at": where, "slots": args.slots, "pid": os.getpid()})
    elif not args.quiet:
        print(f"worker {name} is ready, {args.slots} slot{'s' if args.slots > 1 else ''}, {where}")
    sys.stdout.flush()
