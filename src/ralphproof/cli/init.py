"""`ralph init`: describe the project's agent and checks once."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines, require_confirmation
from ralphproof.setup.init import (
    SETTINGS_FILE,
    STORIES_PRESET,
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
    from typing import Any

    from ralphproof.setup.stories_folder import StoriesFolderLayout


ABOUT = """describe the project's agent and checks once, in .ralph/settings.json.

At a terminal it asks. With --yes it takes the agent that it finds on PATH, the checks that the project's files name,
and defaults for the rest. With --preset stories it also lays out the folder ralph/: prompt.md, prd.md, tasks.json (with
those checks as its verify commands) and progress.txt; a file that is there already stays as it is; with --force it is
written anew, and what somebody wrote is set aside as NAME.before-init.
Exit codes: 0 written, or an existing file was kept; 2 refused; 130 interrupted: then nothing was written."""
EXAMPLES = (
    "ralph init",
    "ralph init --yes",
    'ralph init --yes --force --agent "claude --model opus"',
    "ralph init --preset stories --name login",
)


def build_parser() -> Parser:
    parser = Parser("init", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("--agent", metavar="C", help="the agent's command; it is not asked for then")
    add("--yes", action="store_true", help="ask nothing: take what is found, and defaults")
    add("--force", action="store_true", help="overwrite existing settings without asking; set files of stories aside")
    add("--preset", metavar="P", help="the style of loop: harness; wrapper, which limits cost; stories, and others")
    add("--name", metavar="N", help="with stories: the project's name, and that of its branch: ralph/N")
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, from the project's top (default ralph)")
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

    def first() -> None:
        if settings is not None:
            write_settings(root, settings)

    if stories is None:
        first()
    else:
        exist = f"{SETTINGS_FILE} and all files of the stories exist" if settings is None and args.yes else ""
        stories.lay(first, refuse=exist)
    _print_result(root, args, settings, stories)
    return 0


def _plan_stories_folder(root: str, args: Namespace) -> StoriesFolderLayout | None:
    if args.preset != STORIES_PRESET:
        return None
    from ralphproof.setup.stories_folder import StoriesFolderLayout

    return StoriesFolderLayout(root, args.name, args.ralph_dir, args.force, os.environ)


def _choose_settings(root: str, args: Namespace, stories: StoriesFolderLayout | None) -> Any | None:
    """What is to be written; None where settings are there and stay."""
    exists = os.path.lexists(os.path.join(root, SETTINGS_FILE))
    if args.yes:
        if exists and not args.force:
            if stories is not None:
                return None
            raise Refused(f"{SETTINGS_FILE} exists; overwrite it with --force")
        return propose_settings(root, args, stories)
    try:
        if exists and not args.force and not confirm_overwrite(root):
            return None
        return ask_settings(root, args, stories)
    except KeyboardInterrupt:
        print()
        raise


def _print_result(root: str, args: Namespace, settings: Any | None, stories: StoriesFolderLayout | None) -> None:
    if args.json:
        more = {} if stories is None else {"stories": stories.as_json()}
        print_json("init", {"path": os.path.join(root, SETTINGS_FILE), "settings": settings, **more})
        return
    if settings is not None:
        print_lines("", f"Settings written to {SETTINGS_FILE}", *agent_notes(settings["agent"]["command"]))
    elif stories is not None:
        print_lines(f"Kept, because it exists: {SETTINGS_FILE}")
    if stories is not None:
        print_lines(*stories.told(STORIES_PRESET if settings is not None else configured_preset(root)))


def _refuse_unavailable_flags(args: Namespace) -> None:
    import shlex

    from ralphproof.settings.model import AVAILABLE_PRESETS

    for flag, given in (("--name", args.name), ("--ralph-dir", args.ralph_dir)):
        if given is not None and args.preset != STORIES_PRESET:
            raise Refused(f"{flag} is for stories: ralph init --preset stories {flag} {shlex.quote(given)}")
    if args.preset is not None and args.preset not in AVAILABLE_PRESETS:
        available = ", ".join(AVAILABLE_PRESETS)
        raise Refused(f"preset {args.preset} is not available in this version; available: {available}")
