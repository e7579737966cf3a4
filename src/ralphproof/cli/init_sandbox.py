"""What `ralph init` says and asks of sandboxes: last of all, and only where a strong one holds on this machine."""

from __future__ import annotations

import os

from ralphproof.cli.out import answered_yes, put
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.sandboxes.box import Backend

QUESTION = "Run agents and checks in a sandbox ({}, strong)?"
HINT = "Sandbox: {} ({}) holds here; ralph run --sandbox uses it"
NONE = "Sandbox: none holds here (ralph doctor says why); a run by stories asks for one, or for --no-sandbox"


def strongest(root: str) -> Backend | None:
    """What `--sandbox` would take here; None where nothing holds."""
    from ralphproof.config.backends import AUTO, chosen

    try:
        return chosen(AUTO, os.environ, root)
    except Refused:
        return None


def asked(settings: Any, root: str) -> Any:
    """The settings with the user's answer; as they are where there is nothing strong to offer."""
    found = strongest(root)
    if found is None or found.strength != "strong":
        return settings
    return {**settings, "sandbox": {"backend": "auto" if answered_yes(QUESTION.format(found.name)) else None}}


def tell(root: str, needed: bool) -> None:
    """What holds here, for somebody who is asked nothing. `needed`: runs ask for a sandbox by themselves."""
    found = strongest(root)
    if found is not None:
        put(HINT.format(found.name, found.strength))
    elif needed:
        put(NONE)
