"""The page and what belongs to it. Only files that are there at the start are known, by name; no path is ever made."""

from __future__ import annotations

import hashlib
import os

from starlette.responses import Response

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.web.answers import missing

if TYPE_CHECKING:
    from starlette.requests import Request

FOLDER = os.path.join(os.path.dirname(__file__), "static")
KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml",
    ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
    ".map": "application/json", ".webmanifest": "application/manifest+json",
}  # fmt: skip
OTHER = "application/octet-stream"


@value
class Asset:
    """One file: what is in it, what kind that is, and a mark that another content would not have."""

    body: bytes
    kind: str
    mark: str


class Assets:
    """The files of one folder, held in memory: they are small, and a page must come however busy the readers are.

    A browser keeps them, and asks each time whether they are still the same.
    """

    def __init__(self, folder: str = FOLDER) -> None:
        self._files = {name: _asset(path) for name, path in _files(folder)}

    async def page(self, request: Request) -> Response:
        return self._file(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        asset = self._files.get(name)
        if asset is None:
            raise missing()
        headers = {"etag": asset.mark, "cache-control": "no-cache"}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if asset.mark in known:
            return Response(b"", 304, headers)
        return Response(asset.body, headers=headers, media_type=asset.kind)


def _files(folder: str) -> list[tuple[str, str]]:
    """Every file below a folder: its name in an address, and its path."""
    found = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return [(os.path.relpath(path, folder).replace(os.sep, "/"), path) for path in found]


def _asset(path: str) -> Asset:
    with open(path, "rb") as file:
        body = file.read()
    kind = KINDS.get(os.path.splitext(path)[1], OTHER)
    return Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
