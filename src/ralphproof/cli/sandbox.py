"""`ralph sandbox`: run a command in the sandbox, or explain what it permits."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import Parser
from ralphproof.runs.run_settings import describe_sandbox_overrides, override_committed_sandbox

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable
    from typing import Any

    from ralphproof.sandbox.plan import Backend
    from ralphproof.sandbox.planner import SandboxConfig
    from ralphproof.settings.model import Settings
    from ralphproof.store.project import Project

ABOUT = """run a command in the sandbox that a run would have, or say what can be reached from it.

The settings of the project hold, and flags beat them. Without a kind it is the strongest that holds here. What is
called is written to a log, which is named where something was blocked.
Exit codes: run ends with the command's own, 126 and 127 where it could not be started; 2 refused."""
EXAMPLES = (
    "ralph sandbox explain",
    "ralph sandbox explain --agent claude --json",
    "ralph sandbox run -- make test",
    "ralph sandbox run --allow-host pypi -- pip download requests",
    "ralph sandbox run --sandbox=landlock -- bash",
)
NO_COMMAND = "which command? ralph sandbox run -- CMD ARGUMENT ..."


def build_parser() -> Parser:
    parser = Parser("sandbox", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("what", choices=("run", "explain"), help="run a command inside, or say what can be reached from there")
    add("command", nargs="*", metavar="-- CMD", help="with run: the command and its arguments, behind --")
    add("--sandbox", metavar="[=KIND]", help="the kind of sandbox (default: the settings' own, else the strongest)")
    add("--allow-host", action="append", metavar="HOST", help="a host that may be reached; repeatable")
    add("--protect", action="append", metavar="PATH", help="a file or folder that may not be changed; repeatable")
    add("--agent", metavar="NAME", help="with what a known agent needs: its state, its login, its service")
    return parser


def main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    args = build_parser().parse(argv[:at])
    if args.command:
        raise Refused(f"a command stands behind --: ralph sandbox {args.what} -- {' '.join(args.command)}")
    args.command = argv[at + 1 :]
    if (args.what == "run") != bool(args.command):
        raise Refused(NO_COMMAND if args.what == "run" else "explain takes no command; to run one: ralph sandbox run")
    project, settings = _load_settings(args)
    from ralphproof.sandbox.selection import choose_backend

    backend = choose_backend(settings.sandbox.backend or "auto", os.environ, project.root)
    config = _sandbox_scope(project, settings, args.agent or "")
    if args.what == "explain":
        return _print_sandbox(backend, config, args)
    _refuse_unenforced_paths(backend, args.protect or (), settings.protected_paths)
    from ralphproof.sandbox.interactive import run_in_sandbox

    return run_in_sandbox(backend, config, tuple(args.command), args.agent or "")


def _refuse_unenforced_paths(backend: Backend, asked: Iterable[str], protected: Iterable[str]) -> None:
    """A run looks afterwards at what its sandbox does not hold; nobody does so here."""
    if backend.protects_paths:
        return
    if paths := ", ".join(asked):
        raise Refused(
            f"sandbox {backend.name} cannot keep {paths} from being written; leave out --protect, or use a kind "
            "that can, such as --sandbox=bubblewrap"
        )
    if paths := ", ".join(protected):
        print(sanitize(f"note: sandbox {backend.name} does not keep {paths} from being written"), file=sys.stderr)


def _load_settings(args: Namespace) -> tuple[Project, Settings]:
    """The project, and its settings with what the flags add."""
    from ralphproof.runs.open_project import open_project
    from ralphproof.settings.loader import load_settings

    project = open_project(args.project_dir, os.environ)
    loaded = load_settings(project.root, os.environ, {})
    paths, kind = loaded.settings.protected_paths, {"backend": args.sandbox} if args.sandbox else {}
    instead = override_committed_sandbox(loaded, project.root, os.environ, {"sandbox": kind})
    for line in describe_sandbox_overrides(loaded, instead):
        print(sanitize(f"note: {line}"), file=sys.stderr)
    hosts = instead.get("allowHosts", loaded.settings.sandbox.allow_hosts)
    box = {**instead, **kind, "allowHosts": list(dict.fromkeys((*hosts, *(args.allow_host or ()))))}
    flags: dict[str, Any] = {"sandbox": box, "protectedPaths": list(dict.fromkeys((*paths, *(args.protect or ()))))}
    return project, load_settings(project.root, os.environ, flags).settings


def _sandbox_scope(project: Project, settings: Settings, agent: str) -> SandboxConfig:
    from ralphproof.agents.environment import agent_environment
    from ralphproof.agents.selection import KNOWN_AGENTS, load_adapter
    from ralphproof.engine.sandbox import AgentRequirements
    from ralphproof.sandbox.planner import SandboxConfig

    if agent and agent not in KNOWN_AGENTS:
        raise Refused(f"--agent {agent} is not known; there are: {', '.join(KNOWN_AGENTS)}")
    lodgings = ((agent, getattr(load_adapter(agent), "requirements", AgentRequirements())),) if agent else ()
    env, box = agent_environment(os.environ, settings), settings.sandbox
    return SandboxConfig(
        project.root, project.store, "", env, settings.protected_paths, (), box.allow_hosts, box.allow_local_ports,
        tuple(map(os.path.expanduser, box.read_paths)), lodgings, tuple(name for name, _ in settings.agent.env), env,
    )  # fmt: skip


def _print_sandbox(backend: Backend, config: SandboxConfig, args: Namespace) -> int:
    from ralphproof.display.output import print_json, print_lines
    from ralphproof.engine.sandbox import Command
    from ralphproof.sandbox.description import sandbox_json, sandbox_lines
    from ralphproof.sandbox.planner import SandboxPlanner

    place = os.path.join(config.store, "explained")
    command = Command((), config.root, config.environ, f"{place}.log", f"{place}.turn", "", agent=args.agent or "")
    box = replace(SandboxPlanner(config, backend).plan(command), cwd=config.root)
    if args.json:
        print_json("sandbox", sandbox_json(backend, box))
    else:
        print_lines(*sandbox_lines(backend, box))
    return 0
