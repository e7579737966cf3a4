"""Everything that is answered, behind one guard."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from ralphproof.errors import RalphError
from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import JSON, of_fault, of_http, of_ralph, told
from ralphproof.web.assets import Assets
from ralphproof.web.ears import Ears
from ralphproof.web.events import Events
from ralphproof.web.guard import CLOSE, HEALTH, Guard
from ralphproof.web.pages import Pages
from ralphproof.web.prometheus import Figured
from ralphproof.web.pulse import Pulse
from ralphproof.web.steering import Steering

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from starlette.requests import Request
    from starlette.types import ExceptionHandler

    from ralphproof.views.board import Board
    from ralphproof.views.helm import Helm
    from ralphproof.web.address import Address
    from ralphproof.web.ears import Overhear
    from ralphproof.web.readers import Readers
    from ralphproof.web.token import Token

OPENAPI = os.path.join(os.path.dirname(__file__), "openapi.json")


class App:
    """The web door of one project. `helm` is None where it may only look on."""

    def __init__(
        self, board: Board, helm: Helm | None, overhear: Overhear, readers: Readers, onlookers: int,
        note: Callable[[str], None], with_metrics: bool,
    ) -> None:  # fmt: skip
        self.pulse = Pulse(board, readers, note)
        self._note = note
        self._control = helm is not None
        events = Events(board, readers, self.pulse, Ears(overhear, readers, note), onlookers, self._control, note)
        self.routes = [
            *looking(Pages(board, readers, self._control), events, Assets()),
            *(steering(Steering(board, helm, readers)) if helm else []),
            *([Route("/metrics", Figured(board, readers).page)] if with_metrics else []),
        ]

    def guarded(self, address: Address, token: Token) -> Guard:
        """What uvicorn is given: nothing is reached but through the guard."""
        handlers: dict[Any, ExceptionHandler] = {HTTPException: of_http, RalphError: of_ralph, Exception: of_fault}
        inner = Starlette(routes=self.routes, exception_handlers=handlers)
        inner.router.redirect_slashes = False
        return Guard(inner, address, token, self._control, self._note)


def looking(pages: Pages, events: Events, assets: Assets) -> list[Route]:
    run = "/api/runs/{run}"
    return [
        Route("/", assets.page),
        Route("/static/{name:path}", assets.file),
        Route(HEALTH, health),
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


def steering(helm: Steering) -> list[Route]:
    wishes = (("pause", helm.pause), ("resume", helm.resume), ("cancel", helm.cancel), ("say", helm.say))
    return [Route(f"/api/runs/{{run}}/{name}", wish, methods=["POST"]) for name, wish in wishes]


async def health(_: Request) -> Response:
    return told({"ok": True}, CLOSE)


async def openapi(_: Request) -> Response:
    with open(OPENAPI, "rb") as file:
        return Response(file.read(), media_type=JSON)
