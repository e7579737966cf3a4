"""A model on loopback that plays a script to any agent, in the words of the API that it is asked in.

    with ModelServer({"turns": [{"text": "hello"}]}) as model:
        ...  # an agent talks to http://127.0.0.1:{model.port}
        assert "the failing line" in shown(model.requests[1])

It speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini. `model/script.py` tells what a
script may say. As a program: `python -m tests.agents.model_server --script F --port-file F --log F`.

A request is recorded as `{"method", "path", "body", "turn"}` before it is answered, without its headers, which carry
keys. `turn` is the index of the turn that answers, None for requests beside the script.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents.model.anthropic import Anthropic
from tests.agents.model.chat import Chat
from tests.agents.model.gemini import Gemini
from tests.agents.model.judging import nonce_in, ruled, texts
from tests.agents.model.responses import Responses
from tests.agents.model.script import Json, Script, Turn
from tests.agents.model.shape import Api, Ask, Sent, error_body, events, failure

APIS: tuple[Api, ...] = (Anthropic(), Responses(), Chat(), Gemini())
MODELS = {"object": "list", "data": [{"id": "fake-model", "object": "model", "type": "model"}], "models": []}
LOOK_AGAIN_S = 0.01


def shown(request: Json) -> str:
    """All text in a recorded request's body, a line each: what the model was shown."""
    return "\n".join(texts(request["body"]))


class ModelServer:
    """Answers on `port` from the first moment until it is closed; `requests` holds what came in so far."""

    def __init__(self, script: Mapping[str, Any], log: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Json] = []
        self.closing = threading.Event()
        self._script = Script(script)
        self._log = log.open("a", encoding="utf-8") if log else None
        self._lock = threading.Lock()
        self._listener = Listener(self, tls)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(LOOK_AGAIN_S,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer nothing more; whoever waits for an answer loses the connection."""
        self.closing.set()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        with self._lock:
            if self._log:
                self._log.close()
                self._log = None

    def turn_for(self, method: str, path: str, body: Json, main: bool) -> Turn:
        """The turn that answers this request; the request is recorded with it."""
        index, turn = self._script.take() if main else (None, self._script.aux())
        self.record(method, path, body, index)
        return turn

    def record(self, method: str, path: str, body: Json, index: int | None = None) -> None:
        request = {"method": method, "path": path, "body": body, "turn": index}
        with self._lock:
            self.requests.append(request)
            if self._log:
                self._log.write(json.dumps(request) + "\n")
                self._log.flush()

    def wait_for(self, turn: Turn) -> None:
        """Return when the turn may be answered, or when the server closes."""
        self.closing.wait(turn.delay_s)
        while turn.hold and not os.path.exists(turn.hold) and not self.closing.is_set():
            self.closing.wait(LOOK_AGAIN_S)


class Listener(ThreadingHTTPServer):
    """The socket on loopback, with a thread for each connection."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, model: ModelServer, tls: ssl.SSLContext | None) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), Conversation)
        if tls:  # each connection says hello in a thread of its own
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of the server; all else is told on standard error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Conversation(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Listener

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.model.record(self.command, self.path, {})
        self._found(MODELS if self.path.partition("?")[0].endswith("/models") else None)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path, body = self.path.partition("?")[0], self._body()
        api = next((api for api in APIS if api.serves(path)), None)
        counted = api.counted(path) if api else None
        if api is None or counted is not None:
            self.server.model.record(self.command, self.path, body)
            self._found(counted)
        else:
            self._answer(api, Ask(path, body, api.offer(body)))

    def _answer(self, api: Api, ask: Ask) -> None:
        model = self.server.model
        main = bool(ask.offer) or bool(nonce_in(ask.body))
        turn = ruled(model.turn_for(self.command, self.path, ask.body, main), ask)
        model.wait_for(turn)
        if model.closing.is_set():
            self.close_connection = True
            return
        headers = {**turn.headers, **(api.limit_headers(turn.limit) if turn.limit else {})}
        if failed := failure(api, turn):
            self._json(failed.status, failed.body, failed.headers)
        elif api.streams(ask.path, ask.body):
            self._stream(events(api, turn, ask), headers)
        else:
            self._json(200, api.whole(turn, ask), headers)

    def _body(self) -> Json:
        """What the client sent, whichever way it was packed."""
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        raw = b"".join(self._chunks()) if chunked else self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return {"raw": raw.decode("utf-8", "replace")}
        return body if isinstance(body, dict) else {"raw": body}

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _found(self, body: Json | None) -> None:
        """What there is at a path beside the script, if there is anything."""
        if body is None:
            self._json(404, error_body(404))
        else:
            self._json(200, body)

    def _json(self, status: int, body: Json | str, headers: Mapping[str, str] | None = None) -> None:
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        self._head(status, {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _stream(self, sent: Iterator[Sent], headers: Mapping[str, str]) -> None:
        """The end of the stream is the end of the connection, as of a stream that was cut."""
        self._head(200, {"content-type": "text/event-stream", "connection": "close", **headers})
        for event in sent:
            name = f"event: {event.name}\n" if event.name else ""
            data = event.data if isinstance(event.data, str) else json.dumps(event.data)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
            self.wfile.flush()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("request-id", f"req_{len(self.server.model.requests)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    words = argparse.ArgumentParser(prog="model_server", description="A model on loopback that plays a script.")
    words.add_argument("--script", type=Path, required=True)
    words.add_argument("--port-file", type=Path, required=True, help="gets the port as soon as the server answers")
    words.add_argument("--log", type=Path, help="gets one JSON line for each request")
    given = words.parse_args()
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ModelServer(json.loads(given.script.read_text("utf-8")), given.log) as model:
        beside = given.port_file.with_name(given.port_file.name + ".new")
        beside.write_text(str(model.port), "utf-8")
        beside.rename(given.port_file)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
