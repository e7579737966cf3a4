"""Setting up: `ralph init`, `ralph doctor`, `ralph demo`, `ralph plugin` and `ralph completion`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ralphproof import __version__
from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import Json, replace
from ralphproof.cli.parser import SUPPRESS, Parser
from ralphproof.cli.verbs import VERBS, verb_function, verb_module
from ralphproof.display.output import print_json, print_lines, require_confirmation
from ralphproof.settings.declarations import PRESETS
from ralphproof.setup import doctor
from ralphproof.setup.completion import CompletedFlag, CompletedVerb, bash_script, fish_script, zsh_script
from ralphproof.setup.demo import (
    INTRODUCTION,
    create_demo_project,
    demo_command,
    demo_environment,
    load_demo_state,
    run_program,
    verify_demo,
)
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
from ralphproof.setup.plugin import (
    ALL_AGENTS,
    HOSTS,
    PLUGIN,
    PLUGIN_FOLDER,
    change_hosts,
    missing_program_notes,
)

# ralph init


INIT_ABOUT = """Write the project's agent and checks to .ralph/settings.json.

At a terminal it asks. With --yes it takes the agent found on PATH, the checks that the project's files name, and
defaults for the rest. With --preset stories it also creates the folder ralph/: prompt.md, prd.md, tasks.json (with
those checks as its verify commands) and progress.txt. Existing files stay; with --force they are replaced, and changed
ones are kept as NAME.before-init.
Exit codes: 0 written, or an existing file was kept; 2 refused; 130 interrupted: nothing was written."""
INIT_EXAMPLES = (
    "ralph init",
    "ralph init --yes",
    'ralph init --yes --force --agent "claude --model opus"',
    "ralph init --preset stories --name login",
)


def init_parser() -> Parser:
    parser = Parser("init", INIT_ABOUT, INIT_EXAMPLES)
    add = parser.add
    add("--agent C", "agent command (default: ask)")
    add("--yes", "ask nothing: use detected values and defaults")
    add("--force", "overwrite existing settings without asking; replace story files")
    add("--preset P", "loop style: harness; wrapper, which limits cost; stories, and others")
    add("--name N", "with stories: project name, used in the branch ralph/N")
    add("--ralph-dir PATH", "with stories: their folder, relative to the project (default ralph)")
    return parser


def init_main(argv: list[str]) -> int:
    args = init_parser().parse(argv)
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


# ralph doctor


DOCTOR_ABOUT = """Check what this machine and this project have and lack for a run.

Agents on PATH are asked for their version if no package provides it, and every kind of sandbox is tried on a
throw-away project. Nothing that the repository names is executed.
Exit codes: 0 a run can start, 1 something prevents it."""
STATUS_LABELS = {doctor.OK: "[OK]  ", doctor.NOTE: "[NOTE]", doctor.PROBLEM: "[ERR] "}


def doctor_parser() -> Parser:
    return Parser("doctor", DOCTOR_ABOUT, ("ralph doctor", "ralph doctor --json"))


def doctor_main(argv: list[str]) -> int:
    args = doctor_parser().parse(argv)
    root = resolve_project_root(args.project_dir)
    os.chdir("/")  # version managers on PATH ask the current directory which program to run
    items = list(_examine_all(root))
    possible = all(item.state != doctor.PROBLEM for item in items)
    if args.json:
        data: list[Json] = [_item_json(item) for item in items]
        print_json("doctor", {"ok": possible, "items": data})
    else:
        for item in items:
            print_lines(
                f"{STATUS_LABELS[item.state]} {item.name}: {item.text}", *(f"         {line}" for line in item.more)
            )
        print_lines("", "A run can start." if possible else "A run cannot start: see [ERR].")
    return 0 if possible else 1


def _item_json(item: doctor.DoctorItem) -> dict[str, Json]:
    data: dict[str, Json] = {"name": item.name, "state": item.state, "text": item.text}
    return data if item.data is None else data | {item.about: item.data}


def _examine_all(root: str) -> Iterator[doctor.DoctorItem]:
    yield from doctor.examine_machine()
    yield doctor.examine_project(root)
    yield doctor.examine_git(root, os.environ)
    yield from doctor.examine_packages()
    yield from doctor.examine_agents(root, os.environ)
    yield doctor.examine_state_folder(os.environ)
    yield from doctor.examine_settings(root, os.environ)
    yield from doctor.examine_spend(root, os.environ)
    yield from doctor.examine_optional_packages()
    yield doctor.examine_keeper()
    yield from doctor.examine_sandboxes(root, os.environ)
    yield from doctor.examine_runs(root, os.environ)
    yield doctor.examine_terminal()


# ralph demo


DEMO_ABOUT = "Run a whole loop in a throw-away repository, with a scripted agent that fails, lies, then does the work."


def demo_parser() -> Parser:
    parser = Parser("demo", DEMO_ABOUT, ["ralph demo", "ralph demo --keep"])
    parser.add("--keep", "keep the repository and print its path")
    return parser


def demo_main(argv: list[str]) -> int:
    """Create the demo repository, run the program in it, and verify the result."""
    args = demo_parser().parse(argv)
    folder = tempfile.mkdtemp(prefix="ralph-demo-")
    project, environ = os.path.join(folder, "project"), demo_environment(folder)
    try:
        create_demo_project(project, os.path.join(folder, "script.json"), environ)
        print(INTRODUCTION, file=sys.stderr)
        code = run_program(demo_command(project, os.path.join(folder, "script.json"), args.json), project, environ)
        verify_demo(load_demo_state(project, environ), code)
        if not args.json:
            print(EPILOGUE + (f"\nThe repository is in {project}." if args.keep else ""), file=sys.stderr)
        return code
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


EPILOGUE = """
What you saw: ralph ran the checks after every iteration. It refused the claim of iteration 2, put the failing test into
the next prompt, and ended the run when the tests passed and the agent claimed completion.
Now in your own project: ralph run -p 'make the tests pass'"""


# ralph plugin


PLUGIN_ABOUT = """Install hooks and skills in Claude Code and Codex, with their own commands.

