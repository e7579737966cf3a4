"""A process outside every sandbox, of the same user: it has secrets, and answers whoever reaches it.

    python -I -S neighbour.py FOLDER [PORT ...]

says as JSON where it can be found, and ends when its standard input does. FOLDER holds its sockets, and is where it
works; it listens on the ports too.
"""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import json
import os
import pty
import socket
import sys
from typing import Any

ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
VSOCK_ANY = 0xFFFFFFFF
TIOCSCTTY, IPC_CREATE, IPC_REMOVE = 0x540E, 0o1600, 0
SOCKETS = ("agent.sock", "docker.sock", "bus")


def main(folder: str, *ports: str) -> None:
    """Listen in every way, say where, and answer until the end."""
    os.setsid()
    os.chdir(folder)
    terminal = pty.openpty()
    fcntl.ioctl(terminal[1], TIOCSCTTY, 0)
    libc = ctypes.CDLL(None)
    secret, segment = ctypes.create_string_buffer(b"secret"), libc.shmget(0, 4096, IPC_CREATE)
    told: dict[str, Any] = {
        "pid": os.getpid(), "memory": ctypes.addressof(secret), "tty": os.ttyname(terminal[1]), "segment": segment,
        "file": os.open("kept", os.O_RDWR), "vsock": by_vsock(),
    }  # fmt: skip
    for name in ("tcp", "local"):
        told[name] = answer(socket.create_server(("", 0))).getsockname()[1]
    for port in ports:
        answer(socket.create_server(("", int(port))))
    told["tcp6"] = answer(socket.create_server(("::1", 0), family=socket.AF_INET6)).getsockname()[1]
    told["descriptor"] = (udp := socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).fileno()
    udp.bind(("", 0))
    told["udp"] = udp.getsockname()[1]
    _thread.start_new_thread(echo, (udp,))
    print(json.dumps(told | by_path(folder)), flush=True)
    sys.stdin.read()
    libc.shmctl(segment, IPC_REMOVE, None)


def by_path(folder: str) -> dict[str, Any]:
    """Sockets that have a name: several kinds of files, and one without a file."""
    every = [os.path.join(folder, name) for name in SOCKETS]
    for place in every:
        answer(listening(place))
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(os.path.join(folder, "datagrams"))
    _thread.start_new_thread(datagrams.recv, (1 << 16,))  # which keeps it
    abstract = f"ralph-neighbour-{os.getpid()}"
    answer(listening(f"\0{abstract}"))
    return {"unix": every[0], "sockets": every, "datagrams": datagrams.getsockname(), "abstract": abstract}


def listening(place: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(place)
    made.listen()
    return made


def by_vsock() -> int:
    """The port at which this machine answers itself by the sockets of virtual machines; 0 where it cannot."""
    try:
        made = socket.socket(socket.AF_VSOCK)
        made.bind((VSOCK_ANY, 1 << 20 | os.getpid()))
        made.listen()
    except OSError:
        return 0
    return int(answer(made).getsockname()[1])


def answer(listener: socket.socket) -> socket.socket:
    _thread.start_new_thread(serve, (listener,))
    return listener


def serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        _thread.start_new_thread(reply, (connection,))


def reply(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(10.0)
        try:
            if heard := connection.recv(65536):
                hosts = [line for line in heard.split(b"\r\n") if line.lower().startswith(b"host:")]
                connection.sendall(ANSWER + b"".join(hosts))
        except OSError:
            return


def echo(udp: socket.socket) -> None:
    while True:
        udp.sendto(ANSWER, udp.recvfrom(65536)[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
