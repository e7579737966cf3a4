"""Which hosts can be called from inside a sandbox, and at which addresses."""

from __future__ import annotations

from ralphproof.sandboxes.egress_names import is_address, is_callable, is_public, normalised, split
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Sockaddr = tuple[str, int] | tuple[str, int, int, int]
    Found = tuple[int, int, int, str, tuple[object, ...]]
    Resolve = Callable[..., Sequence[Found]]

PORTS = (80, 443)
MOST_ADDRESSES = 8  # of one name: each may take its time to be tried
_PRIVATE = "private:"
NOT_LISTED = "is not on the allow-list (sandbox.allowHosts)"
OTHER_PORT = "is on the allow-list (sandbox.allowHosts) with other ports only"
MENDABLE = (NOT_LISTED, OTHER_PORT)  # by a further entry


@value
class Allowed:
    """A host that may be called, in its one spelling. One that is `private` may lie in a private network."""

    host: str
    private: bool


@value
class HostEntry:
    """One entry of the allow-list. `below`: the names under `host`, never itself. Port 0: the usual ones."""

    host: str
    port: int
    below: bool
    private: bool

    def covers(self, host: str) -> bool:
        """Whether a normalised host is meant."""
        return host.endswith("." + self.host) if self.below else host == self.host


class Rules:
    """An allow-list. Without entries nothing is allowed."""

    def __init__(self, hosts: tuple[str, ...], ports: tuple[int, ...] = PORTS) -> None:
        """Raises ValueError with one sentence for an entry that cannot be kept to."""
        for entry in hosts:
            if wrong := problem_with(entry):
                raise ValueError(f"{entry[:100]!r} {wrong}")
        entries = [_read(entry) for entry in hosts]
        self._entries = sorted(entries, key=lambda entry: not entry.private)
        self._ports = ports

    def judge(self, host: str, port: int) -> Allowed | str:
        """The host as it may be called at this port, or why it may not, in a clause that follows it."""
        try:
            name = normalised(host)
        except ValueError as wrong:
            return str(wrong)
        meant = [entry for entry in self._entries if entry.covers(name)]
        for entry in meant:
            if port in ((entry.port,) if entry.port else self._ports):
                return Allowed(name, entry.private)
        return OTHER_PORT if meant else NOT_LISTED


def problem_with(entry: str) -> str:
    """What is wrong with an entry of the allow-list, in words that follow it; empty where nothing is."""
    try:
        read = _read(entry)
    except ValueError as wrong:
        return str(wrong)
    number = is_address(read.host)
    if read.private and read.below:
        return "has a star: name each private host"
    if read.below and "." not in read.host:
        return "stands for too many hosts: two labels must follow the star"
    if read.private and number and not is_callable(read.host, by_number=True):
        return "is an address that cannot be called"
    if not read.private and number and not is_public(read.host):
        return f"is not a public address; if it is meant, write {_PRIVATE}{entry}"
    if not read.private and "." not in read.host and not number:
        return f"is a name without a dot; if it is a host of your own network, write {_PRIVATE}{entry}"
    return ""


def _read(entry: str) -> HostEntry:
    """The parts of an entry; ValueError where it has none that can be told."""
    private, text = entry.startswith(_PRIVATE), entry.removeprefix(_PRIVATE)
    if "/" in text:
        raise ValueError("is more than a host: leave out https:// and everything after the host")
    below, text = text.startswith("*."), text.removeprefix("*.")
    if text == "*":
        raise ValueError("stands for every host: name those that are needed")
    if "*" in text:
        raise ValueError("has a star elsewhere than at its beginning, before a dot")
    host, port = split(text)
    if below and (":" in host or host.startswith("[")):
        raise ValueError("has a star before an address")
    return HostEntry(normalised(host), port, below, private)


def entry_for(host: str, port: int, private: bool = False) -> str:
    """The entry that would allow this call; empty where none can."""
    try:
        name = normalised(host)
        private = private or (not is_public(name) if is_address(name) else "." not in name)
    except ValueError:
        return ""
    text = f"[{name}]" if ":" in name else name
    entry = f"{_PRIVATE if private else ''}{text}{'' if port in PORTS else f':{port}'}"
    return "" if problem_with(entry) else entry


def addresses(allowed: Allowed, port: int, *, resolve: Resolve | None = None) -> list[tuple[int, Sockaddr]]:
    """Where to connect to, best first, after one lookup at most.

    Raises OSError: PermissionError where all addresses lie in places that may not be called.
    """
    from _socket import AF_INET, AF_INET6

    by_number = is_address(allowed.host)
    found = [allowed.host] if by_number else _looked_up(allowed.host, port, resolve)
    good = [one for one in dict.fromkeys(found) if _permitted(one, allowed.private, by_number)]
    if not good:
        raise PermissionError("has no public address" if not allowed.private else "has no address that may be called")
    return [(AF_INET6, (one, port, 0, 0)) if ":" in one else (AF_INET, (one, port)) for one in good[:MOST_ADDRESSES]]


def _looked_up(host: str, port: int, resolve: Resolve | None) -> list[str]:
    from _socket import AF_INET, AF_INET6, SOCK_STREAM

    try:
        answers = (resolve or _ask_the_system)(host, port, type=SOCK_STREAM)
    except (OSError, UnicodeError) as failed:
        raise OSError(f"was not found: {getattr(failed, 'strerror', None) or failed}") from failed
    return [str(answer[4][0]) for answer in answers if answer[0] in (AF_INET, AF_INET6)]


def _ask_the_system(host: str, port: int, *, type: int) -> Sequence[Found]:
    from socket import getaddrinfo

    return getaddrinfo(host, port, type=type)


def _permitted(address: str, private: bool, by_number: bool) -> bool:
    """Whether one address that a name has may be called; never one with a zone, which is of one network card."""
    try:
        return "%" not in address and (is_callable(address, by_number) if private else is_public(address))
    except ValueError:
        return False
