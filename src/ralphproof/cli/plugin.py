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

ABOUT = """Install hooks and skills in Claude Code and Codex, with their own commands.

install adds the plugin folder as a marketplace, installs the plugin ralph from it for all your projects, and verifies
that; an installed plugin is updated to this version. --guard also installs ralph-guard: the command guard judges every
tool call of your sessions by your settings (docs/guard.md). uninstall removes everything, uninstall --guard only the
guard. path prints the plugin folder, for example for claude --plugin-dir. Files are written only by claude plugin and
codex plugin.
Exit codes: 0 done; 2 neither program was found, or one of them failed."""
EXAMPLES = (
    "ralph plugin install",
    "ralph plugin install --agent claude",
    "ralph plugin install --guard",
    "ralph plugin uninstall --agent all --json",
    'claude --plugin-dir "$(ralph plugin path)"',
)
ALL_AGENTS = "all"
REMOVE_GUARD_COMMAND = "ralph plugin uninstall --guard"
GUARD_BLOCKED_NOTE = f"{PROGRAM} is not on your PATH, and the guard needs it: until it is, every tool call is denied"
HOOKS_SILENT_NOTE = f"{PROGRAM} is not on your PATH, and the hooks need it: until it is, they do nothing"


@value
class PluginResult:
    """The result for one agent program: whether it has the plugin and the guard now, or an error."""

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
    add("what", choices=("install", "uninstall", "path"), help="install or remove the plugin, or print its folder")
    add("--agent", choices=(*HOSTS, ALL_AGENTS), help="agent program (default: those found on PATH)")
    add("--guard", action="store_true", help="also the command guard for your own sessions; with uninstall only that")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.what == "path":
        return _print_path(args)
    hosts = _select_hosts(args)
    _leave_project()
    results = [_apply_to_host(host, program, args) for host, program in hosts]
    missing = [] if args.what != "install" or _find_program(PROGRAM) else [HOOKS_SILENT_NOTE]
    missing += [GUARD_BLOCKED_NOTE] if missing and any(one.guarded for one in results) else []
    if args.json:
        agents: list[Json] = [one.published() for one in results]
        data: dict[str, Json] = {"plugin": PLUGIN, "version": __version__, "path": PLUGIN_FOLDER, "agents": agents}
        print_json("plugin", data | {"warnings": [*missing]})
    else:
        for line in missing:
            _print_line(line)
    return 2 if any(one.error for one in results) else 0


def _print_path(args: Namespace) -> int:
    if args.agent is not None or args.guard:
        flag = "--guard" if args.guard else "--agent"
        raise Refused(f"{flag} cannot be used with ralph plugin path: the folder is the same for all")
    if args.json:
        print_json("plugin", {"plugin": PLUGIN, "version": __version__, "path": PLUGIN_FOLDER})
    else:
        print(PLUGIN_FOLDER)  # unescaped: it is used in other commands
    return 0


def _select_hosts(args: Namespace) -> list[tuple[PluginHost, str]]:
    """The selected agent programs and their paths; an empty path if one was named and is missing."""
    from ralphproof.base.git_layout import resolve_project_root

    root, home = resolve_project_root(args.project_dir), os.path.realpath(os.path.expanduser("~"))
    # A program inside the project is not the user's; but the home folder is no project.
    outside = "" if f"{home}/".startswith(f"{root.rstrip('/')}/") else root
    wanted = [host for host in HOSTS.values() if args.agent in (None, ALL_AGENTS, host.name)]
    found = [(host, _find_program(host.name, outside)) for host in wanted]
    if args.agent is None:
        found = [each for each in found if each[1]]
    if not found:
        raise AgentUnusable(f"neither {' nor '.join(HOSTS)} is on PATH; ralph plugin path prints its folder")
    return found


def _find_program(program: str, outside: str = "") -> str:
    from ralphproof.base.programs import find_program

    return find_program(program, os.environ.get("PATH", os.defpath), outside) or ""


def _leave_project() -> None:
    """Leave the project: the installation is for all projects and must not use the settings or files of one."""
    home = os.path.expanduser("~")
    os.chdir(home if os.path.isdir(home) else os.sep)


def _apply_to_host(host: PluginHost, program: str, args: Namespace) -> PluginResult:
    """Install or uninstall in one program; a failure does not stop the next one."""
    from ralphproof.agents.environment import check_environment

    commands: list[tuple[str, ...]] = []

    def show(command: tuple[str, ...]) -> None:
        commands.append(command)
        if not args.quiet:
            _print_progress(args, f"{host.title}: {' '.join(command)}")

    installed, guarded, error = False, False, "" if program else f"{host.name} is not on PATH"
    if program:
        # Without the variables of an agent that this may run inside.
        installer = PluginInstaller(host, program, dict(check_environment(os.environ)), show)
        try:
            for line in (_install if args.what == "install" else _uninstall)(installer, args.guard):
                _print_progress(args, f"{host.title}: {line}")
            installed, guarded = installer.installed() is not None, installer.installed(GUARD_PLUGIN) is not None
        except AgentUnusable as unusable:
            error = str(unusable)
    if error:
        _print_line(error)
    return PluginResult(host, program, installed, guarded, tuple(commands), error)


def _install(installer: PluginInstaller, guard: bool) -> Iterator[str]:
    """Install the plugin; an installed guard is updated too. Yields what was done."""
    yield f"{PLUGIN_NAME} {installer.install().version} is installed; {installer.host.afterwards}"
    if guard or installer.installed(GUARD_PLUGIN) is not None:
        installer.install(GUARD_PLUGIN)
        trusted = ", once you trust its hook" if installer.host.asks_trust else ""
        yield f"the command guard judges every tool call of new sessions{trusted}; to remove it: {REMOVE_GUARD_COMMAND}"


def _uninstall(installer: PluginInstaller, guard: bool) -> Iterator[str]:
    if guard:
        yield (
            "the command guard is uninstalled" if installer.uninstall_guard() else "the command guard was not installed"
        )
    else:
        yield f"{PLUGIN_NAME} is uninstalled" if installer.uninstall() else f"{PLUGIN_NAME} was not installed"


def _print_progress(args: Namespace, line: str) -> None:
    if not args.json:
        print_lines(line)
        sys.stdout.flush()


def _print_line(line: str) -> None:
    from ralphproof.cli.dispatch import print_error_line

    print_error_line(line)
