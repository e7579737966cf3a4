"""Command lines by which agents call the hooks and the command guard."""

from __future__ import annotations

# Event, verb, module.
HOOK_EVENTS = (
    ("Stop", "stop", "stop"),
    ("PostToolUse", "post-tool-use", "post_tool_use"),
    ("PostToolUseFailure", "post-tool-use-failure", "post_tool_use"),
    ("SessionStart", "session-start", "session_start"),
)
GUARD_VERB = "pre-tool-use"
# Set in every run. The installed plugin does nothing there, because a run passes its own hooks.
HOOKED_VARIABLE = "RALPH_HOOKED"
INSTALLED_GUARD = f"ralphproof hook {GUARD_VERB}"  # as the plugin calls it
# Claude Code 2.1.325 and Codex 0.166 make a tool call whose guard was killed or could not start. So the shell denies
# the call.
GUARD_SHELL_LINE = "{start} || {{ test $? -eq 2 || {{ echo {answer}; echo {why} >&2; }}; exit 2; }}"
GUARD_SILENT = (
    "ralph guard: this call was not made, because the guard gave no answer in time; try it again, or do without it"
)
GUARD_ABSENT = (
    "ralph guard: this call was not made, because the guard gave no answer: is ralphproof on PATH? "
    "ralph plugin uninstall --guard takes the guard away"
)


def hook_commands() -> tuple[tuple[str, str], ...]:
    """For each event the command that agents of a run call, whatever is on their PATH."""
    return tuple((event, _hook_line(module)) for event, _, module in HOOK_EVENTS)


def guard_hook_commands(rules: str) -> tuple[tuple[str, str], ...]:
    """The command that agents without a sandbox call before each tool call; `rules` is the file of the guard's rules.

    It runs in /bin/sh: a user's login shell may be any.
    """
    return (("PreToolUse", _guard_line(_hook_line("pre_tool_use", rules), GUARD_SILENT)),)


def installed_guard_command() -> str:
    """The command that the plugin has agents call before each tool call of the user's own sessions."""
    return _guard_line(INSTALLED_GUARD, GUARD_ABSENT)


def _guard_line(start: str, silent: str) -> str:
    """The shell line that calls a guard, and denies the tool call where the guard gives no answer."""
    import shlex

    from ralphproof.guard.verdict import format_denial

    denial, why = shlex.quote(format_denial(silent)), shlex.quote(silent)
    return shlex.join(("/bin/sh", "-c", GUARD_SHELL_LINE.format(start=start, answer=denial, why=why)))


def _hook_line(module: str, *words: str) -> str:
    """The shell line that calls a hook."""
    import shlex

    from ralphproof.base import interpreter

    return shlex.join(interpreter.module_command(f"ralphproof.hooks.{module}", *words))
