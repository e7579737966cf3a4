"""`ralph hook`: what agents call at events of their own."""

from __future__ import annotations

import os

from ralphproof.agents.hook_commands import GUARD_EVENT, HOOK_EVENTS, HOOKED_VARIABLE
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.parser import Parser


# `ralph hook`: what agents call at events of their own; the event is on standard input.


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


def build_parser() -> Parser:
    from ralphproof.cli.parser import Parser

    parser = Parser("hook", ABOUT, EXAMPLES)
    parser.add_argument("event", choices=(*(verb for _, verb, _ in HOOK_EVENTS), GUARD_EVENT), help="what happened")
    return parser


def main(argv: list[str]) -> int:
    modules = {verb: module for _, verb, module in HOOK_EVENTS}
    # One of these runs after every tool call: the plain form costs no parser.
    verb = argv[0] if len(argv) == 1 and (argv[0] in modules or argv[0] == GUARD_EVENT) else _parse_event(argv)
    if verb == GUARD_EVENT:
        return _judge_tool_call()
    if os.environ.get(HOOKED_VARIABLE):
        return 0
    from importlib import import_module

    code: int = import_module(f"ralphproof.hooks.{modules[verb]}").main()
    return code


def _judge_tool_call() -> int:
    """Judge a tool call of the user's own session; inside a run too, which may have a guard of its own beside it."""
    from ralphproof.hooks.pre_tool_use import judge_tool_call

    def rules(event: dict[str, Any]) -> dict[str, Any]:
        from ralphproof.base.git_layout import find_project_root
        from ralphproof.hooks import pre_tool_use
        from ralphproof.settings.layers import user_settings_path

        return pre_tool_use.read_session_rules(event, user_settings_path(os.environ), find_project_root)

    return judge_tool_call(rules)


def _parse_event(argv: list[str]) -> str:
    """The verb of a command line with flags. A project that it names goes before the one that the agent names."""
    args = build_parser().parse(argv)
    if args.project_dir is not None:
        from ralphproof.base.git_layout import resolve_project_root

        os.environ[PROJECT] = resolve_project_root(args.project_dir)
    return str(args.event)
