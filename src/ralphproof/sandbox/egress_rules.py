"""Egress allow-list: host names and addresses, entries of sandbox.allowHosts, and what they permit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from socket import AF_INET, AF_INET6, SOCK_STREAM, getaddrinfo
from unicodedata import normalize

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.ecosystems import expand_host_entry

Sockaddr = tuple[str, int] | tuple[str, int, int, int]
Found = tuple[int, int, int, str, tuple[object, ...]]
Resolve = Callable[..., Sequence[Found]]

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address


# Normal forms of hosts, and which addresses are public.


MAX_NAME_CHARS = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Programs parse such a host as an address: 2130706433, 0x7f.1, 0177.0.0.1, 127.1. No public name ends like this.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_PORT = re.compile(r"[0-9]{1,5}")

# The standard library calls these global, at least in some versions. 168.63.129.16 is the virtual machine service of
# Azure.
_NON_PUBLIC_NETWORKS = (
    "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)  # fmt: skip
_UNICAST6 = "2000::/3"
_NAT64 = "64:ff9b::/96"
# What an entry with `private:` may mean beside public addresses. Link-local ones (a cloud's metadata) only by number.
_PRIVATE_NETWORKS = (
    "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "::1/128",
    "fc00::/7",
)  # fmt: skip
_LINK_LOCAL_NETWORKS = ("169.254.0.0/16",)


def normalise_host(host: str) -> str:
    """The normal form of a host name or address; ValueError with a predicate that says why it has none."""
    if not host:
        raise ValueError("names no host")
    if len(host) > MAX_NAME_CHARS + 1:
        raise ValueError("is longer than a host name can be")
    if any(not sign.isprintable() or sign.isspace() for sign in host):
        raise ValueError("has a blank or a control character in it")
    if "@" in host:
        raise ValueError("has a user name in it")
    if ":" in host or host[0] == "[":
        return _parse_ipv6(host)
    name = _to_ascii_name(host.removesuffix("."))
    if _NUMBER.fullmatch(name):
        return _parse_ipv4(name)
    if len(name) > MAX_NAME_CHARS or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError("is not a host name")
    return name


def _to_ascii_name(name: str) -> str:
    """The name in lower case, in the form that is sent to name servers."""
    if name.isascii():
        return name.lower()
    lower = normalize("NFC", name.lower())
    try:
        sent = lower.encode("idna")
        same = sent.decode("idna") == lower
    except UnicodeError:
        same = False
    if not same:  # signs that one program maps and another does not: ß, full-width letters, invisible ones
        raise ValueError("has signs in it that can be read in two ways; write its xn-- form")
    return sent.decode("ascii").lower()


def _parse_ipv4(text: str) -> str:
    from ipaddress import IPv4Address

    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError("is an address in a form that programs read differently") from None


def _parse_ipv6(text: str) -> str:
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


def split_host_port(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; port 0 if there is none. An IPv6 address with a port needs brackets."""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host, colon, port = host + bracket, rest[:1], rest[1:]
        if rest and colon != ":":
            raise ValueError("has something between its host and its port")
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            return text, 0
    return host, parse_port(port) if colon else 0


def parse_port(text: str) -> int:
    """A port number; ValueError if it is none."""
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65536:
        raise ValueError("has a port that is not a number between 1 and 65535")
    return int(text)


def format_host_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip_address(host: str) -> bool:
    """Whether a normalised host is an address."""
    return ":" in host or _NUMBER.fullmatch(host) is not None


def is_public_address(address: str) -> bool:
    """Whether it is a unicast address of the public internet."""
    from ipaddress import IPv4Address, ip_address

    ip = ip_address(address)
    if ip.version == 6 and _is_in_networks(ip, _NAT64):
        return is_public_address(str(IPv4Address(int(ip) & 0xFFFFFFFF)))
    if ip.version == 6 and not _is_in_networks(ip, _UNICAST6):
        return False
    return (
        ip.is_global and not ip.is_multicast and not ip.is_reserved and not _is_in_networks(ip, *_NON_PUBLIC_NETWORKS)
    )


def is_allowed_private_address(address: str, by_number: bool) -> bool:
    """Whether an entry with `private:` may mean this address; `by_number`: the entry is the address itself."""
    from ipaddress import ip_address

    ip = ip_address(address)
    return (
        is_public_address(address)
        or _is_in_networks(ip, *_PRIVATE_NETWORKS)
        or (by_number and _is_in_networks(ip, *_LINK_LOCAL_NETWORKS))
    )


def _is_in_networks(ip: IPv4Address | IPv6Address, *networks: str) -> bool:
    from ipaddress import ip_network

    return any(ip in ip_network(network) for network in networks)


DEFAULT_PORT = 443  # only TLS is tunnelled
MAX_ADDRESSES = 8  # of one name: each may take its time to be tried
_PRIVATE_PREFIX = "private:"
NOT_LISTED = "is not on the allow-list (sandbox.allowHosts)"
OTHER_PORT = "is on the allow-list (sandbox.allowHosts) with other ports only"
ALLOWABLE_REFUSALS = (NOT_LISTED, OTHER_PORT)  # by a further entry


