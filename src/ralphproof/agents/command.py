"""Any command-line program as an agent: it gets the prompt, what it prints is what it says.

The prompt travels on standard input, or by an argument that holds `{prompt_file}` (its path) or `{prompt}` (its text).
Known agents are started in the mode in which they ask nobody and stay within their own guard.
"""

from __future__ import annotations

import os
from codecs import getincrementaldecoder

from ralphproof.agent import Brief, Turn, TurnWatch, fold
from ralphproof.agents.lines import Kept
from ralphproof.errors import AgentUnusable
from ralphproof.event import Said
from ralphproof.sandbox import Command, Exit, Sandbox

ARGUMENT_BYTES = 100 * 1024  # one argument may hold 128 KiB on Linux; beyond this a prompt needs stdin or a file

# What makes an agent work without asking, inside its own guard, with the prompt on standard input.
HEADLESS = {
    "claude": ("-p", "--output-format", "text", "--permission-mode", "acceptEdits"),  # Claude Code 2.1
    "codex": ("exec", "--sandbox", "workspace-write", "--skip-git-repo-check", "-"),  # Codex 0.166
}


class CommandAgent:
    """A program and its arguments, started anew for every turn."""

    reports_cost = False

    def __init__(self, argv: tuple[str, ...], model: str | None = None) -> None:
        self.name = os.path.basename(argv[0])
        headless = HEADLESS.get(self.name)
        if model is not None and headless is None:
            raise AgentUnusable(f"agent {self.name}: how to give it a model is not known; put its flag in agent.flags")
        chosen = ("--model", model) if model is not None else ()
        # A lone "-" (read stdin) must stay last, and of two models the last one counts.
        front, last = (headless[:-1], headless[-1:]) if headless and headless[-1] == "-" else (headless or (), ())
        self._argv = (argv[0], *front, *argv[1:], *chosen, *last)

    def argv(self, brief: Brief) -> tuple[str, ...]:
        """The argument list, templates filled in."""
        return tuple(
            part.replace("{prompt_file}", brief.prompt_file).replace("{prompt}", brief.prompt) for part in self._argv
        )

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Run the program to its end; its standard output is its message."""
        if any("{prompt}" in part for part in self._argv):
            size = len(brief.prompt.encode("utf-8", "surrogatepass"))
            if size > ARGUMENT_BYTES:
                why = f"the prompt has {size} bytes, too many for an argument; use {{prompt_file}} or standard input"
                return Turn(Exit(None, why="unstartable", error=why))
        told = any("{prompt" in part for part in self._argv)
        command = Command(
            self.argv(brief), brief.cwd, brief.env, out=brief.base + ".ndjson", err=brief.base + ".stderr.log",
            stdin=None if told else brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s,
        )  # fmt: skip
        ear = _Ear(watch)
        end = sandbox.run(command, ear)
        ear.finish()
        return fold([Said(ear.kept.text())], end)


class _Ear:
    """Keeps what the program prints, and passes it on as it comes."""

    def __init__(self, watch: TurnWatch) -> None:
        self.kept = Kept()
        self._watch = watch
        self._decoder = getincrementaldecoder("utf-8")("replace")  # a letter may come in two chunks

    def output(self, chunk: bytes) -> None:
        self.kept.feed(chunk)
        self._watch.event(Said(self._decoder.decode(chunk)))

    def finish(self) -> None:
        """Pass on what is left of a letter that never became whole."""
        if rest := self._decoder.decode(b"", final=True):
            self._watch.event(Said(rest))

    def tick(self) -> int:
        return self._watch.tick()


def words(command: str, flags: tuple[str, ...], root: str = "") -> tuple[str, ...]:
    """The argument list that a command and its flags stand for. A flag that holds a space is two words and more.

    A command that is a file, relative to `root` or not, is one word whatever it holds.
    """
    import shlex

    try:
        parts = [command] if os.path.exists(os.path.join(root, os.path.expanduser(command))) else shlex.split(command)
    except ValueError as error:
        raise AgentUnusable(f"agent {command}: cannot be split into words ({error}); put quotes in pairs") from error
    for flag in flags:
        parts += flag.split() if flag.startswith("-") and " " in flag else [flag]
    return (os.path.expanduser(parts[0]), *parts[1:])
