"""`ralph serve`: the runs of this project in a browser, and as an API."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.in_turn import refuse_in_turn
from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser, positive
from ralphproof.display.clean import clean, flat
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project

if TYPE_CHECKING:
    import socket
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from ralphproof.views.helm import Helm
    from ralphproof.web.address import Address
    from ralphproof.web.token import Token

ABOUT = """the runs of this project in a browser, and as an API.

Prints one address and answers there until Ctrl-C. The address has a token in it, without which nothing is shown; the
browser keeps it as a cookie. RALPH_SERVE_TOKEN sets the token, so that pages go on when the server is started again.
The server only reads, and runs go on whether it is there or not; with --control it can pause, resume and cancel them,
and say something to them. Exit codes: 0 it was asked to end, 2 it cannot listen there."""
EXAMPLES = (
    "ralph serve",
    "ralph serve --port 0 --json",
    "ralph serve --control --metrics",
    "ralph serve --host dev.example --tls-cert cert.pem --tls-key key.pem",
)
HOST, PORT = "127.0.0.1", 7654
MISSING = "ralph serve needs starlette and uvicorn; install them: pip install 'ralphproof[web]'"


def parser() -> Parser:
    made = Parser("serve", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--port", type=port, metavar="N", help=f"listen there; 0 takes a free one (default: {PORT}, else a free one)")
    add("--host", default=HOST, metavar="H", help=f"listen on this address (default: {HOST}, for this machine alone)")
    add("--name", action="append", metavar="N", help="another host or host:port by which browsers reach it; repeatable")
    add("--control", action="store_true", help="let those who have the token steer runs, not only look on")
    add("--metrics", action="store_true", help="figures for Prometheus at /metrics")
    add("--tls-cert", metavar="FILE", help="speak https with this certificate")
    add("--tls-key", metavar="FILE", help="and its key")
    add("--insecure-http", action="store_true", help="let others on the network read along: no https on another host")
    add("--max-clients", type=positive, default=128, metavar="N", help="connections at once (default: 128)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.control:
        refuse_in_turn("serve --control")
    tls = tls_of(args)
    refuse_open(args, tls)
    must_serve()
    refuse_names(args.name or ())
    from ralphproof.web.address import Address
    from ralphproof.web.listening import listening
    from ralphproof.web.token import Token, secret_of

    secret = secret_of(os.environ)
    project = Project.at(args.project_dir, os.environ)
    sock, taken = listening(args.host, args.port, PORT)
    try:
        port = int(sock.getsockname()[1])
        address = Address("https" if tls else "http", args.host, port, tuple(args.name or ()))
        token = Token(secret, port, bool(tls))
        if taken and not args.quiet:
            print(f"ralph: port {PORT} is taken; this is another one", file=sys.stderr)
        _answer(project, sock, address, token, tls, args)
    finally:
        sock.close()
    return 0


def port(text: str) -> int:
    """A port, or 0."""
    import argparse

    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; it is a number from 0 to 65535")
    return number


def tls_of(args: Namespace) -> tuple[str, str] | None:
    """The files for https; raises Refused where they are not both there, or do not belong together."""
    if not args.tls_cert and not args.tls_key:
        return None
    if not args.tls_cert or not args.tls_key:
        raise Refused("--tls-cert and --tls-key are needed both")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key, password=lambda: "")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Refused(f"{args.tls_cert} and {args.tls_key} cannot be used for https ({why})") from None
    return args.tls_cert, args.tls_key


def refuse_open(args: Namespace, tls: tuple[str, str] | None) -> None:
    """Who lets others on the network in must have said how."""
    if on_this_machine(args.host) or tls or args.insecure_http:
        return
    raise Refused(
        f"on {args.host} others on the network could read along; give --tls-cert and --tls-key, or --insecure-http "
        f"where that is no harm; or stay on {HOST} and come in by ssh -L"
    )


def refuse_names(names: Iterable[str]) -> None:
    """No browser would ever send what is no name."""
    from ralphproof.web.address import is_name

    for name in names:
        if not is_name(name):
            raise Refused(f"--name {name!r} is no name of a server; write host or host:port, without http://")


def on_this_machine(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def must_serve() -> None:
    """Refuse where a library is missing."""
    from importlib import import_module

    try:
        for name in ("starlette", "uvicorn"):
            import_module(name)
    except ImportError:
        raise Refused(MISSING) from None


def _tell(address: Address, token: Token, args: Namespace) -> None:
    """One line. By now it can be reached, and asked to end."""
    whole = f"{address.origin}/?{token.query}"
    if args.json:
        told = {"address": whole, "port": address.port, "pid": os.getpid(), "control": args.control}
        put_json("serve", told | {"metrics": args.metrics})
    else:
        print(whole)
    sys.stdout.flush()


def _answer(
    project: Project, sock: socket.socket, address: Address, token: Token, tls: tuple[str, str] | None, args: Namespace
) -> None:
    from ralphproof.views.board import Board
    from ralphproof.views.overhear import Overhearing
    from ralphproof.web.connection import Endurance
    from ralphproof.web.server import serve

    serve(
        sock, address, token, Board(project), _helm(project) if args.control else None,
        lambda run, hear: Overhearing(project, run, hear), noting(project.mask), lambda: _tell(address, token, args),
        args.metrics, tls, Endurance(args.max_clients, max(1, args.max_clients // 2)),
    )  # fmt: skip


def _helm(project: Project) -> Helm:
    from ralphproof.cli.helm import Steersman

    return Steersman(project)


def noting(mask: Callable[[str], str]) -> Callable[[str], None]:
    """Says what went wrong on standard error, the same thing once."""
    said: set[str] = set()

    def note(line: str) -> None:
        line = flat(clean(mask(line)))
        if line in said or len(said) > 100:
            return
        said.add(line)
        try:
            print(f"ralph: {line}", file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody listens

    return note
