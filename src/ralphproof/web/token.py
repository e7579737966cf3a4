"""What lets somebody in: one secret, as a bearer for programs and as a cookie for browsers."""

from __future__ import annotations

import hmac
import re
import secrets
from urllib.parse import parse_qs

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "RALPH_SERVE_TOKEN"
FEWEST, MOST = 24, 512
BEARER, COOKIE = "bearer", "cookie"


class Token:
    """The secret, never shown by accident. The cookie's name carries the port: cookies know hosts only."""

    def __init__(self, secret: str, port: int, secure: bool) -> None:
        self._secret, self._secure = secret, secure
        self._cookie = f"ralph_{port}"

    def __repr__(self) -> str:
        return "Token(...)"

    @property
    def query(self) -> str:
        return f"token={self._secret}"

    def is_(self, text: str) -> bool:
        """Compared in a time that says nothing of how much of it was right."""
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._secret.encode())

    def asked(self, query: bytes) -> bool | None:
        """Whether a query brings it; None where it brings none at all."""
        try:
            given = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=50).get("token")
        except ValueError:  # more fields than anybody needs
            return False
        return None if given is None else len(given) == 1 and self.is_(given[0])

    def shown(self, bearers: list[str], cookies: list[str]) -> str:
        """By which header it was brought: bearer, cookie, or none."""
        for header in bearers:
            kind, _, text = header.partition(" ")
            if kind.lower() == "bearer" and self.is_(text.strip()):
                return BEARER
        pairs = [pair.strip().partition("=") for header in cookies for pair in header.split(";")]
        return COOKIE if any(self.is_(text) for name, _, text in pairs if name == self._cookie) else ""

    def as_cookie(self) -> str:
        """The header that makes a browser keep it for this server alone."""
        secure = "; Secure" if self._secure else ""
        return f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict{secure}"


def secret_of(environ: Mapping[str, str]) -> str:
    """A new secret, or the one that the user keeps in a variable; raises Refused for one that could be guessed."""
    given = environ.get(VARIABLE, "")
    if not given:
        return secrets.token_urlsafe(32)
    if not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{FEWEST},{MOST}}}", given):
        raise Refused(f"{VARIABLE} must have {FEWEST} to {MOST} characters, only letters, digits and . _ ~ -")
    return given
