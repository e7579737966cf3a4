"""Addresses in the settings `notify` and `otel`: validation, and forms without secrets."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

DESKTOP_TARGET = "desktop"
WEB_SCHEMES = ("http", "https")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_INCOMPLETE_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def url_scheme(target: str) -> str:
    """The scheme of a notification URL, such as `slack`; empty for the desktop and for commands."""
    match = _ADDRESS.match(target)
    return match[1].lower() if match else ""


def needs_apprise(targets: Iterable[str]) -> bool:
    """Whether one of these targets needs the package apprise."""
    return any(target == DESKTOP_TARGET or url_scheme(target) for target in targets)


def notify_target_problem(text: str) -> str:
    """Why a target is invalid, worded to follow its name ("notify[0] …"); empty if it is valid."""
    if not text.strip():
        return "is empty"
    if not text.isprintable():
        return "holds a control character"
    if url_scheme(text):
        return _webhook_problem(text) if url_scheme(text) in WEB_SCHEMES else ""
    try:
        program = next(iter(shlex.split(text)), "")
    except ValueError:
        return "has a quote or a backslash that nothing follows"
    if not program:
        return "names no program"
    return "looks like an address that lacks its ://" if _INCOMPLETE_ADDRESS.match(program) else ""


def _webhook_problem(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        reachable = parts.hostname and parts.port != 0
    except ValueError:
        reachable = False
    return "holds a space" if " " in text else "" if reachable else "names no host, or a port that there is not"


def redact_notify_target(target: str) -> str:
    """A target without secrets. In many URLs the host is the token, so only a webhook's host is shown."""
    from urllib.parse import urlsplit

    scheme = url_scheme(target)
    if scheme in WEB_SCHEMES:
        return f"{scheme}://{urlsplit(target).hostname}"
    return f"{scheme}://…" if scheme else os.path.basename(shlex.split(target)[0])


TRACES_PATH = "/v1/traces"
OTEL_SCHEMES = ("http", "https")


def otel_endpoint_problem(text: str) -> str:
    """Why an endpoint is invalid, worded to follow its name ("otel …"); empty if it is valid."""
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
    if parts.scheme not in OTEL_SCHEMES:
        return "is no http:// or https:// address"
    return "" if reachable else "names no host, or a port that there is not"


def redact_otel_endpoint(address: str) -> str:
    """An endpoint without secrets: user info, path and query may hold a token."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    open_path = parts.path.rstrip("/") in ("", TRACES_PATH) and not parts.query
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path if open_path else '/…'}"
