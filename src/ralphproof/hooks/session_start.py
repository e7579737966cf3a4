"""SessionStart hook: removes the alert and refusal counts of an earlier session of the same id."""

from __future__ import annotations

import sys

from ralphproof.hooks import hook_input, session_files

# A resumed session still has its context and its alerts. One whose context was compacted has room again, and may still
# be in a turn whose end was refused (Claude Code 2.1.325 keeps its id).
FILES_TO_FORGET: dict[str, tuple[str, ...]] = {"resume": (), "compact": (session_files.ALERTS_PREFIX,)}


def main() -> int:
    """Remove the files. A failure here must not disturb the agent."""
    try:
        event = hook_input.read_event()
        session = hook_input.text_field(event, "session_id")
        for kind in FILES_TO_FORGET.get(
            hook_input.text_field(event, "source"), (session_files.ALERTS_PREFIX, session_files.REFUSALS_PREFIX)
        ):
            session_files.remove_session_file(session_files.session_file_path(kind, session))
    except Exception as error:  # noqa: BLE001
        hook_input.log_line(f"the beginning of a session could not be noted: {error!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
