"""Access control of every request: host, origin, token, and security headers."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.web.http import INTERNAL_ERROR, JSON_TYPE, MAX_BODY_BYTES, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


# Addresses, names and origins of the server.


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}
WILDCARD_HOSTS = ("0.0.0.0", "::")  # noqa: S104 (to know it when it is asked for)
IPV4_MAPPED_PREFIX = "::ffff:"  # before the IPv4 address of one who came in by it to a socket of both
HOST_PATTERN = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:(?P<port>[0-9]{1,5}))?")


@value
class ServerAddress:
    """Scheme, listening host, port, and other `host` or `host:port` that browsers may use."""

    scheme: str
    host: str
    port: int
    names: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The URL to display: for a server on all addresses a given name, else this machine."""
        if self.host not in WILDCARD_HOSTS:
            return f"{self.scheme}://{self._at(bracket_ipv6(self.host))}"
        return f"{self.scheme}://{self._whole(self.names[0]) if self.names else self._at(LOOPBACK[0])}"

    def hosts(self, local: str = "") -> frozenset[str]:
        """Permitted `Host` headers in lower case.

        `local` is the address of the connection. It is permitted if the server listens on all addresses: a foreign page
        can make a name point here, but not an address.
        """
        ours = [*LOOPBACK, bracket_ipv6(self.host)]
        if self.host in WILDCARD_HOSTS and local:
            ours.append(bracket_ipv6(local.removeprefix(IPV4_MAPPED_PREFIX) if "." in local else local))
        short = [*ours] if DEFAULT_PORTS[self.scheme] == self.port else []
        whole = [self._whole(name) for name in self.names]
        return frozenset(name.lower() for name in [*(f"{name}:{self.port}" for name in ours), *short, *whole])

    def _at(self, host: str) -> str:
        return host if DEFAULT_PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    def _whole(self, name: str) -> str:
        """A name with its port, by default ours."""
        has_port = name.rpartition("]")[2].partition(":")[1]
        return name if has_port else self._at(name)


def is_host_name(text: str) -> bool:
    """Whether it is a valid `host` or `host:port`."""
    found = HOST_PATTERN.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 65536


def bracket_ipv6(host: str) -> str:
    """A host as written in a URL."""
    return f"[{host}]" if ":" in host else host


# The token: a bearer for programs, a cookie for browsers.


TOKEN_VARIABLE = "RALPH_SERVE_TOKEN"  # noqa: S105 (a name)
MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 24, 512
BEARER, COOKIE = "bearer", "cookie"


class AccessToken:
    """The secret, which never appears in a repr. The cookie's name contains the port, because cookies ignore ports."""

    def __init__(self, secret: str, port: int, secure: bool) -> None:
        self._secret, self._secure = secret, secure
        self._cookie = f"ralph_{port}"

    def __repr__(self) -> str:
        return "Token(...)"

    @property
    def query(self) -> str:
        return f"token={self._secret}"

    def matches(self, text: str) -> bool:
        """Constant-time comparison."""
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._secret.encode())

    def in_query(self, query: bytes) -> bool | None:
        """Whether the query has the right token; None if it has none."""
        try:
            given = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=50).get("token")
        except ValueError:  # more fields than anybody needs
            return False
        return None if given is None else len(given) == 1 and self.matches(given[0])

    def presented_by(self, bearers: list[str], cookies: list[str]) -> str:
        """Which header presented it: bearer, cookie, or none."""
        for header in bearers:
            kind, _, text = header.partition(" ")
            if kind.lower() == "bearer" and self.matches(text.strip()):
                return BEARER
        pairs = [pair.strip().partition("=") for header in cookies for pair in header.split(";")]
        return COOKIE if any(self.matches(text) for name, _, text in pairs if name == self._cookie) else ""

    def as_cookie(self) -> str:
        """The Set-Cookie header for this server alone."""
        secure = "; Secure" if self._secure else ""
        return f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict{secure}"


def load_or_create_secret(environ: Mapping[str, str]) -> str:
    """A new secret, or the one of the user's variable; raises Refused for a weak one."""
    given = environ.get(TOKEN_VARIABLE, "")
    if not given:
        return secrets.token_urlsafe(32)
    if not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{MIN_TOKEN_CHARS},{MAX_TOKEN_CHARS}}}", given):
        raise Refused(
            f"{TOKEN_VARIABLE} must have {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} characters, "
            "only letters, digits and . _ ~ -"
        )
    return given


