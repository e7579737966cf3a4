"""The guard's decision on a tool call; it denies what it cannot read."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.tools import acts
from ralphproof.guard.verdict import Exceptions, Objection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.guard.verdict import Ground

NO_EXCEPTIONS = Exceptions()
# Of several objections to one line the first counts, these last: they say least about what would happen.
LATE = ("privilege",)


def objection(
    tool: str, arguments: Mapping[str, Any], ground: Ground, lists: Exceptions = NO_EXCEPTIONS
) -> Objection | None:
    """Why a tool call should not be made; None where nothing speaks against it. Never raises for what an agent asks."""
    first: Objection | None = None
    for act in acts(tool, arguments, ground):
        if lists != NO_EXCEPTIONS:
            from ralphproof.guard.exceptions import DENIED, allowed, denied, spared

            if denied(act, lists, ground):
                return DENIED.about(" ".join(act.ways[0]))
            found = [] if allowed(act, lists, ground) else [one for one in act.objections if not spared(one, lists)]
        else:
            found = list(act.objections)
        for one in found:
            if first is None or _rank(one) < _rank(first):
                first = one
    return first


def _rank(one: Objection) -> int:
    return int(one.category in LATE)
