"""What the verbs of the fleet have in common: which engine, where its server is, and how such a process ends."""

from __future__ import annotations

import asyncio
import os

from ralphproof.cli.out import let_go
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable
    from typing import Any, NoReturn

    from ralphproof.cli.parser import Parser
    from ralphproof.fleet.connection import Server

ENGINES = ("temporal", "local")


def add_server(made: Parser) -> None:
    """The flags that say who drives the loops, and where."""
    group = made.add_argument_group("engine")
    add = group.add_argument
    add("--engine", choices=ENGINES, help="who drives the loops: a server (default), or a file on this machine")
    add("--address", metavar="HOST:PORT", help="the server (default: 127.0.0.1:7233)")
    add("--namespace", metavar="N", help="the namespace on it (default: default)")
    add("--tls-cert", metavar="FILE", help="the certificate by which the server knows us")
    add("--tls-key", metavar="FILE", help="and its key")
    add("--tls-ca", metavar="FILE", help="the certificate by which we know the server")


def engine_of(args: Namespace) -> str:
    """The engine; raises Refused where a flag of the other one is given."""
    engine = args.engine or os.environ.get("RALPH_FLEET_ENGINE") or ENGINES[0]
    if engine not in ENGINES:
        raise Refused(f"RALPH_FLEET_ENGINE is {engine!r}; it can be {' or '.join(ENGINES)}")
    if args.engine == "local":
        for flag in ("address", "namespace", "tls_cert", "tls_key", "tls_ca"):
            if getattr(args, flag):
                raise Refused(f"--{flag.replace('_', '-')} is for --engine temporal; the local engine has no server")
    return engine


def server_of(args: Namespace) -> Server:
    """Where the server is; raises Refused where that cannot be meant, or the library is missing."""
    from ralphproof.fleet.connection import Server, must_have_temporal

    given = {name: getattr(args, name) for name in ("address", "namespace", "tls_cert", "tls_key", "tls_ca")}
    server = Server.of(given, os.environ)
    must_have_temporal()
    return server


def with_client(args: Namespace, work: Callable[[Any], Awaitable[int]]) -> NoReturn:
    """Do something with a client of the server, and end this process with its exit code.

    A process that had such a client and ends as others do is aborted by it now and then (temporalio 1.35).
    """
    server = server_of(args)

    async def through() -> int:
        from ralphproof.fleet.connection import asked

        return await asked(server, work)

    ended_at_once(lambda: asyncio.run(through()), args.json)


def ended_at_once(work: Callable[[], int], as_json: bool) -> NoReturn:
    """End this process with what comes of the work; all that was said is written before."""
    from ralphproof.cli.dispatch import coded

    quiet_library()
    code = coded(work, ["--json"] if as_json else [])
    let_go()
    os._exit(code)


def quiet_library() -> None:
    """The library logs each lost step with a traceback; those are told by us."""
    import logging

    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
