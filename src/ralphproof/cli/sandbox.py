"""`ralph sandbox`: run a command in the sandbox that a run would have, or say what can be reached from it."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.openings import held_open, told
from ralphproof.cli.parser import Parser
from ralphproof.display.clean import clean
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable
    from typing import Any

    from ralphproof.config.boxes import Terrain
    from ralphproof.config.settings import Settings
    from ralphproof.sandboxes.box import Backend
    from ralphproof.views.project import Project

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


def parser() -> Parser:
    made = Parser("sandbox", ABOUT, EXAMPLES)
    add = made.add_argument
    add("what", choices=("run", "explain"), help="run a command inside, or say what can be reached from there")
    add("command", nargs="*", metavar="-- CMD", help="with run: the command and its arguments, behind --")
    add("--sandbox", metavar="[=KIND]", help="the kind of sandbox (default: the settings' own, else the strongest)")
    add("--allow-host", action="append", metavar="HOST", help="a host that may be reached; repeat it")
    add("--protect", action="append", metavar="PATH", help="a file or folder that may not be changed; repeat it")
    add("--agent", metavar="NAME", help="with what a known agent needs: its state, its login, its service")
    return made


def main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser().parse(argv[:at])
    if args.command:
        raise Refused(f"a command stands behind --: ralph sandbox {args.what} -- {' '.join(args.command)}")
    args.command = argv[at + 1 :]
    if (args.what == "run") != bool(args.command):
        raise Refused(NO_COMMAND if args.what == "run" else "explain takes no command; to run one: ralph sandbox run")
    project, settings = _settings(args)
    from ralphproof.config.backends import chosen

    backend = chosen(settings.sandbox.backend or "auto", os.environ, project.root)
    terrain = _terrain(project, settings, args.agent or "")
    if args.what == "explain":
        return _explain(backend, terrain, args)
    _refuse_unheld(backend, args.protect or (), settings.protected_paths)
    from ralphproof.cli.sandbox_run import run_inside

    return run_inside(backend, terrain, tuple(args.command), args.agent or "")


def _refuse_unheld(backend: Backend, asked: Iterable[str], protected: Iterable[str]) -> None:
    """A run looks afterwards at what its sandbox does not hold; nobody does so here."""
    if backend.holds:
        return
    if paths := ", ".join(asked):
        raise Refused(
            f"sandbox {backend.name} cannot keep {paths} from being written; leave out --protect, or use a kind "
            "that can, such as --sandbox=bubblewrap"
        )
    if paths := ", ".join(protected):
        print(clean(f"note: sandbox {backend.name} does not keep {paths} from being written"), file=sys.stderr)


def _settings(args: Namespace) -> tuple[Project, Settings]:
    """The project, and its settings with what the flags add."""
    from ralphproof.config.load import load
    from ralphproof.views.project import Project

    project = Project.at(args.project_dir, os.environ)
    loaded = load(project.root, os.environ, {})
    paths, kind = loaded.settings.protected_paths, {"backend": args.sandbox} if args.sandbox else {}
    instead = held_open(loaded, project.root, os.environ, {"sandbox": kind})
    for line in told(loaded, instead):
        print(clean(f"note: {line}"), file=sys.stderr)
    hosts = instead.get("allowHosts", loaded.settings.sandbox.allow_hosts)
    box = {**instead, **kind, "allowHosts": list(dict.fromkeys((*hosts, *(args.allow_host or ()))))}
    flags: dict[str, Any] = {"sandbox": box, "protectedPaths": list(dict.fromkeys((*paths, *(args.protect or ()))))}
    return project, load(project.root, os.environ, flags).settings


def _terrain(project: Project, settings: Settings, agent: str) -> Terrain:
    from ralphproof.config.agents import KNOWN, dialect
    from ralphproof.config.boxes import Terrain
    from ralphproof.config.build import agent_environment
    from ralphproof.sandbox import Lodging

    if agent and agent not in KNOWN:
        raise Refused(f"--agent {agent} is not known; there are: {', '.join(KNOWN)}")
    lodgings = ((agent, getattr(dialect(agent), "lodging", Lodging())),) if agent else ()
    env, box = agent_environment(os.environ, settings), settings.sandbox
    return Terrain(
        project.root, project.store, "", env, settings.protected_paths, (), box.allow_hosts, box.allow_local_ports,
        tuple(map(os.path.expanduser, box.read_paths)), lodgings, tuple(name for name, _ in settings.agent.env), env,
    )  # fmt: skip


def _explain(backend: Backend, terrain: Terrain, args: Namespace) -> int:
    from ralphproof.cli.out import put, put_json
    from ralphproof.cli.sandbox_words import as_json, lines
    from ralphproof.config.boxes import Boxes
    from ralphproof.sandbox import Command

    place = os.path.join(terrain.store, "explained")
    command = Command((), terrain.root, terrain.environ, f"{place}.log", f"{place}.turn", "", agent=args.agent or "")
    box = replace(Boxes(terrain, backend).box(command), cwd=terrain.root)
    if args.json:
        put_json("sandbox", as_json(backend, box))
    else:
        put(*lines(backend, box))
    return 0
