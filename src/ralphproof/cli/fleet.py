"""`ralph fleet`: status, cancel and logs of loops on many machines."""

from __future__ import annotations

import asyncio
import os
import sys

from ralphproof.base.errors import NotThere, Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.standard_streams import flush_streams
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, Subverbs, positive_int
from ralphproof.display.output import print_json, print_lines

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable
    from typing import Any, NoReturn

    from ralphproof.fleet.connection import TemporalServer


ABOUT = """Run many loops on many machines that share only a git remote. A Temporal server drives them.

{verbs}

ralph fleet VERB --help shows details. RALPH_FLEET_ADDRESS, _NAMESPACE, _TLS_CERT, _TLS_KEY and _TLS_CA replace the
flags of the same names, TEMPORAL_API_KEY is the API key. For several loops on one machine: ralph work --parallel."""
EXAMPLES = (
    "ralph fleet dev",
    "ralph fleet worker --slots 4",
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test" --wait',
    "ralph fleet submit --repo /srv/git/app.git --tasks tasks.yaml --land main --total-cost-usd 50",
    "ralph fleet status",
)
FLEET_VERBS = {
    "worker": "run steps of loops on this machine",
    "submit": "submit loops",
    "status": "show the state and cost of loops",
    "cancel": "end loops",
    "logs": "show the output of a loop's agent and checks",
    "dev": "run a local Temporal server",
}

SUBVERBS = Subverbs(
    "fleet",
    ABOUT,
    EXAMPLES,
    FLEET_VERBS,
    "status",
    {
        **dict.fromkeys(FLEET_VERBS, "fleet"),
        "submit": "fleet_submit",
        **dict.fromkeys(("worker", "dev"), "fleet_worker"),
    },
)
build_parser, build_parsers, main = SUBVERBS.build_parser, SUBVERBS.build_parsers, SUBVERBS.main


def add_server_flags(parser: Parser) -> None:
    """Add the flags that name the server."""
    group = parser.add_argument_group("server")
    add = group.add_argument
    add("--address", metavar="HOST:PORT", help="server address (default: 127.0.0.1:7233)")
    add("--namespace", metavar="N", help="server namespace (default: default)")
    add("--tls-cert", metavar="FILE", help="client certificate")
    add("--tls-key", metavar="FILE", help="key of the client certificate")
    add("--tls-ca", metavar="FILE", help="CA certificate of the server")


def server_from_flags(args: Namespace) -> TemporalServer:
    """The server that the flags name; refuses invalid flags and a missing library."""
    from ralphproof.fleet.connection import TemporalServer, require_temporal

    flags = {name: getattr(args, name) for name in ("address", "namespace", "tls_cert", "tls_key", "tls_ca")}
    server = TemporalServer.of(flags, os.environ)
    require_temporal()
    return server


def run_client_and_exit(args: Namespace, work: Callable[[Any], Awaitable[int]]) -> NoReturn:
    """Run `work` with a server client, and end this process with its exit code.

    A process that used such a client and exits normally is sometimes aborted by it (temporalio 1.35).
    """
    server = server_from_flags(args)

    async def run() -> int:
        from ralphproof.fleet.connection import run_with_client

        return await run_with_client(server, work)

    run_and_exit(lambda: asyncio.run(run()), args.json)


def run_and_exit(work: Callable[[], int], as_json: bool) -> NoReturn:
    """Run `work`, flush the output, and end this process with its exit code."""
    from ralphproof.cli.dispatch import run_to_exit_code

    silence_library_log()
    code = run_to_exit_code(work, ["--json"] if as_json else [])
    flush_streams()
    os._exit(code)


def silence_library_log() -> None:
    """Silence the library, which logs each lost step with a traceback; we report them ourselves."""
    import logging

    logging.getLogger("temporalio").setLevel(logging.CRITICAL)


CANCEL_ABOUT = "End loops; their agents are ended, and their work is kept."
CANCEL_EXAMPLES = (
    "ralph fleet cancel 20261117-171500-k3f9-1",
    "ralph fleet cancel --all",
    "ralph fleet cancel --all --json",
)


def cancel_parser() -> Parser:
    parser = Parser("fleet cancel", CANCEL_ABOUT, CANCEL_EXAMPLES)
    parser.add_argument("loops", nargs="*", metavar="LOOP", help="loop ids")
    parser.add_argument("--all", action="store_true", help="all loops that have not ended")
    add_server_flags(parser)
    return parser


def cancel_main(argv: list[str]) -> int:
    args = cancel_parser().parse(argv)
    if bool(args.loops) == args.all:
        raise Refused("name loops, or use --all (see ralph fleet cancel --help)")

    async def cancel(client: Any) -> int:
        from ralphproof.fleet import client as fleet_client

        if args.all:
            return _print_cancelled(await fleet_client.cancel_all(client), args.json)
        for loop in args.loops:
            await fleet_client.find_loop(client, loop)  # all of them exist, or none is cancelled
        for loop in args.loops:
            await fleet_client.cancel_loop(client, loop)
        return _print_cancelled(args.loops, args.json)

    run_client_and_exit(args, cancel)


