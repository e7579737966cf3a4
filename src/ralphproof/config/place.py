"""Where the user's own settings are."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def user_file(environ: Mapping[str, str]) -> str:
    """Where the user's own settings are, whether or not there are any."""
    if folder := environ.get("RALPH_CONFIG_DIR"):
        return os.path.join(os.path.abspath(folder), "settings.json")
    xdg = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(xdg):  # the XDG rules say that a relative one is ignored
        xdg = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(xdg, "ralphproof", "settings.json")
