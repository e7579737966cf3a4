"""Every verb of the command line, with its one-line help.

The module `ralphproof.cli.<verb>` carries it out: `build_parser()` and `main(argv)`.
"""

from __future__ import annotations

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
