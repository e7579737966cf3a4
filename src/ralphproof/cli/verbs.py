"""Every verb: the module that carries it out, and what it does in one line."""

from __future__ import annotations

VERBS = {
    "init": "describe the project's agent and checks once, in .ralph/settings.json",
    "run": "loop an agent until the checks show that the work is done",
    "work": "take tasks through coder, reviewer, tester and qa until they are verified",
    "supervise": "start a program again and again until it leaves the file DONE, and the checks agree",
    "status": "where a run stands",
    "runs": "every run, one line each",
    "attach": "look on at a run that goes on elsewhere",
    "logs": "what the agent and the checks printed",
    "diff": "what an iteration changed",
    "report": "how the loops of a day, or of many days, went",
    "rewind": "bring back the files as an iteration left them",
    "pause": "let a run rest before its next turn",
    "resume": "let a run go on that rests, was cut off, or waits",
    "say": "tell a run something, for its next prompt",
    "cancel": "end a run from another terminal",
    "task": "tasks, and what done means for each",
    "plan": "write the stories of a feature with an agent: what is wanted, and the tasks that lead there",
    "archive": "put the stories of a loop away, and begin with fresh ones",
    "bus": "messages between agents, loops and people",
    "skills": "ways of working that an agent can be told",
    "plugin": "the hooks and skills for Claude Code and Codex",
    "hook": "what agents call at events of their own",
    "sandbox": "run a command in the sandbox, or say what can be reached from it",
    "config": "show the settings in force, or their schema",
    "doctor": "what this machine has and lacks",
    "completion": "shell completion",
    "demo": "a whole loop on a throw-away repository, with a scripted agent",
}
