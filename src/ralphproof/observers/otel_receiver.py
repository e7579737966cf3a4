"""One POST to an OTLP/HTTP receiver, and what it answered.

By hand and not by OpenTelemetry's exporter (1.45): that follows redirects, goes by proxies, writes to the log, and is
steered by two dozen variables. Nothing here is sent to anybody but the address that is set.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from ralphproof import __version__
from ralphproof.observers.otel_address import endpoint_of, headers_in
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0
BUSY = (429, 502, 503, 504)  # what OTLP says to try again


@value
class Posted:
    """What came of a POST: `why` it failed, and whether it may be made `again`, since nobody can have taken it."""

    why: str = ""
    again: bool = False


class Receiver:
    """The receiver at an address. One POST at a time; `hang_up`, by another thread, ends it."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._end = endpoint_of(address)
        self._headers = headers_in(environ)
        self._headers |= {"Content-Type": "application/x-protobuf", "User-Agent": f"ralphproof/{__version__}"}
        if self._end.user:
            self._headers["Authorization"] = f"Basic {b64encode(self._end.user.encode()).decode()}"
        self._line: HTTPConnection | None = None

    def post(self, body: bytes) -> Posted:
        """Send this. However it fails, that is a value."""
        kind = HTTPSConnection if self._end.secure else HTTPConnection
        line = self._line = kind(self._end.host, self._end.port, timeout=TIMEOUT_S)
        try:
            try:
                line.connect()
            except (OSError, ValueError):  # also a name that no name server could know
                return Posted("no connection", again=True)
            line.request("POST", self._end.path, body, self._headers)
            status = line.getresponse().status
        except (OSError, HTTPException, ValueError):
            return Posted("no answer")  # it may have been taken: sent again, it might be there twice
        finally:
            self._line = None
            line.close()
        return Posted() if 200 <= status < 300 else Posted(f"it answered {status}", again=status in BUSY)

    def hang_up(self) -> None:
        """Whoever waits for an answer waits no longer."""
        line = self._line
        sock = line.sock if line else None
        try:
            if sock is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS has a shutdown of its own, not for two threads
        except OSError:
            pass  # it has just ended by itself