install adds the plugin folder as a marketplace, installs the plugin ralph from it for all your projects, and verifies
that; an installed plugin is updated to this version. --guard also installs ralph-guard: the command guard judges every
tool call of your sessions by your settings (docs/guard.md). uninstall removes everything, uninstall --guard only the
guard. path prints the plugin folder, for example for claude --plugin-dir. Files are written only by claude plugin and
codex plugin.
Exit codes: 0 done; 2 neither program was found, or one of them failed."""
PLUGIN_EXAMPLES = (
    "ralph plugin install",
    "ralph plugin install --agent claude",
    "ralph plugin install --guard",
    "ralph plugin uninstall --agent all --json",
    'claude --plugin-dir "$(ralph plugin path)"',
)


def plugin_parser() -> Parser:
    parser = Parser("plugin", PLUGIN_ABOUT, PLUGIN_EXAMPLES)
    add = parser.add
    add("what", "install or remove the plugin, or print its folder", choices=("install", "uninstall", "path"))
    add("--agent", "agent program (default: those found on PATH)", choices=(*HOSTS, ALL_AGENTS))
    add("--guard", "also the command guard for your own sessions; with uninstall only that")
    return parser


def plugin_main(argv: list[str]) -> int:
    args = plugin_parser().parse(argv)
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


# ralph completion


COMPLETION_ABOUT = "Print a script that completes commands and flags in your shell."
COMPLETION_EXAMPLES = (
    "source <(ralph completion bash)",
    "ralph completion zsh > ~/.zfunc/_ralph",
    "ralph completion fish > ~/.config/fish/completions/ralph.fish",
)


def completion_parser() -> Parser:
    parser = Parser("completion", COMPLETION_ABOUT, COMPLETION_EXAMPLES)
    parser.add("shell", "your shell", choices=("bash", "zsh", "fish"))
    return parser


def completion_main(argv: list[str]) -> int:
    args = completion_parser().parse(argv)
    write = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[args.shell]
    script = write([describe_verb(name, about) for name, about in VERBS.items()])
    if args.json:
        print_json("completion", {"shell": args.shell, "script": script})
    else:
        print(script, end="")
    return 0


def describe_verb(name: str, about: str) -> CompletedVerb:
    """A verb with its subverbs, as its own parser describes it."""
    described = _describe_parser(name, about, verb_function(name, "parser")())
    if (inner := getattr(verb_module(name), "SUBVERBS", None)) is None:
        return described
    parsers = inner.build_parsers().items()
    subverbs = (_describe_parser(verb, inner.verbs[verb], parser, True) for verb, parser in parsers)
    return replace(described, inner=tuple(subverbs))


def _describe_parser(name: str, about: str, parser: Parser, every: bool = False) -> CompletedVerb:
    """Flags and words of a parser; with `every` also flags that the help leaves out, such as those of task stages."""
    flags, words = [], tuple[str, ...]()
    for action in parser._actions:
        hidden = action.help == SUPPRESS
        if action.option_strings and (every or not hidden):
            help = "" if hidden else action.help or ""
            flags.append(CompletedFlag(tuple(action.option_strings), help, action.nargs != 0))
        elif action.choices and not hidden:
            words += tuple(action.choices)
    return CompletedVerb(name, about, tuple(flags), words)