# The guard.


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
HEALTH_PATH = "/health"
CLOSE_HEADER = {"connection": "close"}  # with every answer to one who may be a stranger: none of them keeps a place
TOKEN_MISSING = "come in by the address that ralph serve printed, or send its token: Authorization: Bearer TOKEN"  # noqa: S105 (a sentence)
AMBIGUOUS_LENGTH = "a request has Content-Length or Transfer-Encoding, and not both"
FOREIGN_ORIGIN = "this is asked on behalf of another site, and the server answers its own pages alone"


@value
class Rejection:
    """Why a request is rejected."""

    status: int
    words: str


class AccessGuard:
    """Admits requests with the server's own host name, from its own pages, with the token.

    It wraps every route, known or not. An exception in a route costs only its request.
    """

    def __init__(
        self, app: ASGIApp, address: ServerAddress, token: AccessToken, control: bool, note: Callable[[str], None]
    ) -> None:
        self._app, self._address, self._token, self._control, self._note = app, address, token, control, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "uvicorn is told to speak nothing else"
        begun = False

        async def dressed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(_with_security_headers(message) if message["type"] == "http.response.start" else message)

        try:
            answer = self._answer(GuardedRequest(scope))
            await (answer or self._app)(scope, receive, dressed)
        except ClientDisconnect:
            return
        except Exception as fault:  # noqa: BLE001 (one page's fault must not be the server's)
            self._note(f"a page failed ({type(fault).__name__}: {fault}); the server goes on")
            if not begun:
                await error_response(500, INTERNAL_ERROR)(scope, receive, dressed)

    def _answer(self, request: GuardedRequest) -> Response | None:
        """The response of the guard; None admits the request."""
        if request.all("transfer-encoding") and request.all("content-length"):  # where its body ends is anybody's guess
            return error_response(400, AMBIGUOUS_LENGTH, CLOSE_HEADER)
        if rebuff := self._is_foreign(request):
            return error_response(rebuff.status, rebuff.words, CLOSE_HEADER)
        if request.reads and request.path == "/" and (right := self._token.in_query(request.query)) is not None:
            cookie = {"location": "/", "set-cookie": self._token.as_cookie()}
            return Response(b"", 303, cookie) if right else error_response(401, TOKEN_MISSING, CLOSE_HEADER)
        rebuff = self._rejection(request)
        return error_response(rebuff.status, rebuff.words, CLOSE_HEADER) if rebuff else None

    def _is_foreign(self, request: GuardedRequest) -> Rejection | None:
        """A page of another site, by whatever name it reached us."""
        host = request.all("host")
        if len(host) != 1 or host[0].lower() not in self._address.hosts(request.local):
            return Rejection(403, "the server is not known by that name; --name lets it have another one")
        own = f"{self._address.scheme}://{host[0]}".lower()
        if any(origin.lower() != own for origin in request.all("origin")):
            return Rejection(403, FOREIGN_ORIGIN)
        if any(site.lower() not in ("same-origin", "none") for site in request.all("sec-fetch-site")):
            return Rejection(403, FOREIGN_ORIGIN)
        return None

    def _rejection(self, request: GuardedRequest) -> Rejection | None:
        if request.path == HEALTH_PATH and request.reads:
            return None
        by = self._token.presented_by(request.all("authorization"), request.all("cookie"))
        if not by:
            return Rejection(401, TOKEN_MISSING)
        if request.reads:
            return None
        if request.method != "POST":
            return Rejection(405, "only GET, HEAD and POST are answered")
        if not self._control:
            return Rejection(403, "this server only looks on; ralph serve --control lets it steer")
        if by == COOKIE and not request.all("origin"):
            return Rejection(403, FOREIGN_ORIGIN)
        if [kind.partition(";")[0].strip().lower() for kind in request.all("content-type")] != [JSON_TYPE]:
            return Rejection(415, f"the body must be {JSON_TYPE}")
        if any(not size.isdecimal() or int(size) > MAX_BODY_BYTES for size in request.all("content-length")):
            return Rejection(413, f"that is more than {MAX_BODY_BYTES // 1024} KiB")
        return None


class GuardedRequest:
    """A request as the guard sees it."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.local = str(scope["server"][0]) if scope.get("server") else ""
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    @property
    def reads(self) -> bool:
        return self.method in ("GET", "HEAD")

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [text.decode("latin-1").strip() for known, text in self._headers if known == name.encode()]


def _with_security_headers(message: Message) -> Message:
    """The response start with the security headers; not cacheable unless the response says so."""
    given = list(message.get("headers", ()))
    known = {name.lower() for name, _ in given}
    more = {**SECURITY_HEADERS, "cache-control": "no-store"}
    given += [(name.encode(), text.encode()) for name, text in more.items() if name.encode() not in known]
    return {**message, "headers": given}
