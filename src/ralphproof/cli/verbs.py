"""Every verb of the command line: its one-line help, and the module that has its parser and its main function."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

VERBS = {
    "init": "Write the project's agent and checks to .ralph/settings.json",
    "run": "Loop an agent until the checks show that the work is done",
    "work": "Take tasks through coder, reviewer, tester and qa until they are verified",
    "race": "Let several agents work on one task, each in its own worktree; the first verified one wins",
    "supervise": "Restart a command until its DONE file and the checks agree",
    "fleet": "Run many loops on many machines",
    "status": "Show the state of a run",
    "runs": "List all runs",
    "attach": "Follow a run that another process drives",
    "watch": "Open a terminal dashboard of runs and tasks",
    "logs": "Show the output of the agent and the checks",
    "diff": "Show what a run or an iteration changed",
    "serve": "Serve the runs as web pages and as an API",
    "report": "Report rates, averages and costs of one or more days",
    "proof": "Show or export the evidence that a run's work is done",
    "verify": "Run a finished run's checks again on a clean checkout",
    "rewind": "Restore the files as an iteration left them",
    "branch": "Create a branch with an iteration's work",
    "restore": "Restore a destroyed repository from a run's copy",
    "land": "Merge completed runs onto a branch, with their checks run again",
    "pr": "Open a pull request with the evidence of a run",
    "gc": "Delete what old runs have saved",
    "pause": "Pause a run before its next turn",
    "resume": "Continue a run that is paused, was cut off, or waits",
    "say": "Add a message to the next prompt of a run",
    "cancel": "End a run or a task from another terminal",
    "task": "Create, import, list and edit tasks",
    "plan": "Write the requirements and stories of a feature with an agent",
    "archive": "Archive the stories of a loop and start with empty ones",
    "bus": "Post and read messages between agents, loops and people",
    "skills": "List the skills that an agent can be given",
    "plugin": "Install hooks and skills in Claude Code and Codex",
    "hook": "Answer an agent's hook event",
    "sandbox": "Run a command in the sandbox, or explain what it permits",
    "config": "Show the settings in force, or their schema",
    "schema": "Print the JSON Schema of a published object",
    "doctor": "Check what this machine has and lacks for a run",
    "bench": "Run cheating agents against this program and count what it accepts",
    "completion": "Print a shell completion script",
    "demo": "Run a whole loop in a throw-away repository with a scripted agent",
}
# The verbs of modules that have several; any other verb has a module of its own name.
FAMILIES = {
    "config": ("config", "schema", "skills"),
    "control": ("pause", "say", "cancel"),
    "plan": ("plan", "archive"),
    "proof": ("proof", "verify", "pr"),
    "run": ("run", "resume", "supervise"),
    "setup": ("init", "doctor", "demo", "plugin", "completion"),
    "snapshots": ("diff", "rewind", "branch", "restore"),
    "status": ("status", "runs"),
}
# Commands for the user only: they speak for the user, decide about finished work, or change what it is measured by.
# Every process of a turn is refused: the agent, checks, and all that they start.
USER_ONLY_COMMANDS = frozenset((
    "accept", "archive", "cancel TASK", "fleet cancel", "fleet submit", "fleet worker", "gc", "land", "plan",
    "plugin install", "plugin uninstall", "pr", "restore", "rewind", "say", "serve --control", "task edit",
    "task import --update", "work",
))  # fmt: skip


def verb_module(verb: str) -> Any:
    """The module of a verb; a verb of two words is in that of its first word."""
    from importlib import import_module

    first = verb.partition(" ")[0]
    name = next((module for module, verbs in FAMILIES.items() if first in verbs), first)
    return import_module(f"ralphproof.cli.{name}")


def verb_function(verb: str, kind: str) -> Any:
    """The function `<verb>_parser` or `<verb>_main` of a verb; of a verb of two words, that of its second word."""
    return getattr(verb_module(verb), f"{verb.rpartition(' ')[2]}_{kind}")
