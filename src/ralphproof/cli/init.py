"""`ralph init`: write the project's settings and story files."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines, require_confirmation
from ralphproof.settings.declarations import PRESETS
from ralphproof.setup.init import (
    SETTINGS_FILE,
    STORIES_PRESET,
    StoriesFolderLayout,
    agent_notes,
    ask_settings,
    configured_preset,
    confirm_overwrite,
    propose_settings,
    validate_settings,
    write_settings,
)

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Write the project's agent and checks to .ralph/settings.json.

At a terminal it asks. With --yes it takes the agent found on PATH, the checks that the project's files name, and
defaults for the rest. With --preset stories it also creates the folder ralph/: prompt.md, prd.md, tasks.json (with
those checks as its verify commands) and progress.txt. Existing files stay; with --force they are replaced, and changed
ones are kept as NAME.before-init.
Exit codes: 0 written, or an existing file was kept; 2 refused; 130 interrupted: nothing was written."""
EXAMPLES = (
    "ralph init",
    "ralph init --yes",
    'ralph init --yes --force --agent "claude --model opus"',
    "ralph init --preset stories --name login",
)


def build_parser() -> Parser:
    parser = Parser("init", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--agent", metavar="C", help="agent command (default: ask)")
    add("--yes", action="store_true", help="ask nothing: use detected values and defaults")
    add("--force", action="store_true", help="overwrite existing settings without asking; replace story files")
    add("--preset", metavar="P", help="loop style: harness; wrapper, which limits cost; stories, and others")
    add("--name", metavar="N", help="with stories: project name, used in the branch ralph/N")
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, relative to the project (default ralph)")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    _refuse_unavailable_flags(args)
    require_confirmation(args.yes, args.json, "init asks questions")
    root = resolve_project_root(args.project_dir)
    stories = _plan_stories_folder(root, args)
    settings = _choose_settings(root, args, stories)
    if settings is not None:
        validate_settings(settings)

    def write() -> None:
        if settings is not None:
            write_settings(root, settings)

    if stories is None:
        write()
    else:
        reason = f"{SETTINGS_FILE} and all files of the stories exist" if settings is None and args.yes else ""
        stories.write(write, refuse=reason)
    _print_result(root, args, settings, stories)
    return 0


def _plan_stories_folder(root: str, args: Namespace) -> StoriesFolderLayout | None:
    if args.preset != STORIES_PRESET:
        return None
    return StoriesFolderLayout(root, args.name, args.ralph_dir, args.force, os.environ)


def _choose_settings(root: str, args: Namespace, stories: StoriesFolderLayout | None) -> Any | None:
    """The settings to write; None to keep the existing ones."""
    exists = os.path.lexists(os.path.join(root, SETTINGS_FILE))
    if args.yes:
        if exists and not args.force:
            if stories is not None:
                return None
            raise Refused(f"{SETTINGS_FILE} exists; overwrite it with --force")
        return propose_settings(root, args.agent, args.preset, args.json, stories)
    try:
        if exists and not args.force and not confirm_overwrite(root):
            return None
        return ask_settings(root, args.agent, args.preset, stories)
    except KeyboardInterrupt:
        print()
        raise


def _print_result(root: str, args: Namespace, settings: Any | None, stories: StoriesFolderLayout | None) -> None:
    if args.json:
        extra = {} if stories is None else {"stories": stories.as_json()}
        print_json("init", {"path": os.path.join(root, SETTINGS_FILE), "settings": settings, **extra})
        return
    if settings is not None:
        print_lines("", f"Settings written to {SETTINGS_FILE}", *agent_notes(settings["agent"]["command"]))
    elif stories is not None:
        print_lines(f"Kept existing {SETTINGS_FILE}")
    if stories is not None:
        print_lines(*stories.lines(STORIES_PRESET if settings is not None else configured_preset(root)))


def _refuse_unavailable_flags(args: Namespace) -> None:
    for flag, text in (("--name", args.name), ("--ralph-dir", args.ralph_dir)):
        if text is not None and args.preset != STORIES_PRESET:
            raise Refused(f"{flag} is for stories: ralph init --preset stories {flag} {shlex.quote(text)}")
    if args.preset is not None and args.preset not in PRESETS:
        available = ", ".join(PRESETS)
        raise Refused(f"preset {args.preset} is not available in this version; available: {available}")
