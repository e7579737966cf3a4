"""Which kinds of sandbox hold on this machine: each is tried out, and what is wrong is said with how to mend it."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.examine import NOTE, OK, Item
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.config.backends import Tried
    from ralphproof.value import Json

ELSEWHERE = {"sandbox-exec": "darwin", "bubblewrap": "linux", "landlock": "linux"}  # kinds of one system alone


def sandboxes(root: str, environ: Mapping[str, str]) -> Iterator[Item]:
    """One answer for each kind, then what limits there are, then whether this project can be put into one."""
    from ralphproof.config.backends import ORDER, tried

    found = False
    for name in (name for name in ORDER if ELSEWHERE.get(name, sys.platform) == sys.platform):
        for one in tried(name, environ, root):
            found = found or one.lack is None
            yield _told(one)
    yield _limits()
    if not found:
        yield Item("sandbox", NOTE, "none holds here; known agents run in their own guarded mode, or --no-sandbox")
    elif wide := _too_wide(root, environ):
        yield Item("sandbox", NOTE, wide)


def _told(one: Tried) -> Item:
    backend, lack = one.backend, one.lack
    engine = getattr(backend, "engine", "")
    data: dict[str, Json] = {
        "name": backend.name, "engine": engine, "works": lack is None,
        "strength": backend.strength if lack is None else "none", "weak": list(backend.weak),
        "why": lack.why if lack else "", "mend": lack.mend if lack else "",
    }  # fmt: skip
    title = f"sandbox {backend.name}" + (f" ({engine})" if engine else "")
    if lack is None:
        more = tuple(f"weak point: {clause}" for clause in backend.weak)
        return Item(title, OK, f"holds, {backend.strength}", data, "sandbox", more)
    return Item(title, NOTE, lack.why, data, "sandbox", (f"to mend it: {lack.mend}",) if lack.mend else ())


def _limits() -> Item:
    from ralphproof.config.boxes import ration
    from ralphproof.sandboxes.ration import means

    by = means(ration())
    held = " and ".join(by.held) or "nothing"
    return Item("sandbox limits", OK if len(by.held) == 2 else NOTE, f"{held} by {by.name}")


def _too_wide(root: str, environ: Mapping[str, str]) -> str:
    from ralphproof.config.boxes import refuse_wide
    from ralphproof.ledgers.place import state_place

    try:
        home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
        refuse_wide(root, home, state_place(environ))
    except Refused as error:
        return str(error)
    return ""
