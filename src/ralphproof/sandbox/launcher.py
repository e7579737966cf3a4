"""Program that enters the sandbox and serves its egress: `python -I -S launcher.py SPEC PROGRAM [ARGUMENT ...]`.

It runs in the turn's process tree, enters the sandbox, serves its outgoing connections while the program inside lives,
and exits with its code. So the allow-list is enforced for a turn whose harness died, and ends with the turn.
"""

from __future__ import annotations

import _thread
import os
import sys

if __name__ == "__main__":
    # At the end of the path, so that no file beside the package replaces a standard module.
    sys.path.append(__file__.rsplit("/", 3)[0])

import json
import select
import signal
import socket
import time

from ralphproof.base import interpreter
from ralphproof.base.files import remove_tree
from ralphproof.base.value import TYPE_CHECKING, pack
from ralphproof.sandbox.egress_proxy import EgressAudit, EgressProxy, PortForward, read_blocked_hosts
from ralphproof.sandbox.egress_rules import AllowList
from ralphproof.sandbox.plan import (
    PORT_PLACEHOLDER,
    PROXY_BUILT_IN,
    PROXY_BY_PORT,
    PROXY_BY_SOCKET,
    PROXY_SOCKET_FOLDER,
    LaunchSpec,
    filter_environment,
    read_launch_spec,
    write_launch_report,
)
from ralphproof.sandbox.project_mounts import Placeholders
from ralphproof.sandbox.resource_limits import LimitedCommand, find_limit_mechanism

if TYPE_CHECKING:
    from typing import NoReturn

IGNORED_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM")  # sent to the whole tree: the program inside decides
ENTRYPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entrypoint.py")
CONTROL_SOCKET = "ctl.sock"
MAX_FDS = 256
POLL_S = 0.05  # where the system tells nobody of a process' end
EXIT_GRACE_S = 30.0  # for whoever is inside, when the program that entered has ended
MAX_REMARKS = 10  # refusals that are named


def main() -> NoReturn:
    """Enter, serve, and exit with the code of the program inside."""
    os.closerange(3, 1 + max(map(int, os.listdir("/dev/fd"))))  # inherited descriptors must not reach the sandbox
    spec = read_launch_spec(sys.argv[1])
    for name in IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    placeholders = Placeholders(os.path.dirname(spec.lock_file)) if spec.lock_file else None
    lock = placeholders.acquire() if placeholders else -1
    os.makedirs(spec.plan.temp, mode=0o700, exist_ok=True)
    gateway = EgressGateway(spec)
    code, limit_reached = _run_to_end(spec, gateway)
    for remark in (*gateway.refusal_notes(), *([f"it reached its limit of {limit_reached}"] if limit_reached else [])):
        os.write(2, f"ralph sandbox: {remark}\n".encode(errors="replace"))
    gateway.close()
    remove_tree(spec.plan.temp)
    write_launch_report(spec.report_file, gateway.entered, limit_reached)
    if placeholders:  # the harness may be dead; while it lives, its lock prevents removal
        placeholders.release(lock)
    os._exit(code)  # serving threads may still run


def _run_to_end(spec: LaunchSpec, gateway: EgressGateway) -> tuple[int, str]:
    """Run the program inside to its end: its exit code, and the limit that it reached."""
    found = find_limit_mechanism(spec.plan.limits)
    limited = LimitedCommand(found, spec.plan.limits, os.path.basename(spec.report_file))
    try:
        argv = (*found.prefix, *gateway.argv(ENTRYPOINT, tuple(sys.argv[2:])))
        child = _start(argv, spec, gateway, limited)
        gateway.close_remote_end()
        status = gateway.serve(child)
        return (status if status >= 0 else 128 - status), limited.limit_reached()
    finally:
        limited.close()


def _start(argv: tuple[str, ...], spec: LaunchSpec, gateway: EgressGateway, limited: LimitedCommand) -> int:
    env = gateway.environment(dict(os.environ))
    child = os.fork()
    if child:
        return child
    try:
        limited.enter()
        gateway.keep_channel_in_child()
        if spec.entry.no_entrypoint:  # no entrypoint would reset them
            for name in IGNORED_SIGNALS:
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"ralph sandbox: cannot start {argv[0]!a}: {error.strerror}\n".encode())
    finally:
        os._exit(126)


