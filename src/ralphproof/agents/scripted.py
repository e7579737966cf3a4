"""An agent that plays a script, for demonstrations and tests. A real process, so that a loop with it is a real loop.

The script is a JSON file: `{"iterations": [[STEP, ...], ...], "message": [STEP, ...], "answer": [STEP, ...]}`.
Iterations beyond the last repeat it; `message` answers the question for a commit message, and `answer` the question of
a judge. `script_player` says what a STEP may be.
"""

from __future__ import annotations

import os

from ralphproof import interpreter
from ralphproof.agent import Brief, Turn, TurnWatch
from ralphproof.agents.ear import Ear
from ralphproof.event import Event, Spent
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
        return interpreter.script(PLAYER, self._script)

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Play to the end; the player's lines are events in their JSON form."""
        command = Command(
            self.argv(brief), brief.cwd, brief.env, out=brief.base + ".ndjson", err=brief.base + ".stderr.log",
            stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.taken_up, agent=self.name,
            reads=(interpreter.executable(), PLAYER, self._script),
        )  # fmt: skip
        ear = Ear(watch)
        ear.listen(lambda line: ear.tell(event_in(line)))
        end = sandbox.run(command, ear)
        ear.finish()
        return ear.fold.turn(end)


def event_in(line: bytes) -> Event:
    """The event that a line holds; raises ValueError where it holds none."""
    import json

    try:
        event = unpack(json.loads(line))
    except TypeError as error:
        raise ValueError(error) from error
    if not isinstance(event, Event) or (isinstance(event, Spent) and not _sane(event.micro_usd)):
        raise ValueError("no event")
    return event


def _sane(micro_usd: object) -> bool:
    return micro_usd is None or (isinstance(micro_usd, int) and 0 <= micro_usd < 10**12)
