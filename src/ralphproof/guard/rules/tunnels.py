"""Rules on reverse shells, listeners and tunnels."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nest import SHELLS
from ralphproof.guard.nested import REVERSE
from ralphproof.guard.simple import Simple, has, split, value_of
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

SHELL_OUT = Rule("reverse-shell", "tunnels", "connects a shell to another machine", "run commands here")
SOCKET = Rule(
    "raw-connection", "tunnels", "opens a raw connection to another machine",
    "use curl for what is to be fetched",
)  # fmt: skip
LISTEN = Rule("listener", "tunnels", "lets other machines in", "listen on 127.0.0.1 only")
TUNNEL = Rule("tunnel", "tunnels", "makes a way round the network's borders", "test against 127.0.0.1")
RULES = (SHELL_OUT, SOCKET, LISTEN, TUNNEL)
NETCATS = {"nc", "ncat", "netcat"}
CONNECTS = {*NETCATS, "telnet", "socat"}
DEV = re.compile(r"/dev/(tcp|udp)/")
TABLE: Table = {
    **dict.fromkeys(
        ("ngrok", "localtunnel", "lt", "bore", "frpc", "inlets", "zrok", "pagekite", "sish"), (("", TUNNEL),)
    ),
    "cloudflared": (("tunnel", TUNNEL), ("access", TUNNEL)), "tailscale": (("funnel|serve|up", TUNNEL),),
    "chisel": (("", TUNNEL),), "sshuttle": (("", TUNNEL),), "gost": (("", TUNNEL),), "msfvenom": (("", SHELL_OUT),),
    "devtunnel": (("host|create", TUNNEL),), "wg-quick": (("up", TUNNEL),), "openvpn": (("", TUNNEL),),
    "iodine": (("", TUNNEL),),
}  # fmt: skip


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """Which door a command opens."""
    yield from told(one, TABLE, {})
    if one.name == REVERSE or (one.name in SHELLS and connected(one)):
        yield SHELL_OUT.about(shown(one))
    elif one.name in NETCATS:
        yield from _netcat(one)
    elif one.name == "socat":
        yield from _socat(one)
    elif one.name in ("ssh", "autossh"):
        yield from _ssh(one)
    elif one.name in (">", "<") and len(one.words) > 1 and DEV.match(one.words[1]):
        if any(source.name in SHELLS for source in one.sources):
            yield SHELL_OUT.about(shown(one))
        elif not one.sources or one.name == "<":
            yield SOCKET.about(shown(one))
    elif one.name == "python" and "http.server" in one.words:
        options, __ = split(one.words[1:], ("-b", "--bind", "-m", "-d"))
        if value_of(options, "-b", "--bind") in ("0.0.0.0", "::"):  # noqa: S104 (what it looks for)
            yield LISTEN.about(shown(one))


def connected(one: Simple) -> bool:
    """A shell that is fed by a connection."""
    return any(
        source.name in CONNECTS or (source.name == "openssl" and "s_client" in source.words) for source in one.sources
    )


def _netcat(one: Simple) -> Iterator[Objection]:
    options, _ = split(one.words[1:], ("-p", "-w", "-s", "-e", "-c", "--exec", "--sh-exec", "-i", "-q"))
    runs = any(option.startswith(("-e", "-c", "--exec", "--sh-exec")) for option in options)
    if runs or any(source.name in SHELLS for source in one.sources):
        yield SHELL_OUT.about(shown(one))
    elif has(options, "-l", "--listen", takes="pwse"):
        yield LISTEN.about(shown(one))


def _socat(one: Simple) -> Iterator[Objection]:
    text = " ".join(one.words[1:]).lower()
    if re.search(r"\b(exec|system|shell)\b", text):
        yield SHELL_OUT.about(shown(one))
    elif "listen" in text and "bind=127" not in text:
        yield LISTEN.about(shown(one))


def _ssh(one: Simple) -> Iterator[Objection]:
    takes = [f"-{letter}" for letter in "bcDEeFIiJLlMmOopQRSWw"]
    options, _ = split(one.words[1:], takes)
    if any(
        re.match(r"-[a-zA-Z]*[RDLWw](=|$)", option)
        for option in options
        if not option.startswith(("-o", "-i", "-F", "-l"))
    ):
        yield TUNNEL.about(shown(one))
