"""At the beginning of a session: what was told of an earlier one of this name is forgotten."""

from __future__ import annotations

import sys

from ralphproof.hooks import given, once
from ralphproof.hooks.post_tool_use import ALERTS
from ralphproof.hooks.stop import BLOCKS


def main() -> int:
    """Forget. A session that is gone on with has its context still, and was told."""
    try:
        event = given.event()
        session = given.text(event, "session_id")
        if session and given.text(event, "source") != "resume":
            for kind in (ALERTS, BLOCKS):
                once.forget(once.path_of(kind, session))
    except Exception as error:  # noqa: BLE001
        print(f"ralph hook: {error!r}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
