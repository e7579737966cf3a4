"""`ralph plugin`: install hooks and skills in Claude Code and Codex."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.base.errors import AgentUnusable, Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.setup.plugin_hosts import (
    GUARD_PLUGIN,
    HOSTS,
    PLUGIN,
    PLUGIN_FOLDER,
    PLUGIN_NAME,
    PROGRAM,
    PluginInstaller,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.setup.plugin_hosts import PluginHost

ABOUT = """the hooks and skills for Claude Code and Codex, put there by their own commands.

install adds the plugin's folder as a marketplace and installs the plugin ralph from it, for all of your projects, and
looks whether it is there; what is there already is brought to this version. With --guard it installs ralph-guard
beside it: the command guard judges every tool call of your sessions, by your own settings (docs/guard.md); without it
the guard is not wired. uninstall takes all away again, uninstall --guard the guard alone. path says where the plugin
lies, for claude --plugin-dir say. Nothing is written but by claude plugin and codex plugin.
Exit codes: 0 done; 2 none of the two was found, or one of them failed."""
EXAMPLES = (
    "ralph plugin install",
    "ralph plugin install --agent claude",
    "ralph plugin install --guard",
    "ralph plugin uninstall --agent all --json",
    'claude --plugin-dir "$(ralph plugin path)"',
)
ALL_AGENTS = "all"
REMOVE_GUARD_COMMAND = "ralph plugin uninstall --guard"
GUARD_BLOCKED_NOTE = (
    f"{PROGRAM} is not on your PATH, where the guard looks for it: until it is, every tool call is denied"
)
HOOKS_SILENT_NOTE = f"{PROGRAM} is not on your PATH, where the hooks look for it: until it is, they do nothing"


@value
class PluginResult:
    """What came of one program: whether it has the plugin and the guard now, and `error` why that could not be had."""

    host: PluginHost
    program: str
    there: bool
    guarded: bool
    changed: tuple[tuple[str, ...], ...]
    error: str = ""

    def published(self) -> dict[str, Json]:
        return {
            "agent": self.host.name, "program": self.program or None, "installed": self.there,
            "guard": self.guarded,
            "commands": [list(one) for one in self.changed], "error": self.error or None,
        }  # fmt: skip


def build_parser() -> Parser:
    parser = Parser("plugin", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("what", choices=("install", "uninstall", "path"), help="put it there; take it away; say where it lies")
    add("--agent", choices=(*HOSTS, ALL_AGENTS), help="the program to tell (default: those of the two that are found)")
    add("--guard", action="store_true", help="the command guard for your own sessions too; with uninstall that alone")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.what == "path":
        return _print_path(args)
    meant = _select_hosts(args)
    _leave_project()
    seated = [_apply_to_host(host, program, args) for host, program in meant]
    missing = [] if args.what != "install" or _find_program(PROGRAM) else [HOOKS_SILENT_NOTE]
    missing += [GUARD_BLOCKED_NOTE] if missing and any(one.guarded for one in seated) else []
    if args.json:
        agents: list[Json] = [one.published() for one in seated]
        told: dict[str, Json] = {"plugin": PLUGIN, "version": __version__, "path": PLUGIN_FOLDER, "agents": agents}
        print_json("plugin", told | {"warnings": [*missing]})
    else:
        for line in missing:
            _print_line(line)
    return 2 if any(one.error for one in seated) else 0


def _print_path(args: Namespace) -> int:
    if args.agent is not None or args.guard:
        flag = "--guard" if args.guard else "--agent"
        raise Refused(f"{flag} does not go with ralph plugin path: the folder is the same for all")
    if args.json:
        print_json("plugin", {"plugin": PLUGIN, "version": __version__, "path": PLUGIN_FOLDER})
    else:
        print(PLUGIN_FOLDER)  # as it is: it goes into other commands
    return 0


def _select_hosts(args: Namespace) -> list[tuple[PluginHost, str]]:
    """The programs to tell, and where they are; empty where one that is wanted is not there."""
    from ralphproof.base.git_layout import resolve_project_root

    root, home = resolve_project_root(args.project_dir), os.path.realpath(os.path.expanduser("~"))
    # What a project brings along is none of the user's; but who stands in their home folder is in no project.
    outside = "" if f"{home}/".startswith(f"{root.rstrip('/')}/") else root
    wanted = [host for host in HOSTS.values() if args.agent in (None, ALL_AGENTS, host.name)]
    found = [(host, _find_program(host.name, outside)) for host in wanted]
    if args.agent is None:
        found = [one for one in found if one[1]]
    if not found:
        raise AgentUnusable(f"neither {' nor '.join(HOSTS)} is on PATH; ralph plugin path says where the plugin lies")
    return found


def _find_program(program: str, outside: str = "") -> str:
    from ralphproof.base.run_program import find_program

    return find_program(program, os.environ.get("PATH", os.defpath), outside) or ""


def _leave_project() -> None:
    """What is installed is for all projects: the settings of none take part, and nothing in one is executed."""
    home = os.path.expanduser("~")
    os.chdir(home if os.path.isdir(home) else os.sep)


def _apply_to_host(host: PluginHost, program: str, args: Namespace) -> PluginResult:
    """Carry it out with one program. That it fails keeps nobody from the next one."""
    from ralphproof.agents.environment import check_environment

    done: list[tuple[str, ...]] = []

    def show(command: tuple[str, ...]) -> None:
        done.append(command)
        if not args.quiet:
            _print_progress(args, f"{host.title}: {' '.join(command)}")

    there, guarded, error = False, False, "" if program else f"{host.name} is not on PATH"
    if program:
        # Without the marks of an agent that this may run inside.
        seat = PluginInstaller(host, program, dict(check_environment(os.environ)), show)
        try:
            for line in (_install if args.what == "install" else _uninstall)(seat, args.guard):
                _print_progress(args, f"{host.title}: {line}")
            there, guarded = seat.copy() is not None, seat.copy(GUARD_PLUGIN) is not None
        except AgentUnusable as unusable:
            error = str(unusable)
    if error:
        _print_line(error)
    return PluginResult(host, program, there, guarded, tuple(done), error)


def _install(seat: PluginInstaller, guard: bool) -> Iterator[str]:
    """What was done. A guard that is there already is kept, and brought to this version."""
    yield f"{PLUGIN_NAME} {seat.install().version} is installed; {seat.host.afterwards}"
    if guard or seat.copy(GUARD_PLUGIN) is not None:
        seat.install(GUARD_PLUGIN)
        trusted = ", once you trust its hook" if seat.host.asks_trust else ""
        yield f"the command guard judges every tool call of new sessions{trusted}; to remove it: {REMOVE_GUARD_COMMAND}"


def _uninstall(seat: PluginInstaller, guard: bool) -> Iterator[str]:
    if guard:
        yield "the command guard is uninstalled" if seat.uninstall_guard() else "the command guard was not installed"
    else:
        yield f"{PLUGIN_NAME} is uninstalled" if seat.uninstall() else f"{PLUGIN_NAME} was not installed"


def _print_progress(args: Namespace, line: str) -> None:
    if not args.json:
        print_lines(line)
        sys.stdout.flush()


def _print_line(line: str) -> None:
    from ralphproof.cli.dispatch import print_error_line

    print_error_line(line)
