"""How the server is reached: an address, a namespace, and what proves who we are."""

from __future__ import annotations

import os
from datetime import timedelta

from ralphproof.errors import HarnessFailed, Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from temporalio.client import Client
    from temporalio.runtime import Runtime

ADDRESS, NAMESPACE = "127.0.0.1:7233", "default"
MISSING = "ralph fleet needs temporalio and fsspec; install them: pip install 'ralphproof[fleet]'"
CONNECT_S = 5.0


@value
class Server:
    """Where the server is. Files of TLS may be empty; an API key is never told."""

    address: str = ADDRESS
    namespace: str = NAMESPACE
    cert: str = ""
    key: str = ""
    ca: str = ""
    api_key: str = ""

    @staticmethod
    def of(given: Mapping[str, str | None], environ: Mapping[str, str]) -> Server:
        """By flags, else by the environment, else on this machine."""

        def said(name: str, usual: str = "") -> str:
            return given.get(name) or environ.get(f"RALPH_FLEET_{name.upper()}") or usual

        server = Server(
            said("address", ADDRESS), said("namespace", NAMESPACE), said("tls_cert"), said("tls_key"), said("tls_ca"),
            environ.get("TEMPORAL_API_KEY", ""),
        )  # fmt: skip
        host, colon, port = server.address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refused(f"{server.address!r} is no address of a server; write HOST:PORT, as {ADDRESS}")
        if bool(server.cert) != bool(server.key):
            raise Refused("--tls-cert and --tls-key are needed both")
        return server


def must_have_temporal() -> None:
    """Refuse where the library is missing."""
    from importlib import import_module

    try:
        import_module("temporalio.client")
    except ImportError:
        raise Refused(MISSING) from None


async def connected(server: Server) -> Client:
    """A client of a server that answers and has the namespace; raises Refused within seconds."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError, TLSConfig

    runtime = _quiet()
    files = [_content(path) for path in (server.ca, server.cert, server.key)]
    tls = TLSConfig(server_root_ca_cert=files[0], client_cert=files[1], client_private_key=files[2])
    try:
        client = await Client.connect(
            server.address, namespace=server.namespace, api_key=server.api_key or None,
            tls=tls if any(files) else None, connect_timeout=timedelta(seconds=CONNECT_S), runtime=runtime,
        )  # fmt: skip
        asked = DescribeNamespaceRequest(namespace=server.namespace)
        await client.workflow_service.describe_namespace(asked, timeout=timedelta(seconds=CONNECT_S))
    except (RuntimeError, RPCError) as error:
        raise Refused(_why(server, error)) from None
    return client


async def asked(server: Server, work: Callable[[Client], Awaitable[int]]) -> int:
    """What comes of work with a client; raises HarnessFailed where the server is lost meanwhile, or refuses."""
    from temporalio.service import RPCError

    client = await connected(server)
    try:
        return await work(client)
    except RPCError as error:
        said = " ".join(str(error).split())[:200]
        raise HarnessFailed(f"the server at {server.address} did not do it ({said}); try again") from None


def _quiet() -> Runtime:
    """The library as it is usually set up, but for its log of each call that it tries again."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    told = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=told))


def _why(server: Server, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    said = "connection refused" if "ConnectionRefused" in said else said  # the library says it in 250 characters
    if "not found" in said.lower() and "namespace" in said.lower():
        return f"the server at {server.address} has no namespace {server.namespace!r}; docs/fleet-setup.md says how"
    return f"no Temporal server answers at {server.address} ({said}); start one with ralph fleet dev, or give --address"


def _content(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror})") from None
