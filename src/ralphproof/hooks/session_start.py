"""SessionStart hook: removes the alert and refusal counts of an earlier session of the same id."""

from __future__ import annotations

import sys

from ralphproof.hooks.session import (
    ALERTS_PREFIX,
    REFUSALS_PREFIX,
    log_line,
    read_event,
    remove_session_file,
    session_file_path,
    text_field,
)

# A resumed session still has its context and its alerts. One whose context was compacted has room again, and may still
# be in a turn whose end was refused (Claude Code 2.1.325 keeps its id).
FILES_TO_FORGET: dict[str, tuple[str, ...]] = {"resume": (), "compact": (ALERTS_PREFIX,)}


def main() -> int:
    """Remove the files. A failure here must not disturb the agent."""
    try:
        event = read_event()
        session = text_field(event, "session_id")
        for kind in FILES_TO_FORGET.get(text_field(event, "source"), (ALERTS_PREFIX, REFUSALS_PREFIX)):
            remove_session_file(session_file_path(kind, session))
    except Exception as error:  # noqa: BLE001
        log_line(f"the beginning of a session could not be noted: {error!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
