"""What notifications may be sent to: the desktop, a webhook, another address that apprise knows, or a command."""

from __future__ import annotations

import os
import re

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DESKTOP = "desktop"
WEB = ("http", "https")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HALF_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def scheme_of(target: str) -> str:
    """`slack` of an address; nothing where the target is the desktop or a command."""
    found = _ADDRESS.match(target)
    return found[1].lower() if found else ""


def needs_apprise(targets: Iterable[str]) -> bool:
    """Whether one of these cannot be reached without apprise."""
    return any(target == DESKTOP or scheme_of(target) for target in targets)


def bad_target(text: str) -> str:
    """What is wrong with a target, to be put after its name ("notify[0] …"); nothing where it may work."""
    import shlex

    if not text.strip():
        return "is empty"
    if not text.isprintable():
        return "holds a control character"
    if scheme_of(text):
        return _bad_webhook(text) if scheme_of(text) in WEB else ""
    try:
        program = next(iter(shlex.split(text)), "")
    except ValueError:
        return "has a quote or a backslash that nothing follows"
    if not program:
        return "names no program"
    return "looks like an address that lacks its ://" if _HALF_ADDRESS.match(program) else ""


def _bad_webhook(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        reachable = parts.hostname and parts.port != 0
    except ValueError:
        reachable = False
    return "holds a space" if " " in text else "" if reachable else "names no host, or a port that there is not"


def shown(target: str) -> str:
    """A target as it may be shown. In many addresses the host itself is the token: only a webhook's is told."""
    import shlex
    from urllib.parse import urlsplit

    scheme = scheme_of(target)
    if scheme in WEB:
        return f"{scheme}://{urlsplit(target).hostname}"
    return f"{scheme}://…" if scheme else os.path.basename(shlex.split(target)[0])
