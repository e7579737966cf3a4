"""At the beginning of a session: what was told of an earlier one of this name is forgotten."""

from __future__ import annotations

import sys

from ralphproof.hooks import given, once

# A session that is gone on with has its context still, and was told. One whose context was compacted has room again,
# and may still be in the middle of an end that is refused (Claude Code 2.1.325 names it as before).
FORGOTTEN: dict[str, tuple[str, ...]] = {"resume": (), "compact": (once.ALERTS,)}


def main() -> int:
    """Forget. Whatever goes wrong here must not disturb the agent."""
    try:
        event = given.event()
        session = given.text(event, "session_id")
        for kind in FORGOTTEN.get(given.text(event, "source"), (once.ALERTS, once.BLOCKS)):
            once.forget(once.path_of(kind, session))
    except Exception as error:  # noqa: BLE001
        given.say(f"the beginning of a session could not be noted: {error!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
