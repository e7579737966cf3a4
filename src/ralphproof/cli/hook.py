"""`ralph hook`: what agents call at events of their own; the event is on standard input."""

from __future__ import annotations

import os
import sys

from ralphproof.errors import Refused

# Event, verb, module.
EVENTS = (
    ("Stop", "stop", "stop"),
    ("PostToolUse", "post-tool-use", "post_tool_use"),
    ("PostToolUseFailure", "post-tool-use-failure", "post_tool_use"),
    ("SessionStart", "session-start", "session_start"),
)
OWN = "RALPH_HOOKED"  # set in a run that passes its own hooks: those of an installed plugin are silent then


def commands() -> tuple[tuple[str, str], ...]:
    """For each event what a run of ours has its agents call, whatever is on their PATH."""
    import shlex

    python = shlex.quote(sys.executable)
    return tuple((event, f"{python} -I -m ralphproof.hooks.{module}") for event, _, module in EVENTS)


def main(argv: list[str]) -> int:
    verbs = {verb: module for _, verb, module in EVENTS}
    if len(argv) != 1 or argv[0] not in verbs:
        raise Refused(f"ralph hook takes one of {', '.join(verbs)}, and an event on standard input")
    if os.environ.get(OWN):
        return 0
    from importlib import import_module

    code: int = import_module(f"ralphproof.hooks.{verbs[argv[0]]}").main()
    return code