@value
class AllowedHost:
    """An allowed host in normal form. A `private` one may resolve to a private network."""

    host: str
    private: bool


@value
class AllowListEntry:
    """One entry of the allow-list. `below`: names under `host`, not `host` itself. Port 0: the default port."""

    host: str
    port: int
    below: bool
    private: bool

    def covers(self, host: str) -> bool:
        """Whether the entry means this normalised host."""
        return host.endswith("." + self.host) if self.below else host == self.host


class AllowList:
    """An empty allow-list allows nothing."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        """Raises ValueError with one sentence for an invalid entry."""
        for entry in hosts:
            if wrong := allow_list_entry_problem(entry):
                raise ValueError(f"{entry[:100]!r} {wrong}")
        entries = [_parse_entry(entry) for entry in hosts]
        self._entries = sorted(entries, key=lambda entry: not entry.private)

    def judge(self, host: str, port: int) -> AllowedHost | str:
        """The allowed host, or a predicate that says why it is refused."""
        try:
            name = normalise_host(host)
        except ValueError as wrong:
            return str(wrong)
        meant = [entry for entry in self._entries if entry.covers(name)]
        for entry in meant:
            if port == (entry.port or DEFAULT_PORT):
                return AllowedHost(name, entry.private)
        return OTHER_PORT if meant else NOT_LISTED


def allow_list_entry_problem(entry: str) -> str:
    """A predicate that says what is wrong with an entry; empty if nothing is."""
    try:
        read = _parse_entry(entry)
    except ValueError as wrong:
        return str(wrong)
    number = is_ip_address(read.host)
    if read.private and read.below:
        return "has a star: name each private host"
    if read.below and "." not in read.host:
        return "stands for too many hosts: two labels must follow the star"
    if read.private and number and not is_allowed_private_address(read.host, by_number=True):
        return "is an address that cannot be called"
    if not read.private and number and not is_public_address(read.host):
        return f"is not a public address; if it is meant, write {_PRIVATE_PREFIX}{entry}"
    if not read.private and "." not in read.host and not number:
        return f"is a name without a dot; if it is a host of your own network, write {_PRIVATE_PREFIX}{entry}"
    return ""


def _parse_entry(entry: str) -> AllowListEntry:
    """Raises ValueError for an entry that cannot be parsed."""
    private, text = entry.startswith(_PRIVATE_PREFIX), entry.removeprefix(_PRIVATE_PREFIX)
    if "/" in text:
        raise ValueError("is more than a host: leave out https:// and everything after the host")
    below, text = text.startswith("*."), text.removeprefix("*.")
    if text == "*":
        raise ValueError("stands for every host: name those that are needed")
    if "*" in text:
        raise ValueError("has a star elsewhere than at its beginning, before a dot")
    host, port = split_host_port(text)
    if below and (":" in host or host.startswith("[")):
        raise ValueError("has a star before an address")
    return AllowListEntry(normalise_host(host), port, below, private)


def allow_list_entry_for(host: str, port: int, private: bool = False) -> str:
    """The entry that would allow this call; empty if none can."""
    try:
        name = normalise_host(host)
        private = private or (not is_public_address(name) if is_ip_address(name) else "." not in name)
    except ValueError:
        return ""
    text = f"[{name}]" if ":" in name else name
    entry = f"{_PRIVATE_PREFIX if private else ''}{text}{'' if port == DEFAULT_PORT else f':{port}'}"
    return "" if allow_list_entry_problem(entry) else entry


def resolve_addresses(allowed: AllowedHost, port: int, *, resolve: Resolve | None = None) -> list[tuple[int, Sockaddr]]:
    """Addresses to connect to, best first, after at most one lookup.

    Raises OSError; PermissionError if none of the addresses may be called.
    """
    by_number = is_ip_address(allowed.host)
    found = [allowed.host] if by_number else _look_up(allowed.host, port, resolve)
    good = [one for one in dict.fromkeys(found) if _is_address_permitted(one, allowed.private, by_number)]
    if not good:
        raise PermissionError("has no public address" if not allowed.private else "has no address that may be called")
    return [(AF_INET6, (one, port, 0, 0)) if ":" in one else (AF_INET, (one, port)) for one in good[:MAX_ADDRESSES]]


def _look_up(host: str, port: int, resolve: Resolve | None) -> list[str]:
    try:
        answers = (resolve or getaddrinfo)(host, port, type=SOCK_STREAM)
    except (OSError, UnicodeError) as failed:
        raise OSError(f"was not found: {getattr(failed, 'strerror', None) or failed}") from failed
    return [str(answer[4][0]) for answer in answers if answer[0] in (AF_INET, AF_INET6)]


def _is_address_permitted(address: str, private: bool, by_number: bool) -> bool:
    """Whether an address of a name may be called; never one with a zone, which belongs to one network interface."""
    try:
        return "%" not in address and (
            is_allowed_private_address(address, by_number) if private else is_public_address(address)
        )
    except ValueError:
        return False


def host_entry_problem(entry: str) -> str:
    """What is wrong with an entry of sandbox.allowHosts; empty if nothing is. An ecosystem's name stands for its
    registries.
    """
    return next((problem for host in expand_host_entry(entry) if (problem := allow_list_entry_problem(host))), "")