def _print_cancelled(loops: list[str], as_json: bool) -> int:
    if as_json:
        print_json("cancel", {"loops": [*loops]})
    else:
        print_lines(*([f"cancelled: {', '.join(loops)}"] if loops else ["no loop is running"]))
    return 0


LOGS_ABOUT = """Show the output of a loop's agent and checks, whichever machine it ran on.

The logs are in the folder that was given to submit with --artifacts. Without --name they are listed, or all logs of an
iteration are printed."""
LOGS_EXAMPLES = (
    "ralph fleet logs 20261117-171500-k3f9-1",
    "ralph fleet logs 20261117-171500-k3f9-1 --iteration 2",
    "ralph fleet logs 20261117-171500-k3f9-1 --name outcome.json",
)


def logs_parser() -> Parser:
    parser = Parser("fleet logs", LOGS_ABOUT, LOGS_EXAMPLES)
    parser.add_argument("loop", metavar="LOOP", help="loop id")
    parser.add_argument("--iteration", type=positive_int, metavar="N", help="print all logs of this iteration")
    parser.add_argument("--name", metavar="FILE", help="print this log")
    parser.add_argument("--artifacts", metavar="URL", help="folder of the logs (default: the one given to submit)")
    add_server_flags(parser)
    return parser


def logs_main(argv: list[str]) -> int:
    args = logs_parser().parse(argv)
    if args.artifacts:
        return print_logs(args, args.artifacts)

    async def find_logs(client: Any) -> int:
        from ralphproof.fleet import client as fleet_client

        return print_logs(args, str((await fleet_client.find_loop(client, args.loop)).get("artifacts") or ""))

    run_client_and_exit(args, find_logs)


def print_logs(args: Namespace, url: str) -> int:
    """Print the selected logs, or the names of all."""
    from ralphproof.fleet.artifacts import ArtifactFolder

    if not url:
        raise Refused(f"loop {args.loop} was submitted without --artifacts: its logs exist only on its worker")
    folder = ArtifactFolder(url, args.loop)
    names = folder.names()
    if args.name is not None or args.iteration is not None:
        mark = f"_{args.iteration:03d}" if args.iteration is not None else ""
        names = tuple(name for name in names if (name == args.name if args.name else mark in name))
        if not names:
            raise NotThere(f"loop {args.loop} has no such log; ralph fleet logs {args.loop} lists them")
        if not args.json:
            for name in names:
                sys.stdout.write(sanitize(folder.read(name).decode("utf-8", "replace")))
            return 0
    if args.json:
        print_json("logs", {"loop": args.loop, "logs": [*names]})
    else:
        print_lines(*names or ("no log yet",))
    return 0


STATUS_ABOUT = "Show the state and cost of loops."
STATUS_EXAMPLES = ("ralph fleet status", "ralph fleet status 20261117-171500-k3f9-1", "ralph fleet status --json")


def status_parser() -> Parser:
    parser = Parser("fleet status", STATUS_ABOUT, STATUS_EXAMPLES)
    parser.add_argument("loop", nargs="?", metavar="LOOP", help="loop id (default: all loops)")
    add_server_flags(parser)
    return parser


def status_main(argv: list[str]) -> int:
    args = status_parser().parse(argv)

    async def find_status(client: Any) -> int:
        from ralphproof.fleet import client as fleet_client

        found = (
            [await fleet_client.find_loop(client, args.loop)] if args.loop else await fleet_client.list_loops(client)
        )
        return _print_status(found, args.loop, args.json)

    run_client_and_exit(args, find_status)


def _print_status(found: list[dict[str, Any]], one: str | None, as_json: bool) -> int:
    if as_json:
        print_json("loop", found[0]) if one else print_json("fleet", {"loops": [*found]})
    elif not found:
        print_lines("no loop was submitted")
    else:
        print_lines(*(loop_line(loop) for loop in found))
    return 0


def loop_line(loop: dict[str, Any]) -> str:
    """One line about a loop."""
    cost = f"${loop['knownCostUSD']:.2f}" if loop["costUSD"] is not None else f"at least ${loop['knownCostUSD']:.2f}"
    progress = f"{loop['iterations']} iteration{'' if loop['iterations'] == 1 else 's'}, {cost}"
    return "  ".join(part for part in (loop["loop"], loop_status_text(loop), progress, loop.get("title", "")) if part)


def loop_status_text(loop: dict[str, Any]) -> str:
    """The state of a loop in a few words."""
    if loop["status"]:
        detail = loop["reason"] or loop["proof"]
        error = loop["message"] if loop["status"] == "ERROR" else ""
        return f"{loop['status']}{f' ({detail})' if detail else ''}{f': {error}' if error else ''}"
    trouble = f" (trouble: {loop['trouble']})" if loop.get("trouble") else ""
    return f"{'on ' + loop['worker'] if loop['worker'] else 'waits'}{trouble}"