class EgressGateway:
    """Created before the program inside is started."""

    def __init__(self, spec: LaunchSpec) -> None:
        self._spec, self._token, self._exit_code = spec, "", b""
        self._local_end: socket.socket | None = None
        self._remote_end: socket.socket | None = None
        self._listeners: dict[int, tuple[socket.socket, int]] = {}  # by descriptor; 0 is the proxy, else a port
        self._proxy: EgressProxy | None = None
        self._forwards: dict[int, PortForward] = {}
        self._audit: EgressAudit | None = None
        self.entered = spec.entry.no_entrypoint
        self._open_channel(spec.entry.proxy_access)

    def _open_channel(self, how: str) -> None:
        if how == PROXY_BY_PORT:
            self._token = os.urandom(16).hex()
            self._open_listener()
        if how == PROXY_BY_SOCKET:
            self._local_end = _listen_in_folder(self._spec.plan.socket_folder)
        elif how != PROXY_BUILT_IN and not self._spec.entry.no_entrypoint:
            self._local_end, self._remote_end = socket.socketpair()

    def _open_listener(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listeners[listener.fileno()] = (listener, 0)

    @property
    def _port(self) -> int:
        """Port of the proxy as seen from inside."""
        return next((int(one.getsockname()[1]) for one, port in self._listeners.values() if port == 0), 0)

    def argv(self, inner: str, program: tuple[str, ...]) -> tuple[str, ...]:
        """Command line that enters the sandbox and runs this program."""
        entering = self._spec.entry.argv
        if self._spec.entry.no_entrypoint:
            return (*(word.replace(PORT_PLACEHOLDER, str(self._port)) for word in entering), *program)
        address = (
            f"unix:{PROXY_SOCKET_FOLDER}/{CONTROL_SOCKET}"
            if self._remote_end is None
            else f"fd:{self._remote_end.fileno()}"
        )
        return (*entering, *interpreter.script_command(inner, address, *program))

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """Environment of the program that enters the sandbox."""
        plan, way = self._spec.plan, self._spec.entry
        kept = filter_environment(env, plan.passed_variables) | dict(plan.variables)
        return (
            kept
            | (self._proxy_variables() if way.no_entrypoint and way.proxy_access == PROXY_BY_PORT else {})
            | dict(way.env)
        )

    def keep_channel_in_child(self) -> None:
        """In the child, before it executes: keep its end of the channel open."""
        if self._remote_end is not None:
            os.set_inheritable(self._remote_end.fileno(), True)

    def close_remote_end(self) -> None:
        """In the parent, after the fork: the child has its own copy."""
        if self._remote_end is not None:
            self._remote_end.close()

    def serve(self, child: int) -> int:
        """Serve until the child ends; its exit code, negative for a signal.

        A client of a container engine may end before its container when all are asked to end (rootless podman 4.3):
        then the program inside gets a grace period, and its exit code counts.
        """
        poll = select.poll()
        ended = _open_pidfd(child)
        if ended is not None:
            poll.register(ended, select.POLLIN)
        if self._local_end is not None and self._spec.entry.proxy_access == PROXY_BY_SOCKET:
            poll.register(self._local_end, select.POLLIN)
        elif self._local_end is not None:
            self._handshake()
        for file in self._listeners:
            poll.register(file, select.POLLIN)
        code: int | None = None
        until = 0.0
        while code is None or (self._read_exit_code() and time.monotonic() < until):
            for file, _ in poll.poll(None if ended is not None and code is None else POLL_S * 1000):
                if self._local_end is not None and file == self._local_end.fileno():
                    self._on_channel_event(self._local_end, poll)
                elif file in self._listeners:
                    self._accept(*self._listeners[file])
            pid, status = os.waitpid(child, os.WNOHANG) if code is None else (0, 0)
            if pid:
                code, until = os.waitstatus_to_exitcode(status), time.monotonic() + EXIT_GRACE_S
                if ended is not None:
                    poll.unregister(ended)
        return int(self._exit_code) if self._exit_code.isdigit() else code

    def _on_channel_event(self, local_end: socket.socket, poll: select.poll) -> None:
        """The entrypoint connects, sends its exit code, or leaves."""
        if self.entered:
            if not self._read_exit_code():
                poll.unregister(local_end)
            return
        poll.unregister(local_end)
        for created in self._handshake():
            poll.register(created, select.POLLIN)
        if self.entered and self._local_end is not None:  # it is another by now
            poll.register(self._local_end, select.POLLIN)

    def _read_exit_code(self) -> bool:
        """Read the exit code if the entrypoint sent it; whether the entrypoint may still send one."""
        if self._local_end is None or self._spec.entry.proxy_access != PROXY_BY_SOCKET or not self.entered:
            return False
        try:
            data = self._local_end.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._exit_code = data.strip() or self._exit_code
        return bool(data)

    def _handshake(self) -> list[int]:
        """Send orders to the entrypoint, receive its listeners, send the proxy variables; new descriptors to poll."""
        channel = self._accept_channel()
        spec, own = self._spec, self._spec.entry.proxy_access == PROXY_BY_PORT
        landlock = pack(spec.entry.landlock)
        if isinstance(landlock, dict):
            landlock = {**landlock, "ports": [*spec.plan.egress.local_ports, self._port]}
        ports = [] if own else [0, *spec.plan.egress.local_ports]
        as_init = spec.entry.proxy_access == PROXY_BY_SOCKET
        orders = {
            "listen": ports,
            "landlock": landlock,
            "as_init": as_init,
            "forward_signals": not spec.entry.gets_group_signals,
        }
        try:
            channel.sendall(json.dumps(orders).encode() + b"\n")
            if not self._receive_listeners(channel, ports):
                return []
            channel.sendall(json.dumps(self._proxy_variables()).encode() + b"\n")
        except OSError:
            return []  # it ended before it was inside: its exit code and its words say why
        self.entered = True
        return [] if own else list(self._listeners)

    def _accept_channel(self) -> socket.socket:
        assert self._local_end is not None
        if self._spec.entry.proxy_access == PROXY_BY_SOCKET:
            self._local_end, _ = self._local_end.accept()
        return self._local_end

    def _receive_listeners(self, channel: socket.socket, ports: list[int]) -> bool:
        """Take over the listeners that were opened inside; False if the entrypoint is gone."""
        data, files, _, _ = socket.recv_fds(channel, 1, MAX_FDS)
        if not data:
            return False
        for file, port in zip(files, ports, strict=True):
            self._listeners[file] = (socket.socket(fileno=file), port)
        return True

    def _accept(self, listener: socket.socket, port: int) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        server = self._server(port)
        _thread.start_new_thread(server.serve, (connection,))

    def _server(self, port: int) -> EgressProxy | PortForward:
        """The server of a port; 0 is the proxy. Loaded with the first connection."""
        if self._audit is None:
            self._audit = EgressAudit(self._spec.audit_file)
        if port:
            return self._forwards.setdefault(port, PortForward(port, self._audit))
        if self._proxy is None:
            self._proxy = EgressProxy(AllowList(self._spec.plan.egress.hosts), self._audit, self._token)
        return self._proxy

    def _proxy_variables(self) -> dict[str, str]:
        """Variables by which programs find the proxy."""
        login = f"ralph:{self._token}@" if self._token else ""
        address = f"http://{login}127.0.0.1:{self._port}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        created = {name: address for small in names for name in (small, small.upper())}
        direct = "localhost,127.0.0.1,::1"
        return created | {"no_proxy": direct, "NO_PROXY": direct, "NODE_USE_ENV_PROXY": "1"}

    def refusal_notes(self) -> list[str]:
        """After the end: refused hosts, for the log of the program."""
        if self._audit is None:
            return []
        self._audit.close()
        blocked = read_blocked_hosts(self._spec.audit_file)
        more = f" and {len(blocked) - MAX_REMARKS} more" if len(blocked) > MAX_REMARKS else ""
        named = ", ".join(blocked[:MAX_REMARKS]) + more
        return [f"not on the allow-list, so not reached: {named} (--allow-host allows one)"] if blocked else []

    def close(self) -> None:
        """Close all sockets."""
        for one in (self._local_end, self._remote_end, *(listener for listener, _ in self._listeners.values())):
            if one is not None:
                one.close()


def _listen_in_folder(folder: str) -> socket.socket:
    """A Unix socket in this folder, bound through /proc because the path may exceed the limit of 107 bytes."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    address = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    created = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    created.bind(f"/proc/self/fd/{address}/{CONTROL_SOCKET}")
    created.listen(1)
    os.close(address)
    return created


def _open_pidfd(child: int) -> int | None:
    """A descriptor that becomes readable when the child ends; None where the system has none."""
    try:
        return os.pidfd_open(child)
    except (AttributeError, OSError):
        return None


if __name__ == "__main__":
    main()
