"""`ralph plugin`: the hooks and skills for Claude Code and Codex, put there by their own commands."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.cli.hosts import FOLDER, HOSTS, NAME, PLUGIN, PROGRAM, Seat
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import AgentUnusable, Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.hosts import Host
    from ralphproof.value import Json

ABOUT = """the hooks and skills for Claude Code and Codex, put there by their own commands.

install adds the plugin's folder as a marketplace and installs the plugin ralph from it, for all of your projects, and
looks whether it is there; what is there already is brought to this version. uninstall takes both away again. path says
where the plugin lies, for claude --plugin-dir say. Nothing is written but by claude plugin and codex plugin.
Exit codes: 0 done; 2 none of the two was found, or one of them failed."""
EXAMPLES = (
    "ralph plugin install",
    "ralph plugin install --agent claude",
    "ralph plugin uninstall --agent all --json",
    'claude --plugin-dir "$(ralph plugin path)"',
)
ALL = "all"
SILENT = f"{PROGRAM} is not on your PATH, where the hooks look for it: until it is, they do nothing"


@value
class Seated:
    """What came of one program: `there` says whether it has the plugin now, `error` why that could not be had."""

    host: Host
    program: str
    there: bool
    changed: tuple[tuple[str, ...], ...]
    error: str = ""

    def published(self) -> dict[str, Json]:
        return {
            "agent": self.host.name, "program": self.program or None, "installed": self.there,
            "commands": [list(one) for one in self.changed], "error": self.error or None,
        }  # fmt: skip


def parser() -> Parser:
    made = Parser("plugin", ABOUT, EXAMPLES)
    add = made.add_argument
    add("what", choices=("install", "uninstall", "path"), help="put it there; take it away; say where it lies")
    add("--agent", choices=(*HOSTS, ALL), help="the program to tell (default: those of the two that are found)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.what == "path":
        return _path(args)
    meant = _meant(args)
    _leave_the_project()
    seated = [_settled(host, program, args) for host, program in meant]
    silent = args.what == "install" and not _found(PROGRAM)
    if args.json:
        agents: list[Json] = [one.published() for one in seated]
        told: dict[str, Json] = {"plugin": PLUGIN, "version": __version__, "path": FOLDER, "agents": agents}
        put_json("plugin", told | {"warnings": [SILENT] if silent else []})
    elif silent:
        _say(SILENT)
    return 2 if any(one.error for one in seated) else 0


def _path(args: Namespace) -> int:
    if args.agent is not None:
        raise Refused("--agent does not go with ralph plugin path: the folder is the same for all")
    if args.json:
        put_json("plugin", {"plugin": PLUGIN, "version": __version__, "path": FOLDER})
    else:
        print(FOLDER)  # as it is: it goes into other commands
    return 0


def _meant(args: Namespace) -> list[tuple[Host, str]]:
    """The programs to tell, and where they are; empty where one that is wanted is not there."""
    from ralphproof.views.root import root_of

    root, home = root_of(args.project_dir), os.path.realpath(os.path.expanduser("~"))
    # What a project brings along is none of the user's; but who stands in their home folder is in no project.
    outside = "" if f"{home}/".startswith(f"{root.rstrip('/')}/") else root
    wanted = [host for host in HOSTS.values() if args.agent in (None, ALL, host.name)]
    found = [(host, _found(host.name, outside)) for host in wanted]
    if args.agent is None:
        found = [one for one in found if one[1]]
    if not found:
        raise AgentUnusable(f"neither {' nor '.join(HOSTS)} is on PATH; ralph plugin path says where the plugin lies")
    return found


def _found(program: str, outside: str = "") -> str:
    from ralphproof.workspaces.gitcall import find_program

    return find_program(program, os.environ.get("PATH", os.defpath), outside) or ""


def _leave_the_project() -> None:
    """What is installed is for all projects: the settings of none take part, and nothing in one is executed."""
    home = os.path.expanduser("~")
    os.chdir(home if os.path.isdir(home) else os.sep)


def _settled(host: Host, program: str, args: Namespace) -> Seated:
    """Carry it out with one program. That it fails keeps nobody from the next one."""
    from ralphproof.config.build import check_environment

    done: list[tuple[str, ...]] = []

    def show(command: tuple[str, ...]) -> None:
        done.append(command)
        if not args.quiet:
            _tell(args, f"{host.title}: {' '.join(command)}")

    there, error = False, "" if program else f"{host.name} is not on PATH"
    if program:
        # Without the marks of an agent that this may run inside.
        seat = Seat(host, program, dict(check_environment(os.environ)), show)
        try:
            there, said = (_installed if args.what == "install" else _uninstalled)(seat)
            _tell(args, f"{host.title}: {said}")
        except AgentUnusable as unusable:
            error = str(unusable)
    if error:
        _say(error)
    return Seated(host, program, there, tuple(done), error)


def _installed(seat: Seat) -> tuple[bool, str]:
    return True, f"{NAME} {seat.install().version} is installed; {seat.host.afterwards}"


def _uninstalled(seat: Seat) -> tuple[bool, str]:
    return False, f"{NAME} is uninstalled" if seat.uninstall() else f"{NAME} was not installed"


def _tell(args: Namespace, line: str) -> None:
    if not args.json:
        put(line)
        sys.stdout.flush()


def _say(line: str) -> None:
    from ralphproof.cli.dispatch import say

    say(line)
