"""Services on the machine that a sandbox must not reach: `python other_services.py FOLDER PROGRAM [ARGUMENT ...]`.

They answer on a port, by UDP and at FOLDER/docker.sock for as long as the program runs; the exit code is its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TCP, UDP = 4100, 4101  # in a private network nobody else has them
SOCKET = "docker.sock"


class Answer(BaseHTTPRequestHandler):
    """Says hello to everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def address_string(self) -> str:
        return ""

    def log_message(self, format: str, *args: object) -> None:
        pass


class ByPath(ThreadingHTTPServer):
    """The same at a path."""

    address_family = socket.AF_UNIX
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)


def echo(udp: socket.socket) -> None:
    while True:
        udp.sendto(b"hello", udp.recvfrom(1024)[1])


def main(folder: str, *argv: str) -> int:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", UDP))
    servers = [ThreadingHTTPServer(("127.0.0.1", TCP), Answer)]
    servers.append(ByPath(os.path.join(folder, SOCKET), Answer))  # type: ignore[arg-type]
    for serve in (*(server.serve_forever for server in servers), lambda: echo(udp)):
        threading.Thread(target=serve, daemon=True).start()
    try:
        return subprocess.run(argv, check=False).returncode
    finally:
        os.unlink(os.path.join(folder, SOCKET))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
