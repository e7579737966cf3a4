"""`ralph serve`: web pages and an API of this project's runs."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterable
from importlib import import_module

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json
from ralphproof.runs.control import RunControl
from ralphproof.runs.open_project import open_project, refuse_in_turn
from ralphproof.store.project import Project
from ralphproof.views.events import LiveEvents
from ralphproof.views.read_model import ReadModel

if TYPE_CHECKING:
    from ralphproof.web.access import AccessToken, ServerAddress

ABOUT = """Serve the runs of this project as web pages and as an API.

Prints one address and serves it until Ctrl-C. The address contains a token, which every request needs; the browser
keeps it as a cookie. RALPH_SERVE_TOKEN sets the token, so that open pages survive a restart. The server only reads,
and runs do not depend on it; with --control it can pause, resume and cancel them, and send them messages.
Exit codes: 0 ended by a signal, 2 it cannot listen there."""
EXAMPLES = (
    "ralph serve",
    "ralph serve --port 0 --json",
    "ralph serve --control --metrics",
    "ralph serve --host dev.example --tls-cert cert.pem --tls-key key.pem",
)
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7654
MISSING_WEB = "ralph serve needs starlette and uvicorn; install them: pip install 'ralphproof[web]'"


def serve_parser() -> Parser:
    parser = Parser("serve", ABOUT, EXAMPLES)
    add = parser.add
    add("--port N", f"port; 0 takes a free one (default: {DEFAULT_PORT}, else a free one)", type=port_number)
    add("--host H", f"address to listen on (default: {DEFAULT_HOST}, only this machine)", default=DEFAULT_HOST)
    add("--name N", "additional host or host:port that browsers use; repeatable", action="append")
    add("--control", "allow clients with the token to control runs")
    add("--metrics", "serve Prometheus metrics at /metrics")
    add("--tls-cert FILE", "certificate for https")
    add("--tls-key FILE", "key of the certificate")
    add("--insecure-http", "allow plain http on other hosts: the network can read along")
    add("--max-clients N", "most concurrent connections (default: 128)", type=positive_int, default=128)
    return parser


def serve_main(argv: list[str]) -> int:
    args = serve_parser().parse(argv)
    if args.control:
        refuse_in_turn("serve --control")
    tls = tls_files(args)
    refuse_plain_public(args, tls)
    require_web_packages()
    refuse_bad_names(args.name or ())
    from ralphproof.web.access import AccessToken, ServerAddress, load_or_create_secret
    from ralphproof.web.server import open_listening_socket

    secret = load_or_create_secret(os.environ)
    project = open_project(args.project_dir, os.environ)
    sock, taken = open_listening_socket(args.host, args.port, DEFAULT_PORT)
    try:
        port = int(sock.getsockname()[1])
        address = ServerAddress("https" if tls else "http", args.host, port, tuple(args.name or ()))
        token = AccessToken(secret, port, bool(tls))
        if taken and not args.quiet:
            print(f"ralph: port {DEFAULT_PORT} is in use; using another one", file=sys.stderr)
        _run_server(project, sock, address, token, tls, args)
    finally:
        sock.close()
    return 0


def port_number(text: str) -> int:
    """A port number, or 0."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use a number from 0 to 65535")
    return number


def tls_files(args: argparse.Namespace) -> tuple[str, str] | None:
    """Certificate and key for https; refuses one without the other, and files that do not match."""
    if not args.tls_cert and not args.tls_key:
        return None
    if not args.tls_cert or not args.tls_key:
        raise Refused("--tls-cert and --tls-key must be given together")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Refused(f"{args.tls_cert} and {args.tls_key} cannot be used for https ({reason})") from None
    return args.tls_cert, args.tls_key


def refuse_plain_public(args: argparse.Namespace, tls: tuple[str, str] | None) -> None:
    """Refuse plain http on other hosts without --insecure-http."""
    if is_loopback(args.host) or tls or args.insecure_http:
        return
    raise Refused(
        f"on {args.host} the network could read along; give --tls-cert and --tls-key, or --insecure-http to allow it; "
        f"or stay on {DEFAULT_HOST} and connect with ssh -L"
    )


def refuse_bad_names(names: Iterable[str]) -> None:
    """Refuse names that no browser would send."""
    from ralphproof.web.access import is_host_name

    for name in names:
        if not is_host_name(name):
            raise Refused(f"--name {name!r} is no server name; write host or host:port, without http://")


def is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def require_web_packages() -> None:
    """Refuse if a library is missing."""
    try:
        for name in ("starlette", "uvicorn"):
            import_module(name)
    except ImportError:
        raise Refused(MISSING_WEB) from None


def _print_address(address: ServerAddress, token: AccessToken, args: argparse.Namespace) -> None:
    """Print the address in one line; the server answers by now."""
    url = f"{address.origin}/?{token.query}"
    if args.json:
        data = {"address": url, "port": address.port, "pid": os.getpid(), "control": args.control}
        print_json("serve", data | {"metrics": args.metrics})
    else:
        print(url)
    sys.stdout.flush()


def _run_server(
    project: Project,
    sock: socket.socket,
    address: ServerAddress,
    token: AccessToken,
    tls: tuple[str, str] | None,
    args: argparse.Namespace,
) -> None:
    from ralphproof.web.server import ConnectionLimits, serve

    serve(
        sock, address, token, ReadModel(project), RunControl(project) if args.control else None,
        lambda run, hear: LiveEvents(project, run, hear), fault_logger(project.mask),
        lambda: _print_address(address, token, args),
        args.metrics, tls, ConnectionLimits(args.max_clients, max(1, args.max_clients // 2)),
    )  # fmt: skip


def fault_logger(mask: Callable[[str], str]) -> Callable[[str], None]:
    """A logger of errors on standard error that prints equal lines once."""
    printed: set[str] = set()

    def log(line: str) -> None:
        line = collapse_lines(sanitize(mask(line)))
        if line in printed or len(printed) > 100:
            return
        printed.add(line)
        try:
            print(f"ralph: {line}", file=sys.stderr, flush=True)
        except OSError:
            pass  # standard error is closed

    return log
