"""`ralph fleet worker` and `ralph fleet dev`: a worker, and a server to try it with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.fleet import add_server_flags, run_and_exit, selected_engine, server_from_flags
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


# `ralph fleet dev`: a Temporal server for this machine alone.


DEV_ABOUT = """a Temporal server for this machine alone, until Ctrl-C. It listens on 127.0.0.1.

It is for trying things out; docs/fleet-setup.md says how to set up one that many rely on. Without --db it forgets
everything at its end. Exit codes: 0 it was asked to end, 2 it cannot be started, 3 it ended by itself."""
DEV_EXAMPLES = ("ralph fleet dev", "ralph fleet dev --db fleet.db", "ralph fleet dev --port 7300 --ui-port 8300")


def dev_parser() -> Parser:
    parser = Parser("fleet dev", DEV_ABOUT, DEV_EXAMPLES)
    add = parser.add_argument
    add("--port", type=port_number, default=7233, metavar="N", help="listen there; 0 takes a free one (default: 7233)")
    add("--ui-port", type=port_number, metavar="N", help="the server's own pages (default: none)")
    add("--db", metavar="FILE", help="keep everything in this file (default: in memory)")
    return parser


def dev_main(argv: list[str]) -> int:
    args = dev_parser().parse(argv)
    program = find_temporal()
    at = args.port or find_free_port()
    refuse_used_port(at)
    if args.db and not os.path.isdir(os.path.dirname(os.path.abspath(args.db))):
        raise Refused(f"--db {args.db}: there is no such folder")
    return _run_dev_server(args, dev_server_argv(program, at, args.ui_port, args.db), at)


def _run_dev_server(args: Namespace, words: list[str], at: int) -> int:
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
        if wait_until_reachable(server, at) and not asked:
            _print_server_ready(args, at, server.pid)
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


def _print_server_ready(args: Namespace, at: int, pid: int) -> None:
    if args.json:
        print_json("dev", {"address": f"127.0.0.1:{at}", "pid": os.getpid(), "serverPid": pid})
    else:
        print(f"a Temporal server answers at 127.0.0.1:{at}")
    sys.stdout.flush()


# `ralph fleet worker`: take steps of loops on this machine.


WORKER_ABOUT = """take steps of loops on this machine, as many at once as there are slots, until Ctrl-C or SIGTERM.

Running a worker is consent to the commands of every repository that is submitted to it. Asked to leave, it takes no
new step and lets those at work go on for --grace seconds; then it leaves them: their agents work on, and a worker
that is started in the same folder within the heartbeat goes on with them, else another one takes the loops over from
git. A worker that cannot reach its server for longer than the heartbeat ends its agents itself. Exit codes: 0 it was
asked to leave, 2 it cannot work here."""
WORKER_EXAMPLES = (
    "ralph fleet worker",
    "ralph fleet worker --slots 4 --work-dir /var/lib/ralph",
    "ralph fleet worker --address temporal.example:7233 --namespace ralph --tls-cert w.pem --tls-key w.key",
    "ralph fleet worker --engine local",
)


def worker_parser() -> Parser:
    parser = Parser("fleet worker", WORKER_ABOUT, WORKER_EXAMPLES)
    add = parser.add_argument
    add("--work-dir", metavar="DIR", help="where clones and turns lie (default: fleet in the state directory)")
    add("--slots", type=positive_int, default=2, metavar="N", help="steps at once (default: 2)")
    add("--name", metavar="NAME", help="this worker's name (default: the host's, and a mark of the folder)")
    add("--grace", type=seconds, default=10.0, metavar="S", help="steps may go on for so long when asked to leave")
    add("--turn-program", metavar="CMD", help=SUPPRESS)
    add("--until-idle", action="store_true", help="with --engine local: leave when no loop is left to work on")
    add_server_flags(parser)
    return parser


def worker_main(argv: list[str]) -> int:
    args = worker_parser().parse(argv)
    engine = selected_engine(args)
    if engine == "local":
        return _run_local_worker(args)
    if args.until_idle:
        raise Refused("--until-idle is for --engine local; other loops may come to a server at any time")
    server = server_from_flags(args)
    place = open_step_pool(args)

    async def through() -> int:
        from ralphproof.fleet.connection import connect
        from ralphproof.fleet.temporal_worker import run_worker

        client = await connect(server)
        leave = asyncio.Event()
        _leave_on_signal(leave, args)
        await run_worker(
            client, place, args.grace, leave, lambda: _print_worker_ready(args, place.name, server.address)
        )
        return 0

    run_and_exit(lambda: asyncio.run(through()), args.json)


def _run_local_worker(args: Namespace) -> int:
    from ralphproof.fleet.local_engine import run_local_worker
    from ralphproof.store.state_dir import ensure_state_dir

    place, store = open_step_pool(args), ensure_state_dir(os.environ)

    async def through() -> int:
        leave = asyncio.Event()
        _leave_on_signal(leave, args)
        _print_worker_ready(args, place.name, store)
        await run_local_worker(store, place, args.grace, leave, args.until_idle)
        return 0

    return asyncio.run(through())


def open_step_pool(args: Namespace) -> StepPool:
    """The worker's own folder and name; raises Refused where another worker is in it."""
    import shlex

    from ralphproof.base import interpreter
    from ralphproof.fleet.folders import lock_worker_folder, worker_name
    from ralphproof.fleet.step_process import STEP_PROGRAM, StepPool
    from ralphproof.store.state_dir import ensure_state_dir

    folder = os.path.abspath(args.work_dir) if args.work_dir else os.path.join(ensure_state_dir(os.environ), "fleet")
    lock_worker_folder(folder)
    name = worker_name(folder, args.name)
    argv = shlex.split(args.turn_program) if args.turn_program else interpreter.module_command(STEP_PROGRAM)
    return StepPool(name, folder, args.slots, argv)


def _leave_on_signal(leave: asyncio.Event, args: Namespace) -> None:
    """Leave at the first signal; a second one leaves at once."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if leave.is_set():
            os._exit(130)
        if not args.quiet:
            print("ralph: asked to leave; steps at work may go on for a while", file=sys.stderr, flush=True)
        leave.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, asked)


def _print_worker_ready(args: Namespace, name: str, where: str) -> None:
    """By now it takes steps."""
    if args.json:
        print_json("worker", {"name": name, "at": where, "slots": args.slots, "pid": os.getpid()})
    elif not args.quiet:
        print(f"worker {name} is ready, {args.slots} slot{'s' if args.slots > 1 else ''}, {where}")
    sys.stdout.flush()
