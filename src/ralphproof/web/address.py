"""Where the server is reached, and which names and origins are its own."""

from __future__ import annotations

import re

from ralphproof.value import value

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (to know it when it is asked for)
MAPPED = "::ffff:"  # before the IPv4 address of one who came in by it to a socket of both
NAME = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:(?P<port>[0-9]{1,5}))?")


@value
class Address:
    """A scheme, the host that is listened on, its port, and other `host` or `host:port` that browsers may use."""

    scheme: str
    host: str
    port: int
    names: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The one to show: of a server on every address, that of a name it was given, else of this machine."""
        if self.host not in EVERYWHERE:
            return f"{self.scheme}://{self._at(bracketed(self.host))}"
        return f"{self.scheme}://{self._whole(self.names[0]) if self.names else self._at(LOOPBACK[0])}"

    def hosts(self, local: str = "") -> frozenset[str]:
        """What a `Host` header may say, in small letters.

        `local` is the address at which a connection came in. It counts where every address is listened on: a page of
        somebody else can make a name point here, but not an address.
        """
        ours = [*LOOPBACK, bracketed(self.host)]
        if self.host in EVERYWHERE and local:
            ours.append(bracketed(local.removeprefix(MAPPED) if "." in local else local))
        short = [*ours] if DEFAULT_PORTS[self.scheme] == self.port else []
        whole = [self._whole(name) for name in self.names]
        return frozenset(name.lower() for name in [*(f"{name}:{self.port}" for name in ours), *short, *whole])

    def _at(self, host: str) -> str:
        return host if DEFAULT_PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    def _whole(self, name: str) -> str:
        """A name with its port; one that brings none has ours."""
        has_port = name.rpartition("]")[2].partition(":")[1]
        return name if has_port else self._at(name)


def is_name(text: str) -> bool:
    """Whether a browser could call a server so: a host, or a host and a port."""
    found = NAME.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 65536


def bracketed(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host
