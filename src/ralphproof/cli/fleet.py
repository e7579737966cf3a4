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


# `ralph fleet`: many loops on many machines: submitted, worked on, watched and cancelled.


ABOUT = """many loops on many machines, which share a git remote and nothing else. A Temporal server drives them, or
with --engine local one file on this machine.

{verbs}

ralph fleet VERB --help says more. RALPH_FLEET_ENGINE, _ADDRESS, _NAMESPACE, _TLS_CERT, _TLS_KEY and _TLS_CA stand for
the flags of the same names, TEMPORAL_API_KEY for an API key."""
EXAMPLES = (
    "ralph fleet dev",
    "ralph fleet worker --slots 4",
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test" --wait',
    "ralph fleet submit --repo /srv/git/app.git --tasks tasks.yaml --land main --total-cost-usd 50",
    "ralph fleet status",
)
FLEET_VERBS = {
    "worker": "take steps of loops on this machine",
    "submit": "hand in loops",
    "status": "where loops stand, and what they cost",
    "cancel": "end loops",
    "logs": "what the agent and the checks of a loop printed",
    "dev": "a Temporal server for this machine alone",
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


# What the verbs of the fleet have in common: which engine, where its server is, and how such a process ends.


ENGINES = ("temporal", "local")


def add_server_flags(parser: Parser) -> None:
    """The flags that say who drives the loops, and where."""
    group = parser.add_argument_group("engine")
    add = group.add_argument
    add("--engine", choices=ENGINES, help="who drives the loops: a server (default), or a file on this machine")
    add("--address", metavar="HOST:PORT", help="the server (default: 127.0.0.1:7233)")
    add("--namespace", metavar="N", help="the namespace on it (default: default)")
    add("--tls-cert", metavar="FILE", help="the certificate by which the server knows us")
    add("--tls-key", metavar="FILE", help="and its key")
    add("--tls-ca", metavar="FILE", help="the certificate by which we know the server")


def selected_engine(args: Namespace) -> str:
    """The engine; raises Refused where a flag of the other one is given."""
    engine = args.engine or os.environ.get("RALPH_FLEET_ENGINE") or ENGINES[0]
    if engine not in ENGINES:
        raise Refused(f"RALPH_FLEET_ENGINE is {engine!r}; it can be {' or '.join(ENGINES)}")
    if args.engine == "local":
        for flag in ("address", "namespace", "tls_cert", "tls_key", "tls_ca"):
            if getattr(args, flag):
                raise Refused(f"--{flag.replace('_', '-')} is for --engine temporal; the local engine has no server")
    return engine


def server_from_flags(args: Namespace) -> TemporalServer:
    """Where the server is; raises Refused where that cannot be meant, or the library is missing."""
    from ralphproof.fleet.connection import TemporalServer, require_temporal

    given = {name: getattr(args, name) for name in ("address", "namespace", "tls_cert", "tls_key", "tls_ca")}
    server = TemporalServer.of(given, os.environ)
    require_temporal()
    return server


def run_client_and_exit(args: Namespace, work: Callable[[Any], Awaitable[int]]) -> NoReturn:
    """Do something with a client of the server, and end this process with its exit code.

    A process that had such a client and ends as others do is aborted by it now and then (temporalio 1.35).
    """
    server = server_from_flags(args)

    async def through() -> int:
        from ralphproof.fleet.connection import run_with_client

        return await run_with_client(server, work)

    run_and_exit(lambda: asyncio.run(through()), args.json)


def run_and_exit(work: Callable[[], int], as_json: bool) -> NoReturn:
    """End this process with what comes of the work; all that was said is written before."""
    from ralphproof.cli.dispatch import run_to_exit_code

    silence_library_log()
    code = run_to_exit_code(work, ["--json"] if as_json else [])
    flush_streams()
    os._exit(code)


def silence_library_log() -> None:
    """The library logs each lost step with a traceback; those are told by us."""
    import logging

    logging.getLogger("temporalio").setLevel(logging.CRITICAL)


# `ralph fleet cancel`: end loops; their agents are ended, and their work is kept.


CANCEL_ABOUT = "end loops; their agents are ended, and their work is kept."
CANCEL_EXAMPLES = (
    "ralph fleet cancel 20261117-171500-k3f9-1",
    "ralph fleet cancel --all",
    "ralph fleet cancel --all --json",
)


def cancel_parser() -> Parser:
    parser = Parser("fleet cancel", CANCEL_ABOUT, CANCEL_EXAMPLES)
    parser.add_argument("loops", nargs="*", metavar="LOOP", help="loops by their ids")
    parser.add_argument("--all", action="store_true", help="every loop that is not over, and those not yet begun")
    add_server_flags(parser)
    return parser


def cancel_main(argv: list[str]) -> int:
    args = cancel_parser().parse(argv)
    if bool(args.loops) == args.all:
        raise Refused("say which loops: their ids, or --all (see ralph fleet cancel --help)")
    if selected_engine(args) == "local":
        return _print_cancelled(_without_missing(args.loops), args.json)

    async def end(client: Any) -> int:
        from ralphproof.fleet import client as asking

        if args.all:
            return _print_cancelled(await asking.cancel_all(client), args.json)
        for loop in args.loops:
            await asking.find_loop(client, loop)  # all of them are there, or none is cancelled
        for loop in args.loops:
            await asking.cancel_loop(client, loop)
        return _print_cancelled(args.loops, args.json)

    run_client_and_exit(args, end)


def _without_missing(loops: list[str]) -> list[str]:
    from ralphproof.fleet.local_engine import LocalFleet
    from ralphproof.store.state_dir import ensure_state_dir

    fleet = LocalFleet(ensure_state_dir(os.environ))
    names = [fleet.loop(name).name for name in loops] or [one.name for one in fleet.open()]
    fleet.cancel(names)
    return names


def _print_cancelled(loops: list[str], as_json: bool) -> int:
    if as_json:
        print_json("cancel", {"loops": [*loops]})
    else:
        print_lines(*([f"asked to end: {', '.join(loops)}"] if loops else ["no loop is at work"]))
    return 0


# `ralph fleet logs`: what the agent and the checks of a loop printed, whichever machine it was on.


LOGS_ABOUT = """what the agent and the checks of a loop printed, whichever machine it was on.

Logs are in the folder that was given to submit with --artifacts; without --name they are listed, or all of an
iteration are shown."""
LOGS_EXAMPLES = (
    "ralph fleet logs 20261117-171500-k3f9-1",
    "ralph fleet logs 20261117-171500-k3f9-1 --iteration 2",
    "ralph fleet logs 20261117-171500-k3f9-1 --name outcome.json",
)


def logs_parser() -> Parser:
    parser = Parser("fleet logs", LOGS_ABOUT, LOGS_EXAMPLES)
    parser.add_argument("loop", metavar="LOOP", help="the loop by its id")
    parser.add_argument("--iteration", type=positive_int, metavar="N", help="all logs of this iteration")
    parser.add_argument("--name", metavar="FILE", help="one log by its name")
    parser.add_argument("--artifacts", metavar="URL", help="the folder (default: as it was submitted)")
    add_server_flags(parser)
    return parser


def logs_main(argv: list[str]) -> int:
    args = logs_parser().parse(argv)
    engine = selected_engine(args)
    if args.artifacts:
        return print_logs(args, args.artifacts)
    if engine == "local":
        from ralphproof.fleet.local_engine import LocalFleet
        from ralphproof.store.state_dir import ensure_state_dir

        return print_logs(args, LocalFleet(ensure_state_dir(os.environ)).loop(args.loop).given["order"]["artifacts"])

    async def look(client: Any) -> int:
        from ralphproof.fleet import client as asking

        return print_logs(args, str((await asking.find_loop(client, args.loop)).get("artifacts") or ""))

    run_client_and_exit(args, look)


def print_logs(args: Namespace, url: str) -> int:
    """Print the logs, or their names."""
    from ralphproof.fleet.artifacts import ArtifactFolder

    if not url:
        raise Refused(f"loop {args.loop} was submitted without --artifacts: its logs are on its worker alone")
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
        print_lines(*names or ("there is no log yet",))
    return 0


# `ralph fleet status`: where loops stand, and what they cost.


STATUS_ABOUT = "where loops stand, and what they cost."
STATUS_EXAMPLES = ("ralph fleet status", "ralph fleet status 20261117-171500-k3f9-1", "ralph fleet status --json")


def status_parser() -> Parser:
    parser = Parser("fleet status", STATUS_ABOUT, STATUS_EXAMPLES)
    parser.add_argument("loop", nargs="?", metavar="LOOP", help="one loop by its id (default: all)")
    add_server_flags(parser)
    return parser


def status_main(argv: list[str]) -> int:
    args = status_parser().parse(argv)
    if selected_engine(args) == "local":
        from ralphproof.fleet.local_engine import LocalFleet
        from ralphproof.store.state_dir import ensure_state_dir

        fleet = LocalFleet(ensure_state_dir(os.environ))
        found = [fleet.loop(args.loop)] if args.loop else fleet.loops()
        return _print_status([one.shown for one in found], args.loop, args.json)

    async def look(client: Any) -> int:
        from ralphproof.fleet import client as asking

        found = [await asking.find_loop(client, args.loop)] if args.loop else await asking.list_loops(client)
        return _print_status(found, args.loop, args.json)

    run_client_and_exit(args, look)


def _print_status(found: list[dict[str, Any]], one: str | None, as_json: bool) -> int:
    if as_json:
        print_json("loop", found[0]) if one else print_json("fleet", {"loops": [*found]})
    elif not found:
        print_lines("no loop was submitted")
    else:
        print_lines(*(loop_line(loop) for loop in found))
    return 0


def loop_line(loop: dict[str, Any]) -> str:
    """A loop in one line."""
    cost = f"${loop['knownCostUSD']:.2f}" if loop["costUSD"] is not None else f"at least ${loop['knownCostUSD']:.2f}"
    done = f"{loop['iterations']} iteration{'' if loop['iterations'] == 1 else 's'}, {cost}"
    return "  ".join(part for part in (loop["loop"], loop_status_text(loop), done, loop.get("title", "")) if part)


def loop_status_text(loop: dict[str, Any]) -> str:
    """What can be said of it in few words."""
    if loop["status"]:
        how = loop["reason"] or loop["proof"]
        why = loop["message"] if loop["status"] == "ERROR" else ""
        return f"{loop['status']}{f' ({how})' if how else ''}{f': {why}' if why else ''}"
    trouble = f" (trouble: {loop['trouble']})" if loop.get("trouble") else ""
    return f"{'on ' + loop['worker'] if loop['worker'] else 'waits'}{trouble}"
