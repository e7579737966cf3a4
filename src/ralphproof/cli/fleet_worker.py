"""`ralph fleet worker`: take steps of loops on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from ralphproof.cli.fleet_common import add_server, ended_at_once, engine_of, server_of
from ralphproof.cli.out import put_json
from ralphproof.cli.parser import SUPPRESS, Parser, delay, positive
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.fleet.workplace import Workplace

ABOUT = """take steps of loops on this machine, as many at once as there are slots, until Ctrl-C or SIGTERM.

Running a worker is consent to the commands of every repository that is submitted to it. Asked to leave, it takes no
new step and lets those at work go on for --grace seconds; then it leaves them: their agents work on, and a worker
that is started in the same folder within the heartbeat goes on with them, else another one takes the loops over from
git. A worker that cannot reach its server for longer than the heartbeat ends its agents itself. Exit codes: 0 it was
asked to leave, 2 it cannot work here."""
EXAMPLES = (
    "ralph fleet worker",
    "ralph fleet worker --slots 4 --work-dir /var/lib/ralph",
    "ralph fleet worker --address temporal.example:7233 --namespace ralph --tls-cert w.pem --tls-key w.key",
    "ralph fleet worker --engine local",
)


def parser() -> Parser:
    made = Parser("fleet worker", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--work-dir", metavar="DIR", help="where clones and turns lie (default: fleet in the state directory)")
    add("--slots", type=positive, default=2, metavar="N", help="steps at once (default: 2)")
    add("--name", metavar="NAME", help="this worker's name (default: the host's, and a mark of the folder)")
    add("--grace", type=delay, default=10.0, metavar="S", help="steps may go on for so long when asked to leave")
    add("--turn-program", metavar="CMD", help=SUPPRESS)
    add("--until-idle", action="store_true", help="with --engine local: leave when no loop is left to work on")
    add_server(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    engine = engine_of(args)
    if engine == "local":
        return _local(args)
    if args.until_idle:
        raise Refused("--until-idle is for --engine local; other loops may come to a server at any time")
    server = server_of(args)
    place = workplace(args)

    async def through() -> int:
        from ralphproof.fleet.connection import connected
        from ralphproof.fleet.worker import serve

        client = await connected(server)
        leave = asyncio.Event()
        _when_asked(leave, args)
        await serve(client, place, args.grace, leave, lambda: _tell(args, place.name, server.address))
        return 0

    ended_at_once(lambda: asyncio.run(through()), args.json)


def _local(args: Namespace) -> int:
    from ralphproof.fleet.local_worker import serve_locally
    from ralphproof.ledgers.place import state_dir

    place, store = workplace(args), state_dir(os.environ)

    async def through() -> int:
        leave = asyncio.Event()
        _when_asked(leave, args)
        _tell(args, place.name, store)
        await serve_locally(store, place, args.grace, leave, args.until_idle)
        return 0

    return asyncio.run(through())


def workplace(args: Namespace) -> Workplace:
    """The worker's own folder and name; raises Refused where another worker is in it."""
    import shlex

    from ralphproof import interpreter
    from ralphproof.fleet.running import TURN
    from ralphproof.fleet.workfolder import name_of, taken
    from ralphproof.fleet.workplace import Workplace
    from ralphproof.ledgers.place import state_dir

    folder = os.path.abspath(args.work_dir) if args.work_dir else os.path.join(state_dir(os.environ), "fleet")
    taken(folder)
    name = name_of(folder, args.name)
    argv = shlex.split(args.turn_program) if args.turn_program else interpreter.module(TURN)
    return Workplace(name, folder, args.slots, argv)


def _when_asked(leave: asyncio.Event, args: Namespace) -> None:
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


def _tell(args: Namespace, name: str, where: str) -> None:
    """By now it takes steps."""
    if args.json:
        put_json("worker", {"name": name, "at": where, "slots": args.slots, "pid": os.getpid()})
    elif not args.quiet:
        print(f"worker {name} is ready, {args.slots} slot{'s' if args.slots > 1 else ''}, {where}")
    sys.stdout.flush()
