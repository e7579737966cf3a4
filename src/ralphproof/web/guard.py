"""One guard around everything that the server answers: who may come in, and what every answer carries."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.web.answers import FAULT, JSON, error
from ralphproof.web.asked import BODY_BYTES
from ralphproof.web.token import COOKIE

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ralphproof.web.address import Address
    from ralphproof.web.token import Token

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
HEALTH = "/health"
CLOSE = {"connection": "close"}  # with every answer to one who may be a stranger: none of them keeps a place
NOT_KNOWN = "come in by the address that ralph serve printed, or send its token: Authorization: Bearer TOKEN"
TWO_LENGTHS = "a request has Content-Length or Transfer-Encoding, and not both"
NOT_OURS = "this is asked on behalf of another site, and the server answers its own pages alone"


@value
class Rebuff:
    """Why a request is not let in."""

    status: int
    words: str


class Guard:
    """Lets in who names the server by its own name, comes from its own pages, and has the token.

    It stands before every route, known or not, so no page can be forgotten. A page that fails costs its request only.
    """

    def __init__(
        self, app: ASGIApp, address: Address, token: Token, control: bool, note: Callable[[str], None]
    ) -> None:
        self._app, self._address, self._token, self._control, self._note = app, address, token, control, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "uvicorn is told to speak nothing else"
        begun = False

        async def dressed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(_dressed(message) if message["type"] == "http.response.start" else message)

        try:
            answer = self._answer(Knock(scope))
            await (answer or self._app)(scope, receive, dressed)
        except ClientDisconnect:
            return
        except Exception as fault:  # noqa: BLE001 (one page's fault must not be the server's)
            self._note(f"a page failed ({type(fault).__name__}: {fault}); the server goes on")
            if not begun:
                await error(500, FAULT)(scope, receive, dressed)

    def _answer(self, knock: Knock) -> Response | None:
        """What is answered at the door; None lets in."""
        if knock.all("transfer-encoding") and knock.all("content-length"):  # where its body ends is anybody's guess
            return error(400, TWO_LENGTHS, CLOSE)
        if rebuff := self._foreign(knock):
            return error(rebuff.status, rebuff.words, CLOSE)
        if knock.reads and knock.path == "/" and (right := self._token.asked(knock.query)) is not None:
            cookie = {"location": "/", "set-cookie": self._token.as_cookie()}
            return Response(b"", 303, cookie) if right else error(401, NOT_KNOWN, CLOSE)
        rebuff = self._refused(knock)
        return error(rebuff.status, rebuff.words, CLOSE) if rebuff else None

    def _foreign(self, knock: Knock) -> Rebuff | None:
        """Somebody else's page, by whatever name it reached us."""
        host = knock.all("host")
        if len(host) != 1 or host[0].lower() not in self._address.hosts(knock.local):
            return Rebuff(403, "the server is not known by that name; --name lets it have another one")
        own = f"{self._address.scheme}://{host[0]}".lower()
        if any(origin.lower() != own for origin in knock.all("origin")):
            return Rebuff(403, NOT_OURS)
        if any(site.lower() not in ("same-origin", "none") for site in knock.all("sec-fetch-site")):
            return Rebuff(403, NOT_OURS)
        return None

    def _refused(self, knock: Knock) -> Rebuff | None:
        if knock.path == HEALTH and knock.reads:
            return None
        by = self._token.shown(knock.all("authorization"), knock.all("cookie"))
        if not by:
            return Rebuff(401, NOT_KNOWN)
        if knock.reads:
            return None
        if knock.method != "POST":
            return Rebuff(405, "only GET, HEAD and POST are answered")
        if not self._control:
            return Rebuff(403, "this server only looks on; ralph serve --control lets it steer")
        if by == COOKIE and not knock.all("origin"):
            return Rebuff(403, NOT_OURS)
        if [kind.partition(";")[0].strip().lower() for kind in knock.all("content-type")] != [JSON]:
            return Rebuff(415, f"the body must be {JSON}")
        if any(not size.isdecimal() or int(size) > BODY_BYTES for size in knock.all("content-length")):
            return Rebuff(413, f"that is more than {BODY_BYTES // 1024} KiB")
        return None


class Knock:
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


def _dressed(message: Message) -> Message:
    """The start of an answer with what every answer carries; nothing is kept by anybody unless it says so itself."""
    given = list(message.get("headers", ()))
    known = {name.lower() for name, _ in given}
    more = {**HEADERS, "cache-control": "no-store"}
    given += [(name.encode(), text.encode()) for name, text in more.items() if name.encode() not in known]
    return {**message, "headers": given}
