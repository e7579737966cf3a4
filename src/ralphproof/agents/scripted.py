"""The scripted agent, which plays a script in a real process, for demonstrations and tests.

The script is a JSON file: `{"iterations": [[STEP, ...], ...], "message": [STEP, ...], "answer": [STEP, ...]}`.
Iterations beyond the last repeat it; `message` answers the request for a commit message, and `answer` a judge's
question. `script_player` lists the steps.
"""

from __future__ import annotations

import os

from ralphproof.agents.event_collector import run_event_program, turn_command
from ralphproof.base import interpreter
from ralphproof.engine.agent import Turn, TurnInput, TurnWatcher
from ralphproof.engine.sandbox import Sandbox

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
        """Play to the end."""
        reads = (interpreter.python_executable(), PLAYER_PATH, self._script)
        return run_event_program(turn_command(self.name, self.argv(brief), brief, reads), sandbox, watch)
