"""`ralph hook`: what agents call at events of their own; the event is on standard input."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.cli.parser import Parser

# Event, verb, module.
EVENTS = (
    ("Stop", "stop", "stop"),
    ("PostToolUse", "post-tool-use", "post_tool_use"),
    ("PostToolUseFailure", "post-tool-use-failure", "post_tool_use"),
    ("SessionStart", "session-start", "session_start"),
)
OWN = "RALPH_HOOKED"  # set in every run, which passes its own hooks or none: an installed plugin is silent then
# A guard that was killed or could not start has said nothing, which is consent to Claude Code 2.1.325 and Codex 0.166.
HELD = "{start} || {{ test $? -eq 2 || {{ echo {answer}; echo {why} >&2; }}; exit 2; }}"
SILENT = "ralph guard: this call was not made, because the guard gave no answer in time; try it again, or do without it"
PROJECT = "CLAUDE_PROJECT_DIR"  # where hooks look first; the agent's program sets it

ABOUT = """what agents call at events of their own; the event is on standard input.

A run by stories has its agents call these by itself, and ralph plugin install puts them into Claude Code and Codex.
stop refuses an end that breaks the rules of the run in this folder, and only to that run's own sessions;
post-tool-use and post-tool-use-failure say when the context is getting full, once for each threshold; session-start
forgets what an earlier session of that name was told. The answer is JSON on standard output, in the form that Claude
Code and Codex read; nothing is said where there is nothing to say, and nothing at all where RALPH_HOOKED is set.
Exit codes: 0 whatever the answer is; 2 the command line is wrong, or the rules of a turn could not be checked."""
EXAMPLES = (
    "ralph hook stop < event.json",
    'echo \'{"session_id": "s", "transcript_path": "t.jsonl"}\' | ralph hook post-tool-use',
)


def commands() -> tuple[tuple[str, str], ...]:
    """For each event what a run of ours has its agents call, whatever is on their PATH."""
    return tuple((event, _start(module)) for event, _, module in EVENTS)


def guard_commands(rules: str) -> tuple[tuple[str, str], ...]:
    """What agents that no sandbox holds call before every tool call; `rules` is the file of the guard's rules.

    A user's login shell may be any: this one is known.
    """
    import shlex

    from ralphproof.hooks.pre_tool_use import answer

    quoted = shlex.quote
    held = HELD.format(start=_start("pre_tool_use", rules), answer=quoted(answer(SILENT)), why=quoted(SILENT))
    return (("PreToolUse", shlex.join(("/bin/sh", "-c", held))),)


def _start(module: str, *words: str) -> str:
    """The line of a shell that calls a hook."""
    import shlex

    from ralphproof import interpreter

    return shlex.join(interpreter.module(f"ralphproof.hooks.{module}", *words))


def parser() -> Parser:
    from ralphproof.cli.parser import Parser

    made = Parser("hook", ABOUT, EXAMPLES)
    made.add_argument("event", choices=tuple(verb for _, verb, _ in EVENTS), help="what happened")
    return made


def main(argv: list[str]) -> int:
    modules = {verb: module for _, verb, module in EVENTS}
    # One of these runs after every tool call: the plain form costs no parser.
    verb = argv[0] if len(argv) == 1 and argv[0] in modules else _parsed(argv)
    if os.environ.get(OWN):
        return 0
    from importlib import import_module

    code: int = import_module(f"ralphproof.hooks.{modules[verb]}").main()
    return code


def _parsed(argv: list[str]) -> str:
    """The verb of a command line with flags. A project that it names goes before the one that the agent names."""
    args = parser().parse(argv)
    if args.project_dir is not None:
        from ralphproof.views.root import root_of

        os.environ[PROJECT] = root_of(args.project_dir)
    return str(args.event)
