"""`ralph hook`: what agents call at events of their own; the event is on standard input."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.parser import Parser

# Event, verb, module.
EVENTS = (
    ("Stop", "stop", "stop"),
    ("PostToolUse", "post-tool-use", "post_tool_use"),
    ("PostToolUseFailure", "post-tool-use-failure", "post_tool_use"),
    ("SessionStart", "session-start", "session_start"),
)
GUARD = "pre-tool-use"
OWN = "RALPH_HOOKED"  # set in every run, which passes its own hooks or none: an installed plugin is silent then
INSTALLED = f"ralphproof hook {GUARD}"  # as the plugin calls it
# A guard that was killed or could not start has said nothing, which is consent to Claude Code 2.1.325 and Codex 0.166.
HELD = "{start} || {{ test $? -eq 2 || {{ echo {answer}; echo {why} >&2; }}; exit 2; }}"
SILENT = "ralph guard: this call was not made, because the guard gave no answer in time; try it again, or do without it"
ABSENT = (
    "ralph guard: this call was not made, because the guard gave no answer: is ralphproof on PATH? "
    "ralph plugin uninstall --guard takes the guard away"
)
PROJECT = "CLAUDE_PROJECT_DIR"  # where hooks look first; the agent's program sets it

ABOUT = """what agents call at events of their own; the event is on standard input.

A run by stories has its agents call these by itself, and ralph plugin install puts them into Claude Code and Codex.
pre-tool-use is the command guard for sessions of your own (ralph plugin install --guard): it denies what it objects
to, by your own settings (guard.allow, guard.deny) and what the project's deny beside them, run or no run.
stop refuses an end that breaks the rules of the run in this folder, and only to that run's own sessions;
post-tool-use and post-tool-use-failure say when the context is getting full, once for each threshold; session-start
forgets what an earlier session of that name was told. The answer is JSON on standard output, in the form that Claude
Code and Codex read; nothing is said where there is nothing to say, and nothing at all where RALPH_HOOKED is set, the
guard aside. Exit codes: 0 whatever the answer is; 2 the command line is wrong, the rules of a turn could not be
checked, or a tool call could not be judged, which holds it back."""
EXAMPLES = (
    "ralph hook stop < event.json",
    "ralph hook pre-tool-use < event.json",
    'echo \'{"session_id": "s", "transcript_path": "t.jsonl"}\' | ralph hook post-tool-use',
)


def commands() -> tuple[tuple[str, str], ...]:
    """For each event what a run of ours has its agents call, whatever is on their PATH."""
    return tuple((event, _start(module)) for event, _, module in EVENTS)


def guard_commands(rules: str) -> tuple[tuple[str, str], ...]:
    """What agents that no sandbox holds call before every tool call; `rules` is the file of the guard's rules.

    A user's login shell may be any: this one is known.
    """
    return (("PreToolUse", _held(_start("pre_tool_use", rules), SILENT)),)


def installed_guard_command() -> str:
    """What the plugin has agents call before every tool call of the user's own sessions."""
    return _held(INSTALLED, ABSENT)


def _held(start: str, silent: str) -> str:
    """The line of a shell that calls a guard, and holds the call back where it gives no answer."""
    import shlex

    from ralphproof.hooks.pre_tool_use import answer

    quoted = shlex.quote
    return shlex.join(("/bin/sh", "-c", HELD.format(start=start, answer=quoted(answer(silent)), why=quoted(silent))))


def _start(module: str, *words: str) -> str:
    """The line of a shell that calls a hook."""
    import shlex

    from ralphproof import interpreter

    return shlex.join(interpreter.module(f"ralphproof.hooks.{module}", *words))


def parser() -> Parser:
    from ralphproof.cli.parser import Parser

    made = Parser("hook", ABOUT, EXAMPLES)
    made.add_argument("event", choices=(*(verb for _, verb, _ in EVENTS), GUARD), help="what happened")
    return made


def main(argv: list[str]) -> int:
    modules = {verb: module for _, verb, module in EVENTS}
    # One of these runs after every tool call: the plain form costs no parser.
    verb = argv[0] if len(argv) == 1 and (argv[0] in modules or argv[0] == GUARD) else _parsed(argv)
    if verb == GUARD:
        return _guarded()
    if os.environ.get(OWN):
        return 0
    from importlib import import_module

    code: int = import_module(f"ralphproof.hooks.{modules[verb]}").main()
    return code


def _guarded() -> int:
    """Judge a tool call of the user's own session; inside a run too, which may have a guard of its own beside it."""
    from ralphproof.hooks.pre_tool_use import judged

    def rules(event: dict[str, Any]) -> dict[str, Any]:
        from ralphproof.config.place import user_file
        from ralphproof.hooks import own_session
        from ralphproof.workspaces.identity import find_root

        return own_session.rules(event, user_file(os.environ), find_root)

    return judged(rules)


def _parsed(argv: list[str]) -> str:
    """The verb of a command line with flags. A project that it names goes before the one that the agent names."""
    args = parser().parse(argv)
    if args.project_dir is not None:
        from ralphproof.views.root import root_of

        os.environ[PROJECT] = root_of(args.project_dir)
    return str(args.event)
