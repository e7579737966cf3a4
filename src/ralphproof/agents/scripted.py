"""An agent that plays a script, for demonstrations and tests. A real process, so that a loop with it is a real loop.

The script is a JSON file: `{"iterations": [[STEP, ...], ...], "message": [STEP, ...]}`. Iterations beyond the last
repeat it; `message` answers the question for a commit message. `script_player` says what a STEP may be.
"""

from __future__ import annotations

import os
import sys

from ralphproof.agent import Brief, Turn, TurnWatch, fold
from ralphproof.agents.lines import Lines
from ralphproof.event import Event, Spent, Unparsed
from ralphproof.sandbox import Command, Sandbox
from ralphproof.value import unpack

PLAYER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_player.py")


class Scripted:
    """Plays one iteration of a script in each turn."""

    name = "scripted"
    reports_cost = True

    def __init__(self, script: str) -> None:
        self._script = script

    def argv(self, brief: Brief) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", PLAYER, self._script)

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Play to the end; the player's lines are events in their JSON form."""
        command = Command(
            self.argv(brief), brief.cwd, brief.env, out=brief.base + ".ndjson", err=brief.base + ".stderr.log",
            stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, needle='"is": "Ended"',
        )  # fmt: skip
        ear = _Ear(watch)
        end = sandbox.run(command, ear)
        ear.finish()
        return fold(ear.events, end)


class _Ear:
    def __init__(self, watch: TurnWatch) -> None:
        self.events: list[Event] = []
        self._lines, self._watch = Lines(), watch

    def output(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk):
            self._hear(line)

    def finish(self) -> None:
        for line in self._lines.end():
            self._hear(line)

    def tick(self) -> int:
        return self._watch.tick()

    def _hear(self, line: bytes) -> None:
        event = _event(line)
        self.events.append(event)
        self._watch.event(event)


def _event(line: bytes) -> Event:
    import json

    try:
        event = unpack(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        event = None
    if isinstance(event, Event) and not (isinstance(event, Spent) and not _sane(event.micro_usd)):
        return event
    return Unparsed(line[:200].decode("utf-8", "replace"), len(line))


def _sane(micro_usd: object) -> bool:
    return micro_usd is None or (isinstance(micro_usd, int) and 0 <= micro_usd < 10**12)
