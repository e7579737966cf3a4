"""The page and what belongs to it. Only files that are there at the start are known, by name; no path is ever made."""

from __future__ import annotations

import hashlib
import os

from starlette.responses import Response

from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import missing

if TYPE_CHECKING:
    from starlette.requests import Request

    from ralphproof.web.readers import Readers

FOLDER = os.path.join(os.path.dirname(__file__), "static")
KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml",
    ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
    ".map": "application/json", ".webmanifest": "application/manifest+json",
}  # fmt: skip
OTHER = "application/octet-stream"


class Assets:
    """The files of one folder. A browser keeps them, and asks each time whether they are still the same."""

    def __init__(self, readers: Readers, folder: str = FOLDER) -> None:
        self._readers = readers
        self._paths = dict(_files(folder))

    async def page(self, request: Request) -> Response:
        return await self._file(request, "index.html")

    async def file(self, request: Request) -> Response:
        return await self._file(request, request.path_params["name"])

    async def _file(self, request: Request, name: str) -> Response:
        if name not in self._paths:
            raise missing()
        path = self._paths[name]
        body = await self._readers(lambda: _content(path))
        mark = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"etag": mark, "cache-control": "no-cache"}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if mark in known:
            return Response(b"", 304, headers)
        return Response(body, headers=headers, media_type=KINDS.get(os.path.splitext(path)[1], OTHER))


def _files(folder: str) -> list[tuple[str, str]]:
    """Every file below a folder: its name in an address, and its path."""
    found = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return [(os.path.relpath(path, folder).replace(os.sep, "/"), path) for path in found]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
