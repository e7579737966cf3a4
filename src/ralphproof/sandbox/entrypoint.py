"""First program inside a sandbox: `python -I -S entrypoint.py CHANNEL PROGRAM [ARGUMENT ...]`.

It opens the listeners that are the only way out of the private network, hands them to the launcher over CHANNEL (`fd:N`
or `unix:PATH`), restricts itself as ordered, and executes PROGRAM. In a container it stays as the init process instead,
so that nothing in it outlives the launcher. It imports only what its orders need.
"""

from __future__ import annotations

import _socket
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

if TYPE_CHECKING:
    from typing import Any, NoReturn

NOT_FOUND, NOT_STARTED = 127, 126
RESET_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ")
FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")


def main() -> NoReturn:
    """Follow the orders of the launcher, then execute the program."""
    import json

    channel = _open_channel(sys.argv[1])
    orders = json.loads(_read_line(channel))
    listeners = [_open_listener(port) for port in orders["listen"]]
    _send_listeners(channel, [listener.fileno() for listener in listeners])
    os.environ.update(json.loads(_read_line(channel)))
    for listener in listeners:
        listener.close()
    _restrict_self(orders["landlock"])
    for name in RESET_SIGNALS:  # those around us ignore some, so that they outlast the program
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    if orders["as_init"]:
        _run_as_init(sys.argv[2:], channel, FORWARDED_SIGNALS if orders["forward_signals"] else ())
    channel.close()
    _exec_program(sys.argv[2:])


def _open_channel(name: str) -> _socket.socket:
    kind, _, place = name.partition(":")
    if kind == "fd":
        channel = _socket.socket(fileno=int(place))
        os.set_inheritable(channel.fileno(), False)
        return channel
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    channel.connect(place)
    return channel


def _read_line(channel: _socket.socket) -> bytes:
    """The next line from the launcher; exits if the launcher is gone."""
    said = b""
    while not said.endswith(b"\n"):
        more = channel.recv(65536)
        if not more:
            os._exit(NOT_STARTED)
        said += more
    return said


def _open_listener(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def _send_listeners(channel: _socket.socket, descriptors: list[int]) -> None:
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if descriptors else []
    channel.sendmsg([b"L"], rights)


def _restrict_self(landlock: dict[str, Any] | None) -> None:
    """Apply restrictions that the sandbox itself does not enforce."""
    sys.path.append(__file__.rsplit("/", 3)[0])
    from ralphproof.sandbox.landlock_seccomp import block_namespace_escapes, restrict_process

    if landlock:
        restrict_process(landlock["read"], landlock["write"], landlock["ports"])
    else:
        block_namespace_escapes()


def _exec_program(argv: list[str]) -> NoReturn:
    code = NOT_FOUND
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
        os.write(2, f"ralph sandbox: cannot start {argv[0]!a} inside: {error.strerror}\n".encode())
    os._exit(code)


def _run_as_init(argv: list[str], channel: _socket.socket, passed_on: tuple[str, ...]) -> NoReturn:
    """Start the program, forward these signals, reap orphans; end with the program or with the launcher."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    _signal.set_wakeup_fd(tell)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)  # before there is a child, which may end at once
    numbers = [getattr(_signal, name) for name in passed_on]  # others are nothing to the first process
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, numbers)  # one may come before we can pass it on
    child = os.fork()
    if child == 0:
        _signal.set_wakeup_fd(-1)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        os.setsid()
        _exec_program(argv)
    for number in numbers:
        _signal.signal(number, lambda got, _: _forward_signals(child, got))
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    poll = select.poll()
    poll.register(told, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file == told:
                os.read(told, 4096)
            elif not channel.recv(4096):
                os._exit(137)
        _reap_children(child, channel)


def _forward_signals(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return


def _reap_children(child: int, channel: _socket.socket) -> None:
    """Reap all ended children. The program's exit code is sent to the launcher, because an engine may lose it (podman
    4.3).
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            try:
                channel.send(f"{code}\n".encode())
            finally:
                os._exit(code)


if __name__ == "__main__":
    main()
