"""An agent that plays a script in a real process, for demonstrations and tests.

The script is a JSON file: `{"iterations": [[STEP, ...], ...], "message": [STEP, ...], "answer": [STEP, ...]}`.
Iterations beyond the last repeat it; `message` answers the request for a commit message, and `answer` a judge's
question. `script_player` lists the steps.
"""

from __future__ import annotations

import os

from ralphproof.agents.event_collector import EventCollector, parse_event
from ralphproof.base import interpreter
from ralphproof.engine.agent import Turn, TurnInput, TurnWatcher
from ralphproof.engine.sandbox import Command, Sandbox

PLAYER_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_player.py")


class ScriptedAgent:
    """Plays one iteration of a script in each turn."""

    name = "scripted"
    reports_cost = True

    def __init__(self, script: str) -> None:
        self._script = script

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return interpreter.script_command(PLAYER_PATH, self._script)

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Play to the end; the player's lines are events in their JSON form."""
        command = Command(
            self.argv(brief), brief.cwd, brief.env, out=brief.log_base + ".ndjson", err=brief.log_base + ".stderr.log",
            stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.call_id,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.adopt, agent=self.name,
            reads=(interpreter.python_executable(), PLAYER_PATH, self._script),
        )  # fmt: skip
        collector = EventCollector(watch)
        collector.set_reader(lambda line: collector.emit(parse_event(line)))
        end = sandbox.run(command, collector)
        collector.finish()
        return collector.turn_builder.turn(end)
