"""Routes of the web application, and its static files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.outcome import published
from ralphproof.runs.control import RunControl
from ralphproof.views.read_model import ReadModel
from ralphproof.web.access import CLOSE_HEADER, HEALTH_PATH, AccessGuard, AccessToken, ServerAddress
from ralphproof.web.api import ControlApi, ReadApi, ReaderPool
from ralphproof.web.event_stream import ChangeWatcher, EventStreams, LiveEventFeeds
from ralphproof.web.http import (
    handle_http_error,
    handle_internal_error,
    handle_ralph_error,
    json_response,
    not_found,
)
from ralphproof.web.openapi import openapi_document
from ralphproof.web.prometheus import MetricsEndpoint

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ExceptionHandler

    from ralphproof.web.event_stream import Overhear


# Static files. Only files that exist at the start are served, by name; no path is ever built from a request.


STATIC_FOLDER = os.path.join(os.path.dirname(__file__), "static")
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
DEFAULT_CONTENT_TYPE = "application/octet-stream"


@value
class StaticFile:
    """Content, media type and ETag."""

    body: bytes
    kind: str
    mark: str


class StaticFiles:
    """The files of one folder, held in memory: they are small, and must be served however busy the readers are.

    Browsers cache them and revalidate each time.
    """

    def __init__(self, folder: str = STATIC_FOLDER) -> None:
        self._files = {name: _load_file(path) for name, path in _list_files(folder)}

    async def page(self, request: Request) -> Response:
        return self._file(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        asset = self._files.get(name)
        if asset is None:
            raise not_found()
        headers = {"etag": asset.mark, "cache-control": "no-cache"}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if asset.mark in known:
            return Response(b"", 304, headers)
        return Response(asset.body, headers=headers, media_type=asset.kind)


def _list_files(folder: str) -> list[tuple[str, str]]:
    """Every file below a folder: its name in URLs, and its path."""
    found = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return [(os.path.relpath(path, folder).replace(os.sep, "/"), path) for path in found]


def _load_file(path: str) -> StaticFile:
    with open(path, "rb") as file:
        body = file.read()
    kind = CONTENT_TYPES.get(os.path.splitext(path)[1], DEFAULT_CONTENT_TYPE)
    return StaticFile(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class WebApp:
    """The web application of one project. Read-only if `run_control` is None."""

    def __init__(
        self, read_model: ReadModel, run_control: RunControl | None, listen_to: Overhear,
        readers: ReaderPool, onlookers: int,
        note: Callable[[str], None], with_metrics: bool,
    ) -> None:  # fmt: skip
        self.watcher = ChangeWatcher(read_model, readers, note)
        self._note = note
        self._control = run_control is not None
        events = EventStreams(
            read_model, readers, self.watcher, LiveEventFeeds(listen_to, readers, note), onlookers, self._control, note
        )
        self.routes = [
            *read_routes(ReadApi(read_model, readers, self._control), events, StaticFiles()),
            *(control_routes(ControlApi(read_model, run_control, readers)) if run_control else []),
            *([Route("/metrics", MetricsEndpoint(read_model, readers).page)] if with_metrics else []),
        ]

    def guarded(self, address: ServerAddress, token: AccessToken) -> AccessGuard:
        """The application for uvicorn, with the access guard around it."""
        handlers: dict[Any, ExceptionHandler] = {
            HTTPException: handle_http_error,
            RalphError: handle_ralph_error,
            Exception: handle_internal_error,
        }
        inner = Starlette(routes=self.routes, exception_handlers=handlers)
        inner.router.redirect_slashes = False
        return AccessGuard(inner, address, token, self._control, self._note)


def read_routes(pages: ReadApi, events: EventStreams, assets: StaticFiles) -> list[Route]:
    run = "/api/runs/{run}"
    return [
        Route("/", assets.page),
        Route("/static/{name:path}", assets.file),
        Route(HEALTH_PATH, health),
        Route("/api/openapi.json", openapi),
        Route("/api/events", events.of_runs),
        Route("/api/runs", pages.runs),
        Route(run, pages.run),
        Route(f"{run}/events", events.of_run),
        Route(f"{run}/activity", pages.activity),
        Route(f"{run}/logs", pages.logs),
        Route(f"{run}/log", pages.log),
        Route(f"{run}/diff", pages.diff),
        Route(f"{run}/stories", pages.stories),
        Route("/api/tasks", pages.tasks),
        Route("/api/tasks/{id:path}", pages.task),
        Route("/api/report", pages.report),
    ]


def control_routes(run_control: ControlApi) -> list[Route]:
    wishes = (
        ("pause", run_control.pause),
        ("resume", run_control.resume),
        ("cancel", run_control.cancel),
        ("say", run_control.say),
    )
    return [Route(f"/api/runs/{{run}}/{name}", action, methods=["POST"]) for name, action in wishes]


async def health(_: Request) -> Response:
    return json_response(published("health", {"ok": True}), CLOSE_HEADER)


async def openapi(_: Request) -> Response:
    return json_response(openapi_document())
