"""Every verb with what it does in one line."""

from __future__ import annotations

# Every verb: the module that carries it out, and what it does in one line.


VERBS = {
    "init": "describe the project's agent and checks once, in .ralph/settings.json",
    "run": "loop an agent until the checks show that the work is done",
    "work": "take tasks through coder, reviewer, tester and qa until they are verified",
    "race": "several agents at one task, each in a worktree of its own; the first that is verified wins",
    "supervise": "start a program again and again until it leaves the file DONE, and the checks agree",
    "fleet": "many loops on many machines",
    "status": "where a run stands",
    "runs": "every run, one line each",
    "attach": "look on at a run that goes on elsewhere",
    "watch": "runs and tasks on a board in the terminal",
    "logs": "what the agent and the checks printed",
    "diff": "what an iteration changed",
    "serve": "the runs in a browser, and as an API",
    "report": "how the loops of a day, or of many days, went",
    "proof": "what shows that a run's work is done, for anybody to check again",
    "verify": "run a finished run's checks again on a clean checkout: does its proof hold?",
    "rewind": "bring back the files as an iteration left them",
    "branch": "an iteration's work as a branch",
    "restore": "put a destroyed repository together again",
    "land": "completed runs onto a branch, merged and checked again",
    "pr": "a pull request with the evidence of a run",
    "gc": "tidy up what old runs have kept",
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
    "bench": "try this program with agents that lie, and count what it believes",
    "completion": "shell completion",
    "demo": "a whole loop on a throw-away repository, with a scripted agent",
}
