"""`ralph init`: describe the project's agent and checks once, in .ralph/settings.json."""

from __future__ import annotations

import os

from ralphproof.cli.out import answered_yes, must_ask, put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused, SettingsWrong
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.cli.init_stories import Layout
    from ralphproof.expectation import Expectation

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
PLACE = ".ralph/settings.json"
STORIES = "stories"
RESPONSES = {"wrapper": "COMPLETE", STORIES: "COMPLETE"}  # by the preset; elsewhere it is DONE
ITERATIONS = {STORIES: 15}  # elsewhere 10
WRAPPER_USD = 5.0  # what a run may cost where nothing is known of runs before it


def parser() -> Parser:
    made = Parser("init", ABOUT, EXAMPLES)
    add = made.add_argument
    add("--agent", metavar="C", help="the agent's command; it is not asked for then")
    add("--yes", action="store_true", help="ask nothing: take what is found, and defaults")
    add("--force", action="store_true", help="overwrite existing settings without asking; set files of stories aside")
    add("--preset", metavar="P", help="the style of loop: harness; wrapper, which limits cost; stories, and others")
    add("--name", metavar="N", help="with stories: the project's name, and that of its branch: ralph/N")
    add("--ralph-dir", metavar="PATH", help="with stories: their folder, from the project's top (default ralph)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    _refuse_unavailable(args)
    must_ask(args.yes, args.json, "init asks questions")
    root = root_of(args.project_dir)
    stories = _stories(root, args)
    settings = _settings(root, args, stories)
    if settings is not None:
        _check(settings)

    def first() -> None:
        if settings is not None:
            write(root, settings)

    if stories is None:
        first()
    else:
        exist = f"{PLACE} and all files of the stories exist" if settings is None and args.yes else ""
        stories.lay(first, refuse=exist)
    _tell(root, args, settings, stories)
    return 0


def _stories(root: str, args: Namespace) -> Layout | None:
    if args.preset != STORIES:
        return None
    from ralphproof.cli.init_stories import Layout

    return Layout(root, args.name, args.ralph_dir, args.force, os.environ)


def _settings(root: str, args: Namespace, stories: Layout | None) -> Any | None:
    """What is to be written; None where settings are there and stay."""
    exists = os.path.lexists(os.path.join(root, PLACE))
    if args.yes:
        if exists and not args.force:
            if stories is not None:
                return None
            raise Refused(f"{PLACE} exists; overwrite it with --force")
        return _proposed(root, args, stories)
    try:
        if exists and not args.force and not _overwrite(root):
            return None
        return _asked(root, args, stories)
    except KeyboardInterrupt:
        print()
        raise


def _tell(root: str, args: Namespace, settings: Any | None, stories: Layout | None) -> None:
    if args.json:
        more = {} if stories is None else {"stories": stories.as_json()}
        put_json("init", {"path": os.path.join(root, PLACE), "settings": settings, **more})
        return
    if settings is not None:
        put("", f"Settings written to {PLACE}", *_remarks(settings["agent"]["command"]))
    elif stories is not None:
        put(f"Kept, because it exists: {PLACE}")
    if stories is not None:
        put(*stories.told(STORIES if settings is not None else preset_in_force(root)))


def preset_in_force(root: str) -> str:
    """The preset that the settings name, whatever else is wrong with them."""
    from ralphproof.config.layers import Layer, merged
    from ralphproof.config.load import read_files

    layers = [Layer(file.name, file.data) for file in read_files(root, os.environ) if isinstance(file.data, dict)]
    return str(merged((), layers).raw.get("preset", "harness"))


def _remarks(command: str) -> Iterator[str]:
    """What the user should know before the first run of this agent."""
    from ralphproof.config.agents import remark_on
    from ralphproof.errors import AgentUnusable

    try:
        remark = remark_on(command)
    except AgentUnusable as error:
        remark = str(error)
    if remark:
        yield f"Note: {remark}"


def _refuse_unavailable(args: Namespace) -> None:
    import shlex

    from ralphproof.config.settings import AVAILABLE_PRESETS

    for flag, given in (("--name", args.name), ("--ralph-dir", args.ralph_dir)):
        if given is not None and args.preset != STORIES:
            raise Refused(f"{flag} is for stories: ralph init --preset stories {flag} {shlex.quote(given)}")
    if args.preset is not None and args.preset not in AVAILABLE_PRESETS:
        available = ", ".join(AVAILABLE_PRESETS)
        raise Refused(f"preset {args.preset} is not available in this version; available: {available}")


def _proposed(root: str, args: Namespace, stories: Layout | None) -> Any:
    """Settings from what is found, and a word on each find. The checks of stories stand with the stories."""
    from ralphproof.cli.dialogue import settings_of
    from ralphproof.config.agents import find_agent
    from ralphproof.config.discover import survey

    agent = args.agent or find_agent(os.environ, root)
    if agent is None:
        raise Refused("no known agent with a guard is on PATH; name yours with --agent")
    found = stories.found if stories is not None else survey(root)
    if not args.json:
        _tell_elsewhere(root)
        put(f"Agent: {agent}" + ("" if args.agent else " (found on PATH)"))
        put(*(f"Check: {item.command} ({item.source})" for item in found.proposals), *found.notes)
        if not found.proposals:
            where = "each run looks again" if stories is None else "name them in verifyCommands of tasks.json"
            put(f"Checks: none found; {where}; without one the agent's word alone ends it")
        from ralphproof.cli.init_sandbox import tell

        tell(root, needed=stories is not None)
    rails = [] if stories is not None else [{"command": one.command, "failAction": "APPEND"} for one in found.proposals]
    response, iterations = RESPONSES.get(args.preset, "DONE"), ITERATIONS.get(args.preset, 10)
    return _with_preset(settings_of({"command": agent, "flags": []}, iterations, response, rails), args, root)


def _asked(root: str, args: Namespace, stories: Layout | None) -> Any:
    from ralphproof.cli.dialogue import ask_all
    from ralphproof.config.agents import find_agent
    from ralphproof.config.discover import survey

    _tell_elsewhere(root)
    if not args.agent and (found := find_agent(os.environ, root)):
        put(f"Found on PATH: {found}")
    if stories is not None and (names := [one.command for one in stories.found.proposals]):
        put(f"Checks this project names, for the stories: {', '.join(names)}")
    put("")
    checks = [] if stories is not None else [item.command for item in survey(root).proposals]
    response, iterations = RESPONSES.get(args.preset, "DONE"), ITERATIONS.get(args.preset, 10)
    made = _with_preset(ask_all(args.agent, checks, response, iterations), args, root)
    from ralphproof.cli.init_sandbox import asked

    return asked(made, root)


def _tell_elsewhere(root: str) -> None:
    """Whoever stands in a folder of the project hears which one it is."""
    if root != os.path.realpath(os.getcwd()):
        put(f"Project: {root}")


def _with_preset(settings: Any, args: Namespace, root: str) -> Any:
    """The settings with the preset that was named, and what this repository's past says of limits."""
    found = _expectation(root)
    if found is not None and not args.json:
        from ralphproof.expectation import sentence

        put(sentence(found))
    if args.preset is None:
        return settings
    made = {"preset": args.preset, **settings}
    if args.preset == "wrapper":  # which wants a limit on cost in so many words
        cost = found.cost.limit / 1_000_000 if found is not None and found.cost is not None else WRAPPER_USD
        made["limits"] = {"maxCostUsd": cost}
    return made


def _expectation(root: str) -> Expectation | None:
    from ralphproof.expectation import expected
    from ralphproof.views.project import Project

    ledger = Project.seen(root, os.environ).ledger()
    try:
        return expected(ledger.past())
    finally:
        ledger.close()


def _overwrite(root: str) -> bool:
    """Show what holds now, and ask."""
    from ralphproof.cli.config import hidden, pretty
    from ralphproof.config.layers import Layer, merged
    from ralphproof.config.load import read_files

    files = [file for file in read_files(root, os.environ)[1:] if file.digest]
    layers = [Layer(file.name, file.data) for file in files if isinstance(file.data, dict)]
    put(*pretty(hidden(merged((), layers).raw)))
    put(*(str(fault) for file in files for fault in file.faults))
    overlay = " (with local overlay from settings.local.json)" if len(files) > 1 else ""
    put(f"Loaded from {PLACE}{overlay}")
    return answered_yes("Overwrite?")


def _check(settings: Any) -> None:
    from ralphproof.config.schema import check

    if problems := check(settings, "these answers"):
        raise SettingsWrong([f"{problem}; nothing was written" for problem in problems])


def write(root: str, settings: Any) -> None:
    """Put the settings in their place, whole or not at all, and an ignore file beside them if there is none."""
    import json

    from ralphproof.ledgers.files import enter, write_whole
    from ralphproof.ledgers.folder import IGNORED

    data = json.dumps(settings, indent=2, ensure_ascii=False).encode() + b"\n"
    if os.path.isdir(os.path.join(root, PLACE)):
        raise Refused(f"{os.path.join(root, PLACE)} is a directory; move it away. Nothing was changed")
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            folder, _ = enter(top, ".ralph")
        finally:
            os.close(top)
        try:
            if not os.path.lexists(os.path.join(root, ".ralph", ".gitignore")):
                write_whole(folder, ".gitignore", IGNORED.encode(), private=False)
            write_whole(folder, "settings.json", data, private=False)
        finally:
            os.close(folder)
    except OSError as error:
        raise Refused(f"cannot write {os.path.join(root, PLACE)}: {error.strerror}; nothing was changed") from error
