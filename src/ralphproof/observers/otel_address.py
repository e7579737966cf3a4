"""Where spans are sent to: an OTLP/HTTP receiver, by its base address or by that of its traces."""

from __future__ import annotations

from ralphproof.secret import SHORTEST
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACES = "/v1/traces"
WEB = ("http", "https")
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"  # the one variable of OpenTelemetry's that is read: keys belong in no file
MISSING = "otel is set, and to send spans needs opentelemetry: pip install 'ralphproof[otel]'"
MODULE = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"


@value
class Endpoint:
    """What a POST is made of. `user` is `name:password`, where the address holds one."""

    secure: bool
    host: str
    port: int
    path: str
    user: str = ""


def bad_address(text: str) -> str:
    """What is wrong with an address, to be put after its name ("otel …"); nothing where it may work."""
    from urllib.parse import urlsplit

    if not text.isprintable():
        return "holds a control character"
    if not text.isascii() or " " in text:
        return "holds a space, or a letter that is not ASCII"
    try:
        parts = urlsplit(text)
        reachable = parts.hostname and parts.port != 0
    except ValueError:
        return "names no host, or a port that there is not"
    if parts.scheme not in WEB:
        return "is no http:// or https:// address"
    return "" if reachable else "names no host, or a port that there is not"


def endpoint_of(address: str) -> Endpoint:
    """The parts of an address that `bad_address` found nothing wrong with."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    path += "" if path.endswith(TRACES) else TRACES
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if "@" in parts.netloc else ""
    query = f"?{parts.query}" if parts.query else ""
    secure = parts.scheme == "https"
    return Endpoint(secure, parts.hostname or "", parts.port or (443 if secure else 80), path + query, user)


def shown(address: str) -> str:
    """An address as it may be shown: a path or a query may hold a token, and so may what stands before the host."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    open_path = parts.path.rstrip("/") in ("", TRACES) and not parts.query
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path if open_path else '/…'}"


def secrets_of(address: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What of the address, and of the headers that go with it, must not be written down."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    hidden = [] if shown(address) == address else [address, parts.netloc.rpartition("@")[0], parts.password or ""]
    found = (*hidden, parts.query, *headers_in(environ).values())
    return tuple(text for text in found if len(text) >= SHORTEST)


def headers_in(environ: Mapping[str, str]) -> dict[str, str]:
    """What the user's variable wants to be sent along: `name=text,name=text`, percent-encoded. Others are left out."""
    from urllib.parse import unquote

    pairs = (pair.partition("=") for pair in environ.get(HEADERS, "").split(","))
    named = ((name.strip(), unquote(text.strip())) for name, _, text in pairs)
    return {name: text for name, text in named if _sound(name) and text.isascii() and text.isprintable()}


def _sound(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum()


def installed() -> bool:
    """Whether spans can be encoded here. Nothing of it is loaded."""
    from importlib.util import find_spec

    try:
        return find_spec(MODULE) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
