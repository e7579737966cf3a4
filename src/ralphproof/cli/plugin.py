"""`ralph plugin`: install hooks and skills in Claude Code and Codex."""

from __future__ import annotations

import sys

from ralphproof import __version__
from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.setup.plugin import (
    ALL_AGENTS,
    HOSTS,
    PLUGIN,
    PLUGIN_FOLDER,
    change_hosts,
    missing_program_notes,
)

if TYPE_CHECKING:
    from argparse import Namespace


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
    installing = args.what == "install"
    results = change_hosts(
        args.agent, args.project_dir, installing, args.guard, lambda line: _print_progress(args, line), args.quiet
    )
    for error in (one.error for one in results if one.error):
        _print_line(error)
    missing = missing_program_notes(results) if installing else []
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


def _print_progress(args: Namespace, line: str) -> None:
    if not args.json:
        print_lines(line)
        sys.stdout.flush()


def _print_line(line: str) -> None:
    from ralphproof.cli.dispatch import print_error_line

    print_error_line(line)
