"""One spelling for each host that can be called, and which addresses lie in the public internet."""

from __future__ import annotations

import re

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Programs read such a host as an address: 2130706433, 0x7f.1, 0177.0.0.1, 127.1. No name of the internet ends so.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_PORT = re.compile(r"[0-9]{1,5}")

# The standard library calls these global, at least in some versions. 168.63.129.16 is what runs a machine in Azure.
_NOT_PUBLIC = (
    "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)  # fmt: skip
_UNICAST6 = "2000::/3"
_NAT64 = "64:ff9b::/96"
# What an entry with `private:` may mean beside public addresses. Link-local ones (a cloud's metadata) only by number.
_PRIVATE = (
    "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "::1/128",
    "fc00::/7",
)  # fmt: skip
_LINK_LOCAL = ("169.254.0.0/16",)


def normalised(host: str) -> str:
    """The one spelling of a name or an address; ValueError tells, in words that follow it, why it has none."""
    if not host:
        raise ValueError("names no host")
    if len(host) > LONGEST_NAME + 1:
        raise ValueError("is longer than a host name can be")
    if any(not sign.isprintable() or sign.isspace() for sign in host):
        raise ValueError("has a blank or a control character in it")
    if "@" in host:
        raise ValueError("has a user name in it")
    if ":" in host or host[0] == "[":
        return _address6(host)
    name = _ascii(host.removesuffix("."))
    if _NUMBER.fullmatch(name):
        return _address4(name)
    if len(name) > LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError("is not a host name")
    return name


def _ascii(name: str) -> str:
    """A name in lower case, in the form that is sent to name servers."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize

    lower = normalize("NFC", name.lower())
    try:
        sent = lower.encode("idna")
        same = sent.decode("idna") == lower
    except UnicodeError:
        same = False
    if not same:  # signs that one program maps and another does not: ß, full-width letters, invisible ones
        raise ValueError("has signs in it that can be read in two ways; write its xn-- form")
    return sent.decode("ascii").lower()


def _address4(text: str) -> str:
    from ipaddress import IPv4Address

    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError("is an address in a form that programs read differently") from None


def _address6(text: str) -> str:
    from ipaddress import IPv6Address

    inner = text[1:-1] if text[0] == "[" and text[-1] == "]" else text
    try:
        address = IPv6Address(inner)
    except ValueError:
        raise ValueError("is not a host name") from None
    if address.scope_id is not None:
        raise ValueError("is an address with a zone")
    if address.ipv4_mapped is not None:
        raise ValueError("is an IPv4 address inside an IPv6 one")
    return str(address)


def split(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; port 0 where there is none. An IPv6 address with a port needs its brackets."""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host, colon, port = host + bracket, rest[:1], rest[1:]
        if rest and colon != ":":
            raise ValueError("has something between its host and its port")
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            return text, 0
    return host, port_of(port) if colon else 0


def port_of(text: str) -> int:
    """The number of a port; ValueError where it is none."""
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65536:
        raise ValueError("has a port that is not a number between 1 and 65535")
    return int(text)


def joined(host: str, port: int) -> str:
    """`host:port` as people and programs write it."""
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str) -> bool:
    """Whether a normalised host is an address."""
    return ":" in host or _NUMBER.fullmatch(host) is not None


def is_public(address: str) -> bool:
    """Whether an address belongs to one machine of the public internet."""
    from ipaddress import IPv4Address, ip_address

    ip = ip_address(address)
    if ip.version == 6 and _within(ip, _NAT64):
        return is_public(str(IPv4Address(int(ip) & 0xFFFFFFFF)))
    if ip.version == 6 and not _within(ip, _UNICAST6):
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not _within(ip, *_NOT_PUBLIC)


def is_callable(address: str, by_number: bool) -> bool:
    """Whether an entry with `private:` may mean this address; `by_number`: the entry is the address itself."""
    from ipaddress import ip_address

    ip = ip_address(address)
    return is_public(address) or _within(ip, *_PRIVATE) or (by_number and _within(ip, *_LINK_LOCAL))


def _within(ip: IPv4Address | IPv6Address, *networks: str) -> bool:
    from ipaddress import ip_network

    return any(ip in ip_network(network) for network in networks)
