"""Which agent a run has: the one that is named, its program found, or one that is found on PATH."""

from __future__ import annotations

import os

from ralphproof.agents.command import HEADLESS, CommandAgent, words
from ralphproof.errors import AgentUnusable, Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.agent import Agent
    from ralphproof.config.settings import Settings

KNOWN = (*HEADLESS, "amp", "gemini", "opencode", "qwen", "copilot", "pi")


def find_agent(environ: Mapping[str, str], root: str) -> str | None:
    """The first agent on PATH that is known to work unasked within its own guard. The project may not bring its own."""
    path = environ.get("PATH", "")
    return next((name for name in HEADLESS if find_program(name, path, outside=root)), None)


def remark_on(name: str) -> str:
    """What to say of an agent that is known by its name alone; empty where there is nothing to say."""
    if name in HEADLESS or name not in KNOWN:
        return ""
    return f"agent {name} is started as it is given: this version does not know how it works without asking"


def agent_of(settings: Settings, root: str, environ: Mapping[str, str]) -> Agent:
    """The agent that the settings name, its program found; raises AgentUnusable where it is not there."""
    command = settings.agent.command
    if command is None:
        raise AgentUnusable(f"no agent is configured, and {' or '.join(HEADLESS)} is not on PATH; name one: --agent")
    argv = words(command, settings.agent.flags, root)
    if argv[0] == "scripted":
        from ralphproof.agents.scripted import Scripted

        if len(argv) != 2:
            raise Refused("the scripted agent needs one argument, its script: --agent 'scripted SCRIPT.json'")
        return Scripted(os.path.join(root, argv[1]))
    return CommandAgent(resolve(argv, root, environ.get("PATH", os.defpath)), settings.agent.model)


def resolve(argv: tuple[str, ...], root: str, path: str) -> tuple[str, ...]:
    """The same with the program's full path: relative to the project where it has a slash, else looked up in PATH."""
    name = argv[0]
    if "/" in name:
        program = os.path.normpath(os.path.join(root, name))
        if lacking := _lacking(program):
            raise AgentUnusable(f"agent {name}: {program} {lacking}; name another with --agent")
        return (program, *argv[1:])
    found = find_program(name, path)
    if found is None:
        raise AgentUnusable(f"agent {name} was not found on PATH; install it, or name another with --agent")
    return (found, *argv[1:])


def _lacking(program: str) -> str:
    """Why a file cannot be started, as far as that can be told without starting it; empty where nothing speaks so."""
    if os.path.isdir(program):
        return "is a directory"
    if not os.path.exists(program):
        return "does not exist"
    return "" if os.access(program, os.X_OK) else "may not be executed"
