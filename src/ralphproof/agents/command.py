"""Programs as agents: any command, which gets the prompt and whose standard output is its message, and a script.

The prompt is on standard input, or in an argument that holds `{prompt_file}` (its path) or `{prompt}` (its text).
Nothing is known of the program's flags, cost and permissions.
"""

from __future__ import annotations

import os
import shlex
from codecs import getincrementaldecoder

from ralphproof.agents.event_collector import HeadTailBuffer, run_event_program, turn_command
from ralphproof.base import interpreter
from ralphproof.base.errors import AgentUnusable
from ralphproof.base.value import replace
from ralphproof.engine.agent import Said, Turn, TurnInput, TurnWatcher, build_turn
from ralphproof.engine.sandbox import Exit, Sandbox

PLAYER_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_player.py")
PROMPT_FILE_VARIABLE = "RALPH_PROMPT_FILE"
MAX_ARGUMENT_BYTES = 100 * 1024  # one argument may hold 128 KiB on Linux; beyond this a prompt needs stdin or a file


class CommandAgent:
    """A program and its arguments, started anew for each turn.

    One that does not take a prompt is started with its arguments as they are and an empty standard input; the prompt is
    in the file that RALPH_PROMPT_FILE names.
    """

    reports_cost = False

    def __init__(self, argv: tuple[str, ...], takes_prompt: bool = True) -> None:
        self.name = os.path.basename(argv[0])
        self._argv, self._takes_prompt = argv, takes_prompt
        self._prompt_in_argument = takes_prompt and has_prompt_placeholder(argv)

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        """The argument list with its placeholders filled in."""
        if not self._takes_prompt:
            return self._argv
        return tuple(
            part.replace("{prompt_file}", brief.prompt_file).replace("{prompt}", brief.prompt) for part in self._argv
        )

    def interactive_command(
        self, brief: TurnInput, resume: bool
    ) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
        """Arguments and environment of an interactive session; None where the prompt would be on standard input."""
        return (self.argv(brief), brief.env) if self._prompt_in_argument else None

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Run the program to its end; its standard output is its message."""
        if self._prompt_in_argument and any("{prompt}" in part for part in self._argv):
            size = len(brief.prompt.encode("utf-8", "surrogatepass"))
            if size > MAX_ARGUMENT_BYTES:
                why = f"the prompt has {size} bytes, too many for an argument; use {{prompt_file}} or standard input"
                return Turn(Exit(None, why="unstartable", error=why))
        argv = self.argv(brief)
        env = brief.env if self._takes_prompt else (*brief.env, (PROMPT_FILE_VARIABLE, brief.prompt_file))
        stdin = brief.prompt_file if self._takes_prompt and not self._prompt_in_argument else None
        reads = (*filter(_is_absolute_file, argv), brief.prompt_file)
        forwarder = _OutputForwarder(watch)
        end = sandbox.run(replace(turn_command(self.name, argv, brief, reads), env=env, stdin=stdin), forwarder)
        forwarder.finish()
        return build_turn([Said(forwarder.kept.text())], end)


def _is_absolute_file(word: str) -> bool:
    return os.path.isabs(word) and os.path.isfile(word)


class _OutputForwarder:
    """Keeps what the program prints, and forwards it as `Said` events."""

    def __init__(self, watch: TurnWatcher) -> None:
        self.kept = HeadTailBuffer()
        self._watch = watch
        self._decoder = getincrementaldecoder("utf-8")("replace")  # a character may come in two chunks

    def output(self, chunk: bytes) -> None:
        self.kept.feed(chunk)
        self._watch.events([Said(self._decoder.decode(chunk))])

    def finish(self) -> None:
        """Forward an incomplete last character."""
        if rest := self._decoder.decode(b"", final=True):
            self._watch.events([Said(rest)])

    def tick(self) -> int:
        return self._watch.tick()


class ScriptedAgent:
    """Plays one iteration of a script in each turn, in a real process, for demonstrations and tests.

    The script is a JSON file: `{"iterations": [[STEP, ...], ...], "message": [STEP, ...], "answer": [STEP, ...]}`.
    Iterations beyond the last repeat it; `message` answers the request for a commit message, and `answer` a judge's
    question. `script_player` lists the steps.
    """

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


def has_prompt_placeholder(argv: tuple[str, ...]) -> bool:
    """Whether an argument list has a placeholder for the prompt."""
    return any("{prompt}" in part or "{prompt_file}" in part for part in argv)


def split_command(command: str, flags: tuple[str, ...], root: str = "") -> tuple[str, ...]:
    """The argument list of a command and its flags. A flag that contains a space is split into words.

    A command that is an existing file, relative to `root` or not, is one word.
    """
    try:
        parts = [command] if os.path.exists(os.path.join(root, os.path.expanduser(command))) else shlex.split(command)
    except ValueError as error:
        raise AgentUnusable(f"agent {command}: cannot be split into words ({error}); put quotes in pairs") from error
    for flag in flags:
        parts += flag.split() if flag.startswith("-") and " " in flag else [flag]
    return (os.path.expanduser(parts[0]), *parts[1:])
