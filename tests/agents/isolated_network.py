"""Runs a command where the only network is a scripted model on loopback.

    python -m tests.agents.isolated_network [--agent NAME --home DIR] [--host NAME ... [--tls DIR]] \\
        SCRIPT REQUESTS -- ARGV...

`{port}` in ARGV and in values of the environment becomes the model's port. `--agent` (more than once if need be) gives
the command a home and an environment in which that agent asks the model. With `--host` it asks for it by that name;
the command's own `/etc/hosts` knows it, and the others that are named. With `--tls` it asks over TLS, and the model has
the certificate in that folder. It ends as its command ends, by exit code or by signal; it passes signals on, and ends
nothing but its own server.

Where the machine allows no private network, the command runs on the machine's loopback with a proxy that leads nowhere,
and standard error says so.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.agents.model.script import Json
from tests.agents.model_server import ModelServer
from tests.agents.real_clis import PINS, home_for
from tests.agents.tls import serving

ROOT = Path(__file__).resolve().parents[2]
CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS = 0x10000000, 0x40000000, 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
SI_KERNEL = 0x80
CANNOT_START = 127
PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
NOWHERE = "http://127.0.0.1:9"
NOT_PRIVATE = "stage: no private network on this machine; the command runs on loopback with a proxy to nowhere"


def via(
    script: Path, requests: Path, agents: Sequence[str] = (), home: Path | None = None,
    env: Mapping[str, str] | None = None, hosts: Sequence[str] = (), tls: Path | None = None,
) -> list[str]:  # fmt: skip
    """The argument prefix that runs a command in this network, from any current directory.

    `env` overrides what the agents are given.
    """
    start = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from tests.agents.isolated_network import main; main(sys.argv[1:])"
    )
    settings = [word for name in agents for word in ("--agent", name)] + (["--home", str(home)] if home else [])
    settings += [*(f"--host={host}" for host in hosts), *(["--tls", str(tls)] if tls else [])]
    last = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
    return [sys.executable, "-c", start, *settings, str(script), str(requests), "--", *last]


def requests_in(log: Path) -> list[Json]:
    """What the model was asked so far; a line that is still being written is left out."""
    text = log.read_text("utf-8") if log.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def private_network_allowed() -> bool:
    """Whether this process can enter a network of its own; tried in a child, since there is no way back.

    It forks, so it is for processes with one thread.
    """
    child = os.fork()
    if child == 0:
        try:
            enter_private_network()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def enter_private_network() -> None:
    """Leave all networks for a new one that has loopback only. A user without rights gets a user namespace too."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:
            _unshare(CLONE_NEWNET)
        except PermissionError:
            _unshare_as(user, group)
    else:
        _unshare_as(user, group)
    _raise_loopback()


def _unshare_as(user: int, group: int) -> None:
    """A new user namespace in which this user is the same user."""
    _unshare(CLONE_NEWUSER | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)


def _unshare(flags: int) -> None:
    _ask("unshare", flags)


def _ask(name: str, *words: object) -> None:
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, "this system has no namespaces") from None
    if call(*words):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def name_loopback(hosts: Sequence[str], file: Path) -> None:
    """Let these names lead to loopback, for us alone; `file` is written. Only in a private network of our own."""
    file.write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {' '.join(hosts)}\n", "utf-8")
    file.chmod(0o644)
    _unshare(CLONE_NEWNS)
    _ask("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    _ask("mount", os.fsencode(file), b"/etc/hosts", None, MS_BIND, None)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        told = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        (flags,) = struct.unpack_from("h", told, 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))


def environment(given: argparse.Namespace, port: int) -> dict[str, str]:
    """The command's environment: our own, with the port in it, then what its agents need."""
    found = {name: value.replace("{port}", str(port)) for name, value in os.environ.items()}
    where = f"{'https' if given.tls else 'http'}://{next(iter(given.host), '127.0.0.1')}:{port}"
    for name in given.agent:
        assert given.home is not None, "--agent needs --home"
        found |= home_for(name, given.home, where)
    return found


def proxies_to_nowhere() -> dict[str, str]:
    """Settings by which well-behaved clients reach nothing but loopback."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    both = proxies | {"NO_PROXY": "127.0.0.1,localhost"}
    return both | {name.lower(): value for name, value in both.items()}


def play(argv: list[str], env: Mapping[str, str]) -> int:
    """Run the command to its end, passing signals on; its wait status.

    The signals in `PASSED_ON` and SIGCHLD must be blocked. What the terminal sends has reached the command already.
    """
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        command = os.posix_spawnp(argv[0], argv, env, setsigmask=[], setsigdef=ignored_by_python)
    except OSError as error:
        print(f"stage: {argv[0]}: {error.strerror}", file=sys.stderr)
        return CANNOT_START << 8
    while True:
        told = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if told.si_signo != signal.SIGCHLD and told.si_code != SI_KERNEL:
            os.kill(command, told.si_signo)
        ended, status = os.waitpid(command, os.WNOHANG)
        if ended:
            return status


def end_as(status: int) -> None:
    """End this process in the way that `status` tells of."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


def main(words: Sequence[str]) -> None:
    """Put the command that `words` tell of on the stage, and end as it does."""
    given = _parsed(words)
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    private = private_network_allowed()
    if private:
        enter_private_network()
    else:
        print(NOT_PRIVATE, file=sys.stderr, flush=True)
    if given.host:
        name_loopback(given.host, given.requests.with_suffix(".hosts"))
    with ModelServer(json.loads(given.script.read_text("utf-8")), given.requests, serving(given.tls)) as model:
        env = environment(given, model.port) | ({} if private else proxies_to_nowhere())
        status = play([word.replace("{port}", str(model.port)) for word in given.argv], env)
    end_as(status)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    split = list(words).index("--")
    known = argparse.ArgumentParser("isolated_network", description="A command whose only network is a scripted model.")
    known.add_argument("--agent", action="append", default=[], choices=list(PINS))
    known.add_argument("--home", type=Path)
    known.add_argument("--host", action="append", default=[])
    known.add_argument("--tls", type=Path)
    known.add_argument("script", type=Path)
    known.add_argument("requests", type=Path)
    return known.parse_args(words[:split], argparse.Namespace(argv=list(words[split + 1 :])))


if __name__ == "__main__":
    main(sys.argv[1:])
