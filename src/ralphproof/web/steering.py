"""The API that steers a run: what other terminals may say to it, browsers may say too. Only with `--control`."""

from __future__ import annotations

import json

from ralphproof.errors import NotThere
from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import missing, told, wrong
from ralphproof.web.asked import body_of, run_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ralphproof.views.board import Board
    from ralphproof.views.helm import Helm
    from ralphproof.web.readers import Readers


class Steering:
    """Each wish is one call of the helm, which answers with one sentence."""

    def __init__(self, board: Board, helm: Helm, readers: Readers) -> None:
        self._board, self._helm, self._readers = board, helm, readers

    async def pause(self, request: Request) -> Response:
        return await self._asked(request, self._helm.pause)

    async def resume(self, request: Request) -> Response:
        return await self._asked(request, self._helm.resume)

    async def cancel(self, request: Request) -> Response:
        return await self._asked(request, self._helm.cancel)

    async def say(self, request: Request) -> Response:
        text = text_of(await body_of(request))
        return await self._told(run_of(request), lambda run: self._helm.say(run, text))

    async def _asked(self, request: Request, wish: Callable[[str], str]) -> Response:
        await body_of(request)
        return await self._told(run_of(request), wish)

    async def _told(self, name: str, wish: Callable[[str], str]) -> Response:
        return told({"said": await self._readers(lambda: wish(self._found(name)))})

    def _found(self, name: str) -> str:
        try:
            return self._board.find(name)
        except NotThere as refused:
            raise missing(str(refused)) from None


def text_of(body: bytes) -> str:
    """What is to be said."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    text = data.get("text") if isinstance(data, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise wrong('the body must be {"text": "what to say"}')
    return text
