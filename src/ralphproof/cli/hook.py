"""`ralph hook`: the answer to an agent's hook event."""

from __future__ import annotations

import os

from ralphproof.agents.hook_commands import GUARD_VERB, HOOK_EVENTS, HOOKED_VARIABLE
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.parser import Parser


PROJECT = "CLAUDE_PROJECT_DIR"  # set by the agent; hooks look there first

ABOUT = """Answer an agent's hook event, which is read from standard input.

A run with stories makes its agents call these, and ralph plugin install adds them to Claude Code and Codex.
pre-tool-use is the command guard for your own sessions (ralph plugin install --guard): it denies tool calls by your
settings (guard.allow, guard.deny) and the project's additional denials, with or without a run. stop refuses an end
that breaks the rules of the run in this folder, only for sessions of that run; post-tool-use and post-tool-use-failure
report when the context is filling up, once per threshold; session-start forgets the thresholds of an earlier session
with that name. The answer is JSON on standard output in the form that Claude Code and Codex read; without anything to
report the output is empty, and always if RALPH_HOOKED is set, except for the guard.
Exit codes: 0 for every answer; 2 the command line is wrong, the rules of a turn could not be checked, or a tool call
could not be judged, which blocks it."""
EXAMPLES = (
    "ralph hook stop < event.json",
    "ralph hook pre-tool-use < event.json",
    'echo \'{"session_id": "s", "transcript_path": "t.jsonl"}\' | ralph hook post-tool-use',
)


def hook_parser() -> Parser:
    from ralphproof.cli.parser import Parser

    parser = Parser("hook", ABOUT, EXAMPLES)
    parser.add_argument("event", choices=(*(verb for _, verb, _ in HOOK_EVENTS), GUARD_VERB), help="hook event")
    return parser


def hook_main(argv: list[str]) -> int:
    modules = {verb: module for _, verb, module in HOOK_EVENTS}
    # One of these runs after every tool call: the plain form must not load argparse.
    verb = argv[0] if len(argv) == 1 and (argv[0] in modules or argv[0] == GUARD_VERB) else _parse_event(argv)
    if verb == GUARD_VERB:
        return _judge_tool_call()
    if os.environ.get(HOOKED_VARIABLE):
        return 0
    from importlib import import_module

    code: int = import_module(f"ralphproof.hooks.{modules[verb]}").main()
    return code


def _judge_tool_call() -> int:
    """Judge a tool call of a user's session; also inside a run, which may have its own guard as well."""
    from ralphproof.hooks.pre_tool_use import judge_tool_call

    def rules(event: dict[str, Any]) -> dict[str, Any]:
        from ralphproof.base.git_layout import find_project_root
        from ralphproof.hooks import pre_tool_use
        from ralphproof.settings.layers import user_settings_path

        return pre_tool_use.read_session_rules(event, user_settings_path(os.environ), find_project_root)

    return judge_tool_call(rules)


def _parse_event(argv: list[str]) -> str:
    """The event of a command line with flags; `--project-dir` overrides the agent's variable."""
    args = hook_parser().parse(argv)
    if args.project_dir is not None:
        from ralphproof.base.git_layout import resolve_project_root

        os.environ[PROJECT] = resolve_project_root(args.project_dir)
    return str(args.event)
