"""Every route that the server has, and an address for each."""

from __future__ import annotations

from typing import Any, cast

from starlette.routing import BaseRoute

from ralphproof.web.api import ReaderPool
from ralphproof.web.app import WebApp

RUN = "/api/runs/{run}"
ROUTES = (
    ("GET", "/"),
    ("GET", "/static/{name:path}"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/api/openapi.json"),
    ("GET", "/api/events"),
    ("GET", "/api/runs"),
    ("GET", RUN),
    ("GET", f"{RUN}/events"),
    ("GET", f"{RUN}/activity"),
    ("GET", f"{RUN}/logs"),
    ("GET", f"{RUN}/log"),
    ("GET", f"{RUN}/diff"),
    ("GET", f"{RUN}/stories"),
    ("GET", "/api/tasks"),
    ("GET", "/api/tasks/{id:path}"),
    ("GET", "/api/report"),
    ("POST", f"{RUN}/pause"),
    ("POST", f"{RUN}/resume"),
    ("POST", f"{RUN}/cancel"),
    ("POST", f"{RUN}/say"),
)
QUERIES = {f"{RUN}/activity": "?log=agent_001", f"{RUN}/log": "?name=agent_001"}


def at(path: str) -> str:
    """An address of this route."""
    query = QUERIES.get(path, "")
    return path.replace("{run}", "latest").replace("{id:path}", "T-1").replace("{name:path}", "app.css") + query


def described(path: str) -> str:
    """The same route as the description of the API names it."""
    return path.replace(":path", "")


def all_routes() -> list[BaseRoute]:
    """Those of a server that may do everything; none of them is asked."""
    nobody = cast(Any, object())
    readers = ReaderPool()
    try:
        return list(WebApp(nobody, cast(Any, Nobody()), nobody, readers, 1, print, True).routes)
    finally:
        readers.close()


class Nobody:
    """A helm without hands."""

    pause = resume = cancel = say = None
