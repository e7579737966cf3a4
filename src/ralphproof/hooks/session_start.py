"""SessionStart hook: forgets what an earlier session of the same name was told."""

from __future__ import annotations

import sys

from ralphproof.hooks import hook_input, session_files

# A session that is gone on with has its context still, and was told. One whose context was compacted has room again,
# and may still be in the middle of an end that is refused (Claude Code 2.1.325 names it as before).
FILES_TO_FORGET: dict[str, tuple[str, ...]] = {"resume": (), "compact": (session_files.ALERTS_PREFIX,)}


def main() -> int:
    """Forget. Whatever goes wrong here must not disturb the agent."""
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
