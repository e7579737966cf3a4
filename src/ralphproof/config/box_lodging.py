"""An agent inside a box: a folder of its own for its state, its login lent to it, and its service."""

from __future__ import annotations

import os

from ralphproof.ledgers.files import private_folder
from ralphproof.sandboxes.box import READ, WRITE, Egress, Mount
from ralphproof.sandboxes.ecosystems import hosts_of
from ralphproof.sandboxes.egress_rules import entry_for
from ralphproof.sandboxes.places import placed
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.sandbox import Lodging

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def lodged(lodging: Lodging, own: str, environ: Mapping[str, str], home: str) -> tuple[list[Mount], dict[str, str]]:
    """What an agent keeps in its folder `own`, what it may read of the user's, and the variables that say where."""
    if not lodging.folder:
        return [], {}
    private_folder(own)
    usual = os.path.join(home, lodging.folder.removeprefix("~/"))
    place = own if lodging.variable else usual
    mounts = {place: Mount(WRITE, place, "" if place == own else own)}
    lent = list(_lent(lodging, environ, home))
    _weed(own, [name for _, name in lent if name not in lodging.logins])
    for theirs, name in lent:
        if os.path.exists(theirs):
            inside = name if os.path.isabs(name) else os.path.join(place, name)
            _clear(os.path.join(own, name), theirs)
            mounts[inside] = Mount(READ, inside, os.path.realpath(theirs))
    return list(mounts.values()), {lodging.variable: own} if lodging.variable else {}


def _lent(lodging: Lodging, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    """Files and folders of the user, each with its name in the agent's folder, or its whole path inside."""
    folders = [source for source, _ in placed(lodging.variable, lodging.folder, environ, home)]
    for name in lodging.lent:
        if name.startswith("~/"):
            yield from (
                (source, inside) for source, inside in placed("", name, environ, home) if within_home(inside, home)
            )
        else:
            yield from ((os.path.join(folder, name), name) for folder in folders)


def within_home(path: str, home: str) -> bool:
    return path.startswith(home.rstrip("/") + "/")


def _weed(own: str, names: Iterable[str]) -> None:
    """Remove what an agent put where only the user's settings may lie: a later one would go by it.

    What is empty stays: a command that runs meanwhile may have something of the user's lying over it.
    """
    for place in (os.path.join(own, name) for name in names if not os.path.isabs(name)):
        if os.path.islink(place) or (os.path.isfile(place) and os.path.getsize(place)):
            os.unlink(place)
        elif os.path.isdir(place) and os.listdir(place):
            import shutil

            shutil.rmtree(place, ignore_errors=True)


def _clear(place: str, theirs: str) -> None:
    """What the agent put where something of the user's is to lie: nothing can be laid over a link, or another kind."""
    if os.path.islink(place) or (os.path.isfile(place) and os.path.isdir(theirs)):
        os.unlink(place)
    elif os.path.isdir(place) and not os.path.isdir(theirs):
        import shutil

        shutil.rmtree(place, ignore_errors=True)


def egress_of(
    lodging: Lodging, listed: Iterable[str], ports: Iterable[int], addresses: Iterable[tuple[str, str]]
) -> Egress:
    """What may be called: the user's list, and the agent's own service or the one that is set in its place."""
    hosts, local = [host for entry in listed for host in hosts_of(entry)], list(ports)
    said = dict(addresses)
    named = [name if "://" in name else said.get(name, "") for name in lodging.addresses]
    for host, port in map(_address, named):
        if host in LOOPBACK:
            local.append(port)
        elif entry := entry_for(host, port, private=True):
            hosts.append(entry)
    return Egress(tuple(dict.fromkeys((*hosts, *lodging.hosts))), tuple(dict.fromkeys(local)))


def _address(url: str) -> tuple[str, int]:
    """Host and port of an address; nothing where it has none."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return "", 0
