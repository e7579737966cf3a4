"""Which kind of sandbox a run gets: the strongest one that holds when it is tried, or the one that is named."""

from __future__ import annotations

import os
import sys

from ralphproof.config.registry import TABLE, brought, resolve
from ralphproof.errors import Refused
from ralphproof.sandboxes.box import Lack
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ralphproof.sandboxes.box import Backend

AUTO, DIRECT = "auto", "direct"
STRONG, PARTIAL, NONE = "strong", "partial", "none"
# In the order in which they are tried; engines of the same kind are one name.
ORDER = ("bubblewrap", "container", "docker-sandbox", "sandbox-exec", "landlock")
PROGRAMS = {"bubblewrap": ("bwrap",), "container": ("podman", "docker"), "docker-sandbox": ("sbx", "docker")}
WITHOUT = (
    "--no-sandbox lets a known agent do all that you may do, under the command guard where it has one; without "
    "either flag, and with sandbox.backend null, it runs in its own guarded mode"
)


@value
class Tried:
    """One kind of sandbox, and what is wrong with it here; None where it holds."""

    backend: Backend
    lack: Lack | None


def known() -> tuple[str, ...]:
    """What `--sandbox=` may name."""
    return (AUTO, *ORDER, *brought("sandboxes"))


def made(name: str, environ: Mapping[str, str], root: str) -> Iterator[Backend]:
    """The back ends of this name: one, or one for each engine."""
    path = environ.get("PATH", os.defpath)
    kind: Any = resolve("sandboxes", name)
    programs = PROGRAMS.get(name)
    if programs is None:
        yield kind()
        return
    found = [(one, find_program(one, path, outside=root)) for one in programs]
    there = [(one, where) for one, where in found if where] or found[:1]
    for one, where in there:
        yield kind(where) if len(programs) == 1 else kind(one, where)  # with our own environment: not the agent's


def tried(name: str, environ: Mapping[str, str], root: str) -> Iterator[Tried]:
    """Every back end of this name, tried out where nothing speaks against it."""
    from ralphproof.config.trial import trial

    for backend in made(name, environ, root):
        yield Tried(backend, backend.lacking() or trial(backend, environ))


def chosen(name: str, environ: Mapping[str, str], root: str) -> Backend:
    """The strongest that holds, or the one that is named; raises Refused with what is wrong and how to mend it."""
    names = ORDER if name == AUTO else (name,)
    partial: list[Backend] = []
    failed: list[Tried] = []
    for one in (one for each in names for one in tried(each, environ, root)):
        if one.lack is not None:
            failed.append(one)
        elif one.backend.strength == STRONG:
            return one.backend
        else:
            partial.append(one.backend)
    if partial:
        return partial[0]
    several = name == AUTO
    told = "; ".join(
        f"{one.backend.name}: {words(one.lack)}" if several else words(one.lack)
        for one in failed
        if one.lack and _matters(one, name)
    )
    what = "no sandbox works here" if several else f"sandbox {name} does not work here"
    raise Refused(f"{what}: {told}. {WITHOUT}")


def words(lack: Lack) -> str:
    return f"{lack.why} ({lack.mend})" if lack.mend else lack.why


def _matters(one: Tried, name: str) -> bool:
    """What cannot be had on this system at all is not worth a word, unless it was asked for."""
    return name != AUTO or (one.backend.name == "sandbox-exec") == (sys.platform == "darwin")


def refuse_unknown(name: str | None) -> str:
    """What is wrong with the name of a back end; empty where nothing is."""
    if name is None or name in known() or ":" in name or name in TABLE["sandboxes"]:
        return ""
    return f"is no kind of sandbox; there are: {', '.join(known())}"
