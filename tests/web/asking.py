"""Requests to a server that is part of the test: its parts are real, what it reads is what the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ralphproof.base.errors import RalphError
from ralphproof.web.api import ReaderPool
from ralphproof.web.app import WebApp
from ralphproof.web.http import handle_http_error, handle_ralph_error


class Asked:
    """One request on its way; `leave` is what closing its connection is."""

    def __init__(self, app: Starlette, path: str, query: str) -> None:
        self.status, self.headers, self.body = 0, dict[str, str](), b""
        self._gone, self._began = asyncio.Event(), False
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [], "root_path": "", "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        self._task = asyncio.ensure_future(self._pass(app, scope))

    async def answered(self) -> Asked:
        async with asyncio.timeout(10):
            await self._task
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def leave(self) -> None:
        self._gone.set()

    async def _pass(self, app: Starlette, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except ClientDisconnect:
            pass

    async def _receive(self) -> dict[str, Any]:
        if not self._began:
            self._began = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): text.decode() for name, text in message["headers"]}
        else:
            self.body += message["body"]


class Server:
    """The routes of a server, and readers of its own."""

    def __init__(self, board: object, threads: int = 8, overhear: object = None, onlookers: int = 1) -> None:
        self.readers = ReaderPool(threads)
        self.app = WebApp(cast(Any, board), None, cast(Any, overhear), self.readers, onlookers, print, False)
        handlers: dict[Any, Any] = {HTTPException: handle_http_error, RalphError: handle_ralph_error}
        self._inner = Starlette(routes=self.app.routes, exception_handlers=handlers)

    def ask(self, path: str, query: str = "") -> Asked:
        return Asked(self._inner, path, query)

    def close(self) -> None:
        self.app.watcher.end()
        self.readers.close()


async def soon(condition: Callable[[], object]) -> None:
    """Let others go on until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)
