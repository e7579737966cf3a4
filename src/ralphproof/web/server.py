"""The server: a socket, uvicorn with nothing that it would say by itself, and an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

import uvicorn

from ralphproof.value import TYPE_CHECKING
from ralphproof.web.app import App
from ralphproof.web.connection import Connection, Endurance
from ralphproof.web.readers import Readers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from ralphproof.views.board import Board
    from ralphproof.views.helm import Helm
    from ralphproof.web.address import Address
    from ralphproof.web.ears import Overhear
    from ralphproof.web.pulse import Pulse
    from ralphproof.web.token import Token

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
GOODBYE_S = 2  # for answers that are on their way
HEADER_BYTES = 64 * 1024  # cookies of everything else on this machine come along


def serve(
    sock: socket.socket, address: Address, token: Token, board: Board, helm: Helm | None, overhear: Overhear,
    note: Callable[[str], None], ready: Callable[[], None], with_metrics: bool, tls: tuple[str, str] | None,
    endurance: Endurance,
) -> None:  # fmt: skip
    """Answer on a socket that listens until a signal comes; `ready` is called when both are heard.

    Nothing is told of requests: a query may hold the token.
    """
    readers = Readers()
    app = App(board, helm, overhear, readers, endurance.onlookers, note, with_metrics)
    config = uvicorn.Config(
        app.guarded(address, token), http=Connection, ws="none", loop="asyncio", lifespan="off",
        log_config=None, log_level=logging.CRITICAL, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=15, timeout_graceful_shutdown=GOODBYE_S, h11_max_incomplete_event_size=HEADER_BYTES,
        ssl_certfile=tls[0] if tls else None, ssl_keyfile=tls[1] if tls else None,
    )  # fmt: skip
    try:
        Server(config, app.pulse, endurance, ready).run([sock])
    finally:
        readers.close()


class Server(uvicorn.Server):
    """uvicorn's, which ends by the first signal and sends everybody home; the second one does not wait for them.

    It raises no signal again after its end (uvicorn 0.54 does): a server that was asked to end has ended well. Who does
    not come to the end of a TLS handshake is counted as well, and waited for no longer than for a request.
    """

    def __init__(
        self, config: uvicorn.Config, pulse: Pulse, endurance: Endurance, ready: Callable[[], None]
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._pulse, self._endurance, self._ready = pulse, endurance, ready
        self._coming: dict[Connection, float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        patience_s = self._endurance.request_s if tls else None
        self.servers = [
            await loop.create_server(self._connection, sock=sock, ssl=tls, ssl_handshake_timeout=patience_s)
            for sock in sockets or ()
        ]
        self.started = True
        self._ready()

    def _connection(self) -> Connection:
        """One for whoever knocks. Beyond twice as many as may be there it raises, and asyncio closes."""
        state, now_s = self.server_state, asyncio.get_running_loop().time()
        least_s = now_s - self._endurance.request_s
        self._coming = {one: at for one, at in self._coming.items() if at > least_s and one.transport is None}
        if len(state.connections) + len(self._coming) >= 2 * self._endurance.clients:
            raise ConnectionRefusedError("too many are connected")
        made = Connection(self.config, state, {})
        made.endurance = self._endurance
        self._coming[made] = now_s
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, known in before.items():
            if known is not signal.SIG_IGN:
                signal.signal(number, self._rung)
        try:
            yield
        finally:
            for number, known in before.items():
                signal.signal(number, known)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._pulse.end()
        await super().shutdown(sockets)

    def _rung(self, *_: object) -> None:
        self.force_exit, self.should_exit = self.should_exit, True
